"""`Config`: one node's settings, read from a Kafka properties file and checked (Kafka: `KafkaConfig`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from kraft.config.addresses import (
    PROTECTED_PROTOCOLS,
    ListenerSpec,
    QuorumVoter,
    parse_connection_limit,
    parse_host_port,
    parse_listener,
    parse_voter,
    split_list,
)
from kraft.config.described import DescribedSetting, Secret, described_settings
from kraft.config.errors import ConfigError
from kraft.config.kafka_keys import KAFKA_KEYS, PREFIXES
from kraft.config.keys import (
    INT_MAX,
    LONG_MAX,
    NUMBERS,
    SEGMENT_BYTES_OVERRIDE,
    SMALLEST_SEGMENT_BYTES,
    STANDARD_AUTHORIZER,
    TEXTS,
    Number,
)
from kraft.config.properties import Setting, apply_overrides, parse_properties, read_properties, trim
from kraft.config.providers import resolve_references
from kraft.config.topic_synonyms import TOPIC_SYNONYMS, Synonym

T = TypeVar("T")

DEFAULT_LOG_DIR: Final = TEXTS["log.dir"].default
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
CONTROLLER: Final = "controller"
BROKER: Final = "broker"
PLAINTEXT: Final = "PLAINTEXT"
_UNPROTECTED: Final = "TLS and SASL are not supported yet; use PLAINTEXT in a trusted network."
_ANY_ADDRESS: Final = ("0.0.0.0", "::")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+")
_WHOLE_NUMBER: Final = re.compile(r"[+-]?0*[0-9]{1,19}")


class Config(Struct, frozen=True, kw_only=True):
    """The settings of one node, by default Kafka's (Kafka: `KafkaConfig`). Times are milliseconds, sizes bytes.

    Each field holds the setting that `docs/configuration.md` describes. `listeners` and `advertised_listeners` are in
    the order of `controller_listener_names`. A broker has no controller listeners; its listeners are in the order of
    the file. An advertised listener with an empty host has the host name of the machine.
    """

    node_id: int
    voters: tuple[QuorumVoter, ...]
    """The static voters; empty for a dynamic quorum."""
    listeners: tuple[ListenerSpec, ...]
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """Further servers for finding the leader, beside the voters."""
    auto_join: bool = False
    controller_listener_names: tuple[str, ...] = ("CONTROLLER",)
    advertised_listeners: tuple[ListenerSpec, ...] = ()
    process_roles: tuple[str, ...] = ("controller",)
    log_dirs: tuple[str, ...] = (DEFAULT_LOG_DIR,)
    metadata_log_dir: str = DEFAULT_LOG_DIR
    election_timeout_ms: int = NUMBERS["controller.quorum.election.timeout.ms"].default
    fetch_timeout_ms: int = NUMBERS["controller.quorum.fetch.timeout.ms"].default
    election_backoff_max_ms: int = NUMBERS["controller.quorum.election.backoff.max.ms"].default
    request_timeout_ms: int = NUMBERS["controller.quorum.request.timeout.ms"].default
    retry_backoff_ms: int = NUMBERS["controller.quorum.retry.backoff.ms"].default
    lost_leader_backoff_max_ms: int = NUMBERS["controller.quorum.lost.leader.backoff.max.ms"].default
    append_linger_ms: int = NUMBERS["controller.quorum.append.linger.ms"].default
    fetch_max_bytes: int = NUMBERS["controller.quorum.fetch.max.bytes"].default
    max_batch_bytes: int = NUMBERS["internal.metadata.max.batch.size.in.bytes"].default
    segment_bytes: int = NUMBERS["metadata.log.segment.bytes"].default
    segment_ms: int = NUMBERS["metadata.log.segment.ms"].default
    fetch_snapshot_max_bytes: int = NUMBERS["controller.quorum.fetch.snapshot.max.bytes"].default
    snapshot_max_bytes: int = NUMBERS["metadata.log.max.record.bytes.between.snapshots"].default
    snapshot_max_interval_ms: int = NUMBERS["metadata.log.max.snapshot.interval.ms"].default
    retention_bytes: int = NUMBERS["metadata.max.retention.bytes"].default
    retention_ms: int = NUMBERS["metadata.max.retention.ms"].default
    max_idle_interval_ms: int = NUMBERS["metadata.max.idle.interval.ms"].default
    min_insync_replicas: int = NUMBERS["min.insync.replicas"].default
    num_partitions: int = NUMBERS["num.partitions"].default
    default_replication_factor: int = NUMBERS["default.replication.factor"].default
    broker_session_timeout_ms: int = NUMBERS["broker.session.timeout.ms"].default
    leader_imbalance_check_interval_seconds: int = NUMBERS["leader.imbalance.check.interval.seconds"].default
    leader_imbalance_percentage: int = NUMBERS["leader.imbalance.per.broker.percentage"].default
    unclean_election_interval_ms: int = NUMBERS["unclean.leader.election.interval.ms"].default
    auto_leader_rebalance: bool = True
    unclean_election: bool = False
    has_authorizer: bool = False
    """Whether access rules are enforced (`authorizer.class.name`)."""
    super_users: tuple[str, ...] = ()
    """Principals, as type and name, with every permission."""
    allows_without_acl: bool = False
    """Whether access is allowed to resources without access rules."""
    token_secret: Secret | None = None
    """The secret from which delegation tokens derive; None disables tokens."""
    token_max_lifetime_ms: int = NUMBERS["delegation.token.max.lifetime.ms"].default
    token_expiry_time_ms: int = NUMBERS["delegation.token.expiry.time.ms"].default
    token_check_interval_ms: int = NUMBERS["delegation.token.expiry.check.interval.ms"].default
    heartbeat_interval_ms: int = NUMBERS["broker.heartbeat.interval.ms"].default
    initial_registration_timeout_ms: int = NUMBERS["initial.broker.registration.timeout.ms"].default
    replica_lag_time_max_ms: int = NUMBERS["replica.lag.time.max.ms"].default
    replica_fetch_wait_max_ms: int = NUMBERS["replica.fetch.wait.max.ms"].default
    controlled_shutdown: bool = True
    rack: str | None = None
    request_max_bytes: int = NUMBERS["socket.request.max.bytes"].default
    connections_max_idle_ms: int = NUMBERS["connections.max.idle.ms"].default
    max_connections: int = NUMBERS["max.connections"].default
    max_connections_per_ip: int = NUMBERS["max.connections.per.ip"].default
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    queued_max_request_bytes: int = NUMBERS["queued.max.request.bytes"].default
    warnings: tuple[str, ...] = ()
    """Warnings for the user before the node starts: unknown settings, settings without effect so far."""
    described: tuple[DescribedSetting, ...] = ()
    """Every setting, without secrets, in the form of DescribeConfigs."""

    @classmethod
    def load(cls, path: str, overrides: Iterable[str] = ()) -> Config:
        """Read a properties file.

        Args:
            path: The properties file.
            overrides: `key=value` texts with precedence over the file.

        Returns:
            The checked settings.

        Raises:
            ConfigError: A setting is missing or invalid; the text names file, line, key, value and allowed values.
        """
        return cls.parse(read_properties(path), source=path, overrides=overrides)

    @classmethod
    def parse(cls, text: str | bytes, *, source: str = "properties", overrides: Iterable[str] = ()) -> Config:
        """Parse the text of a properties file.

        Args:
            text: The text of the file.
            source: The name of the file in errors.
            overrides: `key=value` texts with precedence over the file.

        Returns:
            The checked settings.

        Raises:
            ConfigError: A setting is missing or invalid; the text names source, line, key, value and allowed values.
        """
        reader = _Reader.of(text, source, overrides)
        return _config(reader, (reader.role(),))

    @property
    def is_broker(self) -> bool:
        """Whether this node is a broker, and not a controller."""
        return BROKER in self.process_roles

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that needs formatting, the one of the metadata log first."""
        return (self.metadata_log_dir, *(path for path in self.log_dirs if path != self.metadata_log_dir))


class FormatConfig(Struct, frozen=True, kw_only=True):
    """The settings of `kraft format`. Formatting refuses what a node refuses, except a node of both roles, which Apache
    Kafka supports.
    """

    node_id: int
    process_roles: tuple[str, ...]
    static_voters: bool
    """Whether `controller.quorum.voters` names the voters."""
    controller_listener: ListenerSpec
    """The first controller listener for other nodes; without host and port if this node does not have the listener."""
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str) -> FormatConfig:
        """Read a properties file; raises `ConfigError`, which names file, line, key, value and allowed values."""
        return cls.parse(read_properties(path), source=path)

    @classmethod
    def parse(cls, text: str | bytes, *, source: str = "properties") -> FormatConfig:
        """Parse the text of a properties file; `source` is its name in errors."""
        reader = _Reader.of(text, source)
        config = _config(reader, reader.roles())
        name = config.controller_listener_names[0]
        reached = [listener for listener in config.advertised_listeners if listener.name == name]
        return cls(
            node_id=config.node_id,
            process_roles=config.process_roles,
            static_voters=bool(config.voters),
            controller_listener=reached[0] if reached else ListenerSpec(name, "", 0),
            log_dirs=config.log_dirs,
            metadata_log_dir=config.metadata_log_dir,
            warnings=config.warnings,
        )

    @property
    def is_controller(self) -> bool:
        """Whether the node is a member of the quorum, or will be one after it is added."""
        return CONTROLLER in self.process_roles

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that needs formatting, the one of the metadata log first."""
        return (self.metadata_log_dir, *(path for path in self.log_dirs if path != self.metadata_log_dir))


def _config(reader: _Reader, roles: tuple[str, ...]) -> Config:
    """All checked settings of a node of these roles; raises `ConfigError`."""
    node_id = reader.node_id()
    names = reader.controller_listener_names()
    voters = reader.voters(node_id, CONTROLLER if CONTROLLER in roles else BROKER)
    listeners = reader.listeners(names, roles)
    log_dirs = reader.log_dirs()
    reader.check_topic_settings()
    reader.check_queued_bytes()
    return Config(
        node_id=node_id,
        process_roles=roles,
        voters=voters,
        bootstrap_servers=reader.entries(BOOTSTRAP_SERVERS, parse_host_port),
        auto_join=reader.flag("controller.quorum.auto.join.enable"),
        listeners=listeners,
        controller_listener_names=names,
        advertised_listeners=reader.advertised(listeners, reader.fallback_host(voters, node_id)),
        controlled_shutdown=reader.flag("controlled.shutdown.enable"),
        rack=reader.text("broker.rack") or None,
        log_dirs=log_dirs,
        metadata_log_dir=reader.text("metadata.log.dir") or log_dirs[0],
        auto_leader_rebalance=reader.flag("auto.leader.rebalance.enable"),
        unclean_election=reader.flag("unclean.leader.election.enable"),
        has_authorizer=reader.has_authorizer(names[0]),
        super_users=reader.super_users(),
        # As in Java, any other word means false.
        allows_without_acl=reader.text("allow.everyone.if.no.acl.found").lower() == "true",
        token_secret=reader.secret("delegation.token.secret.key"),
        max_connections_per_ip_overrides=reader.entries("max.connections.per.ip.overrides", parse_connection_limit),
        described=reader.described(),
        warnings=tuple(reader.warnings()),
        **reader.numbers(),
    )


class _Reader:
    """Reads single settings of a configuration, and makes their errors."""

    def __init__(self, settings: Mapping[str, Setting], source: str) -> None:
        self._settings = settings
        self._source = source

    @classmethod
    def of(cls, text: str | bytes, source: str, overrides: Iterable[str] = ()) -> _Reader:
        """A reader of a properties file with overrides and with the values of config providers."""
        return cls(resolve_references(apply_overrides(parse_properties(text, source=source), overrides)), source)

    def text(self, key: str) -> str:
        setting = self._settings.get(key)
        return TEXTS[key].default if setting is None else setting.value

    def bad(self, key: str, why: str, *, hint: str | None = None) -> ConfigError:
        setting = self._settings.get(key)
        if setting is not None and setting.reference:
            why = "the referenced value is invalid, and is a secret"
            hint = _allowed(key) or "Check the value at the config provider."
        what, where = (key, self._source) if setting is None else (f"{key}={setting.shown}", setting.where)
        hint = None if hint is None else self._hidden(hint)
        return ConfigError(f"{what}: {self._hidden(why)}", where=where, hint=hint)

    def _hidden(self, text: str) -> str:
        """A message with references in place of the values of config providers."""
        for setting in self._settings.values():
            if setting.reference:
                pieces = {setting.value, *map(trim, re.split(r"[,;]", setting.value))} - {""}
                # A replacement text, unlike a function, would have its backslashes interpreted.
                shown = setting.shown.replace("\\", r"\\")
                for piece in sorted(pieces, key=len, reverse=True):
                    text = re.sub(rf"(?<![\w.-]){re.escape(piece)}(?![\w.-])", shown, text, flags=re.IGNORECASE)
        return text

    def missing(self, key: str, hint: str) -> ConfigError:
        return ConfigError(f"{key} is not set", where=self._source, hint=hint)

    # Single settings

    def roles(self) -> tuple[str, ...]:
        roles = split_list(self.text("process.roles"))
        if not roles:
            raise self.missing("process.roles", "Add process.roles=controller.")
        for role in roles:
            if role not in ("broker", "controller"):
                raise self.bad("process.roles", f"there is no role {role!r}", hint="Use process.roles=controller.")
        if len(set(roles)) != len(roles):
            raise self.bad("process.roles", "a role is named twice")
        return roles

    def role(self) -> str:
        """The only role of a node that is started."""
        roles = self.roles()
        if len(roles) > 1:
            raise self.bad(
                "process.roles",
                "a node with both roles is not supported yet: this node is a controller or a broker",
                hint="Use process.roles=controller here, and a configuration of its own for the broker.",
            )
        return roles[0]

    def node_id(self) -> int:
        if not self.text("node.id"):
            raise self.missing("node.id", "Add node.id=N, with the id of this node in controller.quorum.voters.")
        return self._whole("node.id", 0, INT_MAX)

    def voters(self, node_id: int, role: str = CONTROLLER) -> tuple[QuorumVoter, ...]:
        key = "controller.quorum.voters"
        entries = self.entries(key, parse_voter)
        if not entries:
            if self.entries(BOOTSTRAP_SERVERS, parse_host_port):
                return ()
            raise ConfigError(
                f"{key} is not set, nor is {BOOTSTRAP_SERVERS}",
                where=self._source,
                hint=f"Name every voter of a static quorum: {key}=id@host:port,… "
                f"or some controllers of a dynamic one: {BOOTSTRAP_SERVERS}=host:port,…",
            )
        ids = [voter.id for voter in entries]
        if len(set(ids)) != len(ids):
            raise self.bad(key, "a voter id appears twice")
        if role == BROKER and node_id in ids:
            raise self.bad(key, f"node.id {node_id} is among the voters", hint="A broker alone is no voter.")
        if role == CONTROLLER and node_id not in ids:
            raise self.bad(
                key,
                f"node.id {node_id} is not among the voters",
                hint="A controller of a static quorum is one of its voters: check node.id, or add it to the list.",
            )
        return tuple(sorted(entries, key=lambda voter: voter.id))

    def controller_listener_names(self) -> tuple[str, ...]:
        key = "controller.listener.names"
        names = tuple(name.upper() for name in split_list(self.text(key)))
        if not names:
            raise self.missing(key, "Add controller.listener.names=CONTROLLER, or a name from listeners.")
        return names

    def listeners(self, controllers: tuple[str, ...], roles: tuple[str, ...]) -> tuple[ListenerSpec, ...]:
        """The listeners of the node: for a controller the controller listeners, for a broker all other ones.

        Controller listeners are in the order of their names.
        """
        key = "listeners"
        listeners = self.entries(key, parse_listener)
        if not listeners:
            name = controllers[0] if CONTROLLER in roles else PLAINTEXT
            raise self.missing(key, f"Add listeners={name}://host:port.")
        bound = {listener.name: listener for listener in listeners}
        if len(bound) != len(listeners):
            raise self.bad(key, "two listeners have the same name")
        if CONTROLLER in roles:
            ports = [listener.port for listener in listeners if listener.port]
            if len(set(ports)) != len(ports):
                raise self.bad(key, "two listeners have the same port")
            for name in controllers:
                if name not in bound:
                    raise self.bad(
                        "controller.listener.names",
                        f"{name} is not among the listeners ({', '.join(bound)})",
                        hint="Every name must be in listeners.",
                    )
        for name in bound:
            if name in controllers and CONTROLLER not in roles:
                raise self.bad(
                    key,
                    f"{name} is in controller.listener.names ({', '.join(controllers)})",
                    hint="A node that is only a broker has no controller listeners.",
                )
            if name not in controllers and BROKER not in roles:
                raise self.bad(
                    key,
                    f"{name} is not in controller.listener.names ({', '.join(controllers)})",
                    hint="A node that is only a controller has only controller listeners.",
                )
        if BROKER in roles:
            self._check_between_brokers()
        protocols = self._protocols(tuple(bound), controllers)
        own = (*(name for name in controllers if name in bound), *(name for name in bound if name not in controllers))
        return tuple(ListenerSpec(name, bound[name].host, bound[name].port, protocols[name]) for name in own)

    def _check_between_brokers(self) -> None:
        """Refuse any security protocol between brokers except PLAINTEXT."""
        key = "security.inter.broker.protocol"
        setting = self._settings.get(key)
        if setting is not None and setting.value.upper() != PLAINTEXT:
            raise self.bad(key, "only PLAINTEXT is supported so far", hint=_UNPROTECTED)

    def _protocols(self, own: tuple[str, ...], controllers: tuple[str, ...]) -> dict[str, str]:
        """The security protocol of each listener of this node, and of its listeners for connections to controllers.

        As in Kafka (`KafkaConfig.effectiveListenerSecurityProtocolMap`): without a map, listeners named after a
        protocol have that protocol, and other controller listeners have PLAINTEXT if no other protocol is in use.
        """
        key = "listener.security.protocol.map"
        is_set = key in self._settings
        names = tuple(dict.fromkeys((*own, *controllers)))
        protocols = self._protocol_map() if is_set else {name: name for name in (PLAINTEXT, *PROTECTED_PROTOCOLS)}
        if not is_set and not any(name in PROTECTED_PROTOCOLS for name in names):
            protocols |= dict.fromkeys(controllers, PLAINTEXT)
        for name in names:
            at = key if is_set else "listeners" if name in own else "controller.listener.names"
            if name not in protocols:
                if is_set:
                    raise self.bad(key, f"the protocol of listener {name} is missing", hint=f"Add {name}:PLAINTEXT.")
                every = ",".join(f"{one}:{PLAINTEXT}" for one in names)
                raise self.bad(at, f"listener {name} has no security protocol", hint=f"Add {key}={every}.")
            if protocols[name] in PROTECTED_PROTOCOLS:
                hint = _UNPROTECTED
                if not is_set:
                    hint = f"{_UNPROTECTED} Without an entry in {key}, the name of the listener is its protocol."
                raise self.bad(at, f"{protocols[name]} on listener {name} is not supported yet", hint=hint)
        return protocols

    def _protocol_map(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        protocols: dict[str, str] = {}
        for entry in split_list(self.text(key)):
            name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
            if not (colon and name and protocol):
                raise self.bad(key, f"{entry!r} is not NAME:PROTOCOL")
            if name in protocols:
                raise self.bad(key, f"listener {name} is named twice")
            if protocol != PLAINTEXT and protocol not in PROTECTED_PROTOCOLS:
                raise self.bad(key, f"there is no security protocol {protocol}")
            protocols[name] = protocol
        return protocols

    @staticmethod
    def fallback_host(voters: tuple[QuorumVoter, ...], node_id: int) -> str | None:
        """The host of this voter in the list of voters, for a listener on every address."""
        return next((voter.host for voter in voters if voter.id == node_id), None)

    def advertised(self, listeners: tuple[ListenerSpec, ...], fallback_host: str | None) -> tuple[ListenerSpec, ...]:
        """The listeners with their addresses for other nodes; a listener on every address has `fallback_host`.

        Without a fallback such a listener keeps its empty host. Then the host is the name of the machine, which only a
        starting node determines (Kafka: `ListenerInfo.withWildcardHostnamesResolved`).
        """
        key = "advertised.listeners"
        names = [listener.name for listener in listeners]
        advertised = {listener.name: listener for listener in self.entries(key, parse_listener)}
        for listener in advertised.values():
            if listener.name not in names:
                raise self.bad(key, f"{listener.name} is not among the listeners of this node ({', '.join(names)})")
            if listener.host in _ANY_ADDRESS or not listener.host:
                raise self.bad(
                    key,
                    f"no other host can reach {listener}",
                    hint="Use an address that other nodes can route to.",
                )
        result = []
        for bound in listeners:
            listener = advertised.get(bound.name, bound)
            is_everywhere = not listener.host or listener.host in _ANY_ADDRESS
            host = fallback_host or "" if is_everywhere else listener.host
            if not host and listener.host:
                raise self.bad(
                    "listeners",
                    f"{bound} is on every address, so that its address for other nodes is unknown",
                    hint=f"Add advertised.listeners={bound.name}://host:{bound.port}.",
                )
            result.append(ListenerSpec(bound.name, host, listener.port, bound.protocol))
        return tuple(result)

    def flag(self, key: str) -> bool:
        return self._flag(key, self.text(key))

    def _flag(self, key: str, value: str) -> bool:
        word = value.lower()
        if word not in {"true", "false"}:
            raise self.bad(key, "the value is neither true nor false")
        return word == "true"

    def has_authorizer(self, listener: str) -> bool:
        """Whether an authorizer is configured. `listener` is the one for requests between controllers."""
        key = "authorizer.class.name"
        if not self.text(key):
            return False
        if self.text(key) != STANDARD_AUTHORIZER:
            raise self.bad(
                key,
                "this software cannot load another authorizer",
                hint=f"Use {STANDARD_AUTHORIZER}, or leave the setting out and listen only in a trusted network.",
            )
        key = "early.start.listeners"
        if key in self._settings and listener not in {name.upper() for name in split_list(self.text(key))}:
            raise self.bad(
                key,
                f"{listener} is missing: controllers would wait for access rules that no controller has",
                hint=f"Add {listener}, or leave the setting out.",
            )
        return True

    def super_users(self) -> tuple[str, ...]:
        key = "super.users"
        users = tuple(user for entry in self.text(key).split(";") if (user := entry.strip()))
        for user in users:
            if ":" not in user:
                raise self.bad(key, f"{user!r} is not Type:name", hint=f"Allowed: {TEXTS[key].allowed}.")
        return users

    def secret(self, key: str) -> Secret | None:
        """A setting that is never shown."""
        text = self.text(key)
        return Secret(text) if text else None

    def log_dirs(self) -> tuple[str, ...]:
        for key in ("log.dirs", "log.dir"):
            paths = split_list(self.text(key))
            if paths:
                if len(set(paths)) != len(paths):
                    raise self.bad(key, "a directory is named twice")
                return paths
        raise self.bad("log.dirs", "no directory is named", hint="Add log.dirs=PATH.")

    def numbers(self) -> dict[str, Any]:
        found = {number.field: self._number(key, number) for key, number in NUMBERS.items()}
        if SEGMENT_BYTES_OVERRIDE in self._settings:
            found["segment_bytes"] = self._whole(SEGMENT_BYTES_OVERRIDE, SMALLEST_SEGMENT_BYTES, INT_MAX)
        return found

    def check_queued_bytes(self) -> None:
        """Refuse a bound below one request, which would stop every connection (Kafka: `KafkaConfig.validateValues`)."""
        key, largest = "queued.max.request.bytes", "socket.request.max.bytes"
        queued, request = self._number(key, NUMBERS[key]), self._number(largest, NUMBERS[largest])
        if 0 < queued < request:
            raise self.bad(key, f"the value is less than {largest}, which is {request}")

    def check_topic_settings(self) -> None:
        """Refuse invalid topic defaults, which every description of a topic shows (Kafka: the types and validators of
        `ServerLogConfigs`).
        """
        for synonym in (one for synonyms in TOPIC_SYNONYMS.values() for one in synonyms):
            if synonym.name in self._settings:
                self._check_topic_setting(synonym)

    def _check_topic_setting(self, synonym: Synonym) -> None:
        key, value = synonym.name, self._settings[synonym.name].value
        match synonym.type:
            case "INT" | "LONG":
                self._whole(key, -LONG_MAX, LONG_MAX)
            case "DOUBLE" if not _DECIMAL.fullmatch(value):
                raise self.bad(key, "the value is not a number")
            case "BOOLEAN":
                self._flag(key, value)
            case "STRING" | "LIST" if synonym.words:
                for word in split_list(value) if synonym.type == "LIST" else (value,):
                    if word not in synonym.words:
                        raise self.bad(key, f"allowed is {' or '.join(synonym.words)}")

    def _number(self, key: str, number: Number) -> int:
        return self._whole(key, number.minimum, number.maximum) if key in self._settings else number.default

    def _whole(self, key: str, minimum: int, maximum: int) -> int:
        text = self._settings[key].value
        value = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        if value is None or not minimum <= value <= maximum:
            raise self.bad(key, f"allowed is a whole number from {minimum} to {maximum}")
        return value

    def entries(self, key: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        try:
            return tuple(parse(entry) for entry in split_list(self.text(key)))
        except ValueError as bad:
            raise self.bad(key, str(bad), hint=f"Allowed: {TEXTS[key].allowed}.") from None

    def described(self) -> tuple[DescribedSetting, ...]:
        """Every setting in the form of DescribeConfigs."""
        values = {key: setting.value for key, setting in self._settings.items()}
        provided = {key for key, setting in self._settings.items() if setting.reference}
        return tuple(described_settings(values, provided=provided))

    # Warnings

    def warnings(self) -> Iterable[str]:
        for key, setting in self._settings.items():
            if key not in KAFKA_KEYS and key not in TEXTS and not key.startswith(PREFIXES):
                nearest = difflib.get_close_matches(key, sorted(KAFKA_KEYS), n=1, cutoff=0.75)
                advice = f"; did you mean {nearest[0]}?" if nearest else ""
                yield f"unknown setting {key}{advice} ({setting.where})"


def _allowed(key: str) -> str | None:
    """The allowed values of a setting, as a hint; None for a setting that this software does not read."""
    known = TEXTS.get(key) or NUMBERS.get(key)
    return None if known is None else f"Allowed: {known.allowed}."
