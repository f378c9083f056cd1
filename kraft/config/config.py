"""`Config`: one node's settings, read from a Kafka properties file and checked (Kafka: `KafkaConfig`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from kraft.config.addresses import ListenerSpec, QuorumVoter, parse_connection_limit, parse_host_port
from kraft.config.authorizer_settings import read_has_authorizer, read_super_users
from kraft.config.checks import check_refused, check_settings, deprecated, refused_by_kafka_alone
from kraft.config.data_settings import DataConfig, read_data
from kraft.config.described import DescribedSetting, Secret
from kraft.config.errors import ConfigError
from kraft.config.group_settings import GroupConfig, read_groups
from kraft.config.keys import NUMBERS, TEXTS
from kraft.config.listener_settings import (
    read_advertised_listeners,
    read_controller_listener_names,
    read_destinations,
    read_inter_broker_listener,
    read_listeners,
    read_node_tls,
)
from kraft.config.metrics_settings import DIALECTS, read_metrics_dialect, read_metrics_listener
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
from kraft.config.tls_settings import ConfigTls
from kraft.config.transaction_settings import TransactionConfig, read_transactions

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
    replica_fetch_min_bytes: int = NUMBERS["replica.fetch.min.bytes"].default
    replica_fetch_max_bytes: int = NUMBERS["replica.fetch.max.bytes"].default
    replica_fetch_response_max_bytes: int = NUMBERS["replica.fetch.response.max.bytes"].default
    replica_fetch_backoff_ms: int = NUMBERS["replica.fetch.backoff.ms"].default
    watermark_checkpoint_ms: int = NUMBERS["replica.high.watermark.checkpoint.interval.ms"].default
    offset_checkpoint_ms: int = NUMBERS["log.flush.offset.checkpoint.interval.ms"].default
    retention_check_ms: int = NUMBERS["log.retention.check.interval.ms"].default
    file_delete_delay_ms: int = NUMBERS["log.segment.delete.delay.ms"].default
    client_fetch_max_bytes: int = NUMBERS["fetch.max.bytes"].default
    fetch_session_slots: int = NUMBERS["max.incremental.fetch.session.cache.slots"].default
    inter_broker_listener: str = ""
    """The listener at which brokers reach each other; empty for a node that is no broker."""
    controlled_shutdown: bool = True
    auto_create_topics: bool = True
    deletes_topics: bool = True
    forwarding_timeout_ms: int = NUMBERS["request.timeout.ms"].default
    max_described_partitions: int = NUMBERS["max.request.partition.size.limit"].default
    rack: str | None = None
    cordoned: str = ""
    """The log directories that take no new replicas, or `*`, as in the file."""
    tls: ConfigTls = ConfigTls()
    """TLS of the listeners and of the connections to controllers; the files are not read yet."""
    sasl: SaslSettings = SaslSettings()
    """The logins at the listeners, and at controllers."""
    sasl_max_receive_bytes: int = NUMBERS["sasl.server.max.receive.size"].default
    failed_authentication_delay_ms: int = NUMBERS["connection.failed.authentication.delay.ms"].default
    max_reauth_ms: int = NUMBERS["connections.max.reauth.ms"].default
    request_max_bytes: int = NUMBERS["socket.request.max.bytes"].default
    connections_max_idle_ms: int = NUMBERS["connections.max.idle.ms"].default
    max_connections: int = NUMBERS["max.connections"].default
    max_connections_per_ip: int = NUMBERS["max.connections.per.ip"].default
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    queued_max_requests: int = NUMBERS["queued.max.requests"].default
    queued_max_request_bytes: int = NUMBERS["queued.max.request.bytes"].default
    metrics_listener: tuple[str, int] | None = None
    """The host and the port of the metrics listener; None if it is off."""
    metrics_dialect: str = DIALECTS[0]
    data: DataConfig = DataConfig()
    """What only a broker with data reads."""
    groups: GroupConfig = GroupConfig()
    """What its group coordinator reads."""
    transactions: TransactionConfig = TransactionConfig()
    """What its transaction coordinator reads."""
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
        reader = SettingsReader.of(text, source, overrides)
        return _config(reader, read_roles(reader))

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
        reader = SettingsReader.of(text, source)
        config = _config(reader, read_roles(reader))
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
        return Verdict(refused=refused)
    not_for_kafka = tuple(refused_by_kafka_alone(reader, listeners))
    try:
        _config(reader, roles)
    except ConfigError as refused:
        return Verdict(not_supported=refused, not_for_kafka=not_for_kafka)
    return Verdict(not_for_kafka=not_for_kafka)


def _own_voter(voters: tuple[QuorumVoter, ...], node_id: int) -> QuorumVoter | None:
    return next((voter for voter in voters if voter.id == node_id), None)


def _config(reader: SettingsReader, roles: tuple[str, ...]) -> Config:
    """All checked settings of a node of these roles; raises `ConfigError`."""
    node_id = read_node_id(reader)
    names = read_controller_listener_names(reader)
    voters = read_voters(reader, node_id, CONTROLLER if CONTROLLER in roles else BROKER)
    listeners = read_listeners(reader, names, roles)
    log_dirs = read_log_dirs(reader)
    check_settings(reader, listeners, roles=roles)
    check_refused(reader)
    inter_broker = read_inter_broker_listener(reader, listeners, names, roles)
    destinations = read_destinations(reader, listeners, names, inter_broker)
    return Config(
        node_id=node_id,
        process_roles=roles,
        voters=voters,
        bootstrap_servers=reader.entries(BOOTSTRAP_SERVERS, parse_host_port),
        auto_join=reader.flag("controller.quorum.auto.join.enable"),
        listeners=listeners,
        controller_listener_names=names,
        advertised_listeners=read_advertised_listeners(reader, listeners, names, _own_voter(voters, node_id)),
        inter_broker_listener=inter_broker,
        tls=read_node_tls(reader, listeners, destinations),
        sasl=read_sasl(reader, listeners, destinations),
        controlled_shutdown=reader.flag("controlled.shutdown.enable"),
        auto_create_topics=reader.flag("auto.create.topics.enable"),
        deletes_topics=reader.flag("delete.topic.enable"),
        rack=reader.text("broker.rack") or None,
        cordoned=reader.text("cordoned.log.dirs"),
        log_dirs=log_dirs,
        metadata_log_dir=reader.text("metadata.log.dir") or log_dirs[0],
        auto_leader_rebalance=reader.flag("auto.leader.rebalance.enable"),
        unclean_election=reader.flag("unclean.leader.election.enable"),
        has_authorizer=read_has_authorizer(reader, names[0] if CONTROLLER in roles else None),
        super_users=read_super_users(reader),
        # As in Java, any other word means false.
        allows_without_acl=reader.text("allow.everyone.if.no.acl.found").lower() == "true",
        token_secret=reader.secret("delegation.token.secret.key"),
        max_connections_per_ip_overrides=reader.entries("max.connections.per.ip.overrides", parse_connection_limit),
        metrics_listener=read_metrics_listener(reader),
        metrics_dialect=read_metrics_dialect(reader),
        data=read_data(reader) if BROKER in roles else DataConfig(),
        groups=read_groups(reader) if BROKER in roles else GroupConfig(),
        transactions=read_transactions(reader) if BROKER in roles else TransactionConfig(),
        described=reader.described(),
        warnings=(*reader.warnings(), *deprecated(reader, roles=roles)),
        **reader.numbers(),
    )
