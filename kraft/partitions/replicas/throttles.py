"""Throttles of replication: how much a broker sends to followers that catch up, or fetches to catch up (Kafka:
`ReplicationQuotaManager`; KIP-73).

They hold back the partitions that a topic names, and of these only replicas that are not in sync: who is in sync would
fall behind. An operator sets them for a reassignment, and removes them after it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from kraft.config.definitions import whole_number
from kraft.config.properties import trim
from kraft.rates import Rate
from metadata_log.image import ConfigsImage, ResourceType

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
UNLIMITED: Final = 2**63 - 1
"""The bound of a throttle that nobody has set, in bytes a second."""
_ALL: Final = "*"


class Throttle:
    """The bound of one direction of replication, and how much of it is used.

    Args:
        samples: The number of windows (`replication.quota.window.num`).
        window_ms: The length of a window in ms (`replication.quota.window.size.seconds`).
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self.bound = UNLIMITED
        """The most bytes a second."""
        self.is_exceeded = False
        """Whether the bound was exceeded when somebody last looked."""
        self._rate = Rate(samples, window_ms)

    def note(self, size: int, now_ms: int) -> None:
        """Count bytes of throttled partitions, those of replicas in sync as well."""
        self._rate.note(size, now_ms)

    def look(self, now_ms: int) -> bool:
        """Whether the bound is exceeded now."""
        self.is_exceeded = self.bound != UNLIMITED and self.bytes_per_second(now_ms) > self.bound
        return self.is_exceeded

    def wait_ms(self, most_ms: int, now_ms: int) -> int:
        """After how long the bound is not exceeded any more, if nothing is counted meanwhile; at least 1 ms."""
        return max(1, min(most_ms, self._rate.ms_until(self.bound, now_ms) if self.bound else most_ms))

    def bytes_per_second(self, now_ms: int) -> float:
        """The rate of what was counted."""
        return self._rate.since_first(now_ms)


def rate_of(key: str, configs: ConfigsImage, broker_id: int, default: int = UNLIMITED) -> int:
    """A throttle of a broker in bytes a second: its own, else that of all brokers, else the default.

    Args:
        key: The setting.
        configs: The configurations in the metadata.
        broker_id: The broker.
        default: The rate without a setting.
    """
    for name in (str(broker_id), ""):
        text = configs.of((ResourceType.BROKER, name)).get(key)
        number = None if text is None else whole_number(trim(text))
        if number is not None and number >= 0:
            return number
    return default


def throttled_partitions(key: str, overrides: Mapping[str, str], broker_id: int) -> Container[int]:
    """The partitions of a topic whose replica on this broker is throttled.

    Args:
        key: The setting of the topic, such as `leader.replication.throttled.replicas`.
        overrides: The settings of the topic.
        broker_id: This broker.
    """
    text = trim(overrides.get(key, ""))
    if text == _ALL:
        return _Everything()
    pairs = (pair.strip().partition(":") for pair in text.split(",") if pair.strip())
    return frozenset(
        int(number)
        for number, _, broker in pairs
        if number.isdecimal() and broker.isdecimal() and int(broker) == broker_id
    )


class _Everything:
    """All partitions."""

    def __contains__(self, _: object) -> bool:
        return True
