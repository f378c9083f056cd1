"""Serves broker heartbeats and fences silent brokers (Kafka: `ReplicationControlManager.processBrokerHeartbeat`,
`BrokerHeartbeatManager.calculateNextBrokerState`).
"""

from __future__ import annotations

from collections.abc import Generator

from kraft.access.errors import ApiError
from kraft.controller.brokers.broker_states import begin_controlled_shutdown, fence, leads_something, unfence
from kraft.controller.decision.broker_sessions import BrokerState
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Records, Steps, counted
from kraft.controller.topics.directories import cordoned_change, offline_changes
from metadata_log.image import Broker
from metadata_log.image.features import CORDONED_SINCE, DIRECTORIES_SINCE
from transport.protocol.errors import Error
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def broker_heartbeat(context: RequestContext, request: BrokerHeartbeatRequest) -> Steps:
    """Fence, unfence or shut down the broker as it requests, if the rules permit.

    Raises `ApiError` for the epoch of another incarnation.
    """
    broker, registered_at = _registered(context, request)
    image, sessions = context.image, context.sessions
    now = sessions.state(broker.id)
    then = yield from _next_state(context, broker, now, request, registered_at)
    count = 0 if then is now else (yield from counted(_records(context, broker, then)))
    metadata_version = image.features.metadata_version or 0
    if metadata_version >= DIRECTORIES_SINCE and request.offline_log_dirs:
        count += yield from counted(offline_changes(context, broker, tuple(request.offline_log_dirs)))
    records = []
    if metadata_version >= CORDONED_SINCE and request.cordoned_log_dirs is not None:
        records = cordoned_change(broker, tuple(request.cordoned_log_dirs))
    sessions.touch(broker.id, fenced=then.is_fenced, metadata_offset=request.current_metadata_offset)
    if then is BrokerState.CONTROLLED_SHUTDOWN:
        sessions.begin_shutdown(broker.id, context.next_offset + count + len(records) - 1)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= registered_at,
        is_fenced=then.is_fenced,
        should_shut_down=then is BrokerState.SHUTDOWN_NOW,
    )
    return ControllerResult(tuple(records), response, is_atomic=False)


def fence_silent_broker(context: RequestContext, expired: tuple[int, int]) -> Steps:
    """Fence the broker with an expired session, unless another incarnation has registered since.

    `expired` is the broker's id and epoch. Each decision fences one broker, because the next decision depends on the
    leaders that this one elects.
    """
    broker_id, epoch = expired
    broker = context.image.brokers.by_id.get(broker_id)
    if broker is None:
        context.sessions.forget(broker_id)
    elif broker.epoch == epoch:
        yield from fence(context.image, broker, context.defaults)
        context.sessions.touch(broker_id, fenced=True)
    return ControllerResult(is_atomic=False)


def _registered(context: RequestContext, request: BrokerHeartbeatRequest) -> tuple[Broker, int]:
    """The registered broker, and the offset of its registration record."""
    registered_at = context.sessions.registered_at(request.broker_id)
    broker = context.image.brokers.by_id.get(request.broker_id)
    if registered_at is None or broker is None:
        raise ApiError(Error.STALE_BROKER_EPOCH, f"Broker {request.broker_id} is not registered.")
    if broker.epoch != request.broker_epoch:
        text = f"Broker {broker.id} has epoch {broker.epoch}, and the request is of epoch {request.broker_epoch}."
        raise ApiError(Error.STALE_BROKER_EPOCH, text)
    return broker, registered_at


def _next_state(
    context: RequestContext, broker: Broker, now: BrokerState, request: BrokerHeartbeatRequest, registered_at: int
) -> Generator[None, None, BrokerState]:
    """The next state of the broker (the table of `calculateNextBrokerState`)."""
    match now:
        case BrokerState.FENCED if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        case BrokerState.FENCED if not request.want_fence and request.current_metadata_offset >= registered_at:
            return BrokerState.UNFENCED
        case BrokerState.UNFENCED if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        case BrokerState.UNFENCED if request.want_shut_down:
            leads = yield from leads_something(context.image, broker.id)
            return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN if context.sessions.may_stop(broker.id):
            leads = yield from leads_something(context.image, broker.id)
            return now if leads else BrokerState.SHUTDOWN_NOW
        case _:
            return now


def _records(context: RequestContext, broker: Broker, then: BrokerState) -> Records:
    match then:
        case BrokerState.UNFENCED:
            return unfence(context.image, broker, context.defaults)
        case BrokerState.CONTROLLED_SHUTDOWN:
            return begin_controlled_shutdown(context.image, broker, context.defaults)
        case _:
            return fence(context.image, broker, context.defaults)
