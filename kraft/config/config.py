"""`Config`: one node's settings, read from a Kafka properties file and checked (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from kraft.config.addresses import ListenerSpec, QuorumVoter, parse_host_port
from kraft.config.authorizer_settings import check_authorizer, read_super_users
from kraft.config.checks import check_refused, check_settings, deprecated, refused_by_kafka_alone
from kraft.config.data_settings import prefers_rack_of_client
from kraft.config.described import DescribedSetting
from kraft.config.errors import ConfigError
from kraft.config.group_settings import check_groups
from kraft.config.key import build
from kraft.config.keys import TEXTS
from kraft.config.listener_settings import (
    read_advertised_listeners,
    read_controller_listener_names,
    read_destinations,
    read_inter_broker_listener,
    read_listeners,
    read_node_tls,
)
from kraft.config.metrics_settings import read_metrics_dialect, read_metrics_listener
from kraft.config.node_settings import (
    BOOTSTRAP_SERVERS,
    BROKER,
    CONTROLLER,
    read_log_dirs,
    read_node_id,
    read_roles,
    read_voters,
)
from kraft.config.properties import Setting, read_properties
from kraft.config.providers import resolve_references
from kraft.config.sasl_settings import SaslSettings, read_sasl
from kraft.config.settings_reader import SettingsReader
from kraft.config.telemetry_settings import read_telemetry, unseen_telemetry
from kraft.config.tls_settings import ConfigTls
from kraft.config.unknown_keys import with_near_misses

S = TypeVar("S", bound=Struct)

DEFAULT_LOG_DIR: Final = TEXTS["log.dir"].default


class Config(Struct, frozen=True, kw_only=True):
    """The settings of one node, by default Kafka's (Kafka: `KafkaConfig`). Times are milliseconds, sizes bytes.

    Each field holds the setting that `docs/configuration.md` describes. `listeners` and `advertised_listeners` are in
    the order of `controller_listener_names`. A broker alone has no controller listeners; its listeners are in the order
    of the file, with both roles after those of the controller. An advertised listener with an empty host has the host
    name of the machine.
    """

    node_id: int
    voters: tuple[QuorumVoter, ...]
    """The static voters; empty for a dynamic quorum."""
    listeners: tuple[ListenerSpec, ...]
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """Further servers for finding the leader, beside the voters."""
    controller_listener_names: tuple[str, ...] = ("CONTROLLER",)
    advertised_listeners: tuple[ListenerSpec, ...] = ()
    process_roles: tuple[str, ...] = ("controller",)
    log_dirs: tuple[str, ...] = (DEFAULT_LOG_DIR,)
    metadata_log_dir: str = DEFAULT_LOG_DIR
    inter_broker_listener: str = ""
    """The listener at which brokers reach each other; empty for a node that is no broker."""
    tls: ConfigTls = ConfigTls()
    """TLS of the listeners and of the connections to controllers; the files are not read yet."""
    sasl: SaslSettings = SaslSettings()
    """The logins at the listeners, and at controllers."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user before the node starts: unknown settings, settings without effect so far."""
    described: tuple[DescribedSetting, ...] = ()
    """Every setting, without secrets, in the form of DescribeConfigs."""
    reader: SettingsReader = SettingsReader({}, "no file")

    def of(self, settings: type[S], **facts: Any) -> S:
        """The settings of one part of the node, from the keys that its struct names.

        Args:
            settings: The struct.
            facts: The fields that do not come from the file, or from it in another way.

        :meta private:
        """
        return build(settings, self.reader, facts)

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
        return _read(SettingsReader.of(text, source, overrides))

    @property
    def is_broker(self) -> bool:
        """Whether this node is a broker, perhaps with the role of a controller, too."""
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node is a controller, perhaps with the role of a broker, too."""
        return CONTROLLER in self.process_roles

    @property
    def client_listeners(self) -> frozenset[str]:
        """The names of the listeners for clients, which only a broker has."""
        return frozenset(one.name for one in self.listeners if one.name not in self.controller_listener_names)

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory that needs formatting, the one of the metadata log first."""
        return (self.metadata_log_dir, *(path for path in self.log_dirs if path != self.metadata_log_dir))


class FormatConfig(Struct, frozen=True, kw_only=True):
    """The settings of `kraft format`, which refuses what a node refuses."""

    node_id: int
    process_roles: tuple[str, ...]
    static_voters: bool
    """Whether `controller.quorum.voters` names the voters."""
    controller_listener: ListenerSpec
    """The first controller listener for other nodes; without host and port if this node does not have the listener."""
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    tls: ConfigTls = ConfigTls()
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str) -> FormatConfig:
        """Read a properties file; raises `ConfigError`, which names file, line, key, value and allowed values."""
        return cls.parse(read_properties(path), source=path)

    @classmethod
    def parse(cls, text: str | bytes, *, source: str = "properties") -> FormatConfig:
        """Parse the text of a properties file; `source` is its name in errors."""
        config = _read(SettingsReader.of(text, source))
        name = config.controller_listener_names[0]
        reached = [listener for listener in config.advertised_listeners if listener.name == name]
        return cls(
            node_id=config.node_id,
            process_roles=config.process_roles,
            static_voters=bool(config.voters),
            controller_listener=reached[0] if reached else ListenerSpec(name, "", 0),
            log_dirs=config.log_dirs,
            metadata_log_dir=config.metadata_log_dir,
            tls=config.tls,
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


class Verdict(Struct, frozen=True):
    """The errors of a properties file. Each names the setting, its value and what is allowed."""

    refused: ConfigError | None = None
    """Why this software does not start with the file. Apache Kafka does not start, either, or fails later."""
    not_supported: ConfigError | None = None
    """Why this software does not start with it, which Apache Kafka may."""
    not_for_kafka: tuple[ConfigError, ...] = ()
    """Why Apache Kafka does not start with it."""


def judged(settings: Mapping[str, Setting], source: str) -> Verdict:
    """The verdict of a node on the settings of a file, with Kafka's rules apart from those of this software."""
    try:
        reader = SettingsReader(resolve_references(settings), source)
    except ConfigError as unresolved:
        return Verdict(not_supported=unresolved)
    try:
        roles = read_roles(reader)
        names = read_controller_listener_names(reader)
        node_id = read_node_id(reader)
        voters = read_voters(reader, node_id, CONTROLLER if CONTROLLER in roles else BROKER)
        listeners = read_listeners(reader, names, roles)
        check_settings(reader, listeners, roles=roles)
        read_advertised_listeners(reader, listeners, names, _own_voter(voters, node_id))
        read_inter_broker_listener(reader, listeners, names, roles)
    except ConfigError as refused:
        return Verdict(refused=with_near_misses(refused, settings))
    not_for_kafka = tuple(refused_by_kafka_alone(reader, listeners))
    try:
        _config(reader, roles)
    except ConfigError as refused:
        return Verdict(not_supported=refused, not_for_kafka=not_for_kafka)
    return Verdict(not_for_kafka=not_for_kafka)


def _own_voter(voters: tuple[QuorumVoter, ...], node_id: int) -> QuorumVoter | None:
    return next((voter for voter in voters if voter.id == node_id), None)


def _read(reader: SettingsReader) -> Config:
    """All checked settings of a node; raises `ConfigError`, which names near misses of keys, too."""
    try:
        return _config(reader, read_roles(reader))
    except ConfigError as refused:
        raise with_near_misses(refused, reader.settings) from refused


def _config(reader: SettingsReader, roles: tuple[str, ...]) -> Config:
    """All checked settings of a node of these roles; raises `ConfigError`."""
    node_id = read_node_id(reader)
    names = read_controller_listener_names(reader)
    voters = read_voters(reader, node_id, CONTROLLER if CONTROLLER in roles else BROKER)
    listeners = read_listeners(reader, names, roles)
    log_dirs = read_log_dirs(reader)
    check_settings(reader, listeners, roles=roles)
    check_refused(reader)
    check_authorizer(reader, names[0] if CONTROLLER in roles else None)
    read_super_users(reader)
    reader.check_numbers()
    read_metrics_listener(reader)
    read_metrics_dialect(reader)
    read_telemetry(reader)
    if BROKER in roles:
        prefers_rack_of_client(reader)
        check_groups(reader)
    inter_broker = read_inter_broker_listener(reader, listeners, names, roles)
    destinations = read_destinations(reader, listeners, names, inter_broker)
    return Config(
        node_id=node_id,
        process_roles=roles,
        voters=voters,
        bootstrap_servers=reader.entries(BOOTSTRAP_SERVERS, parse_host_port),
        listeners=listeners,
        controller_listener_names=names,
        advertised_listeners=read_advertised_listeners(reader, listeners, names, _own_voter(voters, node_id)),
        inter_broker_listener=inter_broker,
        tls=read_node_tls(reader, listeners, destinations),
        sasl=read_sasl(reader, listeners, destinations),
        log_dirs=log_dirs,
        metadata_log_dir=reader.text("metadata.log.dir") or log_dirs[0],
        described=reader.described(),
        warnings=(*reader.warnings(), *deprecated(reader, roles=roles), *unseen_telemetry(reader)),
        reader=reader,
    )
