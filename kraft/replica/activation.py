"""From the election of a replica until its application leads (Kafka: `QuorumController.claim`).

The application takes its leadership once it has applied the LeaderChange record of the epoch, and so everything before
that record. Requests that arrive earlier wait: a client that is refused would send its request again much later.
"""

from __future__ import annotations

from collections import deque

from kraft.limits import EARLY_PER_TURN
from kraft.quorum.core import RaftCore
from kraft.replica.interface.leading import Leading
from kraft.replica.outbox import Outbox
from kraft.replica.proposals import Proposals
from kraft.wire import WireRequest
from metadata_log.types import NEVER_MS


class Activation:
    """The claim of a new leader, and the requests that arrive before the application leads."""

    def __init__(self, core: RaftCore, leading: Leading | None, proposals: Proposals, outbox: Outbox) -> None:
        self._core = core
        self._leading = leading
        self._proposals = proposals
        self._outbox = outbox
        self.claim_offset: int | None = None
        """The offset of this leader's LeaderChange record, until the application leads."""
        self.early: deque[WireRequest] = deque()
        """The requests that wait for the end of the claim, or for a turn after it."""
        self.deadline_ms = NEVER_MS
        """When the next early requests have their turn."""

    def holds(self, request: WireRequest) -> bool:
        """Whether a request waits for the end of the claim, or behind others that did."""
        if self.claim_offset is None and not self.early:
            return False
        self.early.append(request)
        return True

    def finish(self, applied_offset: int, now_ms: int) -> None:
        """Let the application lead if it has applied the LeaderChange record."""
        if self.claim_offset is None or applied_offset <= self.claim_offset:
            return
        core, leading = self._core, self._leading
        assert leading is not None, "a broker does not lead the quorum"
        self.claim_offset = None
        self._proposals.is_open = True
        self._outbox.follow_ups.extend(leading.on_leader(core.epoch, core.next_append_offset, now_ms))
        self.take_early(now_ms)

    def abandon(self, now_ms: int) -> None:
        """The leadership is over: the early requests are answered without a claim."""
        self.claim_offset = None
        self.take_early(now_ms)

    def take_early(self, now_ms: int) -> None:
        """Handle as many early requests in this step as one turn has room for, unless the claim goes on.

        Requests that arrive meanwhile wait behind the rest, which has turns of its own.
        """
        self.deadline_ms = NEVER_MS
        if self.claim_offset is not None:
            return
        early = self.early
        self._outbox.follow_ups.extend([early.popleft() for _ in range(min(EARLY_PER_TURN, len(early)))])
        if early:
            self.deadline_ms = now_ms + 1
