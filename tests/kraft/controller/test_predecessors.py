"""How long a broker waits for its former incarnation, whoever is elected meanwhile: at most one and a half sessions."""

from __future__ import annotations

from kraft.controller.decision.broker_sessions import BrokerSessions
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.metadata import RegisterBrokerRecord
from metadata_log.types import OffsetAndEpoch

SESSION_MS = 9000
BROKER, EPOCH = 101, 7


def image() -> MetadataImage:
    """The image of a cluster in which the broker is not fenced."""
    delta = MetadataDelta(MetadataImage())
    delta.replay(RegisterBrokerRecord(broker_id=BROKER, broker_epoch=EPOCH, fenced=False), 0)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=1))


def waits_ms(*elections_ms: int) -> int:
    """How long after its death at 0 a broker is kept out, if controllers are elected at these times.

    The first controller has heard it right before.
    """
    known = image()
    sessions = BrokerSessions(SESSION_MS)
    sessions.claim(known, -SESSION_MS)
    sessions.contact(BROKER, EPOCH, 0)
    left = list(elections_ms)
    now_ms = 0
    while sessions.keeps_out(BROKER, EPOCH, now_ms):
        now_ms += 1
        if left and left[0] == now_ms:
            sessions.claim(known, left.pop(0))
    return now_ms


def test_without_an_election_it_waits_for_one_session() -> None:
    assert waits_ms() == SESSION_MS + 1


def test_an_election_shortens_the_wait_to_a_third_of_a_session_from_then_on() -> None:
    assert [waits_ms(at) for at in (1, 1000, 5000)] == [3002, 4001, 8001]


def test_the_latest_election_adds_less_than_half_a_session() -> None:
    worst = max(waits_ms(at) for at in (1, 3000, 6000, 8999, SESSION_MS))
    assert worst == SESSION_MS + SESSION_MS // 3 + 1
    assert worst <= SESSION_MS * 3 // 2


def test_two_elections_in_turn_do_not_add_a_session_each() -> None:
    assert waits_ms(1000, 3500) == 3500 + SESSION_MS // 3 + 1
    assert waits_ms(1000, 5000) == 1000 + SESSION_MS // 3 + 1
