"""The topics that brokers make for their coordinators, in a cluster of few brokers."""

from __future__ import annotations

from typing import Final

REPLICATION_FACTORS: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
"""The setting of the replicas of each internal topic; Kafka's default is 3, and fewer brokers never make the topic."""
_MOST_REPLICAS: Final = 3


def replicas_of_internal_topics(brokers: int) -> dict[str, str]:
    """The settings with which so many brokers can make every internal topic, and lose one of them if they are three.

    Args:
        brokers: The number of brokers.
    """
    replicas = str(min(_MOST_REPLICAS, brokers))
    return {
        **dict.fromkeys(REPLICATION_FACTORS.values(), replicas),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }
