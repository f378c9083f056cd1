"""Consensus without waiting: who leads, what is committed (Kafka: `KafkaRaftClient` and `QuorumState`, KIP-595).

`core.RaftCore` is the door: an event goes in, effects come out.
"""
