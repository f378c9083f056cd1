"""The quota of the time of requests: how long the loop works for a client (Kafka: `ClientRequestQuotaManager`,
`RequestHandlerHelper`; KIP-124).

The time is that of the handling, in all turns of a request, in percent of the one thread that does the work. Nothing
is measured while nobody has such a quota.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.handling.quotas import REQUEST_TIME, ClientQuotas
from kraft.rates import Rate
from kraft.wire import Answer, Outcome, WireRequest
from metadata_log.image.quotas import QuotasImage
from transport.protocol.messages.fetch import FetchRequest
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

_PERCENT: Final = 100.0
_NO_ACKS: Final = 0


class _Spent(Struct):
    """The time that a request has taken so far."""

    request: WireRequest
    seconds: float = 0.0
    is_charged: bool = False


def _still() -> float:
    return 0.0


class RequestTimes:
    """The times of the requests under way, and what clients are charged for them.

    Args:
        quotas: The quotas of the clients.
    """

    def __init__(self, quotas: ClientQuotas) -> None:
        self.clock: Callable[[], float] = _still
        """The clock by which the work is measured, in seconds; the shell of a node sets it."""
        self.is_on = False
        """Whether a client has a quota of time."""
        self.measures = False
        """Whether that is so and no request is being handled, so that the next one is to be measured."""
        self.exempt = Rate(*quotas.windows)
        """The time of the requests that no quota bounds, in percent."""
        self._quotas = quotas
        self._image = QuotasImage()
        self._spent: dict[int, _Spent] = {}
        """By id, the requests that have taken time and have no outcome yet."""
        self._began_s: float | None = None
        """Since when a request is handled; None between the requests."""

    def use(self, quotas: QuotasImage) -> None:
        """Take these quotas from now on."""
        if quotas is not self._image:
            self._image = quotas
            self.is_on = any(REQUEST_TIME in values for values in quotas.by_entity.values())
            self.measures = self.is_on and self._began_s is None
            if not self.is_on:
                self._spent.clear()

    def measured(self, request: WireRequest, work: Callable[[], Outcome | None], now_ms: int) -> Outcome | None:
        """Do a part of the work of a request; returns its outcome, with the time to wait.

        Args:
            request: The request. One that a broker makes to itself is nobody's.
            work: What is to be done.
            now_ms: The time in ms since 1970.
        """
        if request.request_id < 0:
            return work()
        spent = self._spent.get(request.request_id)
        if spent is None:
            spent = self._spent[request.request_id] = _Spent(request)
        self._began_s, self.measures = self.clock(), False
        try:
            outcome = work()
        finally:
            spent.seconds += self.clock() - self._began_s
            self._began_s, self.measures = None, self.is_on
        return outcome if outcome is None else self.closed(outcome, now_ms)

    def charge(self, request: WireRequest, now_ms: int, beside_ms: int = 0) -> int:
        """Count what a request has taken until now, and return for how long its client has to wait, in ms.

        For a handler whose answer depends on it. What the rest of the request takes is counted when it is done, and
        nobody waits for that.

        Args:
            request: The request that is being handled.
            now_ms: The time in ms since 1970.
            beside_ms: How long the client has to wait for another reason: the longer wait counts.

        Returns:
            The longer one of both waits.
        """
        spent = self._spent.get(request.request_id)
        if spent is None or self._began_s is None or spent.is_charged:
            return beside_ms
        moment_s = self.clock()
        percent = (spent.seconds + moment_s - self._began_s) * _PERCENT
        spent.seconds, self._began_s, spent.is_charged = 0.0, moment_s, True
        return max(beside_ms, self._quotas.charge_time(request, percent, now_ms, beside_ms))

    def closed(self, outcome: Outcome, now_ms: int) -> Outcome:
        """The outcome of a request, with the time that its client has to wait; it is over with that."""
        spent = self._spent.pop(outcome.request_id, None)
        if spent is None:
            return outcome
        percent = spent.seconds * _PERCENT
        if _is_exempt(spent.request):
            self.exempt.note(percent, now_ms)
            return outcome
        if spent.is_charged or not isinstance(outcome, Answer):
            self._quotas.note_time(spent.request, percent, now_ms)
            return outcome
        message: Any = outcome.message
        already_ms: int = getattr(message, "throttle_time_ms", 0)
        wait_ms = self._quotas.charge_time(spent.request, percent, now_ms, already_ms)
        if wait_ms <= already_ms or not hasattr(message, "throttle_time_ms"):
            return outcome
        return Answer(outcome.request_id, replace(message, throttle_time_ms=wait_ms))

    def forget(self, request_id: int) -> None:
        """The connection of a request is gone. Unknown ids are allowed."""
        self._spent.pop(request_id, None)


def _is_exempt(request: WireRequest) -> bool:
    """Whether no quota bounds a request: those of brokers, and a Produce that nobody answers
    (`sendResponseExemptThrottle`).
    """
    match request.message:
        case FetchRequest() as message:
            return max(message.replica_id, message.replica_state.replica_id) >= 0
        case ProduceRequest(acks=acks):
            return acks == _NO_ACKS
        case WriteTxnMarkersRequest():
            return True
    return False
