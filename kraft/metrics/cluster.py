"""Kafka's metrics of a controller and of a broker's metadata (Kafka: `QuorumControllerMetrics`,
`ControllerMetadataMetrics`, `MetadataLoaderMetrics`, `BrokerServerMetrics`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from typing import Final

from kraft.controller import QuorumController
from kraft.metrics import kafka, own_names
from kraft.metrics.names import Mbean, Reading
from kraft.metrics.security import NETWORK_PROCESSOR, authentication_readings
from kraft.metrics.view import NodeView
from kraft.process.hosting import controller_of, registered_broker_of
from kraft.process.process import Process
from metadata_log.image import MetadataImage
from metadata_log.image.brokers import Broker
from metadata_log.types import METADATA_PARTITION, METADATA_TOPIC

FENCED, IN_SHUTDOWN, ACTIVE = 10, 20, 30
"""The values of BrokerRegistrationState (`BrokerRegistrationState`)."""
STARTING, RUNNING, SHUTTING_DOWN = 1, 3, 6
"""The values of a broker's state (`BrokerState`)."""
_LOG: Final = (("topic", METADATA_TOPIC), ("partition", str(METADATA_PARTITION)))


def image_of(process: Process) -> MetadataImage | None:
    """The committed metadata of a controller or a broker; None for another application."""
    controller, broker = controller_of(process.application), registered_broker_of(process.application)
    if controller is not None:
        return controller.controller.history.committed.stable
    return None if broker is None else broker.agent.image


def controller_readings(view: NodeView, controller: QuorumController) -> Iterator[Reading]:
    """The metrics of a controller, active or not."""
    image, counts, counted = controller.history.committed.stable, view.topics, view.counted
    brokers = image.brokers.by_id.values()
    states = [_broker_state(broker) for broker in brokers]
    applied_ms, lag_ms = applied_time(view)
    numbers: dict[Mbean, float] = {
        kafka.ACTIVE_CONTROLLER_COUNT: int(controller.is_active),
        kafka.NEW_ACTIVE_CONTROLLERS: counted.leaders_seen,
        kafka.ACTIVE_BROKERS: states.count(ACTIVE) + states.count(IN_SHUTDOWN),
        kafka.FENCED_BROKERS: states.count(FENCED),
        kafka.STOPPING_BROKERS: states.count(IN_SHUTDOWN),
        kafka.TOPICS: counts.topics,
        kafka.PARTITIONS: counts.partitions,
        kafka.OFFLINE_PARTITIONS: counts.offline,
        kafka.IMBALANCED_PARTITIONS: counts.imbalanced,
        kafka.UNCLEAN_ELECTIONS: counts.unclean_elections,
        kafka.ELR_ELECTIONS: counts.elr_elections,
        kafka.APPLIED_OFFSET: view.replica.status().applied_offset - 1,
        kafka.COMMITTED_OFFSET: view.replica.core.log.high_watermark - 1,
        kafka.APPLIED_TIMESTAMP: applied_ms,
        kafka.APPLIED_LAG: lag_ms,
        kafka.OPERATIONS: counted.events,
        kafka.METADATA_ERRORS: 0,
        kafka.IGNORED_STATIC_VOTERS: ignores_static_voters(view),
        kafka.CONTROLLER_IDLE: 1 - counted.busy_ratio,
    }
    for metric, value in numbers.items():
        yield Reading(metric, value)
    yield Reading(kafka.QUEUE_TIME, counted.queue_ms)
    yield Reading(kafka.PROCESSING_TIME, counted.processing_ms)
    yield Reading(own_names.ACLS, len(image.acls.by_id))
    session_ms = controller.settings.decisions.broker_session_timeout_ms
    for broker, state in zip(brokers, states, strict=True):
        labels = (("broker", str(broker.id)),)
        yield Reading(kafka.BROKER_STATE, state, labels)
        if controller.is_active:
            last_ms = controller.last_heartbeat_ms(broker.id, broker.epoch)
            silent_ms = session_ms if last_ms is None else min(session_ms, max(0, view.now_ms - last_ms))
            yield Reading(kafka.SINCE_HEARTBEAT, silent_ms, labels)


def _broker_state(broker: Broker) -> int:
    if broker.fenced:
        return FENCED
    return IN_SHUTDOWN if broker.in_controlled_shutdown else ACTIVE


def broker_readings(view: NodeView) -> Iterator[Reading]:
    """The metrics of a broker's metadata."""
    applied_ms, lag_ms = applied_time(view)
    numbers: dict[Mbean, float] = {
        kafka.BROKER_APPLIED_OFFSET: view.replica.status().applied_offset - 1,
        kafka.BROKER_APPLIED_TIMESTAMP: applied_ms,
        kafka.BROKER_APPLIED_LAG: lag_ms,
        kafka.BROKER_LOAD_ERRORS: 0,
        kafka.BROKER_APPLY_ERRORS: 0,
        kafka.BROKER_IGNORED_VOTERS: ignores_static_voters(view),
        kafka.SERVER_STATE: SHUTTING_DOWN if view.is_stopping else RUNNING,
    }
    for metric, value in numbers.items():
        yield Reading(metric, value)


def loader_readings(view: NodeView, image: MetadataImage) -> Iterator[Reading]:
    """The metrics of the metadata that a controller or a broker has loaded."""
    core = view.replica.core
    yield Reading(kafka.METADATA_VERSION_LEVEL, image.features.metadata_version or 0)
    yield Reading(kafka.CURRENT_CONTROLLER, core.leader.leader_id)
    yield Reading(kafka.SNAPSHOTS_LOADED, view.counted.snapshots_installed)
    levels = [*image.features.all_levels(), ("kraft.version", core.history.kraft_version)]
    for name, level in levels:
        if level:  # as in Kafka, a feature at level 0 has no series
            yield Reading(kafka.FINALIZED_LEVEL, level, (("featureName", _camel(name)),))
    for name, lowest, highest in view.process.served.supported_features():
        labels = (("feature_name", name.replace(".", "-")),)
        yield Reading(kafka.SUPPORTED_MIN, lowest, labels)
        yield Reading(kafka.SUPPORTED_MAX, highest, labels)


def log_readings(view: NodeView) -> Iterator[Reading]:
    """The metrics of the log, of its flushes and of the snapshots."""
    log, counted = view.replica.log, view.counted
    for metric, value in ((kafka.LOG_SIZE, log.size_bytes), (kafka.LOG_START, log.start_offset)):
        yield Reading(metric, value, _LOG)
    yield Reading(kafka.LOG_END, log.end_offset, _LOG)
    yield Reading(kafka.FLUSH_TIME, counted.flush_ms)
    if counted.snapshot is not None:
        yield Reading(kafka.SNAPSHOT_BYTES, counted.snapshot.size_bytes)
        yield Reading(kafka.SNAPSHOT_AGE, max(0, view.now_ms - counted.snapshot.written_ms))


def channel_readings(view: NodeView) -> Iterator[Reading]:
    """The metrics of connections, of a transport that has some."""
    out, inward = view.counted.client_channels, view.counted.server_channels
    if out is not None:
        numbers: dict[Mbean, float] = {
            kafka.CHANNEL_CONNECTIONS: out.open,
            kafka.CHANNEL_CREATED: out.created,
            kafka.CHANNEL_REQUESTS: out.requests,
            kafka.CHANNEL_RESPONSES: out.responses,
            kafka.CHANNEL_OUT: out.sent_bytes,
            kafka.CHANNEL_IN: out.received_bytes,
            kafka.CHANNEL_REFUSED: out.refused,
        }
        for metric, value in numbers.items():
            yield Reading(metric, value)
    if inward is not None:
        labels = (("listener", view.listener), NETWORK_PROCESSOR)
        yield Reading(kafka.SOCKET_CONNECTIONS, inward.open, labels)
        yield Reading(kafka.SOCKET_CREATED, inward.created, labels)
        yield Reading(kafka.SOCKET_CLOSED, inward.closed, labels)
        yield from authentication_readings(view)


def applied_time(view: NodeView) -> tuple[float, float]:
    """The time of the last applied record, and its age, both in ms; NaN while the record is not in memory."""
    batch = view.replica.log.batch_in_memory(view.replica.status().applied_offset - 1)
    if batch is None:
        return nan, nan
    return batch.max_timestamp, max(0, view.now_ms - batch.max_timestamp)


def ignores_static_voters(view: NodeView) -> int:
    """1 if the configuration names voters, and those of the log replace them."""
    return int(view.has_static_voters and view.replica.core.history.kraft_version > 0)


def _camel(feature: str) -> str:
    first, *rest = feature.split(".")
    return first + "".join(word.capitalize() for word in rest)
