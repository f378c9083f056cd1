"""The word on ZooKeeper mode, in which brokers of Kafka 3 had no metadata log."""

from __future__ import annotations

from typing import Final

MIGRATE_FIRST: Final = "Migrate the cluster to KRaft first, with Apache Kafka 3.9 (KIP-866)."
"""The remedy for a node in ZooKeeper mode, which neither Kafka 4 nor this software knows."""
