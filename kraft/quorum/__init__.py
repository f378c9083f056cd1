"""Consensus without I/O: leader election and commitment (Kafka: `KafkaRaftClient` and `QuorumState`, KIP-595).

`core.RaftCore` is the door: an event goes in, effects come out.
"""
