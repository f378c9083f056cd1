"""Replies of peers on their way to the core. Records in a reply are judged in portions, so that no reply takes a long
turn (decision 0031).

For the core a reply that is judged is still on its way. The core gets the reply when all of its records are judged, or
never, if the core does not wait for the reply any more. So all that can happen meanwhile can happen on a slow network,
with one exception: the timers of the request and of the fetch do not end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec import structs

from kraft.committed import LogReader
from kraft.quorum.core import RaftCore
from kraft.quorum.effects import Effect, PeerFault
from kraft.quorum.events import AnswerHeld, Event, FailureCause, Replied, RequestFailed
from kraft.quorum.messages import FetchReply
from kraft.replica.applier import Applier
from kraft.replica.interface.events import PeerRequest, Trace
from kraft.replica.outbox import Outbox
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.storage.fetched import Follows, Judged, judging
from kraft.replica.storage.storage import Storage
from kraft.wire import WireReply
from metadata_log.errors import DecodeError
from metadata_log.serde.codec import finished
from metadata_log.types import NEVER_MS
from transport.protocol.messages import FetchResponse, FetchSnapshotResponse

GRACE_MS: Final = 50
"""The timers of a held reply end no earlier than so long after its last turn."""

Basis = object
"""The state that a reply is judged against; compared with `==`."""
Begin = Callable[[], tuple[Basis, Iterator[int]]]
"""Begins to judge against what is known now. Each number is so many units of work; a generator may return `Judged`."""


class HeldReply:
    """One reply, and how far its records are judged."""

    __slots__ = ("_basis", "_begin", "_steps", "asked", "event", "is_judged", "judged", "taken")

    def __init__(self, event: WireReply, asked: PeerRequest, begin: Begin) -> None:
        self.event = event
        self.asked = asked
        self.is_judged = False
        self.judged: Judged | None = None
        """The result for the records of a Fetch."""
        self.taken = 0
        """How many steps were made."""
        self._begin = begin
        self._basis: Basis = None
        self._steps: Iterator[int] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any of the records were judged."""
        return self._steps is not None

    def go_on(self, units: int) -> int:
        """Judge for so many units of work; returns how many are left. The judgement begins anew if the log has changed
        since.
        """
        basis, steps = self._begin()
        if self._steps is None or basis != self._basis:
            self._basis, self._steps, self.taken = basis, steps, 0
        while units > 0:
            try:
                step = next(self._steps)
            except StopIteration as end:
                self.is_judged, self.judged = True, end.value
                break
            self.taken += 1
            units -= step
        return units


class PeerReplies:
    """The replies with records to judge: first the one that is being judged, then the others."""

    def __init__(
        self,
        core: RaftCore,
        reader: LogReader,
        storage: Storage,
        rpc: Rpc,
        applier: Applier,
        outbox: Outbox,
        carry_out: Callable[[Iterable[Effect], int], None],
        step_core: Callable[[Event, int], None],
        units_per_turn: int,
    ) -> None:
        self._core = core
        self._reader = reader
        self._storage = storage
        self._rpc = rpc
        self._outbox = outbox
        self._carry_out = carry_out
        self._step_core = step_core
        self._keep = applier.keep if reader.reads_batches else None
        self._units_per_turn = units_per_turn
        self.held: deque[HeldReply] = deque()
        self.deadline_ms = NEVER_MS
        """When the next portion of records is judged."""

    def is_judging(self, request_id: int) -> bool:
        """Whether the reply to a request has arrived, and not all of its records are judged."""
        return any(held.event.request_id == request_id for held in self.held)

    def receive(self, event: WireReply, asked: PeerRequest, now_ms: int) -> None:
        """Step the core with a reply of a peer, or hold the reply if it has more records than one turn judges."""
        message = event.message
        data = records_of(message)
        if not data:
            self._deliver(event, asked, None, now_ms)
        elif not self.held and len(data) <= self._units_per_turn and isinstance(message, FetchResponse):
            # So few bytes hold fewer records than a turn has room for: nothing has to be held.
            judged = finished(judging(data, self._follows(), self._reader.check, self._keep))
            self._deliver(event, asked, judged, now_ms)
        else:
            self.held.append(HeldReply(event, asked, self.judgement_of(event)))
            if len(self.held) == 1:
                self.judge(now_ms)

    def judge(self, now_ms: int) -> None:
        """Judge the held replies for one turn. The core gets each as a reply that arrives when it is judged."""
        left = self._units_per_turn
        while self.held:
            held = self.held[0]
            if held.has_begun and not self._core.awaits(held.asked.peer_id, held.asked.request_id):
                self.held.popleft()
                continue
            if left <= 0:
                break
            left = held.go_on(left)
            if held.is_judged:
                self.held.popleft()
                self._deliver(held.event, held.asked, held.judged, now_ms)
        if self.held:
            asked = self.held[0].asked
            self.deadline_ms = now_ms + 1
            self._step_core(AnswerHeld(asked.request_id, asked.peer_id, GRACE_MS), now_ms)
        else:
            self.deadline_ms = NEVER_MS

    def _deliver(self, event: WireReply, asked: PeerRequest, judged: Judged | None, now_ms: int) -> None:
        """Step the core with a reply. A reply that cannot be decoded is a failed request, and a fault of the peer."""
        try:
            reply = self._rpc.reply_from_wire(event.message, judged)
        except DecodeError as bad:
            self._outbox.outputs.append(Trace(PeerFault(asked.peer_id, str(bad))))
            self._step_core(RequestFailed(asked.request_id, asked.peer_id, FailureCause.BAD_BYTES), now_ms)
            return
        if isinstance(reply, FetchReply) and reply.diverging is not None:
            cut = self._core.log.truncation_point(reply.diverging)
            reply = structs.replace(reply, splits_batch=self._storage.splits_batch(cut))
        if effects := self._core.step(Replied(asked.request_id, asked.peer_id, reply), now_ms):
            self._carry_out(effects, now_ms)

    def judgement_of(self, event: WireReply) -> Begin:
        """The function that begins to judge the records of a reply."""
        data = records_of(event.message)
        if isinstance(event.message, FetchResponse):
            return partial(self._judge_fetched, data)
        return partial(self._storage.snapshots.judging, data)

    def _judge_fetched(self, data: bytes) -> tuple[Basis, Iterator[int]]:
        follows = self._follows()
        return follows, judging(data, follows, self._reader.check, self._keep)

    def _follows(self) -> Follows:
        """The end of the own log, which fetched records have to follow, and the leader that they come from."""
        core = self._core
        leader, sets = core.leader, core.history.sets
        voters = sets[-1][1] if sets else None
        return Follows(core.log.end_offset, core.log.last_epoch, leader.epoch, leader.leader_id, voters)


def records_of(message: object) -> bytes:
    """The records in a reply about one partition; empty for any other reply."""
    # A follower has this reply for each commit: a `case` with its fields takes twice as long.
    if isinstance(message, FetchResponse):
        topics = message.responses
        partitions = topics[0].partitions if len(topics) == 1 else ()
        return (partitions[0].records or b"") if len(partitions) == 1 else b""
    match message:
        case FetchSnapshotResponse(topics=[topic]):
            return (topic.partitions[0].unaligned_records or b"") if len(topic.partitions) == 1 else b""
        case _:
            return b""
