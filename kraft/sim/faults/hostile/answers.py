"""Hostile responses to pending requests of a node: absurd ones, and forgeries with values in range."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from kraft.sim.faults.hostile.target import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    LAST_EPOCHS,
    NEGATIVE_EPOCHS,
    NEGATIVE_IDS,
    NEGATIVE_OFFSETS,
    STRANGER_ID,
    AttackTarget,
    Hostile,
    any_id,
    any_topics,
    plausible_records,
    refusable_records,
    some_id,
)
from metadata_log.image.features import KRAFT_VERSION
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, NO_NODE, Uuid
from transport.protocol.apis import ApiKey
from transport.protocol.errors import Error
from transport.protocol.messages import add_raft_voter as add_wire
from transport.protocol.messages import api_versions as versions_wire
from transport.protocol.messages import begin_quorum_epoch as begin_wire
from transport.protocol.messages import end_quorum_epoch as end_wire
from transport.protocol.messages import fetch as fetch_wire
from transport.protocol.messages import fetch_snapshot as snapshot_wire
from transport.protocol.messages import remove_raft_voter as remove_wire
from transport.protocol.messages import update_raft_voter as update_wire
from transport.protocol.messages import vote as vote_wire

Draw = Callable[[Random, AttackTarget, Message], Hostile]
STRANGE_ERRORS: Final = (-(2**15), -2, -1, 3, 9999, INT16_MAX)
"""Error codes that a correct peer never sends, and codes that no error has."""
LEADER_ERRORS: Final = (Error.NONE, Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH)


def absurd_answer(rng: Random, target: AttackTarget, key: int, request: Message) -> Hostile | None:
    """A response to a request of the target that must do no harm there; None for other APIs."""
    draw = _ABSURD.get(key)
    return None if draw is None else draw(rng, target, request)


def forged_answer(rng: Random, target: AttackTarget, key: int, request: Message) -> Hostile | None:
    """A forged response with values in range, which a receiver cannot distinguish from a correct one; None for other
    APIs.
    """
    draw = _FORGED.get(key)
    return None if draw is None else draw(rng, target, request)


class _Leader:
    """The claim of a response about the leader: epoch, id, error, and address."""

    def __init__(self, epoch: int, leader_id: int, error: int, host: str | None = None) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.error = error
        self.host = host

    def nodes(self, kind: Any) -> list[Any]:
        """The address of the leader, as an answer has it."""
        return [] if self.host is None else [kind(node_id=self.leader_id, host=self.host, port=9000)]

    def __str__(self) -> str:
        return f"epoch {self.epoch}, leader {self.leader_id} at {self.host!r}, error {self.error}"


def _absurd_leader(rng: Random, target: AttackTarget) -> _Leader:
    """A claim that no node may believe, or one that a node may believe without harm."""
    epoch, known, own = target.view.epoch, target.leader_id, target.key.id
    error, soon = rng.choice(LEADER_ERRORS), rng.choice((epoch, epoch + 1))
    others = [one for one in (*target.node_ids, STRANGER_ID) if target.is_led_by_another(one)]
    match rng.randrange(8):
        case 0:
            return _Leader(rng.choice(LAST_EPOCHS), some_id(rng, target), error, "n1")
        case 1:
            return _Leader(rng.choice((*NEGATIVE_EPOCHS, epoch - 1)), any_id(rng, target), error, "n1")
        case 2:
            return _Leader(soon, rng.choice(NEGATIVE_IDS[1:]), error, rng.choice((None, "n1")))
        case 3 if others:
            return _Leader(epoch, rng.choice(others), error, "n1")
        case 4 if known != own:
            return _Leader(soon, own, error, rng.choice((None, f"n{own}")))
        case 5:
            return _Leader(soon, STRANGER_ID, error)
        case 6:
            return _Leader(rng.choice((epoch, target.next_epoch)), NO_NODE, error)
        case _:
            return _Leader(epoch, known, rng.choice(STRANGE_ERRORS))


def _true_leader(target: AttackTarget) -> _Leader:
    return _Leader(target.view.epoch, target.leader_id, Error.NONE)


def _forged_leader(rng: Random, target: AttackTarget) -> _Leader:
    epoch = target.view.epoch + rng.choice((0, 0, 0, 1))
    if rng.random() < 0.5:
        return _true_leader(target)
    leader_id = some_id(rng, target)
    return _Leader(epoch, leader_id, rng.choice(LEADER_ERRORS), rng.choice((None, f"n{leader_id}", "evil")))


# Vote, BeginQuorumEpoch, EndQuorumEpoch


def _vote(leader: _Leader, *, granted: bool) -> vote_wire.VoteResponse:
    part = vote_wire.VoteResponsePartitionData(
        error_code=leader.error, leader_id=leader.leader_id, leader_epoch=leader.epoch, vote_granted=granted
    )
    topic = vote_wire.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return vote_wire.VoteResponse(topics=[topic], node_endpoints=leader.nodes(vote_wire.NodeEndpoint))


def _absurd_vote(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    """A response without a granted vote, with a pre-vote, or with a granted vote beside an error."""
    assert isinstance(request, vote_wire.VoteRequest), request
    if rng.random() < 0.3:
        leader = _Leader(target.view.epoch, NO_NODE, rng.choice([one for one in STRANGE_ERRORS if one]))
        return Hostile(_vote(leader, granted=True), f"Vote granted beside the error {leader.error}")
    leader = _absurd_leader(rng, target)
    granted = request.topics[0].partitions[0].pre_vote and rng.random() < 0.5
    message = _vote(leader, granted=granted)
    return Hostile(_perhaps_spoiled(rng, message), f"Vote answered: {granted}, {leader}")


def _forged_vote(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    leader = rng.choice((_Leader(target.view.epoch, NO_NODE, Error.NONE), _forged_leader(rng, target)))
    return Hostile(_vote(leader, granted=True), f"Vote granted, {leader}")


def _begun(leader: _Leader) -> begin_wire.BeginQuorumEpochResponse:
    part = begin_wire.BeginQuorumEpochResponsePartitionData(
        error_code=leader.error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    topic = begin_wire.BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    nodes = leader.nodes(begin_wire.NodeEndpoint)
    return begin_wire.BeginQuorumEpochResponse(topics=[topic], node_endpoints=nodes)


def _ended(leader: _Leader) -> end_wire.EndQuorumEpochResponse:
    part = end_wire.EndQuorumEpochResponsePartitionData(
        error_code=leader.error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    topic = end_wire.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return end_wire.EndQuorumEpochResponse(topics=[topic], node_endpoints=leader.nodes(end_wire.NodeEndpoint))


def _absurd_begin(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    leader = _absurd_leader(rng, target)
    return Hostile(_perhaps_spoiled(rng, _begun(leader)), f"BeginQuorumEpoch answered: {leader}")


def _absurd_end(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    leader = _absurd_leader(rng, target)
    return Hostile(_perhaps_spoiled(rng, _ended(leader)), f"EndQuorumEpoch answered: {leader}")


def _forged_begin(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    leader = _forged_leader(rng, target)
    return Hostile(_begun(leader), f"BeginQuorumEpoch answered: {leader}")


def _forged_end(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    leader = _forged_leader(rng, target)
    return Hostile(_ended(leader), f"EndQuorumEpoch answered: {leader}")


# Fetch


def _fetched(leader: _Leader, **part: Any) -> fetch_wire.FetchResponse:
    fields: dict[str, Any] = {
        "error_code": leader.error,
        "high_watermark": -1,
        "log_start_offset": -1,
        "current_leader": fetch_wire.LeaderIdAndEpoch(leader.leader_id, leader.epoch),
        "aborted_transactions": None,
        "records": b"",
    }
    whole = fetch_wire.PartitionData(**{**fields, **part})
    topic = fetch_wire.FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[whole])
    return fetch_wire.FetchResponse(responses=[topic], node_endpoints=leader.nodes(fetch_wire.NodeEndpoint))


def _absurd_fetch(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    """A response in the name of the leader with an error that a follower can detect."""
    view, leader = target.view, _true_leader(target)
    match rng.randrange(7):
        case 0 | 1:
            data, what = refusable_records(rng, target)
            message = _fetched(leader, records=data)
            return Hostile(message, f"Fetch answered with {what}")
        case 2:
            diverging = fetch_wire.EpochEndOffset(
                rng.choice((0, view.epoch, INT32_MAX)), rng.choice((*NEGATIVE_OFFSETS, INT64_MAX))
            )
            if diverging.end_offset > 0:
                diverging = replace(diverging, epoch=INT32_MAX)
            return Hostile(_fetched(leader, diverging_epoch=diverging), f"Fetch answered: diverging {diverging}")
        case 3:
            snapshot = fetch_wire.SnapshotId(
                rng.choice((*NEGATIVE_OFFSETS, 0, INT64_MAX)), rng.choice((*NEGATIVE_EPOCHS, INT32_MAX))
            )
            return Hostile(_fetched(leader, snapshot_id=snapshot), f"Fetch answered: snapshot {snapshot}")
        case 4:
            offsets = {
                "high_watermark": rng.choice(NEGATIVE_OFFSETS),
                "log_start_offset": rng.choice((*NEGATIVE_OFFSETS, INT64_MAX)),
            }
            return Hostile(_fetched(leader, **offsets), f"Fetch answered: {offsets}")
        case 5:
            leader = _absurd_leader(rng, target)
            return Hostile(_fetched(leader), f"Fetch answered: {leader}")
        case _:
            return Hostile(_spoiled(rng, _fetched(leader)), "Fetch answered for another partition")


def _forged_fetch(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    view, leader = target.view, _forged_leader(rng, target)
    end_offset = view.log_end_offset
    watermark = rng.choice((-1, end_offset, end_offset + 3, INT64_MAX))
    match rng.randrange(4):
        case 0 | 1:
            data, what = plausible_records(rng, target)
            message = _fetched(leader, records=data, high_watermark=watermark)
            return Hostile(message, f"Fetch answered with {what}, high watermark {watermark}, {leader}")
        case 2:
            diverging = fetch_wire.EpochEndOffset(
                max(view.epoch - rng.choice((0, 1, 2)), 0), max(end_offset - rng.choice((1, 2, 3, 10)), 0)
            )
            return Hostile(_fetched(leader, diverging_epoch=diverging), f"Fetch answered: diverging {diverging}")
        case _:
            snapshot = fetch_wire.SnapshotId(end_offset + rng.choice((-3, 0, 1, 100)), max(view.epoch, 0))
            return Hostile(_fetched(leader, snapshot_id=snapshot), f"Fetch answered: snapshot {snapshot}")


# FetchSnapshot


def _absurd_piece(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    """A piece of a snapshot at a wrong position, or one that makes the snapshot unreadable."""
    assert isinstance(request, snapshot_wire.FetchSnapshotRequest), request
    asked, leader = request.topics[0].partitions[0], _true_leader(target)
    if rng.random() < 0.3:
        leader = _absurd_leader(rng, target)
    snapshot = snapshot_wire.FetchSnapshotResponseSnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    data = rng.randbytes(rng.choice((0, 1, 100, 1000)))
    part = snapshot_wire.FetchSnapshotResponsePartitionSnapshot(
        error_code=leader.error,
        snapshot_id=rng.choice((snapshot, snapshot, replace(snapshot, end_offset=rng.choice(NEGATIVE_OFFSETS)))),
        current_leader=snapshot_wire.LeaderIdAndEpoch(leader.leader_id, leader.epoch),
        size=rng.choice((asked.position + len(data), 0, INT64_MAX, *NEGATIVE_OFFSETS)),
        position=rng.choice((asked.position, asked.position, asked.position + 1, INT64_MAX, *NEGATIVE_OFFSETS)),
        unaligned_records=data,
    )
    topic = snapshot_wire.FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    message = snapshot_wire.FetchSnapshotResponse(
        topics=[topic], node_endpoints=leader.nodes(snapshot_wire.NodeEndpoint)
    )
    what = f"FetchSnapshot answered: {len(data)} bytes from {part.position} of {part.size}, {leader}"
    return Hostile(_perhaps_spoiled(rng, message), what)


# Changes of the voters, and supported versions


def _absurd_update(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    leader = _absurd_leader(rng, target)
    current = update_wire.CurrentLeader(leader.leader_id, leader.epoch, leader.host or "", rng.choice((0, -1, 9000)))
    message = update_wire.UpdateRaftVoterResponse(error_code=leader.error, current_leader=current)
    return Hostile(message, f"UpdateRaftVoter answered: {leader}")


def _strange_error(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    error = rng.choice(STRANGE_ERRORS)
    if isinstance(request, add_wire.AddRaftVoterRequest):
        return Hostile(add_wire.AddRaftVoterResponse(error_code=error), f"AddRaftVoter answered: error {error}")
    return Hostile(remove_wire.RemoveRaftVoterResponse(error_code=error), f"RemoveRaftVoter answered: error {error}")


def _absurd_versions(rng: Random, target: AttackTarget, request: Message) -> Hostile:
    """Version ranges that no node supports: empty ones, or ones without the level of the quorum."""
    low, high = rng.choice(((1, 0), (-5, -2), (INT16_MAX, INT16_MAX), (INT16_MAX, 0), (-(2**15), -1)))
    feature = versions_wire.SupportedFeatureKey(name=KRAFT_VERSION, min_version=low, max_version=high)
    features = rng.choice(([feature], [], [feature, feature]))
    message = versions_wire.ApiVersionsResponse(
        error_code=rng.choice((0, 0, *STRANGE_ERRORS)), supported_features=features
    )
    return Hostile(message, f"ApiVersions answered: {features}")


# Common parts


def _perhaps_spoiled(rng: Random, message: Any) -> Message:
    if rng.random() < 0.2:
        return _spoiled(rng, message)
    whole: Message = message
    return whole


def _spoiled(rng: Random, message: Any) -> Message:
    """The same response about other partitions than that of the metadata log."""
    is_fetch = isinstance(message, fetch_wire.FetchResponse)
    topic = (message.responses if is_fetch else message.topics)[0]
    part = topic.partitions[0]
    index = next(name for name in ("partition_index", "index") if hasattr(part, name))
    name = next(name for name in ("topic_name", "topic_id", "name") if hasattr(topic, name))
    topics = rng.choice(
        (
            any_topics(rng, topic, name),
            [replace(topic, partitions=[])],
            [replace(topic, partitions=[part, part])],
            [replace(topic, partitions=[replace(part, **{index: rng.choice((-1, 1, INT32_MAX))})])],
        )
    )
    spoiled: Message = replace(message, responses=topics) if is_fetch else replace(message, topics=topics)
    return spoiled


_ABSURD: Final[dict[int, Draw]] = {
    ApiKey.VOTE: _absurd_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: _absurd_begin,
    ApiKey.END_QUORUM_EPOCH: _absurd_end,
    ApiKey.FETCH: _absurd_fetch,
    ApiKey.FETCH_SNAPSHOT: _absurd_piece,
    ApiKey.UPDATE_RAFT_VOTER: _absurd_update,
    ApiKey.ADD_RAFT_VOTER: _strange_error,
    ApiKey.REMOVE_RAFT_VOTER: _strange_error,
    ApiKey.API_VERSIONS: _absurd_versions,
}
_FORGED: Final[dict[int, Draw]] = {
    ApiKey.VOTE: _forged_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: _forged_begin,
    ApiKey.END_QUORUM_EPOCH: _forged_end,
    ApiKey.FETCH: _forged_fetch,
    ApiKey.FETCH_SNAPSHOT: _absurd_piece,
    ApiKey.UPDATE_RAFT_VOTER: _absurd_update,
    ApiKey.API_VERSIONS: _absurd_versions,
}
