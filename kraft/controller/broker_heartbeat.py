"""What a broker is told each time it shows that it is alive (Kafka: `ReplicationControlManager.processBrokerHeartbeat`,
`BrokerHeartbeatManager.calculateNextBrokerState`).
"""

from __future__ import annotations

from typing import Final

from kraft.controller.brokers import begin_controlled_shutdown, fence, leads_something, unfence
from kraft.controller.deciding import Deciding
from kraft.controller.directories import cordoned_change, offline_changes
from kraft.controller.heartbeats import BrokerState
from kraft.controller.partition_change import DIRECTORIES_SINCE
from kraft.controller.result import ApiError, ControllerResult, VersionedRecord
from metadata_log.image import Broker
from transport.protocol.errors import Error
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

_CORDONED_SINCE: Final = 30


def broker_heartbeat(deciding: Deciding, request: BrokerHeartbeatRequest) -> ControllerResult:
    """Fence, unfence or let go the broker, as it wishes and as it may; raises `ApiError` for another incarnation."""
    broker, registered_at = _registered(deciding, request)
    image, sessions = deciding.image, deciding.sessions
    now = sessions.state(broker.id)
    then = _next_state(deciding, broker, now, request, registered_at)
    records = [] if then is now else _records(deciding, broker, then)
    sessions.touch(broker.id, fenced=then.is_fenced, metadata_offset=request.current_metadata_offset)
    metadata_version = image.features.metadata_version or 0
    if metadata_version >= DIRECTORIES_SINCE:
        records += offline_changes(deciding, broker, tuple(request.offline_log_dirs))
    if metadata_version >= _CORDONED_SINCE and request.cordoned_log_dirs is not None:
        records += cordoned_change(broker, tuple(request.cordoned_log_dirs))
    if then is BrokerState.CONTROLLED_SHUTDOWN:
        sessions.begin_shutdown(broker.id, deciding.next_offset + len(records) - 1)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= registered_at,
        is_fenced=then.is_fenced,
        should_shut_down=then is BrokerState.SHUTDOWN_NOW,
    )
    return ControllerResult(tuple(records), response, is_atomic=False)


def refuse_heartbeat(_: BrokerHeartbeatRequest, error: Error, text: str | None = None) -> BrokerHeartbeatResponse:
    """The answer to a heartbeat that fails; it has no place for words."""
    return BrokerHeartbeatResponse(error_code=error)


def fence_silent_broker(deciding: Deciding) -> ControllerResult | None:
    """Fence the broker whose session has expired; one at a time, as each sees what the one before has left.

    None if all sessions are good; a result without records if the incarnation is no longer registered.
    """
    expired = deciding.sessions.take_expired(deciding.now_ms)
    if expired is None:
        return None
    broker_id, epoch = expired
    broker = deciding.image.brokers.by_id.get(broker_id)
    if broker is None:
        deciding.sessions.forget(broker_id)
        return ControllerResult(is_atomic=False)
    if broker.epoch != epoch:
        return ControllerResult(is_atomic=False)
    records = fence(deciding.image, broker, deciding.defaults)
    deciding.sessions.touch(broker_id, fenced=True)
    return ControllerResult(tuple(records), is_atomic=False)


def _registered(deciding: Deciding, request: BrokerHeartbeatRequest) -> tuple[Broker, int]:
    """The broker and the offset of its registration."""
    registered_at = deciding.sessions.registered_at(request.broker_id)
    broker = deciding.image.brokers.by_id.get(request.broker_id)
    if registered_at is None or broker is None:
        raise ApiError(Error.STALE_BROKER_EPOCH, f"Broker {request.broker_id} is not registered.")
    if broker.epoch != request.broker_epoch:
        text = f"Broker {broker.id} has epoch {broker.epoch}, and the request is of epoch {request.broker_epoch}."
        raise ApiError(Error.STALE_BROKER_EPOCH, text)
    return broker, registered_at


def _next_state(
    deciding: Deciding, broker: Broker, now: BrokerState, request: BrokerHeartbeatRequest, registered_at: int
) -> BrokerState:
    """The table of `calculateNextBrokerState`."""

    def leads() -> bool:
        return leads_something(deciding.image, broker.id)

    match now:
        case BrokerState.FENCED if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        case BrokerState.FENCED if not request.want_fence and request.current_metadata_offset >= registered_at:
            return BrokerState.UNFENCED
        case BrokerState.UNFENCED if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        case BrokerState.UNFENCED if request.want_shut_down:
            return BrokerState.CONTROLLED_SHUTDOWN if leads() else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN if not leads() and deciding.sessions.may_stop(broker.id):
            return BrokerState.SHUTDOWN_NOW
        case _:
            return now


def _records(deciding: Deciding, broker: Broker, then: BrokerState) -> list[VersionedRecord]:
    match then:
        case BrokerState.UNFENCED:
            return unfence(deciding.image, broker, deciding.defaults)
        case BrokerState.CONTROLLED_SHUTDOWN:
            return begin_controlled_shutdown(deciding.image, broker, deciding.defaults)
        case _:
            return fence(deciding.image, broker, deciding.defaults)
