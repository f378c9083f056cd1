"""The metrics that Kafka lacks, with base units: seconds and bytes."""

from __future__ import annotations

from typing import Final

from kraft.metrics.names import Own

CONTACT_AGE: Final = Own(
    "kraft_leader_contact_age_seconds",
    "The time since the last answer of the leader; on the leader, since a majority of the voters has fetched.",
)
HAS_QUORUM: Final = Own("kraft_has_quorum", "1 if that time is below the fetch timeout.")
NO_LEADER: Final = Own("kraft_no_leader_reason_info", "Why this node knows no live leader; absent if there is one.")
READY: Final = Own("kraft_ready", "1 if /readyz answers 200.")
READY_CHECK: Final = Own("kraft_ready_check", "1 if this check of /readyz passes.")
VOTER_LAG: Final = Own("kraft_voter_lag_records", "The records that a voter has not fetched; on the leader only.")
VOTER_FETCH_AGE: Final = Own(
    "kraft_voter_last_fetch_age_seconds", "The time since the last Fetch of a voter; on the leader only."
)
VOTER_CAUGHT_UP_AGE: Final = Own(
    "kraft_voter_caught_up_age_seconds", "The time since a voter had everything; on the leader only."
)
APPLY_LAG: Final = Own("kraft_apply_lag_records", "The committed records that this node has not applied.")
UNFLUSHED: Final = Own("kraft_unflushed_records", "The records of the log that are not on disk yet.")
LONGEST_TURN: Final = Own(
    "kraft_event_loop_longest_turn_seconds", "The longest step of the loop in the last 30 to 60 seconds."
)
BUSY_RATIO: Final = Own("kraft_event_loop_busy_ratio", "The share of that time in which the owner of the log works.")
LOOP_GAP: Final = Own(
    "kraft_event_loop_longest_gap_seconds",
    "The longest delay of a timer of the loop in the last 30 to 60 seconds, by whatever blocks the process.",
)
OLDEST_FSYNC: Final = Own("kraft_fsync_oldest_seconds", "The age of the oldest fsync under way; 0 for none.")
LEADERSHIP_SECONDS: Final = Own("kraft_leadership_seconds_total", "The time for which this node has led.", "counter")
LOG_BYTES: Final = Own("kraft_log_bytes", "The size of the metadata log without snapshots.")
SNAPSHOT_AGE: Final = Own("kraft_snapshot_age_seconds", "The age of the newest snapshot; absent without a snapshot.")
SNAPSHOT_OFFSET: Final = Own("kraft_snapshot_end_offset", "The end offset of the newest snapshot.")
BUILD_INFO: Final = Own("kraft_build_info", "The versions of this software.")
NODE_INFO: Final = Own("kraft_node_info", "The id of this node, as the label `node_id`.")
COUNTS_COMPLETE: Final = Own(
    "kraft_topic_counts_complete", "1 if the counts of partitions are those of the present metadata."
)
DROPPED_SERIES: Final = Own("kraft_metrics_dropped_series", "The series beyond the limit of their family.")
AUTHENTICATIONS: Final = Own(
    "kraft_authentication_total", "The authentications of peers, by listener, mechanism and result.", "counter"
)
CERTIFICATE_END: Final = Own(
    "kraft_tls_certificate_not_after_timestamp_seconds",
    "The end of a certificate of this node, by the listener that shows the certificate; seconds since 1970.",
)
AUTHORITY_END: Final = Own(
    "kraft_tls_ca_not_after_timestamp_seconds",
    "The end of the certificate of an authority in a trust store; seconds since 1970.",
)
STORE_RELOADS: Final = Own(
    "kraft_tls_reload_total", "The changed stores that were put to use or refused since the start.", "counter"
)
LACKING: Final = Own(
    "kraft_group_records_lacking",
    "The records of loaded partitions of __consumer_offsets that follow on something that cleaning has removed.",
)
CLIENT_SERIES: Final = Own("kraft_client_telemetry_series", "The numbers of clients that this broker shows.")
CLIENT_LEFT_OUT: Final = Own(
    "kraft_client_telemetry_left_out_total",
    "The numbers that clients have pushed and that are not shown: histograms, and what is beyond the bounds.",
    "counter",
)
CLIENT_CLASHES: Final = Own(
    "kraft_client_telemetry_clashes",
    "The numbers that are not shown because another client has one of this name and of another type.",
)
ACLS: Final = Own("kraft_acls", "The number of access rules.")

OWN_METRICS: Final[tuple[Own, ...]] = tuple(one for one in globals().values() if isinstance(one, Own))
"""Every row above."""
