"""The metrics of Kafka 4.4 that a node has: one row for each MBean, with its meaning and unit."""

from __future__ import annotations

from typing import Final

from kraft.metrics.names import Kind, Mbean

_CONTROLLER, _SERVER = "kafka.controller", "kafka.server"


def _raft(name: str, text: str, kind: Kind = Kind.GAUGE) -> Mbean:
    return Mbean(_SERVER, "raft-metrics", name, text, kind)


def _channel(name: str, text: str, kind: Kind = Kind.TOTAL) -> Mbean:
    return Mbean(_SERVER, "raft-channel-metrics", name, text, kind)


def _socket(name: str, text: str, kind: Kind = Kind.TOTAL) -> Mbean:
    return Mbean(_SERVER, "socket-server-metrics", name, text, kind)


def _controller(name: str, text: str) -> Mbean:
    return Mbean(_CONTROLLER, "KafkaController", name, text)


def _loader(name: str, text: str) -> Mbean:
    return Mbean(_SERVER, "MetadataLoader", name, text)


def _broker(name: str, text: str) -> Mbean:
    return Mbean(_SERVER, "broker-metadata-metrics", name, text)


def _groups(name: str, text: str, kind: Kind = Kind.GAUGE) -> Mbean:
    return Mbean(_SERVER, "group-coordinator-metrics", name, text, kind)


def _classic(name: str, text: str) -> Mbean:
    return Mbean("kafka.coordinator.group", "GroupMetadataManager", name, text)


def _transactions(name: str, text: str) -> Mbean:
    return Mbean(_SERVER, "transaction-coordinator-metrics", name, text)


def _telemetry(name: str, text: str) -> Mbean:
    return Mbean(_SERVER, "client-metrics", name, text)


def _shares(name: str, text: str, kind: Kind = Kind.GAUGE) -> Mbean:
    return Mbean(_SERVER, "share-coordinator-metrics", name, text, kind)


CURRENT_STATE: Final = _raft("current-state", "The state of this node in the quorum.", Kind.TEXT)
CURRENT_VOTE_DIRECTORY_ID: Final = _raft(
    "current-vote-directory-id", "The directory id of the voter that has the vote; zeros for none.", Kind.TEXT
)
CURRENT_LEADER: Final = _raft("current-leader", "The id of the leader; -1 if no leader is known.")
CURRENT_EPOCH: Final = _raft("current-epoch", "The epoch of the quorum.")
CURRENT_VOTE: Final = _raft("current-vote", "The id of the voter that has the vote in this epoch; -1 for none.")
HIGH_WATERMARK: Final = _raft("high-watermark", "The offset below which records are committed; -1 if not known.")
LOG_END_OFFSET: Final = _raft("log-end-offset", "The offset of the next record of the log.")
LOG_END_EPOCH: Final = _raft("log-end-epoch", "The epoch of the last record of the log.")
NUMBER_OF_VOTERS: Final = _raft("number-of-voters", "The number of voters.")
NUMBER_OF_OBSERVERS: Final = _raft("number-of-observers", "The number of observers; on the leader only.")
UNCOMMITTED_VOTER_CHANGE: Final = _raft(
    "uncommitted-voter-change", "1 while a change of the voters is not committed; on the leader only."
)
UNKNOWN_VOTER_CONNECTIONS: Final = _raft(
    "number-unknown-voter-connections", "The number of voters with an unknown address."
)
COMMIT_LATENCY_AVG: Final = _raft("commit-latency-avg", "The average time in ms from an append to its commit.")
COMMIT_LATENCY_MAX: Final = _raft("commit-latency-max", "The longest time in ms from an append to its commit.")
ELECTION_LATENCY_AVG: Final = _raft("election-latency-avg", "The average time in ms of an election.")
ELECTION_LATENCY_MAX: Final = _raft("election-latency-max", "The longest time in ms of an election.")
APPEND_RECORDS_RATE: Final = _raft("append-records-rate", "The records per second that this leader appends.")
FETCH_RECORDS_RATE: Final = _raft("fetch-records-rate", "The records per second that this follower fetches.")
POLL_IDLE_RATIO: Final = _raft("poll-idle-ratio-avg", "The share of the time in which the owner of the log is idle.")

CHANNEL_CONNECTIONS: Final = _channel("connection-count", "The open connections to other controllers.", Kind.GAUGE)
CHANNEL_CREATED: Final = _channel("connection-creation-total", "The connections begun to other controllers.")
CHANNEL_REQUESTS: Final = _channel("request-total", "The requests sent to other controllers.")
CHANNEL_RESPONSES: Final = _channel("response-total", "The answers received from other controllers.")
CHANNEL_OUT: Final = _channel("outgoing-byte-total", "The bytes sent to other controllers.")
CHANNEL_IN: Final = _channel("incoming-byte-total", "The bytes received from other controllers.")
CHANNEL_REFUSED: Final = _channel(
    "failed-authentication-total", "The connections to other controllers that failed by a certificate or a login."
)
SOCKET_CONNECTIONS: Final = _socket("connection-count", "The open connections of peers and clients.", Kind.GAUGE)
SOCKET_CREATED: Final = _socket("connection-creation-total", "The accepted connections of peers and clients.")
SOCKET_CLOSED: Final = _socket("connection-close-total", "The closed connections of peers and clients.")
SOCKET_SUCCEEDED: Final = _socket(
    "successful-authentication-total", "The peers that have authenticated by TLS or by a login."
)
SOCKET_REFUSED: Final = _socket(
    "failed-authentication-total", "The peers that have failed to authenticate, by TLS or by a login."
)
ACCEPT_RATE: Final = _socket(
    "connection-accept-rate",
    "The new connections a second, by listener, and by address for those with a quota.",
    Kind.GAUGE,
)
ACCEPT_RATE_OF_ALL: Final = _socket(
    "broker-connection-accept-rate", "The new connections a second at all listeners.", Kind.GAUGE
)
ACCEPT_WAIT: Final = _socket(
    "connection-accept-throttle-time",
    "The average time in ms for which a listener has accepted nothing, as connections came too fast; NaN for never.",
    Kind.GAUGE,
)
ADDRESS_WAIT: Final = _socket(
    "ip-connection-accept-throttle-time",
    "The average time in ms for which connections were held and then closed, as their address has made too many.",
    Kind.GAUGE,
)

ACTIVE_CONTROLLER_COUNT: Final = _controller("ActiveControllerCount", "1 on the active controller, else 0.")
NEW_ACTIVE_CONTROLLERS: Final = _controller(
    "NewActiveControllersCount", "The elections of an active controller that this node has seen since its start."
)
ACTIVE_BROKERS: Final = _controller("ActiveBrokerCount", "The number of brokers that are not fenced.")
FENCED_BROKERS: Final = _controller("FencedBrokerCount", "The number of fenced brokers.")
STOPPING_BROKERS: Final = _controller("ControlledShutdownBrokerCount", "The brokers in a controlled shutdown.")
BROKER_STATE: Final = _controller("BrokerRegistrationState", "10 fenced, 20 controlled shutdown, 30 active.")
SINCE_HEARTBEAT: Final = _controller(
    "TimeSinceLastHeartbeatReceivedMs", "The time in ms since the last heartbeat of a broker, at most its session."
)
TOPICS: Final = _controller("GlobalTopicCount", "The number of topics.")
PARTITIONS: Final = _controller("GlobalPartitionCount", "The number of partitions.")
OFFLINE_PARTITIONS: Final = _controller("OfflinePartitionsCount", "The number of partitions without a leader.")
IMBALANCED_PARTITIONS: Final = _controller(
    "PreferredReplicaImbalanceCount", "The number of partitions that their preferred replica does not lead."
)
UNCLEAN_ELECTIONS: Final = Mbean(
    _CONTROLLER,
    "ControllerStats",
    "UncleanLeaderElectionsPerSec",
    "The new leaders from outside of the ISR that scrapes of this node have seen.",
    Kind.METER,
)
ELR_ELECTIONS: Final = Mbean(
    _CONTROLLER,
    "ControllerStats",
    "ElectionFromEligibleLeaderReplicasPerSec",
    "The new leaders from the eligible leader replicas that scrapes of this node have seen.",
    Kind.METER,
)
APPLIED_OFFSET: Final = _controller("LastAppliedRecordOffset", "The offset of the last applied record (inclusive).")
COMMITTED_OFFSET: Final = _controller("LastCommittedRecordOffset", "The offset of the last committed record.")
APPLIED_TIMESTAMP: Final = _controller("LastAppliedRecordTimestamp", "The time of the last applied record, in ms.")
APPLIED_LAG: Final = _controller("LastAppliedRecordLagMs", "The age in ms of the last applied record.")
OPERATIONS: Final = _controller("EventQueueOperationsStartedCount", "The events that this node has handled.")
METADATA_ERRORS: Final = _controller(
    "MetadataErrorCount", "Records that could not be applied. A node of this software stops at the first one."
)
IGNORED_STATIC_VOTERS: Final = _controller(
    "IgnoredStaticVoters", "1 if controller.quorum.voters is set and the voters of the log replace it."
)
QUEUE_TIME: Final = Mbean(
    _CONTROLLER, "ControllerEventManager", "EventQueueTimeMs", "The wait of an event in its turn, ms.", Kind.HISTOGRAM
)
PROCESSING_TIME: Final = Mbean(
    _CONTROLLER, "ControllerEventManager", "EventQueueProcessingTimeMs", "The time of an event, ms.", Kind.HISTOGRAM
)
CONTROLLER_IDLE: Final = Mbean(
    _CONTROLLER, "ControllerEventManager", "AvgIdleRatio", "The share of the time in which the controller is idle."
)
METADATA_VERSION_LEVEL: Final = _loader("CurrentMetadataVersion", "The finalized level of metadata.version.")
CURRENT_CONTROLLER: Final = _loader("CurrentControllerId", "The id of the active controller; -1 if not known.")
SNAPSHOTS_LOADED: Final = _loader("HandleLoadSnapshotCount", "The snapshots that this node has installed.")
FINALIZED_LEVEL: Final = _loader("FinalizedLevel", "The finalized level of a feature.")
SUPPORTED_MAX: Final = Mbean(_SERVER, "node-metrics", "maximum-supported-level", "The highest supported level.")
SUPPORTED_MIN: Final = Mbean(_SERVER, "node-metrics", "minimum-supported-level", "The lowest supported level.")
SNAPSHOT_BYTES: Final = Mbean(_SERVER, "SnapshotEmitter", "LatestSnapshotGeneratedBytes", "Its size in bytes.")
SNAPSHOT_AGE: Final = Mbean(
    _SERVER, "SnapshotEmitter", "LatestSnapshotGeneratedAgeMs", "The age in ms of the snapshot."
)
FLUSH_TIME: Final = Mbean(
    "kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", "The time of a flush of the log, ms.", Kind.HISTOGRAM
)
LOG_SIZE: Final = Mbean("kafka.log", "Log", "Size", "The size of the log in bytes.")
LOG_START: Final = Mbean("kafka.log", "Log", "LogStartOffset", "The first offset of the log.")
LOG_END: Final = Mbean("kafka.log", "Log", "LogEndOffset", "The offset of the next record of the log.")
SERVER_STATE: Final = Mbean(_SERVER, "KafkaServer", "BrokerState", "1 starting, 3 running, 6 in controlled shutdown.")
BROKER_APPLIED_OFFSET: Final = _broker("last-applied-record-offset", "The offset of the last applied record.")
BROKER_APPLIED_TIMESTAMP: Final = _broker("last-applied-record-timestamp", "The time of that record, in ms.")
BROKER_APPLIED_LAG: Final = _broker("last-applied-record-lag-ms", "The age in ms of the last applied record.")
BROKER_LOAD_ERRORS: Final = _broker("metadata-load-error-count", "Errors of loading: this node stops at the first one.")
BROKER_APPLY_ERRORS: Final = _broker("metadata-apply-error-count", "Errors of applying: this node stops at the first.")
BROKER_IGNORED_VOTERS: Final = _broker("ignored-static-voters", "1 if the voters of the log replace those of the file.")

GROUP_PARTITIONS: Final = _groups("num-partitions", "The coordinated partitions of __consumer_offsets, by their state.")
GROUP_LOAD_AVG: Final = _groups("partition-load-time-avg", "The average time in ms of the loads of the last minute.")
GROUP_LOAD_MAX: Final = _groups("partition-load-time-max", "The longest time in ms of the loads of the last minute.")
GROUPS: Final = _groups("group-count", "The groups by their protocol.")
CONSUMER_GROUPS: Final = _groups("consumer-group-count", "The groups of the consumer protocol, by their state.")
CLASSIC_GROUP_STATES: Final = _groups("classic-group-count", "The groups of the classic protocol, by their state.")
SHARE_GROUPS: Final = _groups("share-group-count", "The share groups, by their state.")
STREAMS_GROUPS: Final = _groups("streams-group-count", "The streams groups, by their state.")
OFFSET_COUNT: Final = _groups("offset-count", "The committed offsets that are remembered.")
OFFSET_COMMITS: Final = _groups("offset-commit-count", "The committed offsets.")
OFFSETS_EXPIRED: Final = _groups("offset-expiration-count", "The offsets that were forgotten because of their age.")
OFFSETS_DELETED: Final = _groups("offset-deletion-count", "The offsets that an administrator has deleted.")
REBALANCES: Final = _groups("group-completed-rebalance-count", "The completed rebalances of classic groups.")
CONSUMER_REBALANCES: Final = _groups("consumer-group-rebalance-count", "The rebalances of the consumer protocol.")
SHARE_REBALANCES: Final = _groups("share-group-rebalance-count", "The new epochs of share groups.")
STREAMS_REBALANCES: Final = _groups(
    "streams-group-rebalance-count", "The new epochs of streams groups that their members have caused."
)
CLASSIC_GROUPS: Final = _classic("NumGroups", "The groups of the classic protocol.")
OFFSETS: Final = _classic("NumOffsets", "The committed offsets that are remembered.")
PREPARING_GROUPS: Final = _classic("NumGroupsPreparingRebalance", "The classic groups that wait for their members.")
COMPLETING_GROUPS: Final = _classic("NumGroupsCompletingRebalance", "The classic groups that wait for their leader.")
STABLE_GROUPS: Final = _classic("NumGroupsStable", "The classic groups with an assignment.")
DEAD_GROUPS: Final = _classic("NumGroupsDead", "Always 0: a deleted group is not there any more.")
EMPTY_GROUPS: Final = _classic("NumGroupsEmpty", "The classic groups without members.")
TRANSACTION_LOAD_AVG: Final = _transactions("partition-load-time-avg", "As of the groups, of __transaction_state.")
TRANSACTION_LOAD_MAX: Final = _transactions("partition-load-time-max", "As of the groups, of __transaction_state.")
SHARE_PARTITIONS: Final = _shares("num-partitions", "As of the groups, of __share_group_state.")
SHARE_LOAD_AVG: Final = _shares("partition-load-time-avg", "As of the groups, of __share_group_state.")
SHARE_LOAD_MAX: Final = _shares("partition-load-time-max", "As of the groups, of __share_group_state.")
SHARE_WRITES: Final = _shares("write-total", "The changes of share partitions that leaders have asked for.", Kind.TOTAL)
SHARE_WRITE_AVG: Final = _shares(
    "write-latency-avg", "The average time in ms until such a change was committed, of the last minute."
)
SHARE_WRITE_MAX: Final = _shares("write-latency-max", "The longest such time in ms, of the last minute.")
SHARE_PRUNED: Final = _shares(
    "last-pruned-offset", "The offset up to which the coordinator has deleted a partition of its log."
)
SHARE_SESSIONS: Final = Mbean(_SERVER, "ShareSessionCache", "ShareSessionsCount", "The sessions of share groups.")
SESSION_PARTITIONS: Final = Mbean(
    _SERVER, "ShareSessionCache", "SharePartitionsCount", "The partitions that all of these sessions have."
)
SHARE_ACKNOWLEDGEMENTS: Final = Mbean(
    _SERVER,
    "ShareGroupMetrics",
    "RecordAcknowledgementsPerSec",
    "The records that members of share groups have acknowledged, by the type.",
    Kind.TOTAL,
)
MARKERS_HOMELESS: Final = Mbean(
    "kafka.coordinator.transaction",
    "TransactionMarkerChannelManager",
    "UnknownDestinationQueueSize",
    "The markers for partitions without a live leader.",
)
MARKER_REQUESTS: Final = Mbean(
    _SERVER, "txn-marker-channel-metrics", "request-total", "The requests with markers to brokers.", Kind.TOTAL
)
MARKER_RESPONSES: Final = Mbean(
    _SERVER, "txn-marker-channel-metrics", "response-total", "The answers to them.", Kind.TOTAL
)
LEADER_REPLICATION: Final = Mbean(
    _SERVER, "LeaderReplication", "byte-rate", "The bytes per second that throttled followers get from here."
)
FOLLOWER_REPLICATION: Final = Mbean(
    _SERVER, "FollowerReplication", "byte-rate", "The bytes per second that throttled replicas here fetch."
)
PRODUCE_RATE: Final = Mbean(
    _SERVER, "Produce", "byte-rate", "The bytes per second of producers with a quota, by user and client id."
)
PRODUCE_WAIT: Final = Mbean(
    _SERVER, "Produce", "throttle-time", "The average time in ms for which such producers had to wait; NaN for never."
)
FETCH_RATE: Final = Mbean(
    _SERVER, "Fetch", "byte-rate", "The bytes per second of consumers with a quota, by user and client id."
)
FETCH_WAIT: Final = Mbean(
    _SERVER, "Fetch", "throttle-time", "The average time in ms for which such consumers had to wait; NaN for never."
)
REQUEST_TIME: Final = Mbean(
    _SERVER, "Request", "request-time", "The time of requests of clients with a quota of it, in percent of the loop."
)
REQUEST_WAIT: Final = Mbean(
    _SERVER, "Request", "throttle-time", "The average time in ms for which such clients had to wait; NaN for never."
)
EXEMPT_TIME: Final = Mbean(
    _SERVER, "Request", "exempt-request-time", "The time of requests that no such quota bounds, while there is one."
)
TELEMETRY_INSTANCES: Final = _telemetry("instance-count", "The clients that have asked which metrics to push.")
TELEMETRY_UNKNOWN: Final = _telemetry(
    "unknown-subscription-request-count", "The pushes by a subscription that has changed since."
)
TELEMETRY_THROTTLED: Final = _telemetry(
    "throttle-count", "The questions and pushes that came too early; of all clients together, as what follows."
)
TELEMETRY_EXPORTED: Final = _telemetry("plugin-export-count", "The pushes that were taken.")
TELEMETRY_FAILED: Final = _telemetry("plugin-error-count", "The pushes that could not be read.")

KAFKA_METRICS: Final[tuple[Mbean, ...]] = tuple(one for one in globals().values() if isinstance(one, Mbean))
"""Every row above."""
