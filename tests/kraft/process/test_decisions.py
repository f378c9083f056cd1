"""The decisions of a controller, a turn at a time: how much one turn does, and when the next one is due."""

from __future__ import annotations

import pytest

from hosted_decisions import ANSWER, PARTITIONS, TOPIC, configs, request, with_a_topic, work
from kraft.access.failures import RequestFailures
from kraft.agenda import Agenda
from kraft.controller import decisions as module
from kraft.controller import leftovers
from kraft.controller.decision.slots import SLOTS, Slot
from kraft.controller.decisions import NOTHING, Decisions, _backlog, _not_decided, _UnderWay, _weight_of_all
from kraft.limits import DECISION_STEPS_PER_TURN, STEPS_PER_DECISION
from kraft.replica.interface.actions import Action, ForRequest, Proposal
from kraft.wire import Answer
from metadata_log.image.replaying import PARTITIONS_PER_RECORD
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    ClearElrRecord,
    NoOpRecord,
    RemoveTopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import NEVER_MS, Uuid
from support.differential.controller_sides import InProcess
from transport.protocol.messages import DescribeClusterRequest

NOW_MS = 1_000_000


def due_ms(decisions: Decisions) -> int:
    """The time of the next turn."""
    return decisions._agenda.times[Slot.DECISIONS]


def turn(decisions: Decisions, process: InProcess, now_ms: int, *, commits: bool = True) -> list[Action]:
    """One turn; what it proposes is appended at once, and also committed unless that is told otherwise."""
    taken = []
    for action in decisions.turn(process.controller, now_ms):
        taken.append(action)
        for unit in action.units if isinstance(action, Proposal) else ():
            process.controller.on_appended(unit.records, process.end, decisions.take_ahead(unit))
            process.end += len(unit.records)
            if commits:
                process.controller.on_committed(process.end)
    return taken


# Turns


def test_a_decision_goes_on_a_millisecond_after_each_turn_until_it_is_done() -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    asked = work(steps=2 * DECISION_STEPS_PER_TURN + 1)
    assert decisions.decide(asked, process.controller, NOW_MS) is NOTHING
    assert (decisions.is_busy, due_ms(decisions)) == (True, NOW_MS + 1)
    assert turn(decisions, process, NOW_MS + 1) == []
    assert (decisions.is_busy, due_ms(decisions)) == (True, NOW_MS + 2)
    (done,) = turn(decisions, process, NOW_MS + 2)
    assert isinstance(done, Proposal)
    assert done.waiting == ForRequest(1, DescribeClusterRequest(), ANSWER)
    assert (decisions.is_busy, due_ms(decisions)) == (False, NEVER_MS)


def test_a_long_answer_goes_on_a_millisecond_after_each_turn_until_it_is_done() -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    assert decisions.read(work(steps=2 * DECISION_STEPS_PER_TURN), process.controller, NOW_MS) is None
    assert (decisions.has_answers, decisions.is_busy, due_ms(decisions)) == (True, False, NOW_MS + 1)
    now_ms = NOW_MS
    answers: list[Action] = []
    while not answers:
        now_ms += 1
        assert due_ms(decisions) == now_ms
        answers = turn(decisions, process, now_ms)
    assert answers == [Answer(1, ANSWER)]
    assert now_ms == NOW_MS + 3, "half of each turn is left for decisions"
    assert (decisions.has_answers, due_ms(decisions)) == (False, NEVER_MS)


def test_decisions_and_long_answers_that_wait_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_WAITING", 2)
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    assert decisions.read(work(steps=2 * DECISION_STEPS_PER_TURN), process.controller, NOW_MS) is None
    assert not decisions.is_full
    decisions.wait(work())
    assert decisions.is_full


# Steps


@pytest.mark.parametrize(
    ("record", "steps"),
    [
        (NoOpRecord(), 1),
        (RemoveTopicRecord(topic_id=TOPIC), 1 + 3),
        (RemoveTopicRecord(topic_id=Uuid(bytes(15) + b"\x08")), 1),
        (ClearElrRecord(topic_name=""), 1 + 3),
        (ClearElrRecord(topic_name="t"), 1),
    ],
    ids=["any", "of a removed topic", "of a topic that is not known", "about all topics", "about one topic"],
)
def test_a_record_takes_a_step_and_more_for_many_partitions(record: Message, steps: int) -> None:
    process = with_a_topic()
    current = _UnderWay(work(record, NoOpRecord(), steps=2), process.controller, NOW_MS, RequestFailures())
    assert current.advance(10, process.controller) == 10 - 2 - steps - 1
    assert current.is_done
    assert (current.taken, current.since_ms) == (4, NOW_MS)
    assert [one.record for one in current.records] == [record, NoOpRecord()]


def test_a_record_about_all_of_very_many_topics_takes_a_whole_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    process = with_a_topic()
    assert _weight_of_all(process.controller) == PARTITIONS // PARTITIONS_PER_RECORD
    monkeypatch.setattr(module, "DECISION_STEPS_PER_TURN", 1)
    assert _weight_of_all(process.controller) == 1


# Batches


@pytest.mark.parametrize("missing", [0, 1], ids=["just enough bytes", "a byte too few"])
def test_a_divisible_result_is_written_in_batches_of_so_many_bytes(
    missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    records = configs(10)
    sizes = {len(encode_record(record, 0)) for record in records}
    assert len(sizes) == 1
    monkeypatch.setattr(module, "DECISION_BATCH_BYTES", 4 * sizes.pop() + missing)
    assert decisions.decide(work(*records, is_atomic=False), process.controller, NOW_MS) is NOTHING
    written: list[int] = []
    now_ms = NOW_MS
    while decisions.is_busy:
        now_ms += 1
        proposals = [one for one in turn(decisions, process, now_ms) if isinstance(one, Proposal)]
        batches = [len(unit.values) for one in proposals for unit in one.units]
        assert len(batches) <= 1, "the next batch has a turn of its own"
        written += batches
    assert written == ([4, 4, 2] if not missing else [5, 5])


def test_an_atomic_result_is_one_batch_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISION_BATCH_BYTES", 1)
    monkeypatch.setattr(module, "RECORDS_PER_BATCH", 1)
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    done = decisions.decide(work(*configs(3)), process.controller, NOW_MS)
    assert isinstance(done, Proposal)
    assert [len(unit.values) for unit in done.units] == [3]


def test_a_decision_with_too_many_uncommitted_records_waits_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_PER_BATCH", 2)
    monkeypatch.setattr(module, "UNCOMMITTED_RECORDS", 2)
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    assert decisions.decide(work(*configs(3), is_atomic=False), process.controller, NOW_MS) is NOTHING
    (first,) = turn(decisions, process, NOW_MS + 1, commits=False)
    assert isinstance(first, Proposal)
    assert (len(first.units[0].values), _backlog(process.controller)) == (2, 2)
    assert due_ms(decisions) == NOW_MS + 11
    assert turn(decisions, process, NOW_MS + 11, commits=False) == []
    assert due_ms(decisions) == NOW_MS + 21
    process.controller.on_committed(process.end)
    second, answer = turn(decisions, process, NOW_MS + 21)
    assert isinstance(second, Proposal)
    assert isinstance(answer, Proposal)
    assert [len(unit.values) for unit in second.units] == [1]
    assert (answer.units, answer.waiting) == ((), ForRequest(1, DescribeClusterRequest(), ANSWER))
    assert due_ms(decisions) == NEVER_MS


def test_the_answer_of_a_decision_without_a_request_is_none() -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    done = decisions.decide(work(NoOpRecord(), request_id=None), process.controller, NOW_MS)
    assert isinstance(done, Proposal)
    assert (len(done.units), done.waiting) == (1, None)


def test_a_controller_that_ends_refuses_what_waits_at_once() -> None:
    """The decision in progress has no answer yet either; a decision of the controller itself is dropped."""
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    decisions.decide(work(steps=2 * DECISION_STEPS_PER_TURN, request_id=1), process.controller, NOW_MS)
    decisions.wait(work(request_id=None))
    decisions.decide(work(request_id=2), process.controller, NOW_MS)
    decisions.abandon()
    assert (decisions.is_busy, decisions.has_answers, due_ms(decisions)) == (False, True, 0)
    answers = turn(decisions, process, NOW_MS)
    assert [answer.request_id for answer in answers if isinstance(answer, Answer)] == [1, 2]
    assert (len(answers), decisions.has_answers, due_ms(decisions)) == (2, False, NEVER_MS)


@pytest.mark.parametrize("writes", [True, False])
def test_the_image_of_a_decision_in_several_batches_is_freed_in_portions(
    writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions may be in no other image by now."""
    monkeypatch.setattr(leftovers, "PARTITIONS_FREED_PER_TURN", 10)
    monkeypatch.setattr(module, "RECORDS_PER_BATCH", 2)
    process, decisions = with_a_topic(), Decisions(Agenda(SLOTS))
    asked = work(*(configs(3) if writes else ()), steps=DECISION_STEPS_PER_TURN, is_atomic=False)
    assert decisions.decide(asked, process.controller, NOW_MS) is NOTHING
    now_ms = NOW_MS
    while decisions.is_busy:
        now_ms += 1
        turn(decisions, process, now_ms)
    assert process.controller.leftovers.is_due(0) is writes


def test_the_records_of_a_batch_are_replayed_before_the_batch_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_PER_BATCH", 2)
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    assert decisions.decide(work(*configs(5), is_atomic=False), process.controller, NOW_MS) is NOTHING
    written = next(decisions.turn(process.controller, NOW_MS + 1))
    assert isinstance(written, Proposal)
    (unit,) = written.units
    ahead = decisions.take_ahead(unit)
    assert ahead is not None
    assert (ahead.count, decisions.take_ahead(unit)) == (2, None)


@pytest.mark.parametrize(("missing", "is_done"), [(1, True), (0, False)])
def test_a_decision_has_half_of_a_turn_beside_a_long_answer(missing: int, is_done: bool) -> None:
    """Its beginning takes some steps, too."""
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    assert decisions.read(work(steps=9 * DECISION_STEPS_PER_TURN, request_id=1), process.controller, NOW_MS) is None
    decisions.wait(work(steps=DECISION_STEPS_PER_TURN // 2 - STEPS_PER_DECISION - missing, request_id=2))
    assert len(turn(decisions, process, NOW_MS + 1)) == is_done
    assert (decisions.is_busy, decisions.has_answers) == (not is_done, True)


def test_a_controller_that_ends_refuses_some_requests_in_each_turn() -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    most = DECISION_STEPS_PER_TURN // STEPS_PER_DECISION
    for request_id in range(most + 50):
        decisions.wait(work(request_id=request_id))
    decisions.abandon()
    answered = [len(turn(decisions, process, NOW_MS + at)) for at in range(3)]
    assert most // 2 <= answered[0] <= most
    assert sum(answered) == most + 50


def test_the_last_step_of_a_turn_begins_the_next_decision() -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    decisions.wait(work(steps=DECISION_STEPS_PER_TURN - STEPS_PER_DECISION - 1, request_id=1))
    decisions.wait(work(request_id=2))
    assert len(turn(decisions, process, NOW_MS)) == 1
    assert (len(decisions._waiting), decisions.is_busy) == (0, True)
    assert len(turn(decisions, process, NOW_MS + 1)) == 1


@pytest.mark.parametrize(("left", "answered"), [(0, 3), (1, 4)])
def test_the_last_step_of_a_turn_begins_the_next_refusal(
    left: int, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    one = _UnderWay(_not_decided(request(0)), process.controller, NOW_MS, RequestFailures())
    steps = STEPS_PER_DECISION + DECISION_STEPS_PER_TURN - one.advance(DECISION_STEPS_PER_TURN, process.controller)
    monkeypatch.setattr(module, "DECISION_STEPS_PER_TURN", 3 * steps + left)
    for request_id in range(5):
        decisions.wait(work(request_id=request_id))
    decisions.abandon()
    told = [turn(decisions, process, NOW_MS + at) for at in range(2)]
    assert len(told[0]) == answered
    ids = [one.request_id for answers in told for one in answers if isinstance(one, Answer)]
    assert ids == [0, 1, 2, 3, 4]


def test_a_decision_gets_what_a_long_answer_leaves_of_its_half() -> None:
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    assert decisions.read(work(steps=DECISION_STEPS_PER_TURN + 1, request_id=1), process.controller, NOW_MS) is None
    decisions.wait(work(steps=DECISION_STEPS_PER_TURN - 2 * STEPS_PER_DECISION, request_id=2))
    assert len(turn(decisions, process, NOW_MS + 1)) == 2


def test_a_decision_of_one_turn_is_one_proposal_with_its_answer() -> None:
    """A refusal of the records then refuses the request as well."""
    process, decisions = InProcess(max_idle_interval_ms=0), Decisions(Agenda(SLOTS))
    decisions.wait(work(NoOpRecord()))
    (done,) = turn(decisions, process, NOW_MS)
    assert isinstance(done, Proposal)
    assert ([len(unit.values) for unit in done.units], done.waiting is not None) == ([1], True)
