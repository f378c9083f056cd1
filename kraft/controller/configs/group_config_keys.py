"""The configuration keys of a group, each with type, default and limits (Kafka: `GroupConfig`; KIP-848).

The table equals Kafka 4.3.1's own (`GroupConfig.CONFIG_DEF`). The second table holds the defaults of the limits that a
broker configures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraft.controller.configs.topic_config_keys import TopicKey, check
from kraft.controller.configs.whole_numbers import whole_number
from kraft.controller.decision.result import ApiError
from transport.protocol.errors import Error

OFFSET_RESET: Final = "share.auto.offset.reset"
_DURATION: Final = re.compile(r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?")

GROUP_KEYS: Final[dict[str, TopicKey]] = {
    "consumer.assignment.interval.ms": TopicKey("INT", "1000", 0),
    "consumer.heartbeat.interval.ms": TopicKey("INT", "5000", 1),
    "consumer.session.timeout.ms": TopicKey("INT", "45000", 1),
    "share.assignment.interval.ms": TopicKey("INT", "1000", 0),
    "share.auto.offset.reset": TopicKey("STRING", "latest"),
    "share.delivery.count.limit": TopicKey("INT", "5", 2),
    "share.heartbeat.interval.ms": TopicKey("INT", "5000", 1),
    "share.isolation.level": TopicKey("STRING", "read_uncommitted", words=("read_committed", "read_uncommitted")),
    "share.partition.max.record.locks": TopicKey("INT", "2000", 100),
    "share.record.lock.duration.ms": TopicKey("INT", "30000", 1000),
    "share.renew.acknowledge.enable": TopicKey("BOOLEAN", "true"),
    "share.session.timeout.ms": TopicKey("INT", "45000", 1),
    "streams.assignment.interval.ms": TopicKey("INT", "1000", 0),
    "streams.heartbeat.interval.ms": TopicKey("INT", "5000", 1),
    "streams.initial.rebalance.delay.ms": TopicKey("INT", "3000", 0),
    "streams.num.standby.replicas": TopicKey("INT", "0", 0),
    "streams.session.timeout.ms": TopicKey("INT", "45000", 1),
}
"""Each configuration key of a group, by name."""


_LIMITS: Final[dict[str, tuple[int | None, int]]] = {
    "consumer.assignment.interval.ms": (0, 15_000),
    "consumer.heartbeat.interval.ms": (5_000, 15_000),
    "consumer.session.timeout.ms": (45_000, 60_000),
    "share.assignment.interval.ms": (0, 15_000),
    "share.delivery.count.limit": (2, 10),
    "share.heartbeat.interval.ms": (5_000, 15_000),
    "share.partition.max.record.locks": (100, 10_000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "share.session.timeout.ms": (45_000, 60_000),
    "streams.assignment.interval.ms": (0, 15_000),
    "streams.heartbeat.interval.ms": (5_000, 15_000),
    "streams.num.standby.replicas": (None, 2),
    "streams.session.timeout.ms": (45_000, 60_000),
}


def validate(values: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a group; raises `ApiError` with Kafka's messages."""
    for name in values:
        if name not in GROUP_KEYS:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown group config name: {name}")
    for name, value in sorted(values.items()):
        if name == OFFSET_RESET:
            _check_reset(value)
        else:
            check(name, GROUP_KEYS[name], value)
    for name, (lowest, highest) in _LIMITS.items():
        if name in values:
            kind, _, what = name.partition(".")
            what = what.replace("num.standby", "standby")
            number = _number(values, name)
            if lowest is not None and number < lowest:
                text = f"{name} must be greater than or equal to group.{kind}.min.{what}"
                raise ApiError(Error.INVALID_CONFIG, text)
            if number > highest:
                raise ApiError(Error.INVALID_CONFIG, f"{name} must be less than or equal to group.{kind}.max.{what}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (_number(values, name) for name in (session, heartbeat))
        if session_ms <= heartbeat_ms:
            raise ApiError(Error.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def _number(values: Mapping[str, str], name: str) -> int:
    """The value of a key, or its default; the value has been validated."""
    number = whole_number(values.get(name, GROUP_KEYS[name].default).strip())
    assert number is not None, name
    return number


def _check_reset(value: str) -> None:
    """Validate the start position of a share group: an end of the log, or a duration (KIP-932)."""
    if value in {"earliest", "latest"} or _DURATION.fullmatch(value):
        return
    raise ApiError(
        Error.INVALID_CONFIG,
        f"Invalid value {value} for configuration {OFFSET_RESET}: Invalid value `{value}` for configuration "
        f"{OFFSET_RESET}. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    )
