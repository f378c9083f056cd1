"""Reading from a leader without writing to the log (Raft's ReadIndex, dissertation §6.4; Kafka has none).

A deposed leader may not know that it is deposed. So before a leader answers a read, a majority must confirm, after the
read has arrived, that they are still in this leader's epoch. The leader requests the confirmation by BeginQuorumEpoch.
A Fetch proves nothing: a Fetch that arrives after the read may have been sent before the read, by a voter that has
elected another leader since.

All reads that arrive during a round share the next round.
"""

from __future__ import annotations

from msgspec.structs import replace

from kraft.quorum.effects import ReadConfirmed
from kraft.quorum.events import ReadIndex
from kraft.quorum.exchanges import send
from kraft.quorum.messages import BeginQuorumEpoch, BeginQuorumEpochReply
from kraft.quorum.quorum_state import QuorumState
from kraft.quorum.states import LeaderState
from kraft.quorum.states.leader import ReadRound
from metadata_log.types import NO_OFFSET
from transport.protocol.errors import Error


def on_read_index(quorum: QuorumState, event: ReadIndex) -> None:
    """Add a read; `advance` confirms it."""
    leader = quorum.state
    assert isinstance(leader, LeaderState), "only a leader confirms reads"
    leader.waiting_reads = (*leader.waiting_reads, event.read_id)


def on_begin_reply(quorum: QuorumState, peer_id: int, reply: BeginQuorumEpochReply) -> None:
    """Count a voter that confirms the epoch and this leader in this round. `Peers` drops replies to requests of earlier
    rounds, so this reply belongs to a request of this round. A reply that names another leader confirms nothing.
    """
    match quorum.state:
        case LeaderState(epoch=epoch, read_round=ReadRound() as current) as leader if (
            peer_id in current.asked
            and peer_id not in current.confirmed
            and (reply.epoch, reply.leader_id) == (epoch, quorum.local.id)
            and (reply.error, reply.top_error) == (Error.NONE, Error.NONE)
        ):
            leader.read_round = replace(current, confirmed=(*current.confirmed, peer_id))


def advance(quorum: QuorumState, leader: LeaderState, now_ms: int) -> None:
    """Begin a round, send a request to each ready voter, and end the round with a majority; repeat until no read
    waits.
    """
    while leader.waiting_reads or leader.read_round is not None:
        current = _current_round(quorum, leader)
        if current is None:
            return
        if len(current.confirmed) < leader.contacts_wanted:
            leader.read_round = _ask(quorum, leader, current, now_ms)
            return
        leader.read_round = None
        quorum.emit(ReadConfirmed(current.read_ids, current.offset))


def _current_round(quorum: QuorumState, leader: LeaderState) -> ReadRound | None:
    """The round in progress, or the next one; None while this leader does not know its high watermark.

    A round counts the voters at its beginning: another leader elected before the round needed votes of their majority.
    If the voter set changes during a round, the round begins again.
    """
    current = leader.read_round
    if current is not None and current.voters == leader.voters:
        return current
    if leader.high_watermark == NO_OFFSET:
        return None
    read_ids = leader.waiting_reads if current is None else (*current.read_ids, *leader.waiting_reads)
    leader.waiting_reads = ()
    leader.read_round = ReadRound(read_ids, leader.high_watermark, leader.voters)
    return leader.read_round


def _ask(quorum: QuorumState, leader: LeaderState, current: ReadRound, now_ms: int) -> ReadRound:
    asked = current.asked
    for voter_id in quorum.other_voter_ids:
        if voter_id not in current.confirmed and quorum.peers.is_ready(voter_id, now_ms):
            voter = leader.progress[voter_id].key
            message = BeginQuorumEpoch(
                epoch=leader.epoch, leader_id=quorum.local.id, voter=voter, endpoints=quorum.endpoints
            )
            send(quorum, voter_id, message, now_ms)
            asked = asked if voter_id in asked else (*asked, voter_id)
    return replace(current, asked=asked)
