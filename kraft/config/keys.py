"""The settings that this software reads: name, type, default and range, as Kafka 4.3.1 defines them.

This table is the only source of these facts; `docs/configuration.md` is printed from it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

INT_MAX: Final = 0x7FFF_FFFF
LONG_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


class Number(Struct, frozen=True, kw_only=True):
    """A whole number: its field of `Config`, its default, its range and its meaning."""

    field: str
    default: int
    minimum: int
    doc: str
    maximum: int = INT_MAX

    @property
    def allowed(self) -> str:
        """The range as a text."""
        return f"a whole number from {self.minimum} to {self.maximum}"


class Text(Struct, frozen=True, kw_only=True):
    """A text or list with a form that `Config` checks."""

    default: str
    doc: str
    allowed: str


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

TEXTS: Final[dict[str, Text]] = {
    "process.roles": Text(default="", allowed="controller, broker, or both by a comma", doc="The roles of the node."),
    "node.id": Text(default="", allowed=f"a whole number from 0 to {INT_MAX}", doc="The id of this node."),
    "controller.listener.names": Text(
        default="",
        allowed="names from listeners, separated by commas",
        doc="The listeners of controllers; the first one is for requests between controllers.",
    ),
    "listeners": Text(
        default="",
        allowed="NAME://host:port, separated by commas",
        doc="The addresses that the node listens on; an empty host means every address, port 0 any free port.",
    ),
    "advertised.listeners": Text(
        default="",
        allowed="NAME://host:port, separated by commas",
        doc="The addresses of the listeners for other nodes, where they differ.",
    ),
    "inter.broker.listener.name": Text(
        default="",
        allowed="a name from listeners",
        doc="The listener at which brokers reach each other; without it the one that has the name of"
        " security.inter.broker.protocol.",
    ),
    "security.inter.broker.protocol": Text(
        default="PLAINTEXT",
        allowed="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, as the controllers have",
        doc="The name of the listener at which brokers reach each other.",
    ),
    "listener.security.protocol.map": Text(
        default="",
        allowed="NAME:PROTOCOL, separated by commas",
        doc="The security protocol of each listener. Without it, listeners named PLAINTEXT, SSL, SASL_PLAINTEXT and"
        " SASL_SSL have the protocol of their name, and every other controller listener has PLAINTEXT if none of these"
        " three is in use.",
    ),
    "sasl.enabled.mechanisms": Text(
        default="GSSAPI",
        allowed="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, separated by commas",
        doc="The mechanisms by which peers log in at a listener with SASL; [below](#logins). The default, GSSAPI, is"
        " not supported.",
    ),
    "sasl.mechanism.controller.protocol": Text(
        default="GSSAPI",
        allowed="PLAIN, or OAUTHBEARER; on a broker also SCRAM-SHA-256 or SCRAM-SHA-512",
        doc="The mechanism by which this node logs in at controllers. The default, GSSAPI, is not supported.",
    ),
    "controller.quorum.voters": Text(
        default="",
        allowed="id@host:port, separated by commas",
        doc="The static voters: a controller is one of them, a broker finds the controllers by them. Without effect"
        " once the log names the voters (kraft.version 1).",
    ),
    "controller.quorum.bootstrap.servers": Text(
        default="",
        allowed="host:port, separated by commas",
        doc="The addresses of some controllers, which name the leader. Sufficient for a node of a dynamic quorum, which"
        " has its voters in the log.",
    ),
    "controller.quorum.auto.join.enable": Text(
        default="false",
        allowed="true or false",
        doc="Whether a controller that is no voter of a dynamic quorum adds itself as one.",
    ),
    "log.dirs": Text(default="", allowed="paths, separated by commas", doc="The log directories; wins over `log.dir`."),
    "log.dir": Text(
        default="/tmp/kafka-logs",
        allowed="paths, separated by commas",
        doc="The log directories if `log.dirs` is not set.",
    ),
    "metadata.log.dir": Text(
        default="", allowed="a path", doc="The directory of the metadata log; the first log directory if not set."
    ),
    "authorizer.class.name": Text(
        default="",
        allowed=f"`{STANDARD_AUTHORIZER}`",
        doc="With an authorizer, access rules (ACLs) are enforced; without one, every client may do everything.",
    ),
    "super.users": Text(
        default="",
        allowed="Type:name, separated by semicolons",
        doc="Principals with every permission, whatever the access rules are. Controllers and brokers must be among"
        " them, or be granted CLUSTER_ACTION.",
    ),
    "allow.everyone.if.no.acl.found": Text(
        default="false",
        allowed="true or false",
        doc="Whether resources without access rules are open to every principal.",
    ),
    "early.start.listeners": Text(
        default="",
        allowed="names of listeners, separated by commas; the first of controller.listener.names is among them",
        doc="The listeners that are served before access rules are loaded, to super users only; by default every"
        " controller listener.",
    ),
    "auto.leader.rebalance.enable": Text(
        default="true",
        allowed="true or false",
        doc="Whether leaderships return to preferred replicas automatically.",
    ),
    "unclean.leader.election.enable": Text(
        default="false", allowed="true or false", doc="The default of the topic setting of this name."
    ),
    "controlled.shutdown.enable": Text(
        default="true",
        allowed="true or false",
        doc="Whether a broker transfers its leaderships before it stops.",
    ),
    "auto.create.topics.enable": Text(
        default="true",
        allowed="true or false",
        doc="Whether a broker creates a topic when a client asks for its metadata and allows that.",
    ),
    "broker.rack": Text(default="", allowed="a name", doc="The rack of a broker; replicas are spread over racks."),
    "config.providers": Text(
        default="",
        allowed="names, separated by commas, each with a config.providers.NAME.class",
        doc="The providers that resolve `${NAME:…}` in values: [below](#values-from-elsewhere).",
    ),
    "max.connections.per.ip.overrides": Text(
        default="",
        allowed="host:number, separated by commas",
        doc="The limit of single hosts, in place of max.connections.per.ip.",
    ),
    "kraft.metrics.listener": Text(
        default="",
        allowed="host:port, or a port of the loopback address",
        doc="The address of `/metrics`, `/livez`, `/readyz` and `/startupz` in plain HTTP; off if not set. Port 0 is"
        " any free port. A setting of this software.",
    ),
    "kraft.metrics.dialect": Text(
        default="jmx-exporter",
        allowed="jmx-exporter or strimzi-jmx",
        doc="The names of Kafka's metrics: those of jmx_exporter's rules for KRaft and of Strimzi's Metrics Reporter,"
        " or those of Strimzi's JMX rules. A setting of this software.",
    ),
    "delegation.token.secret.key": Text(
        default="",
        allowed="a secret, the same on every controller and broker",
        doc="The secret of delegation tokens; enables them.",
    ),
}

NUMBERS: Final[dict[str, Number]] = {
    "controller.quorum.election.timeout.ms": Number(
        field="election_timeout_ms",
        default=1000,
        minimum=0,
        doc="The election timeout; each timer is a random value from once to twice this.",
    ),
    "controller.quorum.fetch.timeout.ms": Number(
        field="fetch_timeout_ms",
        default=2000,
        minimum=0,
        doc="The time that a follower waits for its leader before it starts an election; a leader without fetches of a"
        " majority resigns after 1.5 times this.",
    ),
    "controller.quorum.election.backoff.max.ms": Number(
        field="election_backoff_max_ms",
        default=1000,
        minimum=0,
        doc="The longest election backoff by rank after a leader has resigned.",
    ),
    "controller.quorum.request.timeout.ms": Number(
        field="request_timeout_ms", default=2000, minimum=0, doc="The timeout of a quorum request."
    ),
    "controller.quorum.retry.backoff.ms": Number(
        field="retry_backoff_ms", default=20, minimum=0, doc="The pause before a failed quorum request is repeated."
    ),
    "controller.quorum.lost.leader.backoff.max.ms": Number(
        field="lost_leader_backoff_max_ms",
        default=100,
        minimum=0,
        doc="The longest delay of an election after the leader's host refuses connections; 0 for the fetch timeout, as "
        "in Kafka, which has no such setting.",
    ),
    "controller.quorum.append.linger.ms": Number(
        field="append_linger_ms", default=25, minimum=0, doc="The time that a leader collects records before a write."
    ),
    "controller.quorum.fetch.max.bytes": Number(
        field="fetch_max_bytes",
        default=1_048_576,
        minimum=1,
        doc="The most bytes of log that a replica fetches at once.",
    ),
    "controller.quorum.fetch.snapshot.max.bytes": Number(
        field="fetch_snapshot_max_bytes",
        default=1_048_576,
        minimum=1,
        doc="The most bytes of a snapshot that a replica fetches at once.",
    ),
    "internal.metadata.max.batch.size.in.bytes": Number(
        field="max_batch_bytes", default=8_388_608, minimum=512, doc="The largest record batch that a leader writes."
    ),
    "metadata.log.segment.bytes": Number(
        field="segment_bytes", default=1_073_741_824, minimum=8_388_608, doc="The size at which a log segment is full."
    ),
    "metadata.log.segment.ms": Number(
        field="segment_ms", default=604_800_000, minimum=1, maximum=LONG_MAX, doc="The age at which a segment is full."
    ),
    "metadata.log.max.record.bytes.between.snapshots": Number(
        field="snapshot_max_bytes",
        default=20_971_520,
        minimum=1,
        maximum=LONG_MAX,
        doc="The size of new records after which a node makes a snapshot.",
    ),
    "metadata.log.max.snapshot.interval.ms": Number(
        field="snapshot_max_interval_ms",
        default=3_600_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The time after which a node makes a snapshot if there are new records; 0 for never.",
    ),
    "metadata.max.retention.bytes": Number(
        field="retention_bytes",
        default=104_857_600,
        minimum=-1,
        maximum=LONG_MAX,
        doc="The total size of log and snapshots above which the oldest are deleted; -1 for no limit.",
    ),
    "metadata.max.retention.ms": Number(
        field="retention_ms",
        default=604_800_000,
        minimum=-1,
        maximum=LONG_MAX,
        doc="The age of the last record in the oldest snapshot above which the snapshot is deleted; -1 for no limit.",
    ),
    "metadata.max.idle.interval.ms": Number(
        field="max_idle_interval_ms",
        default=500,
        minimum=0,
        doc="The interval of NoOp records of an idle active controller; 0 for never.",
    ),
    "min.insync.replicas": Number(
        field="min_insync_replicas", default=1, minimum=1, doc="The default of the topic setting of this name."
    ),
    "num.partitions": Number(
        field="num_partitions", default=1, minimum=1, doc="The number of partitions of a new topic, if not requested."
    ),
    "default.replication.factor": Number(
        field="default_replication_factor",
        default=1,
        minimum=1,
        maximum=32_767,
        doc="The replication factor of a new topic, if not requested.",
    ),
    "broker.session.timeout.ms": Number(
        field="broker_session_timeout_ms",
        default=9000,
        minimum=1,
        doc="The time without heartbeats after which a broker is fenced.",
    ),
    "broker.heartbeat.interval.ms": Number(
        field="heartbeat_interval_ms",
        default=2000,
        minimum=1,
        doc="The interval of a broker's heartbeats.",
    ),
    "initial.broker.registration.timeout.ms": Number(
        field="initial_registration_timeout_ms",
        default=60_000,
        minimum=1,
        doc="The time after which a broker stops trying to register.",
    ),
    "replica.lag.time.max.ms": Number(
        field="replica_lag_time_max_ms",
        default=30_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The time without fetches after which a follower leaves the ISR.",
    ),
    "replica.fetch.wait.max.ms": Number(
        field="replica_fetch_wait_max_ms",
        default=500,
        minimum=1,
        doc="The longest wait of a follower's fetch without new records.",
    ),
    "request.timeout.ms": Number(
        field="forwarding_timeout_ms",
        default=30_000,
        minimum=1,
        doc="The time after which a broker gives up a request that it forwards to the active controller.",
    ),
    "max.request.partition.size.limit": Number(
        field="max_described_partitions",
        default=2000,
        minimum=1,
        doc="The most partitions in one answer of a broker to DescribeTopicPartitions.",
    ),
    "replica.fetch.min.bytes": Number(
        field="replica_fetch_min_bytes",
        default=1,
        minimum=0,
        doc="The least bytes of an answer to a follower's fetch before the leader's wait ends.",
    ),
    "replica.fetch.max.bytes": Number(
        field="replica_fetch_max_bytes",
        default=1_048_576,
        minimum=0,
        doc="The most bytes that a follower fetches of one partition at once.",
    ),
    "replica.fetch.response.max.bytes": Number(
        field="replica_fetch_response_max_bytes",
        default=10_485_760,
        minimum=0,
        doc="The most bytes that a follower fetches at once.",
    ),
    "replica.fetch.backoff.ms": Number(
        field="replica_fetch_backoff_ms",
        default=1_000,
        minimum=0,
        doc="The pause of a follower after a failed fetch of a partition.",
    ),
    "replica.high.watermark.checkpoint.interval.ms": Number(
        field="watermark_checkpoint_ms",
        default=5_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The interval of writing the high watermarks to disk.",
    ),
    "log.flush.offset.checkpoint.interval.ms": Number(
        field="offset_checkpoint_ms",
        default=60_000,
        minimum=1,
        doc="The interval of writing recovery points and log starts to disk.",
    ),
    "log.retention.check.interval.ms": Number(
        field="retention_check_ms",
        default=300_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The interval of looking for segments to delete.",
    ),
    "log.segment.delete.delay.ms": Number(
        field="file_delete_delay_ms",
        default=60_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The time after which the files of deleted topics and segments are removed.",
    ),
    "fetch.max.bytes": Number(
        field="client_fetch_max_bytes", default=57_671_680, minimum=1024, doc="The most bytes of an answer to a fetch."
    ),
    "max.incremental.fetch.session.cache.slots": Number(
        field="fetch_session_slots", default=1_000, minimum=0, doc="The most fetch sessions of a broker."
    ),
    "leader.imbalance.check.interval.seconds": Number(
        field="leader_imbalance_check_interval_seconds",
        default=300,
        minimum=1,
        maximum=LONG_MAX,
        doc="The interval of returning leaderships to preferred replicas.",
    ),
    "leader.imbalance.per.broker.percentage": Number(
        field="leader_imbalance_percentage",
        default=0,
        minimum=0,
        maximum=100,
        doc="The share of a broker's preferred leaderships that other brokers may have before they return; 0 as in"
        " Kafka 4, which has no such setting any more: every leadership returns.",
    ),
    "unclean.leader.election.interval.ms": Number(
        field="unclean_election_interval_ms",
        default=300_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The interval of unclean elections for partitions without a leader, where their topics allow them.",
    ),
    "delegation.token.max.lifetime.ms": Number(
        field="token_max_lifetime_ms",
        default=604_800_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The longest lifetime of a delegation token, renewals included.",
    ),
    "delegation.token.expiry.time.ms": Number(
        field="token_expiry_time_ms",
        default=86_400_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The validity of a delegation token until its renewal.",
    ),
    "delegation.token.expiry.check.interval.ms": Number(
        field="token_check_interval_ms",
        default=3_600_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The interval of removing expired delegation tokens.",
    ),
    "socket.request.max.bytes": Number(
        field="request_max_bytes", default=104_857_600, minimum=1, doc="The largest request that is accepted."
    ),
    "sasl.server.max.receive.size": Number(
        field="sasl_max_receive_bytes",
        default=524_288,
        minimum=1,
        doc="The largest request that is accepted before a login is complete.",
    ),
    "connection.failed.authentication.delay.ms": Number(
        field="failed_authentication_delay_ms", default=100, minimum=0, doc="The delay of the refusal of a login."
    ),
    "connections.max.reauth.ms": Number(
        field="max_reauth_ms",
        default=0,
        minimum=0,
        maximum=LONG_MAX,
        doc="The time after which a peer has to log in again on the same connection; 0 for never.",
    ),
    "connections.max.idle.ms": Number(
        field="connections_max_idle_ms",
        default=600_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The time after which an idle connection is closed.",
    ),
    "max.connections": Number(
        field="max_connections",
        default=INT_MAX,
        minimum=0,
        doc="The most connections of peers: by default 10000, and never more than descriptors allow; some are reserved"
        " for voters and this machine.",
    ),
    "max.connections.per.ip": Number(
        field="max_connections_per_ip",
        default=INT_MAX,
        minimum=0,
        doc="The most connections of one address; by default half of all.",
    ),
    "queued.max.requests": Number(
        field="queued_max_requests",
        default=500,
        minimum=1,
        doc="The most requests that wait for the node.",
    ),
    "queued.max.request.bytes": Number(
        field="queued_max_request_bytes",
        default=-1,
        minimum=-1,
        maximum=LONG_MAX,
        doc="The memory of received requests, incomplete and unanswered ones included, above which connections are not"
        " read from; 64 MiB, or twice the largest request, if this is not above 0. Voters have a separate bound of the"
        " same size.",
    ),
}

SEGMENT_BYTES_OVERRIDE: Final = "internal.metadata.log.segment.bytes"
"""Takes precedence over `metadata.log.segment.bytes`, and may be smaller (for tests)."""
SMALLEST_SEGMENT_BYTES: Final = 1024


def configuration_table() -> str:
    """Every setting as a Markdown table."""
    rows = [(name, text.default or "—", text.allowed, text.doc) for name, text in TEXTS.items()]
    rows += [(name, str(number.default), number.allowed, number.doc) for name, number in NUMBERS.items()]
    lines = ["| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {default} | {allowed} | {doc} |" for name, default, allowed, doc in rows]
    return "\n".join(lines) + "\n"
