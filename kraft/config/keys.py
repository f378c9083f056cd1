"""The settings that this software reads: name, type, default and range, as Kafka 4.3.1 defines them.

This table is the one home of these facts; `docs/configuration.md` is printed from it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

INT_MAX: Final = 0x7FFF_FFFF
LONG_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


class Number(Struct, frozen=True, kw_only=True):
    """A whole number: the `field` of `Config` it sets, its default, its range and what it means."""

    field: str
    default: int
    minimum: int
    doc: str
    maximum: int = INT_MAX

    @property
    def allowed(self) -> str:
        """The range in words."""
        return f"a whole number from {self.minimum} to {self.maximum}"


class Text(Struct, frozen=True, kw_only=True):
    """A text or list whose form `Config` checks."""

    default: str
    doc: str
    allowed: str


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

TEXTS: Final[dict[str, Text]] = {
    "process.roles": Text(default="", allowed="controller, or broker", doc="What the node does: one of the two."),
    "node.id": Text(default="", allowed=f"a whole number from 0 to {INT_MAX}", doc="The id of this node."),
    "controller.listener.names": Text(
        default="",
        allowed="names that stand in listeners, separated by commas",
        doc="The listeners that controllers use; they talk to each other by the first.",
    ),
    "listeners": Text(
        default="",
        allowed="NAME://host:port, separated by commas",
        doc="Where the node listens; an empty host means every address, port 0 any free one.",
    ),
    "advertised.listeners": Text(
        default="",
        allowed="NAME://host:port, separated by commas",
        doc="How others reach the listeners, where that differs.",
    ),
    "listener.security.protocol.map": Text(
        default="",
        allowed="NAME:PROTOCOL, separated by commas",
        doc="The security protocol of each listener. Without it, listeners named PLAINTEXT, SSL, SASL_PLAINTEXT and"
        " SASL_SSL have the protocol of their name, and every other controller listener has PLAINTEXT if none of these"
        " three is in use. Only PLAINTEXT so far.",
    ),
    "controller.quorum.voters": Text(
        default="",
        allowed="id@host:port, separated by commas",
        doc="The static voters: a controller is among them, a broker finds them here. Without effect once the log"
        " names the voters (kraft.version 1).",
    ),
    "controller.quorum.bootstrap.servers": Text(
        default="",
        allowed="host:port, separated by commas",
        doc="Where some controllers listen, who say who leads. Enough for a node of a dynamic quorum, whose voters"
        " stand in the log.",
    ),
    "controller.quorum.auto.join.enable": Text(
        default="false",
        allowed="true or false",
        doc="Whether a controller that is no voter of a dynamic quorum becomes one by itself.",
    ),
    "log.dirs": Text(default="", allowed="paths, separated by commas", doc="The log directories; wins over `log.dir`."),
    "log.dir": Text(
        default="/tmp/kafka-logs",
        allowed="paths, separated by commas",
        doc="The same, if `log.dirs` is not set.",
    ),
    "metadata.log.dir": Text(
        default="", allowed="a path", doc="The directory of the metadata log; the first log directory if not set."
    ),
    "authorizer.class.name": Text(
        default="",
        allowed=f"`{STANDARD_AUTHORIZER}`",
        doc="With it, access rules (ACLs) hold; without it, whoever reaches a listener may do everything.",
    ),
    "super.users": Text(
        default="",
        allowed="Type:name, separated by semicolons",
        doc="Who may do everything, whatever the access rules say. Controllers and brokers have to be among them,"
        " or be granted CLUSTER_ACTION.",
    ),
    "allow.everyone.if.no.acl.found": Text(
        default="false",
        allowed="true or false",
        doc="Whether everybody may do everything with what no access rule is about.",
    ),
    "early.start.listeners": Text(
        default="",
        allowed="names of listeners, separated by commas; the first of controller.listener.names is among them",
        doc="The listeners that are served before access rules are loaded, to super users alone; every controller"
        " listener if not set.",
    ),
    "auto.leader.rebalance.enable": Text(
        default="true",
        allowed="true or false",
        doc="Whether leaderships go back to preferred replicas by themselves.",
    ),
    "unclean.leader.election.enable": Text(
        default="false", allowed="true or false", doc="The default of the topic setting of this name."
    ),
    "controlled.shutdown.enable": Text(
        default="true",
        allowed="true or false",
        doc="Whether a broker hands over its leaderships before it stops.",
    ),
    "broker.rack": Text(default="", allowed="a name", doc="Where a broker stands; replicas are spread over racks."),
    "config.providers": Text(
        default="",
        allowed="names, separated by commas, each with a config.providers.NAME.class",
        doc="What resolves `${NAME:…}` in values: [below](#values-from-elsewhere).",
    ),
    "max.connections.per.ip.overrides": Text(
        default="",
        allowed="host:number, separated by commas",
        doc="The same for single hosts.",
    ),
    "delegation.token.secret.key": Text(
        default="",
        allowed="a secret, the same on every controller and broker",
        doc="With it, there are delegation tokens.",
    ),
}

NUMBERS: Final[dict[str, Number]] = {
    "controller.quorum.election.timeout.ms": Number(
        field="election_timeout_ms",
        default=1000,
        minimum=0,
        doc="Election timers are drawn from once to twice this.",
    ),
    "controller.quorum.fetch.timeout.ms": Number(
        field="fetch_timeout_ms",
        default=2000,
        minimum=0,
        doc="How long a follower waits for its leader before it asks for an election; a leader without fetches of a"
        " majority steps down after 1.5 times this.",
    ),
    "controller.quorum.election.backoff.max.ms": Number(
        field="election_backoff_max_ms",
        default=1000,
        minimum=0,
        doc="The longest back-off by rank after a leader stepped down politely.",
    ),
    "controller.quorum.request.timeout.ms": Number(
        field="request_timeout_ms", default=2000, minimum=0, doc="How long a quorum request may take."
    ),
    "controller.quorum.retry.backoff.ms": Number(
        field="retry_backoff_ms", default=20, minimum=0, doc="The pause before a failed quorum request is repeated."
    ),
    "controller.quorum.lost.leader.backoff.max.ms": Number(
        field="lost_leader_backoff_max_ms",
        default=100,
        minimum=0,
        doc="How long at most to wait with an election once nobody listens where the leader was; 0 for the fetch "
        "timeout, as Kafka, which has no such setting.",
    ),
    "controller.quorum.append.linger.ms": Number(
        field="append_linger_ms", default=25, minimum=0, doc="How long a leader collects records before it writes them."
    ),
    "controller.quorum.fetch.max.bytes": Number(
        field="fetch_max_bytes", default=1_048_576, minimum=1, doc="How much of the log a replica asks for at once."
    ),
    "controller.quorum.fetch.snapshot.max.bytes": Number(
        field="fetch_snapshot_max_bytes",
        default=1_048_576,
        minimum=1,
        doc="How much of a snapshot a replica asks for at once.",
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
        doc="After how much of new records a node makes a snapshot.",
    ),
    "metadata.log.max.snapshot.interval.ms": Number(
        field="snapshot_max_interval_ms",
        default=3_600_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="After which time a node makes a snapshot if there is anything new; 0 for never.",
    ),
    "metadata.max.retention.bytes": Number(
        field="retention_bytes",
        default=104_857_600,
        minimum=-1,
        maximum=LONG_MAX,
        doc="How large log and snapshots may be together before the oldest go; -1 for no limit.",
    ),
    "metadata.max.retention.ms": Number(
        field="retention_ms",
        default=604_800_000,
        minimum=-1,
        maximum=LONG_MAX,
        doc="How old the last record in the oldest snapshot may be before that goes; -1 for no limit.",
    ),
    "metadata.max.idle.interval.ms": Number(
        field="max_idle_interval_ms",
        default=500,
        minimum=0,
        doc="How often an idle active controller writes a NoOp record; 0 for never.",
    ),
    "min.insync.replicas": Number(
        field="min_insync_replicas", default=1, minimum=1, doc="The default of the topic setting of this name."
    ),
    "num.partitions": Number(
        field="num_partitions", default=1, minimum=1, doc="How many partitions a topic has whose creator does not say."
    ),
    "default.replication.factor": Number(
        field="default_replication_factor",
        default=1,
        minimum=1,
        maximum=32_767,
        doc="How many replicas a partition has whose creator does not say.",
    ),
    "broker.session.timeout.ms": Number(
        field="broker_session_timeout_ms",
        default=9000,
        minimum=1,
        doc="After how much silence a broker is fenced.",
    ),
    "broker.heartbeat.interval.ms": Number(
        field="heartbeat_interval_ms",
        default=2000,
        minimum=1,
        doc="How often a broker sends a heartbeat.",
    ),
    "initial.broker.registration.timeout.ms": Number(
        field="initial_registration_timeout_ms",
        default=60_000,
        minimum=1,
        doc="How long a broker tries to register before it gives up.",
    ),
    "replica.lag.time.max.ms": Number(
        field="replica_lag_time_max_ms",
        default=30_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="After how much silence a follower leaves the ISR.",
    ),
    "replica.fetch.wait.max.ms": Number(
        field="replica_fetch_wait_max_ms",
        default=500,
        minimum=1,
        doc="How often a follower fetches where there is nothing to fetch.",
    ),
    "leader.imbalance.check.interval.seconds": Number(
        field="leader_imbalance_check_interval_seconds",
        default=300,
        minimum=1,
        maximum=LONG_MAX,
        doc="How often leaderships go back to preferred replicas.",
    ),
    "leader.imbalance.per.broker.percentage": Number(
        field="leader_imbalance_percentage",
        default=0,
        minimum=0,
        maximum=100,
        doc="How much of what a broker should lead others may lead before it gets its leaderships back; 0 as in"
        " Kafka 4, which has no such setting any more: every leadership goes back.",
    ),
    "unclean.leader.election.interval.ms": Number(
        field="unclean_election_interval_ms",
        default=300_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="How often partitions without a leader get one that may lack records, where their topics allow that.",
    ),
    "delegation.token.max.lifetime.ms": Number(
        field="token_max_lifetime_ms",
        default=604_800_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="How long a delegation token can be renewed at most.",
    ),
    "delegation.token.expiry.time.ms": Number(
        field="token_expiry_time_ms",
        default=86_400_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="How long a delegation token is valid until it is renewed.",
    ),
    "delegation.token.expiry.check.interval.ms": Number(
        field="token_check_interval_ms",
        default=3_600_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="How often delegation tokens that have expired are removed.",
    ),
    "socket.request.max.bytes": Number(
        field="request_max_bytes", default=104_857_600, minimum=1, doc="The largest request that is accepted."
    ),
    "connections.max.idle.ms": Number(
        field="connections_max_idle_ms",
        default=600_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="When an idle connection is closed.",
    ),
    "max.connections": Number(
        field="max_connections",
        default=INT_MAX,
        minimum=0,
        doc="How many connections of peers there may be: 10000 if not set, and never more than descriptors allow;"
        " some are kept back for voters and this machine.",
    ),
    "max.connections.per.ip": Number(
        field="max_connections_per_ip",
        default=INT_MAX,
        minimum=0,
        doc="How many of them one address may have; half of all if not set.",
    ),
    "queued.max.request.bytes": Number(
        field="queued_max_request_bytes",
        default=-1,
        minimum=-1,
        maximum=LONG_MAX,
        doc="How much memory received requests may take, half-received and unanswered ones included, before connections"
        " are not read from; 64 MiB, or twice the largest request, if this is not above 0. Voters have as much of"
        " their own.",
    ),
}

SEGMENT_BYTES_OVERRIDE: Final = "internal.metadata.log.segment.bytes"
"""Wins over `metadata.log.segment.bytes`, and may be smaller (Kafka's tests and ours)."""
SMALLEST_SEGMENT_BYTES: Final = 1024


def configuration_table() -> str:
    """Every setting as a Markdown table."""
    rows = [(name, text.default or "—", text.allowed, text.doc) for name, text in TEXTS.items()]
    rows += [(name, str(number.default), number.allowed, number.doc) for name, number in NUMBERS.items()]
    lines = ["| key | default | allowed | what it is |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {default} | {allowed} | {doc} |" for name, default, allowed, doc in rows]
    return "\n".join(lines) + "\n"
