"""Settings of topics and of records that more than one part reads (Kafka: `ServerLogConfigs`, `ReplicationConfigs`)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from kraft.config.key import Key
from kraft.config.settings_reader import SettingsReader

REPLICATION_FACTORS: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}
"""The setting of the replicas of each internal topic; Kafka's default is 3, and fewer brokers never make the topic."""
_MOST_REPLICAS: Final = 3
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTOR: Final = "replica.selector.class"


def prefers_rack_of_client(reader: SettingsReader) -> bool:
    """Whether consumers read from a replica in their own rack (KIP-392); raises `ConfigError`."""
    selector = reader.value(SELECTOR) if SELECTOR in reader.settings else ""
    if selector not in ("", RACK_AWARE):
        raise reader.bad(SELECTOR, f"{selector} is not known", hint=f"Allowed: {RACK_AWARE}, or none.")
    return selector == RACK_AWARE


def replicas_of_internal_topics(brokers: int) -> dict[str, str]:
    """The settings with which so many brokers can make every internal topic, and lose one of them if they are three.

    Args:
        brokers: The number of brokers.
    """
    replicas = str(min(_MOST_REPLICAS, brokers))
    return {
        **dict.fromkeys(REPLICATION_FACTORS.values(), replicas),
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
    }


class TopicDefaults(Struct, frozen=True):
    """The settings of a node's own file; the dynamic configuration of its `node_id` overrides them."""

    min_isr: Annotated[int, Key("min.insync.replicas")] = 1
    unclean_election: Annotated[bool, Key("unclean.leader.election.enable")] = False
    num_partitions: Annotated[int, Key("num.partitions")] = 1
    replication_factor: Annotated[int, Key("default.replication.factor")] = 1
    node_id: int = -1
    deletes_topics: Annotated[bool, Key("delete.topic.enable")] = True
