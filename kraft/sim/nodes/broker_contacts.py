"""Checks what a controller decides on the sessions of brokers: no broker is fenced within its session, and none is
unfenced before its metadata covers its own registration (KIP-631).

The check notes each heartbeat when the controller receives it, and reads only the decided metadata. The check shares
no code with the controller's sessions.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.controller import QuorumController
from kraft.controller.controller import NOT_ACTIVE
from kraft.invariants.violation import InvariantViolated
from kraft.wire import WireRequest
from metadata_log.image import Broker, BrokersImage
from metadata_log.image.persistent_map import in_key_order
from transport.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

Incarnation = tuple[int, int]
"""The id and the epoch of a broker."""


class BrokerContacts:
    """The heartbeats that one controller has received since its start."""

    def __init__(self) -> None:
        self._active_epoch = NOT_ACTIVE
        self._brokers: BrokersImage | None = None
        """The brokers that the active controller has decided on, at the last check."""
        self._heard_ms: dict[Incarnation, int] = {}
        """When the active controller received the last heartbeat of an incarnation, or became active."""
        self._pending: dict[int, BrokerHeartbeatRequest] = {}
        """The heartbeats without an answer, by request id: each may explain a decision."""
        self._answered: list[int] = []

    def asked(self, request: WireRequest, controller: QuorumController, now_ms: int) -> None:
        """The controller receives a request, at a time by its own clock."""
        beat = request.message
        if not isinstance(beat, BrokerHeartbeatRequest):
            return
        self._forget_answered()
        self._pending[request.request_id] = beat
        if controller.is_active:
            self._become_active(controller, now_ms)
            broker = controller.history.latest.brokers.by_id.get(beat.broker_id)
            if broker is not None and broker.epoch == beat.broker_epoch:
                self._heard_ms[broker.id, broker.epoch] = now_ms

    def answered(self, request_id: int) -> None:
        """The controller answers a request. The decision on the request may be a part of the present step."""
        if request_id in self._pending:
            self._answered.append(request_id)

    def check(self, controller: QuorumController, registered_at: Callable[[Broker], int], now_ms: int) -> None:
        """Check the decisions of a step.

        Args:
            controller: The controller after the step.
            registered_at: The offset of a broker's last registration, as far as that is committed.
            now_ms: The time by the clock of the controller.

        Raises:
            InvariantViolated: A broker was fenced within its session, or was unfenced too early.
        """
        if not controller.is_active:
            self._active_epoch, self._brokers = NOT_ACTIVE, None
        elif controller.active_epoch != self._active_epoch:
            self._become_active(controller, now_ms)
        elif controller.history.latest.brokers is not self._brokers:
            before, self._brokers = self._brokers, controller.history.latest.brokers
            assert before is not None, controller.active_epoch
            for broker_id, old in in_key_order(before.by_id):
                new = self._brokers.by_id.get(broker_id)
                if new is None or new.epoch != old.epoch or new.fenced == old.fenced:
                    continue
                if new.fenced:
                    self._check_expiry(old, controller, now_ms)
                else:
                    self._check_unfencing(new, registered_at(new))
        self._forget_answered()

    def _become_active(self, controller: QuorumController, now_ms: int) -> None:
        """Begin with one session for each unfenced broker, as of now."""
        if controller.active_epoch == self._active_epoch:
            return
        self._active_epoch, self._brokers = controller.active_epoch, controller.history.latest.brokers
        by_id = self._brokers.by_id
        self._heard_ms = {(one, by_id[one].epoch): now_ms for one in by_id if not by_id[one].fenced}

    def _check_expiry(self, broker: Broker, controller: QuorumController, now_ms: int) -> None:
        silent_ms = now_ms - self._heard_ms.get((broker.id, broker.epoch), 0)
        if silent_ms > controller.settings.decisions.broker_session_timeout_ms:
            return
        if not any(
            beat.want_fence or beat.want_shut_down or broker.in_controlled_shutdown for beat in self._beats(broker)
        ):
            raise InvariantViolated(
                f"broker {broker.id} of epoch {broker.epoch} is fenced, though the active controller heard from the"
                f" broker {silent_ms} ms ago, and the broker did not ask for that"
            )

    def _check_unfencing(self, broker: Broker, registered_at: int) -> None:
        reached = [beat.current_metadata_offset for beat in self._beats(broker) if not beat.want_fence]
        if max(reached, default=-1) < registered_at:
            raise InvariantViolated(
                f"broker {broker.id} of epoch {broker.epoch} is unfenced, though its metadata does not cover its"
                f" registration at offset {registered_at}; its heartbeats reached {reached}"
            )

    def _beats(self, broker: Broker) -> list[BrokerHeartbeatRequest]:
        """The heartbeats of an incarnation that the present step may have decided on."""
        return [
            beat for beat in self._pending.values() if (beat.broker_id, beat.broker_epoch) == (broker.id, broker.epoch)
        ]

    def _forget_answered(self) -> None:
        for request_id in self._answered:
            self._pending.pop(request_id, None)
        self._answered.clear()
