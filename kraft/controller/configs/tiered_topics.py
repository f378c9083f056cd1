"""Judges what a topic says of tiered storage (Kafka: `LogConfig.validateTopicLogConfigValues`; KIP-405, KIP-950)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.config.definitions import TOPIC, checked
from kraft.config.properties import trim
from metadata_log.records.topic_synonyms import default_of_topics
from transport.protocol.errors import Error

REMOTE_STORAGE: Final = "remote.storage.enable"
SYSTEM: Final = "remote.log.storage.system.enable"
_COPY_DISABLED: Final = "remote.log.copy.disable"
_DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
_AS_MUCH: Final = -2
"""A local retention that is the whole retention."""
_UNLIMITED: Final = -1
_DISABLED: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_POLICY: Final = (
    "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
)
_KEEPS_REMOTE: Final = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and turn"
    " to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote"
    " storage and delete all remote data, please set"
    " `remote.storage.enable=false,remote.log.delete.on.disable=true`."
)


class _Kind(Struct, frozen=True):
    """The settings of one dimension, and how Kafka compares them."""

    whole: str
    local: str
    lag: str


_BYTES: Final = _Kind("retention.bytes", "local.retention.bytes", "remote.copy.lag.bytes")
_MS: Final = _Kind("retention.ms", "local.retention.ms", "remote.copy.lag.ms")


class _Effective:
    """The settings of a topic after those of the node and the defaults."""

    def __init__(self, values: Mapping[str, str], node: Mapping[str, str]) -> None:
        self._values = values
        self._node = node

    def text(self, key: str) -> str:
        found = self._values.get(key)
        if found is None:
            found = default_of_topics(key, self._node)
        return TOPIC[key].default or "" if found is None else found

    def number(self, key: str) -> int:
        number = checked(TOPIC[key], self.text(key))
        assert isinstance(number, int), key
        return number

    def flag(self, key: str) -> bool:
        return checked(TOPIC[key], self.text(key)) is True


def validate(values: Mapping[str, str], before: Mapping[str, str], of_node: Callable[[], Mapping[str, str]]) -> None:
    """Refuse a resulting configuration, each value of which is valid; raises `ApiError` with Kafka's messages.

    Args:
        values: The configuration of the topic after the change.
        before: The one before the change.
        of_node: Gives what the configuration file of this controller sets; called for topics with tiered storage only.
    """
    if not _is_true(values.get(REMOTE_STORAGE)):
        # Kafka looks at the value before the change without a trim (`Boolean.parseBoolean`).
        if before.get(REMOTE_STORAGE, "").lower() == "true" and not _is_true(values.get(_DELETE_ON_DISABLE)):
            raise ApiError(Error.INVALID_CONFIG, _KEEPS_REMOTE)
        return
    node = of_node()
    if not _is_true(node.get(SYSTEM)):
        raise ApiError(Error.INVALID_CONFIG, _DISABLED)
    after = _Effective(values, node)
    if checked(TOPIC["cleanup.policy"], after.text("cleanup.policy")) not in ((), ("delete",)):
        raise ApiError(Error.INVALID_CONFIG, _POLICY)
    for kind in (_BYTES, _MS):
        _check_local(after, kind)
    for kind in (_BYTES, _MS):
        _check_lag(after, kind)
    if after.flag(_COPY_DISABLED):
        for kind in (_BYTES, _MS):
            _check_copied_no_more(after, kind)


def _is_true(text: str | None) -> bool:
    return text is not None and trim(text).lower() == "true"


def _check_local(after: _Effective, kind: _Kind) -> None:
    whole, local = after.number(kind.whole), after.number(kind.local)
    if whole < 0 or local == _AS_MUCH:
        return
    if local == _UNLIMITED:
        raise _bad(kind.local, local, f"Value must not be -1 as {kind.whole} value is set as {whole}.")
    if local > whole:
        raise _bad(kind.local, local, f"Value must not be more than {kind.whole} property value: {whole}")


def _check_lag(after: _Effective, kind: _Kind) -> None:
    local, lag = after.number(kind.local), after.number(kind.lag)
    most = after.number(kind.whole) if local == _AS_MUCH else local
    if 0 <= most < lag:
        raise _bad(kind.lag, lag, f"Value must not exceed {kind.local} (effective value: {most})")


def _check_copied_no_more(after: _Effective, kind: _Kind) -> None:
    if after.number(kind.local) not in (_AS_MUCH, after.number(kind.whole)):
        text = f"When `{_COPY_DISABLED}` is set to true, the `{kind.local}` and `{kind.whole}` must be set to the "
        text += "identical value because there will be no more logs copied to the remote storage."
        raise ApiError(Error.INVALID_CONFIG, text)


def _bad(key: str, value: int, why: str) -> ApiError:
    return ApiError(Error.INVALID_CONFIG, f"Invalid value {value} for configuration {key}: {why}")
