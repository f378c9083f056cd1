"""What the application asks of other nodes, under ids that are no request of the core's."""

from __future__ import annotations

from kraft.replica.interface.application import OutboundRequest
from kraft.replica.interface.events import SendWire


class OutboundRequests:
    """By a negative id each request that is under way, and the application's token for it."""

    def __init__(self) -> None:
        self._last_id = 0
        self._tokens: dict[int, int] = {}

    def send(self, ask: OutboundRequest, target: tuple[int, str, int], timeout_ms: int) -> SendWire:
        """Ask the node with this id, host and port; `timeout_ms` counts where the application does not mind."""
        self._last_id -= 1
        self._tokens[self._last_id] = ask.token
        patience_ms = timeout_ms if ask.timeout_ms is None else ask.timeout_ms
        return SendWire(self._last_id, *target, ask.request, patience_ms, is_raft=False)

    def take(self, request_id: int) -> int:
        """The token of a request that is answered, or will not be."""
        return self._tokens.pop(request_id)
