"""A follower's conclusions from its leader's answers and refusals, and from listeners that differ."""

from __future__ import annotations

import pytest

from kraft.quorum.effects import SendRequest
from kraft.quorum.events import FailureCause, Replied, RequestFailed, Tick
from kraft.quorum.messages import BatchFacts, BeginQuorumEpoch, FetchReply, Vote, VoteReply
from kraft.quorum.values import ElectionState, Endpoints, ListenerAddress, QuorumConfig, ReplicaKey
from kraft.replica.storage.fetched import facts_of
from metadata_log.records.batch_builder import build_batch
from support.kraft.one_core import START_MS, OneCore, at, endpoints, records_of_the_leader
from transport.protocol.errors import Error

NOT_ME = FetchReply(epoch=5, leader_id=1, endpoints=endpoints(1), error=Error.NOT_LEADER_OR_FOLLOWER)
LONGER = Vote(epoch=5, candidate=ReplicaKey(3), voter=ReplicaKey(2), last=at(101, 5), pre_vote=True)


def refused_once() -> OneCore:
    """A follower after one connection that its leader refused, between two good answers."""
    one = OneCore(config=QuorumConfig(lost_leader_backoff_max_ms=400))
    one.answer(records_of_the_leader())
    one.fail(FailureCause.REFUSED)
    one.answer(NOT_ME, peer=3)
    one.now_ms += 20
    one.step(Tick())
    assert one.asked().peer_id == 1
    one.answer(records_of_the_leader())
    return one


def test_a_leader_that_answers_again_counts_as_alive() -> None:
    """One refused connection once meant for the rest of the epoch: a pre-vote against a leader that is heard."""
    one = refused_once()
    assert not one.ask(LONGER).granted
    one.advance(500)
    assert one.core.state_name == "Follower"


@pytest.mark.parametrize(("leader", "node", "turn"), [(1, 2, 0), (1, 3, 1), (2, 3, 0), (2, 1, 1), (3, 1, 0), (3, 2, 1)])
def test_the_other_voters_take_turns_after_the_leaders_process_has_ended(leader: int, node: int, turn: int) -> None:
    """In the order of their ids after the leader's, each in the first half of its share of the longest delay."""
    one = OneCore(election=ElectionState(epoch=5, leader_id=leader), local=ReplicaKey(node), endpoints=endpoints(node))
    one.answer(records_of_the_leader(leader_id=leader, endpoints=endpoints(leader)))
    began_ms = one.now_ms
    one.fail(FailureCause.REFUSED)
    while one.core.state_name != "Prospective":
        one.now_ms += 1
        one.step(Tick())
    assert 50 * turn < one.now_ms - began_ms <= 50 * turn + 25


def test_a_second_refused_connection_in_an_epoch_counts_again() -> None:
    """The fast fail-over works each time, and not only once an epoch."""
    one = refused_once()
    one.fail(FailureCause.REFUSED)
    assert one.ask(LONGER).granted, "to the successor of a leader after its process has ended"
    one.advance(150)
    assert one.core.state_name == "Prospective"


def test_a_refused_advertised_address_deposes_no_leader_reached_by_bootstrap() -> None:
    """As behind a virtual address: the leader is heard, only not where it says that it listens."""
    one = OneCore(bootstrap=(ListenerAddress("CONTROLLER", "vip", 9093),))
    heard, taken = 0, 0
    pending: list[tuple[int, SendRequest]] = []
    while one.now_ms < START_MS + 60_000:
        for request in one.all(SendRequest)[taken:]:
            pending.append((one.now_ms + (500 if request.peer_id == -2 else 1), request))
            taken += 1
        due_ms = min(at_ms for at_ms, _ in pending) if pending else one.now_ms + 2**40
        one.now_ms = max(one.now_ms, min(due_ms, max(one.core.deadline_ms(), one.now_ms + 1)))
        ready = [found for found in pending if found[0] <= one.now_ms]
        if not ready:
            one.step(Tick())
        for found in ready[:1]:
            pending.remove(found)
            request = found[1]
            if isinstance(request.message, Vote):
                refusal = VoteReply(epoch=5, leader_id=1, endpoints=endpoints(1))
                one.step(Replied(request.request_id, request.peer_id, refusal))
            elif request.peer_id == -2:
                heard += 1
                one.step(Replied(request.request_id, -2, records_of_the_leader()))
            elif request.peer_id == 1:
                one.step(RequestFailed(request.request_id, 1, FailureCause.REFUSED))
            else:
                one.step(Replied(request.request_id, request.peer_id, NOT_ME))
    assert heard > 50
    assert one.campaigns == 0


def test_a_late_answer_of_a_bootstrap_server_is_dropped_once_the_leader_is_asked_again() -> None:
    """Both answers have the same records, and the second one once looked like a fault of the peer."""
    one = OneCore(bootstrap=(ListenerAddress("CONTROLLER", "vip", 9093),), config=QuorumConfig(request_timeout_ms=100))
    late: SendRequest | None = None
    while late is None or one.asked().peer_id != 1:
        one.now_ms = max(one.now_ms, one.core.deadline_ms())
        one.step(Tick())
        late = next((request for request in one.all(SendRequest) if request.peer_id == -2), None)
    assert one.core.state_name == "Follower"
    records = records_of_the_leader(
        batches=(BatchFacts(base_offset=100, next_offset=103, epoch=5, end_position=9),), data=b"3 records"
    )
    one.answer(records, peer=1)
    assert one.core.log.end_offset == 103
    one.step(Replied(late.request_id, -2, records))
    assert one.core.log.end_offset == 103
    assert one.suspicions == []


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 3_600_000])
def test_a_fetch_timeout_ends_by_the_clock_of_the_follower(ahead_ms: int) -> None:
    """The records have timestamps of the leader's clock, which may be an hour wrong."""
    one = OneCore()
    one.now_ms += 1000
    data = build_batch(100, 5, one.now_ms + ahead_ms, [b"value"])
    batches, problem, _ = facts_of(data)
    assert problem is None
    one.answer(records_of_the_leader(batches=batches, data=data))
    assert one.core.log.end_offset == 101
    one.advance(QuorumConfig().fetch_timeout_ms - 1)
    assert one.core.state_name == "Follower"
    one.advance(1)
    assert one.core.state_name == "Prospective"


# Nodes with different first listeners, as while a quorum goes from one security protocol to another.


CLEAR, SECURE = ListenerAddress("OLD", "n3", 9093), ListenerAddress("NEW", "n3", 9193)


@pytest.mark.parametrize(
    ("own", "leaders", "reached"),
    [
        ("OLD", (SECURE, CLEAR), CLEAR),
        ("NEW", (SECURE, CLEAR), SECURE),
        ("NEW", (CLEAR, SECURE), SECURE),
        ("OTHER", (SECURE, CLEAR), SECURE),
    ],
)
def test_a_follower_connects_to_the_leader_at_its_own_first_listener(
    own: str, leaders: tuple[ListenerAddress, ...], reached: ListenerAddress
) -> None:
    """A follower in the clear once connected to the TLS port of a leader that named this listener first."""
    one = OneCore(listener=own, election=None)
    begin = BeginQuorumEpoch(epoch=6, leader_id=3, voter=ReplicaKey(2), endpoints=Endpoints(leaders))
    one.ask(begin)
    assert one.asked(3).address == reached
    assert one.core.leader_address == reached


def test_a_follower_without_a_named_listener_uses_the_name_of_its_first_endpoint() -> None:
    one = OneCore(endpoints=Endpoints((CLEAR, SECURE)), election=None)
    begin = BeginQuorumEpoch(epoch=6, leader_id=3, voter=ReplicaKey(2), endpoints=Endpoints((SECURE, CLEAR)))
    one.ask(begin)
    assert one.asked(3).address == CLEAR


def test_a_voter_is_asked_for_its_vote_at_the_own_first_listener() -> None:
    assert Endpoints((SECURE, CLEAR)).at("OLD") == CLEAR
    assert endpoints(1).at("OLD") == endpoints(1).default
    assert Endpoints().at("OLD") is None
