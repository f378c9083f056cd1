"""Nodes with different first listeners, as while a quorum goes from one security protocol to another."""

from __future__ import annotations

import pytest

from kraft.quorum.messages import BeginQuorumEpoch
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey
from support.kraft.one_core import OneCore, endpoints

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
