"""Every view of a cluster's history as data: names, columns, types and meanings (KIP-631 defines the records).

Arrow schemas, Spark schemas, the command line and the reports are made from these tables; no other module names a
column.

A row of a history holds from `valid_from_offset` to before `valid_to_offset`, where null means that the row still
holds. Changes inside a metadata transaction take effect at the offset of the EndTransaction record, while
`cause_offset` is the offset of the record itself. A row that a snapshot began (`cause` is `snapshot`) may have been
true for longer: the history before the snapshot is unknown. `end_cause` states why the row ended, because a removed
object has no following row.
"""

from __future__ import annotations

from typing import Final

from metadata_log.history.columns import Column, ColumnType, View

__all__ = ["DERIVED_VIEWS", "HISTORY_VIEWS", "STATE_VIEWS", "VIEWS", "Column", "ColumnType", "View"]


def _required(name: str, kind: ColumnType, doc: str = "") -> Column:
    return Column(name, kind, doc, nullable=False)


CLUSTER: Final = _required("cluster", "string", "the cluster id, or the caller's name of the cluster")

CAUSE: Final = (
    _required("cause", "string", "a short code; docs/history-causes.md lists them all"),
    Column("cause_record", "string", "the type of the causing record; null for a snapshot"),
    Column("cause_offset", "int64", "the offset of that record"),
    Column("cause_broker", "int32", "the broker with the causing event"),
    _required("cause_text", "string", "the cause as one sentence"),
)
"""The cause of a row: the last columns of every row that describes a change."""

ELECTION: Final = Column(
    "election",
    "string",
    "the rule that chose the leader: isr, preferred, elr, last-known-leader, unclean, first (of a new partition), "
    "none (no replica may lead) or same (only the epoch rose); null = no election",
)
"""The controller's rule that explains the leader."""

VALIDITY: Final = (
    _required("valid_from_offset", "int64", "the first offset at which the row holds"),
    _required("valid_from", "timestamp", "when that record was written"),
    Column("valid_to_offset", "int64", "the first offset at which it no longer holds; null = still"),
    Column("valid_to", "timestamp", "when that record was written; null = still"),
    Column("end_cause", "string", "the code of the cause of its end; null = still, `unknown-history` = at a gap"),
    _required("epoch", "int32", "the epoch of the controller that wrote that record"),
)
"""The interval of a row, and the epoch of the controller that began the row."""

MOMENT: Final = (
    _required("offset", "int64", "the offset of the record"),
    _required("timestamp", "timestamp", "when the record was written"),
    _required("epoch", "int32", "the epoch of the controller that wrote the record"),
)
"""The time of an event without a duration."""

AS_OF: Final = (
    _required("as_of_offset", "int64", "the state holds after the record at this offset"),
    _required("as_of", "timestamp", "when the last record at or below that offset was written"),
)
"""The time of a state."""

_PARTITION_KEY: Final = (
    _required("topic", "string"),
    _required("topic_id", "uuid"),
    _required("partition", "int32"),
)
_PARTITION: Final = (
    *_PARTITION_KEY,
    _required("leader", "int32", "-1 = none"),
    _required("leader_epoch", "int32"),
    _required("partition_epoch", "int32"),
    _required("replicas", "int32[]", "in order of preference"),
    _required("isr", "int32[]", "in-sync replicas"),
    _required("elr", "int32[]", "eligible leader replicas (KIP-966)"),
    _required("last_known_elr", "int32[]", "the leader when the last eligible replica was lost"),
    _required("adding_replicas", "int32[]"),
    _required("removing_replicas", "int32[]"),
    _required("leader_recovery_state", "string", "RECOVERED, or RECOVERING after an unclean election"),
    _required("directories", "uuid[]", "the log directory of each replica, in the order of `replicas`"),
)
_BROKER: Final = (
    _required("broker", "int32"),
    _required("broker_epoch", "int64"),
    _required("incarnation_id", "uuid", "drawn anew at each start of the process"),
    _required("fenced", "bool"),
    _required("in_controlled_shutdown", "bool"),
    Column("rack", "string"),
    _required("endpoints", "string[]", "NAME://host:port"),
    _required("security_protocols", "map<string,string>", "the protocol of each listener"),
    _required("features", "map<string,string>", "the supported levels, as `lowest-highest`"),
    _required("log_dirs", "uuid[]"),
    Column("cordoned_log_dirs", "uuid[]", "null = not known (KIP-1066)"),
    _required("is_migrating_zk_broker", "bool"),
)
_TOPIC: Final = (
    _required("topic", "string"),
    _required("topic_id", "uuid"),
    _required("partitions", "int32", "how many"),
    _required("replication_factor", "int32", "of partition 0, without replicas that a reassignment removes"),
)
_CONFIG: Final = (
    _required("resource_type", "string", "TOPIC, BROKER, CLIENT_METRICS, GROUP, or a number"),
    _required("resource_name", "string", "empty for the default of all brokers"),
    _required("key", "string"),
    _required("value", "string", "`(redacted)` where it is a secret"),
)
_ACL: Final = (
    _required("acl_id", "uuid"),
    _required("principal", "string"),
    _required("permission", "string", "ALLOW or DENY"),
    _required("operation", "string"),
    _required("resource_type", "string"),
    _required("resource_name", "string"),
    _required("pattern_type", "string", "LITERAL or PREFIXED"),
    _required("host", "string"),
)
_FEATURE: Final = (
    _required("feature", "string"),
    _required("level", "int16"),
    Column("release", "string", "the name of a level of metadata.version, such as 4.3-IV0"),
)
_QUOTA: Final = (
    _required("entity", "string", "such as `user=alice, client-id=<default>`"),
    Column("user", "string", "`<default>` for the default entity; null if the entity does not name it"),
    Column("client_id", "string", "as `user`"),
    Column("ip", "string", "as `user`"),
    _required("key", "string"),
    _required("value", "float64"),
)
_SCRAM: Final = (
    _required("user", "string"),
    _required("mechanism", "string", "SCRAM-SHA-256 or SCRAM-SHA-512"),
    _required("iterations", "int32"),
)
_TOKEN: Final = (
    _required("token_id", "string"),
    _required("owner", "string"),
    _required("requester", "string"),
    _required("renewers", "string[]"),
    _required("issued", "timestamp"),
    _required("expires", "timestamp"),
    _required("max_lifetime", "timestamp", "the limit of renewals"),
)
_PRODUCER_IDS: Final = (_required("next_producer_id", "int64", "the first id of the next block"),)
_CONTROLLER: Final = (
    _required("controller", "int32"),
    _required("incarnation_id", "uuid", "drawn anew at each start of the process"),
    _required("endpoints", "string[]", "NAME://host:port"),
    _required("security_protocols", "map<string,string>", "the protocol of each listener"),
    _required("features", "map<string,string>", "the supported levels, as `lowest-highest`"),
)
_VOTER: Final = (
    _required("voter", "int32"),
    _required("directory_id", "uuid"),
    _required("endpoints", "string[]", "NAME://host:port"),
    _required("kraft_versions", "string", "the supported levels, as `lowest-highest`"),
)
_EPOCH: Final = (
    _required("quorum_epoch", "int32"),
    _required("leader_id", "int32"),
    Column("previous_leader_id", "int32", "null where the history begins"),
    _required("voters", "int32[]"),
    _required("granting_voters", "int32[]"),
    Column("skipped_epochs", "int32", "epochs between the last leader's and this one: elections without a winner"),
    Column("silence_seconds", "float64", "from the last record of the epoch before to this election"),
)


def _history(name: str, doc: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> View:
    return View(name, doc, (CLUSTER, *columns, *VALIDITY, *CAUSE), key)


def _moment(name: str, doc: str, columns: tuple[Column, ...]) -> View:
    return View(name, doc, (CLUSTER, *columns, *MOMENT, *CAUSE))


def _state(name: str, doc: str, columns: tuple[Column, ...], key: tuple[str, ...]) -> View:
    return View(name, doc, (CLUSTER, *columns, *AS_OF), key)


def _by_name(*views: View) -> dict[str, View]:
    return {view.name: view for view in views}


_OF_PARTITION: Final = ("topic_id", "partition")

HISTORY_VIEWS: Final = _by_name(
    _history(
        "partition_history",
        "Every past state of a partition, a row for each change.",
        (*_PARTITION, ELECTION),
        _OF_PARTITION,
    ),
    _history(
        "leader_history",
        "The leader of a partition, and the cause; a row for each leader epoch.",
        (
            *_PARTITION_KEY,
            _required("leader", "int32", "-1 = none"),
            _required("leader_epoch", "int32"),
            Column("previous_leader", "int32", "null where the history begins; the same = only the epoch rose"),
            _required("preferred", "bool", "whether the leader is the first of the replicas"),
            _required("leader_recovery_state", "string", "RECOVERING: elected uncleanly, or not recovered since"),
            _required("replicas", "int32[]", "when it was elected"),
            _required("isr", "int32[]", "when it was elected"),
            ELECTION,
        ),
        _OF_PARTITION,
    ),
    _history(
        "isr_history",
        "Which replicas of a partition were in sync or eligible as leaders; a row for each change of either set.",
        (
            *_PARTITION_KEY,
            _required("isr", "int32[]"),
            _required("elr", "int32[]"),
            _required("last_known_elr", "int32[]"),
            _required("joined", "int32[]", "replicas that were not in the ISR of the row before"),
            _required("left", "int32[]", "replicas that are no longer in the ISR"),
            _required("leader", "int32", "when the row began"),
            _required("replicas", "int32[]", "when the row began"),
        ),
        _OF_PARTITION,
    ),
    _history(
        "broker_history", "A broker's registration: epochs, fencing, shutdown, directories.", _BROKER, ("broker",)
    ),
    _history(
        "topic_history",
        "Topics: created, enlarged, deleted; a topic has all partitions of one batch of the log at once.",
        _TOPIC,
        ("topic_id",),
    ),
    _history(
        "config_history",
        "Dynamic configurations; a row for each value that was set, also when set again.",
        (*_CONFIG, Column("previous_value", "string", "null if the key was not set before, or not known")),
        ("resource_type", "resource_name", "key"),
    ),
    _history("acl_history", "Access rules.", _ACL, ("acl_id",)),
    _history(
        "feature_history",
        "Finalized feature levels, kraft.version among them.",
        (*_FEATURE, Column("previous_level", "int16", "null if the feature was not finalized before, or not known")),
        ("feature",),
    ),
    _history("quota_history", "Client quotas.", _QUOTA, ("entity", "key")),
    _history("scram_history", "SCRAM credentials, without their secrets.", _SCRAM, ("user", "mechanism")),
    _history("token_history", "Delegation tokens, without their secrets.", _TOKEN, ("token_id",)),
    _history("producer_ids_history", "Blocks of producer ids.", _PRODUCER_IDS, ("cluster",)),
    _history("controller_history", "Controllers: one row for each start of a process.", _CONTROLLER, ("controller",)),
    _history("voter_history", "The voters of a dynamic quorum (KIP-853).", _VOTER, ("voter", "directory_id")),
    _history("quorum_epochs", "The active controller; a row for each leader of the quorum.", _EPOCH, ("cluster",)),
    View(
        "controller_gaps",
        "Gaps without an active controller, measured by the active controller's NoOp records, one every 500 ms.",
        (
            CLUSTER,
            _required("kind", "string", "`election`: the epoch changed; `silence`: the same leader wrote nothing"),
            _required("seconds", "float64", "from the last record before to the first record after"),
            _required("leader_before", "int32"),
            _required("leader_after", "int32"),
            _required("epoch_before", "int32"),
            *VALIDITY,
            *CAUSE,
        ),
    ),
)
"""The past: rows with the offsets and times between which they held, and their causes."""

STATE_VIEWS: Final = _by_name(
    _state("partitions_state", "Every partition.", _PARTITION, _OF_PARTITION),
    _state("topics_state", "Every topic.", _TOPIC, ("topic_id",)),
    _state("brokers_state", "Every registered broker.", _BROKER, ("broker",)),
    _state("configs_state", "Every configuration key that is set.", _CONFIG, ("resource_type", "resource_name", "key")),
    _state("acls_state", "Every access rule.", _ACL, ("acl_id",)),
    _state("features_state", "Every finalized feature.", _FEATURE, ("feature",)),
    _state("quotas_state", "Every client quota.", _QUOTA, ("entity", "key")),
    _state("scram_state", "Every SCRAM credential, without its secrets.", _SCRAM, ("user", "mechanism")),
    _state("tokens_state", "Every delegation token, without its secrets.", _TOKEN, ("token_id",)),
    _state("producer_ids_state", "The next producer id, if any was given out.", _PRODUCER_IDS, ("cluster",)),
    _state("controllers_state", "Every registered controller.", _CONTROLLER, ("controller",)),
    _state("voters_state", "Every voter of a dynamic quorum.", _VOTER, ("voter", "directory_id")),
)
"""The state at the end, or at one offset or time."""

_SECONDS: Final = _required("seconds", "float64", "how long; up to the last known record where it has not ended")

DERIVED_VIEWS: Final = _by_name(
    _moment(
        "leadership_changes",
        "Each move of a partition's leadership.",
        (
            *_PARTITION_KEY,
            _required("from_leader", "int32", "-1 = no leader"),
            _required("to_leader", "int32", "-1 = no leader"),
            _required("leader_epoch", "int32"),
            _required("preferred", "bool", "whether the new leader is the first of the replicas"),
            _required("clean", "bool", "false: the new leader may lack records that were acknowledged"),
            ELECTION,
        ),
    ),
    _history(
        "unavailability",
        "When a partition had no leader, or fewer in-sync replicas than min.insync.replicas requires.",
        (
            *_PARTITION_KEY,
            _required("kind", "string", "`leaderless` or `below-min-isr`; a leaderless partition may be both"),
            _SECONDS,
            _required("isr_size", "int32", "when it began"),
            _required("min_isr", "int32", "min.insync.replicas when it began, at most the replication factor"),
        ),
        ("topic_id", "partition", "kind"),
    ),
    _history(
        "incidents",
        "Unavailable partitions that belong together: intervals of `unavailability` that overlap or touch in time, and "
        "have the same cause or the same partition.",
        (
            _required("incident", "string", "the offset and the partition where it began, such as `812/orders-3`"),
            _required("causes", "string[]", "the codes of all causes, the first one first"),
            _required("brokers", "int32[]", "the brokers with the causing events"),
            _required("cause_offsets", "int64[]", "the offsets of the causing records"),
            _required("topics", "string[]", "the affected topics"),
            _required("leaderless_partitions", "string[]", "the partitions that had no leader, such as `orders-3`"),
            _required("below_min_isr_partitions", "string[]", "the partitions below min.insync.replicas"),
            _required("leaderless_partition_seconds", "float64", "seconds without a leader, summed over partitions"),
            _required("below_min_isr_partition_seconds", "float64", "as above, below min.insync.replicas"),
            _SECONDS,
        ),
        ("incident",),
    ),
    _history(
        "isr_flaps",
        "Replicas that left an ISR and returned; `cause` is the cause of leaving.",
        (
            *_PARTITION_KEY,
            _required("broker", "int32", "the broker that left and returned"),
            _SECONDS,
            _required("leader", "int32", "the leader after the broker left"),
        ),
        ("topic_id", "partition", "broker"),
    ),
    _history(
        "unclean_elections",
        "Elections that may have lost acknowledged records; a row lasts until the leader has recovered.",
        (
            *_PARTITION_KEY,
            _required("from_leader", "int32", "-1 = no leader"),
            _required("to_leader", "int32"),
            _required("isr_before", "int32[]"),
            _required("elr_before", "int32[]"),
            _required("last_known_elr_before", "int32[]"),
            _SECONDS,
        ),
        _OF_PARTITION,
    ),
    _history(
        "reassignments",
        "Reassignments of partitions, from the request to the end; `cause` is the cause of the beginning.",
        (
            *_PARTITION_KEY,
            _required("from_replicas", "int32[]"),
            _required("to_replicas", "int32[]", "the target, also of a cancelled reassignment"),
            _required("outcome", "string", "completed, cancelled, superseded, topic-deleted, running or unknown"),
            _required("steps", "int32", "the number of changes of the partition"),
            _SECONDS,
        ),
        _OF_PARTITION,
    ),
    _history(
        "fencing",
        "When a broker was fenced, and why.",
        (
            _required("broker", "int32"),
            _required("broker_epoch", "int64"),
            _SECONDS,
            _required("leaders_moved", "int32", "partitions that got another leader, or none, in the same event"),
            _required("isr_left", "int32", "partitions with an ISR that the broker left in the same event"),
        ),
        ("broker",),
    ),
    _moment("controller_elections", "Each election of an active controller.", _EPOCH),
    _history(
        "config_drift",
        "When a key was set on one broker or topic to another value than the default of the cluster. For a topic that "
        "default has the brokers' names: of `retention.ms` `log.retention.ms`, `log.retention.minutes` or `….hours`.",
        (
            *_CONFIG,
            Column(
                "default_value",
                "string",
                "the default of all brokers then, in the unit of the key; null = the log has none, and the brokers' "
                "properties files or Kafka's own default apply",
            ),
            _SECONDS,
        ),
        ("resource_type", "resource_name", "key"),
    ),
    _history(
        "acl_audit",
        "Allowed operations over time: access rules, implied operations, and overruling denials.",
        (
            *_ACL,
            _required("implied_operations", "string[]", "further operations that the rule allows"),
            _required("effective", "bool", "false for an ALLOW that a DENY overrules completely"),
            _required("denied_by", "uuid[]", "the overruling rules"),
            _SECONDS,
        ),
        ("acl_id",),
    ),
    View(
        "churn",
        "How many changes there were, by topic and by broker, for each hour that had any.",
        (
            CLUSTER,
            _required("kind", "string", "`topic` or `broker`"),
            _required("name", "string", "the topic, or the broker's id"),
            _required("hour", "timestamp", "when the hour began"),
            _required(
                "partition_changes", "int64", "changes of its partitions; for a broker, of those that it led or gave up"
            ),
            _required("leader_changes", "int64", "for a broker: leaderships gained or lost"),
            _required("isr_shrinks", "int64"),
            _required("isr_expands", "int64"),
            _required("config_changes", "int64"),
            _required("fencings", "int64", "brokers only"),
            _required("registrations", "int64", "brokers only"),
        ),
        ("kind", "name", "hour"),
    ),
    View(
        "retention",
        "The known ranges of the history: its beginning, its snapshots, and its unknown ranges.",
        (
            CLUSTER,
            _required(
                "kind",
                "string",
                "base, log, damage, ignored, unfinished-tail, fault, unknown-record, open-transaction or "
                "aborted-transaction",
            ),
            Column("path", "string"),
            Column("from_offset", "int64"),
            Column("to_offset", "int64", "the offset after the last one"),
            Column("from_time", "timestamp"),
            Column("to_time", "timestamp"),
            _required("records", "int64", "the number of affected records; 0 if unknown"),
            _required("known", "bool", "whether the history is complete over this range"),
            _required("text", "string", "the row as one sentence"),
        ),
    ),
)
"""Derived views: answers to common questions of operators."""

VIEWS: Final[dict[str, View]] = {**HISTORY_VIEWS, **STATE_VIEWS, **DERIVED_VIEWS}
"""All views by their names."""
