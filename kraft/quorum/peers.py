"""Outbound requests: one in flight per destination, a short back-off after failures (Kafka: `RequestManager`).

Entering any state forgets all of them, so that a late answer to a question of the former state is dropped; the answer
itself does not tell a pre-vote from a vote.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct

from metadata_log.types import NEVER_MS


class PeerRequest(Struct, frozen=True):
    """The request in flight to one peer, `awaiting` is its id, or a back-off."""

    awaiting: int | None
    ready_at_ms: int
    """When the request has timed out, or the back-off is over."""


class Peers:
    """Which destination may be asked now."""

    def __init__(self, *, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._requests: dict[int, PeerRequest] = {}
        self._next_request_id = 1

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight and no peer is in backoff after a failure."""
        return not self._requests

    def is_ready(self, peer_id: int, now_ms: int) -> bool:
        """Whether a request may be sent to this peer now."""
        request = self._requests.get(peer_id)
        return request is None or request.ready_at_ms <= now_ms

    def ready_at_ms(self, peer_id: int) -> int:
        """When this peer may be asked, if nothing comes back before."""
        request = self._requests.get(peer_id)
        return 0 if request is None else request.ready_at_ms

    def is_awaiting(self, peer_id: int, now_ms: int) -> bool:
        """Whether an answer may still come from this peer."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting is not None and request.ready_at_ms > now_ms

    def has_timed_out(self, peer_id: int, now_ms: int) -> bool:
        """Whether this peer has left its last request unanswered for too long."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting is not None and request.ready_at_ms <= now_ms

    def is_backing_off(self, peer_id: int, now_ms: int) -> bool:
        """Whether the last request to this peer failed a moment ago."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting is None and request.ready_at_ms > now_ms

    def is_any_awaiting(self, now_ms: int) -> bool:
        """Whether a reply of any peer may still arrive."""
        requests = self._requests.values()
        return any(request.awaiting is not None and request.ready_at_ms > now_ms for request in requests)

    def choose_ready(self, peer_ids: tuple[int, ...], now_ms: int, rng: Random) -> int | None:
        """One of the peers, starting at random, if no request is in flight (`findReadyBootstrapServer`)."""
        if not peer_ids or self.is_any_awaiting(now_ms):
            return None
        first = rng.randrange(len(peer_ids))
        ring = peer_ids[first:] + peer_ids[:first]
        return next((peer_id for peer_id in ring if self.is_ready(peer_id, now_ms)), None)

    def next_ready_ms(self, now_ms: int) -> int:
        """The next moment at which a peer, that may not be asked now, can be; `NEVER_MS` without such."""
        next_ms = NEVER_MS
        for request in self._requests.values():
            if now_ms < request.ready_at_ms < next_ms:
                next_ms = request.ready_at_ms
        return next_ms

    def sent(self, peer_id: int, now_ms: int) -> int:
        """Note a new request; returns its id."""
        request_id = self._next_request_id
        self._next_request_id += 1
        self._requests[peer_id] = PeerRequest(request_id, now_ms + self._request_timeout_ms)
        return request_id

    def is_expected(self, peer_id: int, request_id: int) -> bool:
        """Whether this answers the last request to that peer, however late."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting == request_id

    def hold(self, peer_id: int, until_ms: int) -> None:
        """The answer of this peer is here: the request does not time out before `until_ms`."""
        request = self._requests[peer_id]
        self._requests[peer_id] = PeerRequest(request.awaiting, max(request.ready_at_ms, until_ms))

    def answered(self, peer_id: int) -> None:
        """The peer has answered and may be asked again at once."""
        self._requests.pop(peer_id, None)

    def back_off(self, peer_id: int, now_ms: int) -> None:
        """The request failed, or its answer was of no use; wait a moment before the next."""
        self._requests[peer_id] = PeerRequest(None, now_ms + self._retry_backoff_ms)

    def forget(self, peer_id: int) -> None:
        """Give up waiting for this peer's answer."""
        self._requests.pop(peer_id, None)

    def clear(self) -> None:
        """Forget all requests: a new state has begun."""
        self._requests.clear()
