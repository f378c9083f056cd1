"""The settings that this software reads: name, type, default and range, as Kafka defines them.

This table is the only source of these facts; `docs/configuration.md` is printed from it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.config.definitions import NODE

INT_MAX: Final = 0x7FFF_FFFF
LONG_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF


class Number(Struct, frozen=True, kw_only=True):
    """A whole number: its default, its range and its meaning."""

    default: int
    minimum: int
    maximum: int
    doc: str

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
        default="PLAINTEXT://:9092",
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
        allowed="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
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
        doc="The mechanisms by which peers log in at a listener with SASL;"
        " [logins](reference/security-settings.md#logins). The default, GSSAPI, is not supported.",
    ),
    "sasl.mechanism.controller.protocol": Text(
        default="GSSAPI",
        allowed="PLAIN, or OAUTHBEARER; on a broker also SCRAM-SHA-256 or SCRAM-SHA-512",
        doc="The mechanism by which this node logs in at controllers. The default, GSSAPI, is not supported.",
    ),
    "sasl.mechanism.inter.broker.protocol": Text(
        default="GSSAPI",
        allowed="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, one of sasl.enabled.mechanisms",
        doc="The mechanism by which this broker logs in at other brokers. The default, GSSAPI, is not supported.",
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
    "cordoned.log.dirs": Text(
        default="",
        allowed="paths of log.dirs, separated by commas, or *",
        doc="The log directories of a broker that take no new replicas; the dynamic configuration of the broker wins.",
    ),
    "delete.topic.enable": Text(
        default="true",
        allowed="true or false",
        doc="Whether controllers delete topics. Otherwise DeleteTopics is answered with TOPIC_DELETION_DISABLED.",
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
    "kraft.client.telemetry.enable": Text(
        default="false",
        allowed="true or false",
        doc="Whether a broker takes the metrics that clients push (KIP-714), and shows them in `/metrics`: [how]"
        "(howto/client-metrics.md). It needs the extra `telemetry`. A setting of this software, in place of a class"
        " in metric.reporters.",
    ),
    "delegation.token.secret.key": Text(
        default="",
        allowed="a secret, the same on every controller and broker",
        doc="The secret of delegation tokens; enables them.",
    ),
}

_LEAST: Final = {"INT": -(2**31), "LONG": -(2**63)}
_MOST: Final = {"INT": INT_MAX, "LONG": LONG_MAX}


def _number(
    key: str,
    doc: str,
    *,
    default: int = 0,
    minimum: int | None = None,
    maximum: int | None = None,
) -> tuple[str, Number]:
    """A number of this software, or one of Kafka, perhaps with narrower bounds."""
    kafka = NODE.get(key)
    if kafka is None:
        return key, Number(default=default, minimum=minimum or 0, maximum=maximum or INT_MAX, doc=doc)
    least, most = kafka.least, kafka.most
    return key, Number(
        default=int(kafka.default or 0),
        minimum=minimum if minimum is not None else _LEAST[kafka.type] if least is None else int(least),
        maximum=maximum if maximum is not None else _MOST[kafka.type] if most is None else int(most),
        doc=doc,
    )


_NUMBERS: Final = (
    _number(
        "controller.quorum.election.timeout.ms",
        "The election timeout; each timer is a random value from once to twice this.",
    ),
    _number(
        "controller.quorum.fetch.timeout.ms",
        "The time that a follower waits for its leader before it starts an election; a leader without fetches of"
        " a majority resigns after 1.5 times this.",
    ),
    _number(
        "controller.quorum.election.backoff.max.ms",
        "The longest election backoff by rank after a leader has resigned.",
    ),
    _number("controller.quorum.request.timeout.ms", "The timeout of a quorum request."),
    _number(
        "controller.quorum.retry.backoff.ms",
        "The pause before a failed quorum request is repeated.",
    ),
    _number(
        "controller.quorum.lost.leader.backoff.max.ms",
        "The longest delay of an election after the leader's host refuses connections; 0 for the fetch timeout,"
        " as in Kafka, which has no such setting.",
        default=100,
        minimum=0,
    ),
    _number(
        "controller.quorum.append.linger.ms",
        "The time that a leader collects records before a write.",
    ),
    _number("controller.quorum.fetch.max.bytes", "The most bytes of log that a replica fetches at once."),
    _number(
        "controller.quorum.fetch.snapshot.max.bytes",
        "The most bytes of a snapshot that a replica fetches at once.",
    ),
    _number(
        "internal.metadata.max.batch.size.in.bytes",
        "The largest record batch that a leader writes.",
        minimum=512,
    ),
    _number("metadata.log.segment.bytes", "The size at which a log segment is full."),
    _number("metadata.log.segment.ms", "The age at which a segment is full.", minimum=1),
    _number(
        "metadata.log.max.record.bytes.between.snapshots",
        "The size of new records after which a node makes a snapshot.",
    ),
    _number(
        "metadata.log.max.snapshot.interval.ms",
        "The time after which a node makes a snapshot if there are new records; 0 for never.",
    ),
    _number(
        "metadata.max.retention.bytes",
        "The total size of log and snapshots above which the oldest are deleted; -1 for no limit.",
        minimum=-1,
    ),
    _number(
        "metadata.max.retention.ms",
        "The age of the last record in the oldest snapshot above which the snapshot is deleted; -1 for no limit.",
        minimum=-1,
    ),
    _number(
        "metadata.max.idle.interval.ms",
        "The interval of NoOp records of an idle active controller; 0 for never.",
    ),
    _number("min.insync.replicas", "The default of the topic setting of this name."),
    _number("num.partitions", "The number of partitions of a new topic, if not requested."),
    _number(
        "default.replication.factor",
        "The replication factor of a new topic, if not requested.",
        minimum=1,
        maximum=32767,
    ),
    _number(
        "broker.session.timeout.ms",
        "The time without heartbeats after which a broker is fenced.",
        minimum=1,
    ),
    _number("broker.heartbeat.interval.ms", "The interval of a broker's heartbeats.", minimum=1),
    _number(
        "initial.broker.registration.timeout.ms",
        "The time after which a broker stops trying to register.",
        minimum=1,
    ),
    _number(
        "replica.lag.time.max.ms",
        "The time without fetches after which a follower leaves the ISR.",
        minimum=1,
    ),
    _number(
        "replica.fetch.wait.max.ms",
        "The longest wait of a follower's fetch without new records.",
        minimum=1,
    ),
    _number(
        "request.timeout.ms",
        "The time after which a broker gives up a request that it forwards to the active controller.",
        minimum=1,
    ),
    _number(
        "max.request.partition.size.limit",
        "The most partitions in one answer of a broker to DescribeTopicPartitions.",
    ),
    _number(
        "replica.fetch.min.bytes",
        "The least bytes of an answer to a follower's fetch before the leader's wait ends.",
        minimum=0,
    ),
    _number(
        "replica.fetch.max.bytes",
        "The most bytes that a follower fetches of one partition at once.",
    ),
    _number(
        "replica.fetch.response.max.bytes",
        "The most bytes that a follower fetches at once.",
    ),
    _number(
        "replica.fetch.backoff.ms",
        "The pause of a follower after a failed fetch of a partition.",
    ),
    _number(
        "replica.high.watermark.checkpoint.interval.ms",
        "The interval of writing the high watermarks to disk.",
        minimum=1,
    ),
    _number(
        "log.flush.offset.checkpoint.interval.ms",
        "The interval of writing recovery points and log starts to disk.",
        minimum=1,
    ),
    _number("log.retention.check.interval.ms", "The interval of looking for segments to delete."),
    _number(
        "log.segment.delete.delay.ms",
        "The time after which the files of deleted topics and segments are removed.",
    ),
    _number("fetch.max.bytes", "The most bytes of an answer to a fetch."),
    _number(
        "telemetry.max.bytes",
        "The most bytes of the metrics that a client pushes at once, compressed and uncompressed.",
        maximum=8 << 20,
    ),
    _number("max.incremental.fetch.session.cache.slots", "The most fetch sessions of a broker."),
    _number(
        "leader.imbalance.check.interval.seconds",
        "The interval of returning leaderships to preferred replicas.",
    ),
    _number(
        "leader.imbalance.per.broker.percentage",
        "The share of a broker's preferred leaderships that other brokers may have before they return; 0 as in"
        " Kafka 4, which has no such setting any more: every leadership returns.",
        default=0,
        minimum=0,
        maximum=100,
    ),
    _number(
        "unclean.leader.election.interval.ms",
        "The interval of unclean elections for partitions without a leader, where their topics allow them.",
    ),
    _number(
        "delegation.token.max.lifetime.ms",
        "The longest lifetime of a delegation token, renewals included.",
    ),
    _number(
        "delegation.token.expiry.time.ms",
        "The validity of a delegation token until its renewal.",
    ),
    _number(
        "delegation.token.expiry.check.interval.ms",
        "The interval of removing expired delegation tokens.",
    ),
    _number("socket.request.max.bytes", "The largest request that is accepted."),
    _number(
        "sasl.server.max.receive.size",
        "The largest request that is accepted before a login is complete.",
        minimum=1,
    ),
    _number(
        "connection.failed.authentication.delay.ms",
        "The delay of the refusal of a login.",
    ),
    _number(
        "connections.max.reauth.ms",
        "The time after which a peer has to log in again on the same connection; 0 for never.",
        minimum=0,
    ),
    _number(
        "connections.max.idle.ms",
        "The time after which an idle connection is closed.",
        minimum=1,
    ),
    _number(
        "max.connection.creation.rate",
        "The most connections that are made in a second, at all listeners together and at each; others wait.",
    ),
    _number(
        "max.connections",
        "The most connections of peers: by default 10000, and never more than descriptors allow; some are"
        " reserved for voters and this machine.",
    ),
    _number(
        "max.connections.per.ip",
        "The most connections of one address; by default half of all.",
    ),
    _number("queued.max.requests", "The most requests that wait for the node."),
    _number(
        "queued.max.request.bytes",
        "The memory of received requests, incomplete and unanswered ones included, above which connections are"
        " not read from; 64 MiB, or twice the largest request, if this is not above 0. Voters have a separate"
        " bound of the same size.",
        minimum=-1,
    ),
)
NUMBERS: Final[dict[str, Number]] = dict(_NUMBERS)
NARROWER: Final = tuple(key for key, number in NUMBERS.items() if key in NODE and number.allowed != NODE[key].allowed)
"""Kafka's numbers that this software bounds closer than Kafka: a negative time, a batch without a byte."""

SEGMENT_BYTES: Final = "metadata.log.segment.bytes"
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
