"""The decisions of an active controller, one after the other, each in portions of one turn (Kafka: the event queue of
`QuorumController`, which has a thread besides that of the quorum).

Here both share one task. A decision is cut into turns of so many steps; the quorum and all reads have their turn in
between. While a decision is in progress no other begins: each decision sees the changes of those before it, and their
records are written in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from kraft.access.caller import Caller
from kraft.access.failures import RequestFailures
from kraft.agenda import Agenda
from kraft.controller import ControllerResult, QuorumController
from kraft.controller.decision.result import Steps, answered_with
from kraft.controller.decision.slots import Slot
from kraft.limits import (
    BYTES_PER_WEIGHT,
    DECISION_BATCH_BYTES,
    DECISION_STEPS_PER_TURN,
    DECISIONS_WAITING,
    RECORDS_PER_BATCH,
    STEPS_PER_DECISION,
    UNCOMMITTED_RECORDS,
)
from kraft.replica.interface.actions import Action, ForRequest, Proposal, Unit
from kraft.wire import Answer, WireRequest
from metadata_log.image.replaying import CHANGES_PER_RECORD, PARTITIONS_PER_RECORD, BatchReplay
from metadata_log.records.frame import VersionedRecord, encode_record
from metadata_log.records.metadata import ClearElrRecord, RemoveTopicRecord
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, NO_NODE
from transport.protocol.messages import EnvelopeRequest

_NEXT_TURN_MS: Final = 1
_BACKLOG_MS: Final = 10

Begin = Callable[[QuorumController, int], ControllerResult | Steps]
"""Begins a decision of a controller, at a time in milliseconds."""
NOTHING: Final = Proposal()


class DecisionRefused(Struct, frozen=True):
    """A request that the controller has decided on. Its records are not in the log, or may get lost."""

    request_id: int
    message: Message


class Work(Struct, frozen=True):
    """A unit of work for the controller. `request` is None if no client waits for an answer."""

    begin: Begin
    request: WireRequest | DecisionRefused | None = None


class _UnderWay:
    """A decision that has begun, and the batch that its records fill."""

    __slots__ = (
        "_bytes",
        "_failures",
        "_stream",
        "_weight",
        "has_written",
        "image",
        "is_done",
        "records",
        "replay",
        "result",
        "since_ms",
        "taken",
        "values",
        "work",
    )

    def __init__(self, work: Work, controller: QuorumController, now_ms: int, failures: RequestFailures) -> None:
        self.work = work
        self._failures: RequestFailures | None = failures if work.request is not None else None
        """Notes the first failure of a decision for a request. Any other failure is raised."""
        message = None if work.request is None else work.request.message
        self._weight = 1 + len(message.request_data) // BYTES_PER_WEIGHT if isinstance(message, EnvelopeRequest) else 1
        """How many steps a step counts for: of a large request it may be about a long name."""
        self.since_ms = now_ms
        self.image = controller.history.latest
        self.result: ControllerResult | None = None
        self.is_done = False
        self.has_written = False
        self.taken = 0
        """How many steps were made."""
        self.records: list[VersionedRecord] = []
        self.values: list[bytes] = []
        self.replay: BatchReplay | None = None
        """The first of `records`, replayed ahead."""
        self._bytes = 0
        self._stream = self._records(work.begin(controller, now_ms))

    def _records(self, decision: ControllerResult | Steps) -> Iterator[VersionedRecord | None]:
        self.result = decision if isinstance(decision, ControllerResult) else (yield from decision)
        yield from self.result.records

    @property
    def is_full(self) -> bool:
        """Whether the batch is complete, and the result not."""
        may_cut = self.result is None or not self.result.is_atomic
        return may_cut and (len(self.records) >= RECORDS_PER_BATCH or self._bytes >= DECISION_BATCH_BYTES)

    def advance(self, steps: int, controller: QuorumController) -> int:
        """Make so many steps, or fewer if a batch or the result is complete; returns how many are left."""
        if self.replay is not None and self.replay.is_behind:
            steps = self.replay.go_on((), steps)
        while steps > 0 and not self.is_full and not self.is_done:
            try:
                steps = self._take(steps, controller)
            except Exception as failure:
                self._fail(controller, failure)
        return steps

    def _take(self, steps: int, controller: QuorumController) -> int:
        """Make steps until there are enough, or enough records for a batch; returns how many are left."""
        records, values, weight = self.records, self.values, self._weight
        for one in self._stream:
            if one is None:
                self.taken += 1
                steps -= weight
                if steps <= 0:
                    return steps
                continue
            value = one.value
            self.taken += 1
            if not one.made or self.taken % CHANGES_PER_RECORD == 0:
                steps -= weight + self._more(one, controller)
            records.append(one)
            values.append(value)
            self._bytes += len(value)
            if steps <= 0 or len(records) >= RECORDS_PER_BATCH or self._bytes >= DECISION_BATCH_BYTES:
                return steps
        self.is_done = True
        return steps

    def _more(self, one: VersionedRecord, controller: QuorumController) -> int:
        """How many steps a record takes besides its own: those of its replay, if it is about many partitions."""
        record = one.record
        if type(record) is RemoveTopicRecord:
            topic = controller.history.latest.topics.by_id.get(record.topic_id)
            return 0 if topic is None else len(topic.partitions) // PARTITIONS_PER_RECORD
        if type(record) is ClearElrRecord and not record.topic_name:
            return _weight_of_all(controller)
        return 0

    def _fail(self, controller: QuorumController, failure: Exception) -> None:
        """Answer with an error in place of a decision that has failed: no record of the incomplete batch is written.

        A decision changes nothing but the broker sessions, by whole steps; complete batches are valid alone.
        """
        failures, self._failures = self._failures, None
        if failures is None or self.work.request is None:
            raise failure
        message = self.work.request.message
        error = failures.note(message, failure)
        controller.agenda.now(Slot.FAILURES)
        self.records, self.values, self._bytes, self.replay = [], [], 0, None
        self._stream = self._records(answered_with(controller.failure(message, error.error, error.error.message)))

    def replay_ahead(self, controller: QuorumController) -> None:
        """Replay the records of the incomplete batch ahead, so that the complete batch needs no long replay."""
        if self.replay is None:
            self.replay = controller.begin_own()
        if not self.replay.is_behind:
            # Else this turn has had its portion of a record that is about all partitions.
            self.replay.go_on([one.record for one in self.records[self.replay.count :]], DECISION_STEPS_PER_TURN)

    def take_batch(self) -> Unit:
        """Take the records so far."""
        unit = Unit(tuple(self.values), tuple(self.records))
        self.records, self.values, self._bytes = [], [], 0
        self.has_written = True
        return unit


class Decisions:
    """The decision in progress of an active controller, and the requests that wait for it."""

    def __init__(self, agenda: Agenda, failures: RequestFailures | None = None) -> None:
        self._agenda = agenda
        self._failures = RequestFailures() if failures is None else failures
        self._current: _UnderWay | None = None
        self._waiting: deque[Work] = deque()
        self._reads: deque[_UnderWay] = deque()
        """Long answers from committed metadata. They wait for no decision, and no decision waits for them."""
        self._refused: deque[WireRequest | DecisionRefused] = deque()
        """The requests to refuse because this controller is not active any more."""
        self._ahead: tuple[Unit, BatchReplay] | None = None
        """The part of the batch in the append that was replayed ahead."""

    @property
    def is_busy(self) -> bool:
        """Whether a decision is in progress or waits: then no other may begin."""
        return self._current is not None or bool(self._waiting)

    @property
    def has_answers(self) -> bool:
        """Whether answers are under way that wait for nothing but their turns."""
        return bool(self._reads or self._refused)

    @property
    def is_full(self) -> bool:
        """Whether no more requests may wait."""
        return len(self._waiting) + len(self._reads) >= DECISIONS_WAITING

    def decide(self, work: Work, controller: QuorumController, now_ms: int) -> Action:
        """Begin a decision, or queue it; returns the action of its first turn."""
        if self.is_busy:
            self._waiting.append(work)
            return NOTHING
        current = _UnderWay(work, controller, now_ms, self._failures)
        current.advance(DECISION_STEPS_PER_TURN, controller)
        if current.is_done:
            return _outcome(current)
        self._pause(current, controller, now_ms)
        return NOTHING

    def at_once(
        self, request: WireRequest, caller: Caller, controller: QuorumController, now_ms: int
    ) -> Proposal | None:
        """Decide on a short request in one call; None for a request that `decide` has to take.

        A failure of the decision returns None, too: `decide` makes it again, notes the failure and answers with it.
        """
        if self._current is not None or self._waiting:
            return None
        try:
            result = controller.at_once(request.message, request.version, now_ms, caller)
            if result is None:
                return None
            records = result.records
            if len(records) == 1:
                values: tuple[bytes, ...] = (encode_record(records[0].record, records[0].version),)
            else:
                values = tuple([one.value for one in records])
        except Exception:
            return None
        assert result.response is not None, request
        units = (Unit(values, records),) if values else ()
        return Proposal(units, ForRequest(request.request_id, request.message, result.response), result.quorum_level)

    def read(self, work: Work, controller: QuorumController, now_ms: int) -> Answer | None:
        """Answer from committed metadata, or refuse; returns the answer if the first turn completes it."""
        current = _UnderWay(work, controller, now_ms, self._failures)
        current.advance(DECISION_STEPS_PER_TURN, controller)
        if current.is_done:
            return _answer(current)
        self._reads.append(current)
        self._agenda.by(Slot.DECISIONS, now_ms + _NEXT_TURN_MS)
        return None

    def wait(self, work: Work) -> None:
        """Queue a decision of the controller itself for `turn`."""
        self._waiting.append(work)

    def turn(self, controller: QuorumController, now_ms: int) -> Iterator[Action]:
        """Continue for one turn. The caller carries out each yielded action before it takes the next one."""
        left = DECISION_STEPS_PER_TURN
        while self._refused and left > 0:
            refused = _UnderWay(_not_decided(self._refused.popleft()), controller, now_ms, self._failures)
            left = refused.advance(left - STEPS_PER_DECISION, controller)
            if refused.is_done:
                yield _answer(refused)
            else:
                self._reads.append(refused)
        if self._reads:
            # Half a turn, so that the requests that wait for a decision have the other half.
            read = self._reads.popleft()
            left -= DECISION_STEPS_PER_TURN // 2 - read.advance(DECISION_STEPS_PER_TURN // 2, controller)
            if read.is_done:
                yield _answer(read)
            else:
                self._reads.append(read)
        while left > 0 and self.is_busy:
            current = self._current
            if current is None:
                current = _UnderWay(self._waiting.popleft(), controller, now_ms, self._failures)
                left -= STEPS_PER_DECISION
            elif current.has_written and _backlog(controller) >= UNCOMMITTED_RECORDS:
                break
            left = current.advance(left, controller)
            if current.is_done:
                self._current = None
                if current.has_written:
                    # Of the image that it was decided on many partitions are in no other.
                    controller.leftovers.keep(current.image.topics.by_id.values(), 0)
                yield from self._finish(current)
                continue
            self._pause(current, controller, now_ms)
            if current.is_full:
                yield self._write(current)
                break
        self._plan(controller, now_ms)

    def _pause(self, current: _UnderWay, controller: QuorumController, now_ms: int) -> None:
        current.replay_ahead(controller)
        self._current = current
        self._agenda.by(Slot.DECISIONS, now_ms + _NEXT_TURN_MS)

    def _plan(self, controller: QuorumController, now_ms: int) -> None:
        """Set the time of the next turn."""
        if self._refused or self._reads or self._waiting or self._current is not None:
            is_held_up = self._current is not None and _backlog(controller) >= UNCOMMITTED_RECORDS
            self._agenda.at(Slot.DECISIONS, now_ms + (_BACKLOG_MS if is_held_up else _NEXT_TURN_MS))
        else:
            self._agenda.at(Slot.DECISIONS, NEVER_MS)

    def _write(self, current: _UnderWay) -> Proposal:
        """Propose the complete batch."""
        replay, current.replay = current.replay, None
        unit = current.take_batch()
        self._ahead = None if replay is None else (unit, replay)
        return Proposal((unit,))

    def _finish(self, current: _UnderWay) -> Iterator[Action]:
        if current.replay is None and not current.has_written:
            yield _outcome(current)
            return
        if current.records:
            yield self._write(current)
        # As one proposal, because a refusal of its records would otherwise leave a result with a part missing.
        waiting = _waiting(current)
        if waiting is not None:
            yield Proposal((), waiting)

    @property
    def is_ahead(self) -> bool:
        """Whether `take_ahead` may have a replay."""
        return self._ahead is not None

    def take_ahead(self, unit: Unit) -> BatchReplay | None:
        """Take the replay of a batch that has its offsets now."""
        ahead, self._ahead = self._ahead, None
        return None if ahead is None or ahead[0] is not unit else ahead[1]

    def abandon(self) -> None:
        """The controller is not active any more. Another controller has to make the unfinished decisions."""
        works = list(self._waiting) if self._current is None else [self._current.work, *self._waiting]
        self._refused += [work.request for work in works if work.request is not None]
        self._current = self._ahead = None
        self._waiting.clear()
        if self._refused:
            self._agenda.now(Slot.DECISIONS)


def _not_decided(request: WireRequest | DecisionRefused) -> Work:
    """The refusal of a request that waited when the controller ceased to be active."""
    message = request.message
    return Work(lambda controller, _: answered_with(controller.not_controller(message, NO_NODE)), request)


def _weight_of_all(controller: QuorumController) -> int:
    """How many steps a record about all partitions takes; with very many topics, a whole turn."""
    topics = controller.history.latest.topics.by_id
    if len(topics) >= DECISION_STEPS_PER_TURN:
        return DECISION_STEPS_PER_TURN
    return sum([len(topic.partitions) for topic in topics.values()]) // PARTITIONS_PER_RECORD


def _backlog(controller: QuorumController) -> int:
    """How many records are written and not committed."""
    history = controller.history
    return history.latest.end.offset - history.committed.end.offset


def _waiting(current: _UnderWay) -> ForRequest | None:
    """The client that waits for the decision."""
    request, result = current.work.request, current.result
    if request is None:
        return None
    assert result is not None, request
    assert result.response is not None, request
    return ForRequest(request.request_id, request.message, result.response)


def _outcome(current: _UnderWay) -> Proposal:
    """A decision that took one turn."""
    result = current.result
    assert result is not None, current.work
    units = (current.take_batch(),) if current.records else ()
    return Proposal(units, _waiting(current), result.quorum_level)


def _answer(current: _UnderWay) -> Answer:
    waiting = _waiting(current)
    assert waiting is not None, "an answer without a request"
    return Answer(waiting.request_id, waiting.response)
