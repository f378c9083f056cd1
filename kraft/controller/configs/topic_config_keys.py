"""The configuration keys of a topic, each with type, default and limits (Kafka: `LogConfig`).

The table equals Kafka 4.3.1's own (`LogConfig.configDefCopy`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from kraft.config.topic_synonyms import CLEANUP_POLICIES, COMPRESSION_TYPES, TIMESTAMP_TYPES
from kraft.controller.configs.whole_numbers import whole_number
from kraft.controller.decision.result import ApiError
from transport.protocol.errors import Error

Type = Literal["INT", "LONG", "DOUBLE", "BOOLEAN", "STRING", "LIST"]
_LIMITS: Final = {"INT": 2**31, "LONG": 2**63}
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+")
"""The repetitions are possessive: with backtracking, a value of 32,767 digits and a letter would take seconds."""
_THROTTLED: Final = re.compile(r"\d+:\d+")


class TopicKey(Struct, frozen=True):
    """One key. `lowest` and `highest` bound a number; `words` are the permitted values of a word or of list
    elements."""

    type: Type
    default: str
    lowest: float | None = None
    highest: float | None = None
    words: tuple[str, ...] = ()
    is_internal: bool = False
    """Whether only a topic that sets the key has a value, and answers name the key only then."""


_LONG_MAX: Final = str(2**63 - 1)

TOPIC_KEYS: Final[dict[str, TopicKey]] = {
    "cleanup.policy": TopicKey("LIST", "delete", words=CLEANUP_POLICIES),
    "compression.gzip.level": TopicKey("INT", "-1", -1, 9),
    "compression.lz4.level": TopicKey("INT", "9", 1, 17),
    "compression.type": TopicKey("STRING", "producer", words=COMPRESSION_TYPES),
    "compression.zstd.level": TopicKey("INT", "3", -131072, 22),
    "delete.retention.ms": TopicKey("LONG", "86400000", 0),
    "file.delete.delay.ms": TopicKey("LONG", "60000", 0),
    "flush.messages": TopicKey("LONG", _LONG_MAX, 1),
    "flush.ms": TopicKey("LONG", _LONG_MAX, 0),
    "follower.replication.throttled.replicas": TopicKey("LIST", ""),
    "index.interval.bytes": TopicKey("INT", "4096", 0),
    "internal.segment.bytes": TopicKey("INT", "", is_internal=True),
    "leader.replication.throttled.replicas": TopicKey("LIST", ""),
    "local.retention.bytes": TopicKey("LONG", "-2", -2),
    "local.retention.ms": TopicKey("LONG", "-2", -2),
    "max.compaction.lag.ms": TopicKey("LONG", _LONG_MAX, 1),
    "max.message.bytes": TopicKey("INT", "1048588", 0),
    "message.timestamp.after.max.ms": TopicKey("LONG", "3600000", 0),
    "message.timestamp.before.max.ms": TopicKey("LONG", _LONG_MAX, 0),
    "message.timestamp.type": TopicKey("STRING", "CreateTime", words=TIMESTAMP_TYPES),
    "min.cleanable.dirty.ratio": TopicKey("DOUBLE", "0.5", 0, 1),
    "min.compaction.lag.ms": TopicKey("LONG", "0", 0),
    "min.insync.replicas": TopicKey("INT", "1", 1),
    "preallocate": TopicKey("BOOLEAN", "false"),
    "remote.log.copy.disable": TopicKey("BOOLEAN", "false"),
    "remote.log.delete.on.disable": TopicKey("BOOLEAN", "false"),
    "remote.storage.enable": TopicKey("BOOLEAN", "false"),
    "retention.bytes": TopicKey("LONG", "-1"),
    "retention.ms": TopicKey("LONG", "604800000", -1),
    "segment.bytes": TopicKey("INT", "1073741824", 1048576),
    "segment.index.bytes": TopicKey("INT", "10485760", 4),
    "segment.jitter.ms": TopicKey("LONG", "0", 0),
    "segment.ms": TopicKey("LONG", "604800000", 1),
    "unclean.leader.election.enable": TopicKey("BOOLEAN", "false"),
}
"""Each configuration key of a topic, by name."""


def validate(values: Mapping[str, str]) -> None:
    """Refuse an invalid resulting configuration of a topic; raises `ApiError` with Kafka's messages."""
    for name in values:
        if name not in TOPIC_KEYS:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, value in sorted(values.items()):
        check(name, TOPIC_KEYS[name], value)
    if values.get("remote.storage.enable", "").strip().lower() == "true":
        text = "Tiered Storage functionality is disabled in the broker. "
        raise ApiError(Error.INVALID_CONFIG, text + "Topic cannot be configured with remote log storage.")
    shortest, longest = (
        _whole(name, TOPIC_KEYS[name], values.get(name, TOPIC_KEYS[name].default).strip())
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        text = f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        raise ApiError(Error.INVALID_CONFIG, text)


def check(name: str, key: TopicKey, value: str) -> None:
    """Refuse a value that the key does not permit; raises `ApiError`."""
    match key.type:
        case "INT" | "LONG":
            _check_number(name, key, value, _whole(name, key, value.strip()))
        case "DOUBLE":
            if not _DECIMAL.fullmatch(value.strip()):
                raise _invalid(name, value, "Not a number of type DOUBLE")
            number = float(value)
            _check_number(name, key, str(number), number)
        case "BOOLEAN":
            if value.strip().lower() not in {"true", "false"}:
                raise _invalid(name, value, "Expected value to be either true or false")
        case "STRING":
            if value.strip() not in key.words:
                raise _invalid(name, value.strip(), f"String must be one of: {', '.join(key.words)}")
        case "LIST":
            _check_list(name, key, value)


def _whole(name: str, key: TopicKey, value: str) -> int:
    limit = _LIMITS[key.type]
    number = whole_number(value)
    if number is None or not -limit <= number < limit:
        raise _invalid(name, value, f"Not a number of type {key.type}")
    return number


def _check_number(name: str, key: TopicKey, value: str, number: float) -> None:
    if key.lowest is not None and number < key.lowest:
        raise _invalid(name, value.strip(), f"Value must be at least {key.lowest}")
    if key.highest is not None and number > key.highest:
        raise _invalid(name, value.strip(), f"Value must be no more than {key.highest}")
    if name == "compression.gzip.level" and number == 0:
        raise _invalid(name, value.strip(), "Value must be between 1 and 9 or equal to -1")


def elements(value: str) -> list[str]:
    """The elements of a list, stripped of blanks."""
    return [element.strip() for element in value.split(",")] if value.strip() else []


def _check_list(name: str, key: TopicKey, value: str) -> None:
    found = elements(value)
    if not all(found):
        raise ApiError(Error.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
    if key.words:
        for element in found:
            if element not in key.words:
                raise _invalid(name, element, f"String must be one of: {', '.join(key.words)}")
    elif found and found != ["*"] and not all(_THROTTLED.fullmatch(element) for element in found):
        text = f"{name} must be the literal '*' or a list of replicas in the following format: "
        raise _invalid(name, f"[{', '.join(found)}]", text + "[partitionId]:[brokerId],[partitionId]:[brokerId],...")


def _invalid(name: str, value: str, why: str) -> ApiError:
    return ApiError(Error.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {why}")
