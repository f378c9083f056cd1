"""The application's requests to other nodes. Their ids are negative; those of the core's requests are positive."""

from __future__ import annotations

from kraft.replica.interface.application import OutboundRequest
from kraft.replica.interface.events import SendWire


class OutboundRequests:
    """The application's token for each request that is under way, by request id."""

    def __init__(self) -> None:
        self._last_id = 0
        self._tokens: dict[int, int] = {}

    def send(self, ask: OutboundRequest, target: tuple[int, str, int], timeout_ms: int) -> SendWire:
        """The request to the node with this id, host and port; `timeout_ms` is the default timeout."""
        self._last_id -= 1
        self._tokens[self._last_id] = ask.token
        patience_ms = timeout_ms if ask.timeout_ms is None else ask.timeout_ms
        return SendWire(self._last_id, *target, ask.request, patience_ms, is_raft=False)

    def take(self, request_id: int) -> int:
        """Take the token of a request that has an answer or has failed."""
        return self._tokens.pop(request_id)
