"""The queries of published dashboards and alerts, by the dialect in which they are written."""

from __future__ import annotations

_RAFT = (
    "current_leader",
    "current_epoch",
    "current_vote",
    "high_watermark",
    "log_end_offset",
    "append_records_rate",
    "fetch_records_rate",
    "commit_latency_avg",
)
_BYTES = ("incoming_byte", "outgoing_byte", "request", "response")

ALERTS = (
    "sum(kafka_controller_kafkacontroller_activecontrollercount) by (strimzi_io_name, namespace) != 1",
    "sum(kafka_controller_kafkacontroller_offlinepartitionscount) by (namespace, pod) > 0",
)
"""Strimzi's alerts on controllers."""
GUIDES = (
    "kafka_controller_kafkacontroller_lastappliedrecordlagms",
    "kafka_controller_kafkacontroller_metadataerrorcount > 0",
    "kafka_controller_kafkacontroller_fencedbrokercount > 0",
    'kafka_controller_controllereventmanager_eventqueuetimems{quantile="0.99"}',
    "max(kafka_controller_kafkacontroller_lastcommittedrecordoffset)"
    " - min(kafka_controller_kafkacontroller_lastcommittedrecordoffset)",
)
"""The guides of Confluent and of Apache Kafka."""
PROCESS = ("process_open_fds",)
REPORTER = (
    "max(kafka_server_raft_metrics_current_state_info) by (kubernetes_pod_name, current_state)",
    *(f"sum(kafka_server_raft_metrics_{name})" for name in _RAFT),
    *(f"irate(kafka_server_raft_channel_metrics_{name}[5m])" for name in _BYTES),
)
"""Strimzi's KRaft dashboard for its Metrics Reporter."""
QUORUM = (
    'count(kafka_server_raft_metrics_current_state_info{current_state="leader"}) != 1',
    'count(kafka_server_raft_metrics_current_state_info{state="leader"}) != 1',
    "changes(kafka_server_raft_metrics_current_epoch[10m]) > 3",
    "max(kafka_server_raft_metrics_high_watermark) - min(kafka_server_raft_metrics_high_watermark)",
    "kafka_server_raft_metrics_number_of_voters % 2 == 0",
)
"""Good practice for quorums, in the names of jmx_exporter's KRaft rules."""
STRIMZI_JMX = (
    "max(kafka_server_raftmetrics_current_state) by (kubernetes_pod_name, current_state)",
    *(f"sum(kafka_server_raftmetrics_{name})" for name in _RAFT),
    *(f"irate(kafka_server_raftchannelmetrics_{name}_total[5m])" for name in _BYTES),
)
"""Strimzi's KRaft dashboard for its JMX rules."""

DEFAULT_DIALECT = (*ALERTS, *GUIDES, *PROCESS, *REPORTER, *QUORUM)
STRIMZI_DIALECT = (*ALERTS, *PROCESS, *STRIMZI_JMX)
