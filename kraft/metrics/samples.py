"""All readings of a node at one moment: a pure function of its state."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.metrics import own_names
from kraft.metrics.cluster import (
    broker_readings,
    channel_readings,
    controller_readings,
    image_of,
    loader_readings,
    log_readings,
)
from kraft.metrics.coordinators import coordinator_readings
from kraft.metrics.names import Reading
from kraft.metrics.own import own_readings
from kraft.metrics.raft import raft_readings
from kraft.metrics.readiness import is_ready, readiness
from kraft.metrics.security import certificate_readings
from kraft.metrics.telemetry import telemetry_readings
from kraft.metrics.throttles import rate_readings, throttle_readings
from kraft.metrics.view import NodeView
from kraft.process.hosting import broker_of, controller_of


def readings_of(view: NodeView) -> Iterator[Reading]:
    """Every reading of a node that has recovered its log.

    Args:
        view: The replica, the time, and what the shell has counted.

    Returns:
        The readings; a metric that Kafka lacks in the node's role is absent.
    """
    yield from raft_readings(view)
    controller = controller_of(view.process.application)
    if controller is not None:
        yield from controller_readings(view, controller.controller)
    if view.is_broker:
        yield from broker_readings(view)
    broker = broker_of(view.process.application)
    if broker is not None:
        requests = broker.requests
        yield from coordinator_readings(requests, view.groups, view.now_ms)
        yield from throttle_readings(requests.hosting, requests.quotas, requests.times, view.now_ms)
        if requests.telemetry is not None:
            yield from telemetry_readings(requests.telemetry, view.now_ms)
    image = image_of(view.process)
    if image is not None:
        yield from loader_readings(view, image)
    yield from log_readings(view)
    yield from channel_readings(view)
    yield from rate_readings(view)
    yield from own_readings(view)
    yield from certificate_readings(view)
    checks = readiness(view)
    yield Reading(own_names.READY, int(is_ready(checks)))
    for check in checks:
        yield Reading(own_names.READY_CHECK, int(check.ok), (("check", check.name),))
