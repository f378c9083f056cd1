"""Partitions: their records on disk, and their replicas (Kafka: `LogManager`, `ReplicaManager`)."""
