"""A node's configuration: Kafka's own `server.properties`, with Kafka's keys and defaults (Kafka: `KafkaConfig`).

Keys that Kafka knows and this software does not need are accepted; keys that nobody knows are a warning that names the
nearest known one; a bad value is an error that names file, line, key, value and what is allowed.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final, Generic, NamedTuple, TypeVar

import javaproperties
from msgspec import Struct

Value = TypeVar("Value")

KNOWN_PREFIXES: Final = (
    "listener.name.",
    "confluent.",
    "metric.reporters.",
    "group.config.",
    "log.config.",
    "remote.log.",
    "rsm.config.",
    "rlmm.config.",
    "sasl.",
    "ssl.",
    "zookeeper.",
)
UNENFORCED: Final = {
    "authorizer.class.name": "requests are not authorized yet; keep the listeners on a trusted network",
    "super.users": "requests are not authorized yet",
}


@cache
def kafka_keys() -> frozenset[str]:
    """Every key that `KafkaConfig.configDef` of Apache Kafka 4.3.1 defines."""
    lines = resources.files("kraft").joinpath("kafka_keys.txt").read_text("ascii").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


class UsageError(Exception):
    """The person at the keyboard asked for something that cannot be: what, where, and a hint what to do."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{what} ({where})" if where else what)
        self.what = what
        self.where = where
        self.hint = hint


class ConfigError(UsageError):
    """A configuration file cannot be used."""


class VoterAddress(NamedTuple):
    """One entry of `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


class ListenerConfig(NamedTuple):
    """One entry of `listeners` or `advertised.listeners`; an empty host means every address."""

    name: str
    host: str
    port: int


class Config(Struct, frozen=True, kw_only=True):
    """One node's configuration, checked. Times in milliseconds, sizes in bytes; `source` is the file it came from."""

    node_id: int
    voters: tuple[VoterAddress, ...]
    listeners: tuple[ListenerConfig, ...]
    advertised_listeners: tuple[ListenerConfig, ...]
    controller_listener_names: tuple[str, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    append_linger_ms: int = 25
    fetch_max_bytes: int = 1_048_576
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    max_idle_interval_ms: int = 500
    min_insync_replicas: int = 1
    request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    source: str = "<arguments>"
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str, overrides: Iterable[str] = ()) -> Config:
        """Read a properties file; `overrides` are `key=value` texts that win over it. Raises `ConfigError`."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except OSError as bad:
            raise ConfigError(
                f"cannot read the configuration: {bad.strerror}", where=path, hint="name a properties file with -c"
            ) from bad
        except UnicodeDecodeError as bad:
            raise ConfigError("the configuration is not text", where=path) from bad
        return cls.parse(text, source=path, overrides=overrides)

    @classmethod
    def parse(cls, text: str, *, source: str = "<arguments>", overrides: Iterable[str] = ()) -> Config:
        """Read the text of a properties file. Raises `ConfigError`."""
        return _Reader(_entries(text, source, overrides), source).config()

    @property
    def controller_listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners that controllers talk through, in the order of `controller.listener.names`."""
        return tuple(one for name in self.controller_listener_names for one in self.listeners if one.name == name)

    @property
    def advertised_controller_listeners(self) -> tuple[ListenerConfig, ...]:
        """The same as others reach them."""
        advertised = {one.name: one for one in self.advertised_listeners}
        return tuple(advertised.get(one.name, one) for one in self.controller_listeners)


class _Entry(NamedTuple):
    value: str
    where: str


def _entries(text: str, source: str, overrides: Iterable[str]) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    line = 1
    try:
        for element in javaproperties.parse(io.StringIO(text)):
            if isinstance(element, javaproperties.KeyValue):
                found[element.key] = _Entry(element.value.strip(), f"{source}, line {line}")
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError as bad:
        raise ConfigError(f"a bad escape: {bad}", where=f"{source}, line {line}") from bad
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"an override is key=value, not {override!r}", hint="--override node.id=2")
        found[key.strip()] = _Entry(value.strip(), "--override")
    return found


class _Key(NamedTuple, Generic[Value]):
    """One key: how its text is read, and what is allowed, in words. Reading raises `ValueError`."""

    name: str
    read: Callable[[str], Value]
    allowed: str


def _integer(name: str, low: int, high: int = 2**31 - 1) -> _Key[int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return _Key(name, read, f"a whole number from {low} to {high}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _read_voters(text: str) -> tuple[VoterAddress, ...]:
    voters = []
    for entry in _names(text):
        node, at, address = entry.partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and node.isdecimal() and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(entry)
        voters.append(VoterAddress(int(node), host.strip("[]"), int(port)))
    if len({voter.node_id for voter in voters}) != len(voters):
        raise ValueError("an id stands there twice")
    return tuple(voters)


def _read_listeners(text: str) -> tuple[ListenerConfig, ...]:
    listeners = []
    for entry in _names(text):
        name, scheme, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        if not (scheme and colon and name and port.isdecimal() and int(port) < 65536):
            raise ValueError(entry)
        listeners.append(ListenerConfig(name.upper(), host.strip("[]"), int(port)))
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ValueError("a listener name stands there twice")
    return tuple(listeners)


def _read_map(text: str) -> dict[str, str]:
    pairs = {}
    for entry in _names(text):
        name, colon, protocol = entry.partition(":")
        if not colon or protocol.upper() not in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
            raise ValueError(entry)
        pairs[name.upper()] = protocol.upper()
    return pairs


_LISTENERS: Final = "a list of NAME://host:port with distinct names, such as CONTROLLER://127.0.0.1:9093"
_NODE_ID: Final = _integer("node.id", 0)
_ROLES: Final = _Key("process.roles", _names, "controller, broker, or both")
_VOTERS: Final = _Key("controller.quorum.voters", _read_voters, "a list of id@host:port with distinct ids")
_BOOTSTRAP: Final = _Key("controller.quorum.bootstrap.servers", _names, "a list of host:port")
_CONTROLLER_NAMES: Final = _Key("controller.listener.names", _names, "a list of listener names")
_LISTENER_LIST: Final = _Key("listeners", _read_listeners, _LISTENERS)
_ADVERTISED: Final = _Key("advertised.listeners", _read_listeners, _LISTENERS)
_SECURITY_MAP: Final = _Key("listener.security.protocol.map", _read_map, "a list such as CONTROLLER:PLAINTEXT")
_LOG_DIRS: Final = _Key("log.dirs", _names, "a list of directories")
_LOG_DIR: Final = _Key("log.dir", str, "a directory")
_METADATA_LOG_DIR: Final = _Key("metadata.log.dir", str, "a directory")

_NUMBERS: Final[Mapping[str, tuple[_Key[int], ...]]] = {
    "election_timeout_ms": (_integer("controller.quorum.election.timeout.ms", 0),),
    "fetch_timeout_ms": (_integer("controller.quorum.fetch.timeout.ms", 0),),
    "election_backoff_max_ms": (_integer("controller.quorum.election.backoff.max.ms", 0),),
    "request_timeout_ms": (_integer("controller.quorum.request.timeout.ms", 0),),
    "retry_backoff_ms": (_integer("controller.quorum.retry.backoff.ms", 0),),
    "append_linger_ms": (_integer("controller.quorum.append.linger.ms", 0),),
    "fetch_max_bytes": (_integer("controller.quorum.fetch.max.bytes", 1),),
    "segment_bytes": (
        _integer("internal.metadata.log.segment.bytes", 14),
        _integer("metadata.log.segment.bytes", 8_388_608),
    ),
    "segment_ms": (_integer("metadata.log.segment.ms", 1, 2**63 - 1),),
    "max_idle_interval_ms": (_integer("metadata.max.idle.interval.ms", 0),),
    "min_insync_replicas": (_integer("min.insync.replicas", 1),),
    "request_max_bytes": (_integer("socket.request.max.bytes", 1),),
    "connections_max_idle_ms": (_integer("connections.max.idle.ms", -(2**63), 2**63 - 1),),
}
"""The plain numbers by the field they fill; of several keys the first that is set counts."""

_TEXTS: Final = (
    _ROLES.name,
    _VOTERS.name,
    _BOOTSTRAP.name,
    _CONTROLLER_NAMES.name,
    _LISTENER_LIST.name,
    _ADVERTISED.name,
    _SECURITY_MAP.name,
    _LOG_DIRS.name,
    _LOG_DIR.name,
    _METADATA_LOG_DIR.name,
)
USED_KEYS: Final = frozenset((_NODE_ID.name, *_TEXTS, *(key.name for keys in _NUMBERS.values() for key in keys)))


class _Reader:
    """Makes a `Config` of the entries of one file; every complaint names where the entry stands."""

    def __init__(self, entries: Mapping[str, _Entry], source: str) -> None:
        self._entries = entries
        self._source = source

    def config(self) -> Config:
        self._check_roles()
        voters = self._voters()
        listeners, names = self._listeners()
        directories = self._get(_LOG_DIRS) or ((single,) if (single := self._get(_LOG_DIR)) else ("/tmp/kafka-logs",))
        numbers = {field: value for field, keys in _NUMBERS.items() if (value := self._first(keys)) is not None}
        return Config(
            node_id=self._required(_NODE_ID, "give this node an id that no other node has, such as node.id=1"),
            voters=voters,
            listeners=listeners,
            advertised_listeners=self._get(_ADVERTISED) or (),
            controller_listener_names=names,
            log_dirs=directories,
            metadata_log_dir=self._get(_METADATA_LOG_DIR) or directories[0],
            source=self._source,
            warnings=tuple(self._warnings()),
            **numbers,
        )

    def _get(self, key: _Key[Value]) -> Value | None:
        entry = self._entries.get(key.name)
        if entry is None or not entry.value:
            return None
        try:
            return key.read(entry.value)
        except ValueError:
            raise ConfigError(
                f"{key.name}={entry.value} is not allowed", where=entry.where, hint=f"it takes {key.allowed}"
            ) from None

    def _first(self, keys: tuple[_Key[Value], ...]) -> Value | None:
        return next((value for key in keys if (value := self._get(key)) is not None), None)

    def _required(self, key: _Key[Value], hint: str) -> Value:
        value = self._get(key)
        if value is None:
            raise ConfigError(f"{key.name} is not set", where=self._source, hint=hint)
        return value

    def _where(self, key: _Key[Value]) -> str:
        entry = self._entries.get(key.name)
        return entry.where if entry is not None else self._source

    def _check_roles(self) -> None:
        roles = self._required(_ROLES, "this release runs controllers: process.roles=controller")
        if set(roles) - {"controller", "broker"}:
            raise ConfigError(
                f"process.roles={','.join(roles)} is not allowed",
                where=self._where(_ROLES),
                hint=f"it takes {_ROLES.allowed}",
            )
        if "broker" in roles:
            raise ConfigError(
                "the broker role is not there yet",
                where=self._where(_ROLES),
                hint="use process.roles=controller; run brokers with Apache Kafka",
            )

    def _voters(self) -> tuple[VoterAddress, ...]:
        voters = self._get(_VOTERS)
        if voters:
            return voters
        if self._get(_BOOTSTRAP):
            raise ConfigError(
                "dynamic quorums (controller.quorum.bootstrap.servers without voters) are not there yet",
                where=self._where(_BOOTSTRAP),
                hint="name all voters: controller.quorum.voters=1@host1:9093,2@host2:9093,3@host3:9093",
            )
        raise ConfigError(
            "controller.quorum.voters is not set",
            where=self._source,
            hint="name all voters: controller.quorum.voters=1@host1:9093,2@host2:9093,3@host3:9093",
        )

    def _listeners(self) -> tuple[tuple[ListenerConfig, ...], tuple[str, ...]]:
        names = tuple(
            name.upper()
            for name in self._required(_CONTROLLER_NAMES, "name the listener: controller.listener.names=CONTROLLER")
        )
        listeners = self._required(_LISTENER_LIST, "say where to listen: listeners=CONTROLLER://127.0.0.1:9093")
        missing = [name for name in names if name not in {listener.name for listener in listeners}]
        if missing:
            raise ConfigError(
                f"controller.listener.names has {missing[0]}, listeners has not",
                where=self._where(_LISTENER_LIST),
                hint=f"add {missing[0]}://host:port to listeners",
            )
        self._check_security(names)
        return listeners, names

    def _check_security(self, names: tuple[str, ...]) -> None:
        """A listener that is meant to be secure is not opened without its security."""
        protocols = self._get(_SECURITY_MAP) or {}
        for name in names:
            protocol = protocols.get(name, name if name in {"SSL", "SASL_PLAINTEXT", "SASL_SSL"} else "PLAINTEXT")
            if protocol != "PLAINTEXT":
                raise ConfigError(
                    f"listener {name} asks for {protocol}, which is not there yet",
                    where=self._where(_SECURITY_MAP),
                    hint=f"this release speaks PLAINTEXT: listener.security.protocol.map={name}:PLAINTEXT",
                )

    def _warnings(self) -> Iterable[str]:
        known = USED_KEYS | kafka_keys()
        for key, entry in self._entries.items():
            if key in UNENFORCED:
                yield f"{key} has no effect: {UNENFORCED[key]} ({entry.where})"
            elif key not in known and not key.startswith(KNOWN_PREFIXES):
                nearest = difflib.get_close_matches(key, sorted(known), n=1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                yield f"unknown key {key}{hint} ({entry.where})"
