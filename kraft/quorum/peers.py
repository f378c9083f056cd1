"""Outbound requests: one in flight per destination, a short backoff after failures (Kafka: `RequestManager`).

A transition to any state forgets all requests, so that a late reply to a request of the former state is dropped. A
VoteResponse does not state whether it answers a pre-vote or a vote.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct

from metadata_log.types import NEVER_MS


class PeerRequest(Struct, frozen=True):
    """The request in flight to one peer, with its id in `awaiting`; or a backoff, with None."""

    awaiting: int | None
    ready_at_ms: int
    """The time at which the request times out or the backoff ends."""


class Peers:
    """The requests in flight and the backoffs, by destination."""

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
        """The time from which a request may be sent to this peer, if no reply arrives before."""
        request = self._requests.get(peer_id)
        return 0 if request is None else request.ready_at_ms

    def has_timed_out(self, peer_id: int, now_ms: int) -> bool:
        """Whether the last request to this peer has timed out."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting is not None and request.ready_at_ms <= now_ms

    def is_backing_off(self, peer_id: int, now_ms: int) -> bool:
        """Whether this peer is in backoff after a failed request."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting is None and request.ready_at_ms > now_ms

    def is_any_awaiting(self, now_ms: int) -> bool:
        """Whether a reply of any peer may still arrive."""
        requests = self._requests.values()
        return any(request.awaiting is not None and request.ready_at_ms > now_ms for request in requests)

    def choose_ready(self, peer_ids: tuple[int, ...], now_ms: int, rng: Random) -> int | None:
        """The first ready peer from a random start on, if no request is in flight (`findReadyBootstrapServer`)."""
        if not peer_ids or self.is_any_awaiting(now_ms):
            return None
        first = rng.randrange(len(peer_ids))
        ring = peer_ids[first:] + peer_ids[:first]
        return next((peer_id for peer_id in ring if self.is_ready(peer_id, now_ms)), None)

    def next_ready_ms(self, now_ms: int) -> int:
        """The next time at which a peer becomes ready; `NEVER_MS` if every peer is ready now."""
        next_ms = NEVER_MS
        for request in self._requests.values():
            if now_ms < request.ready_at_ms < next_ms:
                next_ms = request.ready_at_ms
        return next_ms

    def sent(self, peer_id: int, now_ms: int) -> int:
        """Record a new request; returns its id."""
        request_id = self._next_request_id
        self._next_request_id += 1
        self._requests[peer_id] = PeerRequest(request_id, now_ms + self._request_timeout_ms)
        return request_id

    def is_expected(self, peer_id: int, request_id: int) -> bool:
        """Whether a reply to this request answers the last request to that peer, even after its timeout."""
        request = self._requests.get(peer_id)
        return request is not None and request.awaiting == request_id

    def hold(self, peer_id: int, until_ms: int) -> None:
        """Extend the timeout to `until_ms`: the reply has arrived, and the host is checking its records."""
        request = self._requests[peer_id]
        self._requests[peer_id] = PeerRequest(request.awaiting, max(request.ready_at_ms, until_ms))

    def answered(self, peer_id: int) -> None:
        """Record a reply; the next request to this peer may follow at once."""
        self._requests.pop(peer_id, None)

    def back_off(self, peer_id: int, now_ms: int) -> None:
        """Begin a backoff after a failed request or a useless reply."""
        self._requests[peer_id] = PeerRequest(None, now_ms + self._retry_backoff_ms)

    def forget(self, peer_id: int) -> None:
        """Forget the request to this peer."""
        self._requests.pop(peer_id, None)

    def forget_late(self, now_ms: int) -> None:
        """Forget the requests that have timed out, so that a late reply is dropped."""
        requests = self._requests.items()
        for peer_id in [
            one for one, request in requests if request.awaiting is not None and request.ready_at_ms <= now_ms
        ]:
            del self._requests[peer_id]

    def clear(self) -> None:
        """Forget all requests after a transition."""
        self._requests.clear()
