"""A state machine as the application of a replica: entries that it takes and proposes, answers that it waits for."""

from __future__ import annotations

import pytest

from hosted_applications import MAX_ENTRY_BYTES, Count, command, state_machine, wire
from kraft.calls import Call, CancelCall, Returned
from kraft.committed import CommittedBatch, Noted
from kraft.process.hosting import host_state_machine
from kraft.replica.interface.actions import Confirm, Proposal
from kraft.state_machine import server as state_machine_host
from kraft.state_machine.calls import SubmitCall
from kraft.state_machine.log import (
    AskIndex,
    Command,
    Forward,
    OpenSession,
    Refusal,
    Result,
    SessionState,
    StateMachineSnapshot,
    encode,
    snapshot_values,
)
from kraft.state_machine.reads import Reader
from kraft.state_machine.server import Changes, Kind, Question, ReadCall, ReadReady, StateMachineServer
from kraft.wire import Answer, Part, ReplyTo, Send, WireRequest
from metadata_log.errors import CorruptBatch
from metadata_log.types import NEVER_MS, OffsetAndEpoch
from support.kraft.replica_net import Net
from transport.protocol.errors import Error
from transport.protocol.messages import (
    EnvelopeRequest,
    EnvelopeResponse,
)

# State machines


GARBAGE = b"\xc1"


def test_entries_and_snapshots_of_state_machines_are_checked_before_they_are_taken() -> None:
    host = state_machine()
    host.check([encode(OpenSession("c", "a", 1000)), encode(Command(1, 1, 1, b""))])
    with pytest.raises(CorruptBatch):
        host.check([encode(OpenSession("c", "a", 1000)), GARBAGE])
    host.check([GARBAGE], in_snapshot=True)
    host.check_snapshot(snapshot_values(StateMachineSnapshot(0, (), b"7")))
    with pytest.raises(CorruptBatch):
        host.check_snapshot([GARBAGE])


def test_a_state_machine_has_no_features() -> None:
    host = state_machine()
    assert host.applied_offset == 0
    assert (host.supported_features(), host.finalized_features()) == ((), ((), -1))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (GARBAGE, Error.INVALID_REQUEST),
        (encode(Forward((GARBAGE,))), Error.INVALID_REQUEST),
        (encode(Forward((command(MAX_ENTRY_BYTES + 1),))), Error.MESSAGE_TOO_LARGE),
        (encode(Forward((command(MAX_ENTRY_BYTES),))), None),
        (encode(Forward(())), Error.NONE),
    ],
    ids=["garbage", "an entry of garbage", "too large", "just small enough", "nothing"],
)
def test_a_leading_state_machine_takes_entries_that_it_can_write(data: bytes, error: Error | None) -> None:
    host = state_machine()
    asked = wire(EnvelopeRequest(request_data=data, client_host_address=b""))
    refused = host.on_request(asked, 0)
    assert isinstance(refused, Answer)
    assert refused.message == EnvelopeResponse(response_data=b"", error_code=Error.NOT_LEADER_OR_FOLLOWER)
    host.on_leader(1, 0, 0)
    action = host.on_request(asked, 0)
    if error is None:
        assert isinstance(action, Proposal)
        assert len(action.units) == 1
    else:
        assert action == Answer(5, EnvelopeResponse(response_data=b"", error_code=error))


# Entries of other nodes


def forward(*entries: bytes) -> WireRequest:
    return wire(EnvelopeRequest(request_data=encode(Forward(entries)), client_host_address=b""))


def test_a_command_that_is_applied_already_is_not_proposed_again() -> None:
    """Its sender repeats the command, as the first answer was lost."""
    host = state_machine()
    entries = (encode(OpenSession("client", "a", 60_000)), encode(Command(0, 1, 1, encode(5))))
    host.on_leader(1, 0, 0)
    host.on_committed(CommittedBatch(0, 2, 1, 5, entries, 100))
    assert isinstance(host.machine, Count)
    assert host.machine.total == 5
    done = host.on_request(forward(entries[1]), 0)
    assert done == Answer(5, EnvelopeResponse(response_data=b"", error_code=Error.NONE))
    again = host.on_request(forward(encode(Command(0, 2, 2, encode(5)))), 0)
    assert isinstance(again, Proposal)


def test_a_state_machine_takes_so_many_entries_of_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine_host, "FORWARDED_ENTRIES", 2)
    host = state_machine()
    host.on_leader(1, 0, 0)
    entries = [encode(Command(1, number, 1, b"")) for number in range(1, 5)]
    timed_out = Answer(5, EnvelopeResponse(response_data=b"", error_code=Error.REQUEST_TIMED_OUT))
    assert host.on_request(forward(*entries[:3]), 0) == timed_out
    taken = host.on_request(forward(*entries[:2]), 0)
    assert isinstance(taken, Proposal)
    assert host.on_request(forward(entries[3]), 0) == timed_out


def test_a_full_leader_refuses_entries_and_no_reads() -> None:
    host = state_machine(is_full=True)
    asks = wire(EnvelopeRequest(request_data=encode(AskIndex()), client_host_address=b""))
    refused = {}
    for is_leader in (False, True):
        if is_leader:
            host.on_leader(1, 0, 0)
        refused[is_leader] = [host.on_request(asked, 0) for asked in (forward(command(100)), asks)]
    for answer in refused[False]:
        assert isinstance(answer, Answer)
        assert answer.message == EnvelopeResponse(response_data=b"", error_code=Error.NOT_LEADER_OR_FOLLOWER)
    timed_out, confirms = refused[True]
    assert timed_out == Answer(5, EnvelopeResponse(response_data=b"", error_code=Error.REQUEST_TIMED_OUT))
    assert isinstance(confirms, Confirm)


def test_a_command_that_the_leader_itself_has_proposed_is_not_proposed_again() -> None:
    """A client has sent its command to two nodes; both answers wait for one entry of the log."""
    host = state_machine()
    host.on_leader(1, 0, 0)
    host.on_committed(CommittedBatch(0, 1, 1, 5, (encode(OpenSession("client", "a", 60_000)),), 100))
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    (own,) = [action for action in host.on_tick(0) if isinstance(action, Proposal)]
    (entry,) = own.units[0].values
    again = host.on_request(forward(entry), 0)
    assert isinstance(again, Proposal)
    assert again.units == ()
    host.on_committed(CommittedBatch(1, 2, 1, 5, (entry,), 100))
    answers = [action for action in host.on_tick(0) if isinstance(action, Answer)]
    assert answers == [Answer(5, EnvelopeResponse(response_data=b"", error_code=Error.NONE))]


@pytest.mark.parametrize("error", [None, Error.NONE, Error.NOT_LEADER_OR_FOLLOWER])
def test_a_follower_sends_its_entries_again_unless_the_leader_has_applied_them(error: Error | None) -> None:
    """After an answer without an error the entries are in the log, and this node will come to them."""
    host = state_machine()
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    (asked,) = host.on_tick(0)
    assert isinstance(asked, Send)
    host.on_reply(asked.reply_to, None if error is None else EnvelopeResponse(response_data=b"", error_code=error), 100)
    if error is Error.NONE:
        assert (host.agenda.deadline_ms, host.on_tick(10_000)) == (NEVER_MS, ())
    else:
        assert host.agenda.deadline_ms == 120
        assert host.on_tick(119) == ()
        (again,) = host.on_tick(120)
        assert isinstance(again, Send)
        assert again.message == asked.message


def test_a_new_leader_proposes_what_it_has_asked_its_predecessor_for() -> None:
    host = state_machine()
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    (asked,) = host.on_tick(0)
    assert isinstance(asked, Send)
    host.on_leader(2, 0, 0)
    (own,) = host.on_tick(0)
    assert isinstance(own, Proposal)
    assert [len(unit.values) for unit in own.units] == [1]
    host.on_reply(asked.reply_to, None, 10)
    assert (host.on_tick(10_000), host.agenda.deadline_ms) == ((), NEVER_MS), "an answer to the former role"


def test_a_state_machine_may_stop_at_any_time() -> None:
    host = state_machine()
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    assert host.may_stop


def test_a_question_that_comes_too_late_for_the_leadership_is_refused_once() -> None:
    net = Net(3, application=host_state_machine(Count))
    leader = net.elect()
    node = next(node for node in net.processes if node != leader)
    replica = net.processes[node]
    host = replica.application
    assert isinstance(host, StateMachineServer)
    token = host._reads.ask_for(Reader(77, is_remote=True))
    replica._perform(Confirm(token), net.now_ms)
    assert host._actions == [Answer(77, EnvelopeResponse(response_data=b"", error_code=Error.NOT_LEADER_OR_FOLLOWER))]
    assert replica.replica.commits.confirmations.abandon() == []


def test_a_read_waits_until_its_offset_is_applied() -> None:
    host = state_machine()
    host._reads.learn(2, (9,))
    host.on_committed(CommittedBatch(0, 1, 1, 5, (encode(OpenSession("client", "a", 60_000)),), 100))
    assert [action for action in host.on_tick(0) if isinstance(action, Returned)] == []
    host.on_committed(CommittedBatch(1, 2, 1, 5, (encode(OpenSession("client", "b", 60_000)),), 100))
    assert [action for action in host.on_tick(0) if isinstance(action, Returned)] == [Returned(9, ReadReady())]


def test_a_leader_that_leads_again_proposes_what_may_have_been_lost() -> None:
    host = state_machine()
    host.on_leader(1, 0, 0)
    entry = encode(Command(1, 1, 1, b""))
    assert isinstance(host.on_request(forward(entry), 0), Proposal)
    host.on_lost_leadership()
    host.on_leader(3, 0, 0)
    again = host.on_request(forward(entry), 0)
    assert isinstance(again, Proposal)
    assert [unit.values for unit in again.units] == [(entry,)]


def test_a_former_leader_asks_the_next_one() -> None:
    host = state_machine()
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    (asked,) = host.on_tick(0)
    host.on_leader(2, 0, 0)
    host.on_lost_leadership()
    (again,) = host.on_tick(0)
    assert isinstance(asked, Send)
    assert isinstance(again, Send)
    assert again.message == asked.message
    assert again.reply_to != asked.reply_to


def test_an_answered_request_of_another_node_is_not_refused_when_the_leadership_ends() -> None:
    host = state_machine()
    host.on_leader(1, 0, 0)
    entry = encode(OpenSession("client", "a", 60_000))
    assert isinstance(host.on_request(forward(entry), 0), Proposal)
    host.on_committed(CommittedBatch(0, 1, 1, 5, (entry,), 100))
    host.on_lost_leadership()
    answers = [action for action in host.on_tick(0) if isinstance(action, Answer)]
    assert answers == [Answer(5, EnvelopeResponse(response_data=b"", error_code=Error.NONE))]


def test_a_snapshot_ends_the_calls_that_it_has_the_results_of_and_the_reads_before_it() -> None:
    host = state_machine()
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    host._reads.learn(7, (11,))
    result = Result(encode(5))
    sessions = (SessionState(0, "client", 60_000, 0, 1, 1, {1: result}),)
    host.on_snapshot(snapshot_values(StateMachineSnapshot(0, sessions, b"5")), OffsetAndEpoch(epoch=1, offset=7))
    returned = [action for action in host.on_tick(0) if isinstance(action, Returned)]
    assert returned == [Returned(9, result), Returned(11, ReadReady())]
    assert host.agenda.deadline_ms == NEVER_MS


def test_a_new_role_ends_the_pause_before_the_next_question() -> None:
    host = state_machine()
    host.on_call(Call(9, SubmitCall(encode(5), 0, 1)), 0)
    (asked,) = host.on_tick(0)
    assert isinstance(asked, Send)
    host.on_reply(asked.reply_to, None, 100)
    assert host.agenda.deadline_ms == 120
    host.on_lost_leadership()
    assert host.agenda.deadline_ms <= 101
    assert len(host.on_tick(101)) == 1


def test_a_cancelled_read_sends_no_question() -> None:
    host = state_machine()
    host.on_call(Call(9, ReadCall()), 0)
    host.on_call(CancelCall(9), 0)
    assert (host.agenda.deadline_ms, host.on_tick(0)) == (NEVER_MS, ())


def test_a_former_leader_refuses_what_it_has_not_applied() -> None:
    host = state_machine()
    host.on_leader(1, 0, 0)
    assert isinstance(host.on_request(forward(encode(Command(1, 1, 1, b""))), 0), Proposal)
    host.on_lost_leadership()
    (answer,) = host.on_tick(0)
    assert answer == Answer(5, EnvelopeResponse(response_data=b"", error_code=Error.NOT_LEADER_OR_FOLLOWER))
    assert host.on_tick(1) == ()


def test_each_command_of_a_long_batch_has_its_own_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine_host, "COMMANDS_PER_TURN", 2)
    host = state_machine()
    commands = [encode(Command(10, number, 1, encode(5))) for number in range(1, 5)]
    entries = (encode(OpenSession("client", "a", 60_000)), *commands)
    host.on_committed(CommittedBatch(10, 15, 1, 5, entries, 100))
    while host.is_applying:
        host.apply_more()
    (changes,) = [action.what for action in host.on_tick(0) if isinstance(action, Noted)]
    assert isinstance(changes, Changes)
    assert [one.at.offset for one in changes.changes] == [11, 12, 13, 14]


def test_a_leader_sends_no_question_to_itself() -> None:
    net = Net(1, application=host_state_machine(Count))
    replica = net.processes[net.elect()]
    replica._perform(
        Send(EnvelopeRequest(), ReplyTo(Part.STATE_MACHINE, Question(1 << 19, Kind.FORWARD)), 500), net.now_ms
    )
    assert replica._outbox.outputs == []


def test_a_command_that_the_state_machine_cannot_read_is_refused_by_each_node() -> None:
    host = state_machine()
    host.on_call(Call(9, SubmitCall(GARBAGE, 0, 1)), 0)
    entries = (encode(OpenSession("client", "a", 60_000)), encode(Command(0, 1, 1, GARBAGE)))
    host.on_committed(CommittedBatch(0, 2, 1, 5, entries, 100))
    refusal = Refusal("the command cannot be read")
    assert Returned(9, refusal) in host.on_tick(0)
    assert host.sessions.known(0, 1) == refusal
    assert isinstance(host.machine, Count)
    assert host.machine.total == 0


def test_a_snapshot_ends_the_application_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine_host, "COMMANDS_PER_TURN", 1)
    host = state_machine()
    entries = tuple(encode(OpenSession(client, "a", 60_000)) for client in "abc")
    host.on_committed(CommittedBatch(0, 3, 1, 5, entries, 100))
    assert host.is_applying
    host.on_snapshot(snapshot_values(StateMachineSnapshot(0, (), b"5")), OffsetAndEpoch(epoch=1, offset=7))
    assert not host.is_applying
    assert host.applied_offset == 7
