"""The proposals of a leader's application, from the decision to the answer (Kafka: the `ControllerWriteEvent` of
`QuorumController`).

The core gives each proposal its offsets at once, and one step at the end of the burst writes all proposals. The request
that waits for a proposal is answered when the proposal is committed, or when the proposal may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.limits import ANSWERS_PER_TURN
from kraft.quorum.core import RaftCore
from kraft.quorum.effects import PeerFault
from kraft.quorum.events import UpgradeQuorum
from kraft.quorum.values import LeaderAndEpoch
from kraft.replica.backlog import Backlog
from kraft.replica.deferred import Abandoned, Deferred, Held
from kraft.replica.interface.actions import ForRequest, ForSubmit, Proposal, QuorumLevel
from kraft.replica.interface.events import Output, SubmitDone, Trace
from kraft.replica.interface.leading import Leading
from kraft.replica.interface.options import ReplicaOptions
from kraft.replica.outbox import Outbox
from kraft.wire import Answer
from metadata_log.types import NEVER_MS, NO_OFFSET
from transport.protocol.errors import Error

NEXT_TURN_MS: Final = 1
"""The time until the next portion of answers."""
FINISH_MS: Final = 1000
"""How long a leader that shuts down waits for the commit of its records."""


StepCore = Callable[[UpgradeQuorum, int], None]
"""Steps the core, with which the leadership may end."""


class Proposals:
    """The proposals that are not committed. They are open while the application leads."""

    def __init__(
        self,
        options: ReplicaOptions,
        core: RaftCore,
        leading: Leading | None,
        outbox: Outbox,
        step_core: StepCore,
    ) -> None:
        self._max_waiting = options.max_waiting
        self._max_uncommitted_bytes = options.max_uncommitted_bytes
        self._core = core
        self._leading = leading
        self._outbox = outbox
        self._step_core = step_core
        self._deferred = Deferred()
        self._abandoned = Abandoned()
        self.deadline_ms = NEVER_MS
        """When the next portion of answers is sent."""
        self.finish_by_ms = NEVER_MS
        """When a leader that shuts down resigns at the latest. Until then it takes no new proposal of a client."""
        self.backlog = Backlog()
        self.is_open = False
        if leading is not None:
            leading.quorum = self

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as far as this replica knows."""
        return self._core.leader

    @property
    def is_full(self) -> bool:
        """Whether so much waits for a commit that the application may decide nothing more."""
        uncommitted_bytes = self.backlog.size_bytes + self._core.pending_bytes
        return uncommitted_bytes >= self._max_uncommitted_bytes or len(self._deferred.held) >= self._max_waiting

    def propose(self, proposal: Proposal, now_ms: int) -> None:
        """Append a proposal and remember the request that waits for it; or refuse the proposal."""
        core, waiting = self._core, proposal.waiting
        is_stopping = self.finish_by_ms < NEVER_MS
        if not self.is_open or (is_stopping and waiting is not None):
            # The proposals may have been open when the application decided, earlier in this step.
            self.refuse(waiting, Error.NOT_LEADER_OR_FOLLOWER, now_ms)
            return
        uncommitted_bytes = self.backlog.size_bytes + core.pending_bytes
        if waiting is not None and proposal.units and uncommitted_bytes >= self._max_uncommitted_bytes:
            self.refuse(waiting, Error.REQUEST_TIMED_OUT, now_ms)
            return
        if proposal.quorum_level is not None:
            obstacle = self._take_level(proposal.quorum_level, now_ms)
            if obstacle is not None:
                self.refuse(waiting, Error.INVALID_UPDATE_VERSION, now_ms, text=obstacle)
                return
            if not self.is_open:
                # The leader resigned when the core wrote the level.
                self.refuse(waiting, Error.NOT_LEADER_OR_FOLLOWER, now_ms, is_uncertain=True)
                return
        leading = self._leading
        assert leading is not None, "a broker proposes nothing"
        first_offset: int | None = None
        last_offset = NO_OFFSET
        for unit in proposal.units:
            base_offset = core.append(unit.values, now_ms)
            if base_offset is None:
                error = Error.RECORD_LIST_TOO_LARGE
                if waiting is None:
                    told = PeerFault(core.local.id, f"its own records cannot be written: {error.name}")
                    self._outbox.outputs.append(Trace(told))
                self.refuse(waiting, error, now_ms, is_uncertain=first_offset is not None)
                return
            if first_offset is None:
                first_offset = base_offset
            last_offset = base_offset + len(unit.values) - 1
            leading.on_appended(unit, base_offset)
        if waiting is None:
            return
        if first_offset is not None:
            self._deferred.hold(Held(first_offset, last_offset, waiting))
            return
        # A decision without units may depend on records that are not committed: the answer waits for all of them.
        last_offset = core.next_append_offset - 1
        held = Held(last_offset, last_offset, waiting)
        if last_offset < core.log.high_watermark and not self._deferred.held:
            self._outbox.outputs.append(success(held, core.leader))
        else:
            self._deferred.hold(held)

    def _take_level(self, wanted: QuorumLevel, now_ms: int) -> str | None:
        """Raise kraft.version, unless the request only validates; returns why the level cannot be raised."""
        core = self._core
        obstacle = core.upgrade_obstacle(wanted.level)
        if obstacle is None and not wanted.validate_only and wanted.level > core.history.kraft_version:
            self._step_core(UpgradeQuorum(core.epoch, wanted.level), now_ms)
        return obstacle

    def release(self, committed_offset: int, now_ms: int) -> None:
        """Answer the requests that wait for records committed by now, as many as a turn has room for."""
        if self.backlog.size_bytes:
            self.backlog.release(committed_offset)
        # The rest of an earlier portion goes first, in a turn of its own.
        if self._deferred.held and self.deadline_ms == NEVER_MS:
            self._tell_committed(now_ms)

    def tell_more(self, now_ms: int) -> None:
        """Send the next portion of answers; the caller calls this at `deadline_ms`."""
        self.deadline_ms = NEVER_MS
        if self._abandoned:
            self._tell_abandoned(now_ms)
        else:
            self._tell_committed(now_ms)

    def _tell_committed(self, now_ms: int) -> None:
        deferred = self._deferred
        if not deferred.held:
            return
        core = self._core
        committed_offset, leader = core.log.high_watermark, core.leader
        for held in deferred.release(committed_offset, ANSWERS_PER_TURN):
            self._outbox.outputs.append(success(held, leader))
        if deferred.held and deferred.is_due(committed_offset):
            self.deadline_ms = now_ms + NEXT_TURN_MS

    def _tell_abandoned(self, now_ms: int) -> None:
        for held, is_committed in self._abandoned.take(ANSWERS_PER_TURN):
            if is_committed:
                self._outbox.outputs.append(success(held, self._core.leader))
            else:
                self.refuse(held.waiting, Error.NOT_LEADER_OR_FOLLOWER, now_ms, is_uncertain=True)
        if self._abandoned or self._deferred.is_due(self._core.log.high_watermark):
            self.deadline_ms = now_ms + NEXT_TURN_MS

    def close(self) -> None:
        """The application does not lead any more. Once it knows, the caller calls `refuse_waiting`."""
        self.backlog.forget()
        self.is_open = False

    def refuse_waiting(self, now_ms: int) -> None:
        """Refuse the waiting requests, as many as a turn has room for: their records may be lost."""
        self._abandoned.add(self._deferred.abandon(), self._core.log.high_watermark)
        if self.deadline_ms == NEVER_MS:
            self._tell_abandoned(now_ms)

    def begin_shutdown(self, now_ms: int) -> None:
        """Take no new proposals of clients from now on."""
        self.finish_by_ms = now_ms + FINISH_MS

    def finish(self, now_ms: int) -> bool:
        """Whether a leader that shuts down may resign: its records are committed and answered, or its time is over."""
        core = self._core
        is_done = core.log.high_watermark >= core.next_append_offset and not self.has_more_to_tell
        if core.is_leader and not is_done and now_ms < self.finish_by_ms:
            return False
        self.finish_by_ms = NEVER_MS
        return True

    @property
    def has_more_to_tell(self) -> bool:
        """Whether answers wait for nothing but a turn."""
        return self.deadline_ms < NEVER_MS

    def refuse(
        self,
        waiting: ForRequest | ForSubmit | None,
        error: Error,
        now_ms: int,
        *,
        is_uncertain: bool = False,
        text: str | None = None,
    ) -> None:
        """Answer the waiting request, if there is one. The application makes a long answer in turns of its own."""
        leader = self._core.leader
        match waiting:
            case ForRequest():
                assert self._leading is not None, waiting
                answer = self._leading.refuse(waiting, error, now_ms, text)
                if answer is not None:
                    self._outbox.outputs.append(answer)
            case ForSubmit(submit_id=submit_id):
                done = SubmitDone(submit_id=submit_id, error=error, is_uncertain=is_uncertain, leader=leader)
                self._outbox.outputs.append(done)
            case None:
                pass


def success(held: Held, leader: LeaderAndEpoch) -> Output:
    """The answer to a request after its records are committed."""
    waiting = held.waiting
    if isinstance(waiting, ForRequest):
        return Answer(waiting.request_id, waiting.response)
    return SubmitDone(
        submit_id=waiting.submit_id, base_offset=held.base_offset, last_offset=held.last_offset, leader=leader
    )
