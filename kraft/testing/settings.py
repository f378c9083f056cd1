"""Settings that every cluster of a test has."""

from __future__ import annotations

from typing import Final

from kraft.config import ConfigError

_MOST_REPLICAS: Final = 3


def coordinator_topics(brokers: int) -> dict[str, str]:
    """The topics of the coordinators, as large as so many brokers allow."""
    replicas = str(min(_MOST_REPLICAS, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": str(brokers),
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "transaction.state.log.num.partitions": str(brokers),
    }


def wrong_setting(failed: Exception) -> str | None:
    """What is wrong with a setting, and what to do, for whoever wrote it; None for a failure of another kind."""
    if not isinstance(failed, ConfigError):
        return None
    return f"{failed.what}. {failed.hint}" if failed.hint else f"{failed.what}."
