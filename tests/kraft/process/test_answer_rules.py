"""When an answer may leave: after the commit of the last record, and after the application has what a read needs."""

from __future__ import annotations

from kraft.limits import ITEMS_PER_ANSWER, MOST_TOLD
from kraft.quorum.effects import ReadConfirmed
from kraft.replica.confirmations import Confirmations
from kraft.replica.deferred import Abandoned, Deferred, Held
from kraft.replica.interface.actions import ForSubmit
from kraft.replica.interface.answer_weight import weight_of_answer, weight_of_refusal
from transport.protocol.messages import DeleteTopicsRequest


def test_an_answer_waits_for_the_commit_of_the_last_record_of_its_proposal() -> None:
    deferred = Deferred()
    one = Held(3, 5, ForSubmit(submit_id=1))
    deferred.hold(one)
    assert deferred.release(5, 10) == []
    assert not deferred.is_due(5)
    assert deferred.is_due(6)
    assert deferred.release(6, 10) == [one]


def test_a_committed_proposal_is_a_success_after_the_end_of_the_leadership() -> None:
    deferred, abandoned = Deferred(), Abandoned()
    committed, lost = Held(3, 3, ForSubmit(submit_id=1)), Held(4, 5, ForSubmit(submit_id=2))
    deferred.hold(committed)
    deferred.hold(lost)
    abandoned.add(deferred.abandon(), 5)
    assert abandoned.take(10) == [(committed, True), (lost, False)]


def test_a_confirmed_read_waits_until_the_application_has_applied_the_log_up_to_its_offset() -> None:
    confirmations = Confirmations()
    confirmations.wait(1)
    confirmations.confirm(ReadConfirmed((1,), 5))
    assert confirmations.take(4) == []
    assert confirmations.take(5) == [1]


def test_each_submit_takes_the_room_of_one_answer() -> None:
    deferred = Deferred()
    held = [Held(at, at, ForSubmit(submit_id=at)) for at in range(4)]
    for one in held:
        deferred.hold(one)
    assert deferred.release(9, 0) == []
    assert deferred.release(9, 2) == held[:2]
    assert deferred.release(9, 9) == held[2:]
    abandoned = Abandoned()
    for one in held:
        deferred.hold(one)
    abandoned.add(deferred.abandon(), 2)
    assert abandoned.take(0) == []
    assert abandoned.take(3) == [(held[0], True), (held[1], True), (held[2], False)]
    assert abandoned
    assert abandoned.take(3) == [(held[3], False)]
    assert not abandoned


def test_reads_of_a_leadership_that_has_ended_are_not_confirmed_any_more() -> None:
    confirmations = Confirmations()
    for token in (1, 2):
        confirmations.wait(token)
    confirmations.confirm(ReadConfirmed((1,), 5))
    assert confirmations.abandon() == [1, 2]
    assert confirmations.take(9) == []
    assert confirmations.abandon() == []


def test_an_answer_weighs_one_and_more_for_many_items() -> None:
    def request(count: int) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topic_names=["t"] * count)

    counts = (0, ITEMS_PER_ANSWER - 1, ITEMS_PER_ANSWER, 20 * ITEMS_PER_ANSWER)
    assert [weight_of_refusal(request(count)) for count in counts] == [1, 1, 2, 21]
    assert [weight_of_answer(request(count)) for count in counts] == [1, 1, 2, MOST_TOLD]
