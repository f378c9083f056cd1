"""Consensus without I/O: leader election and commitment (Kafka: `KafkaRaftClient` and `QuorumState`, KIP-595).

`core.RaftCore` is the entry point: it takes an event and returns effects.
"""
