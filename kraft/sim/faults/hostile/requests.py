"""Hostile requests of the quorum's APIs.

An absurd request has at least one value that the receiver can recognise as wrong, or does not bind the receiver: a
correct node keeps every guarantee under absurd requests. A forged request claims to come from a voter or a leader, with
values that the receiver cannot recognise as wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from kraft.quorum.values import DEFAULT_LISTENER
from kraft.sim.faults.hostile.target import (
    FOREIGN_CLUSTER_ID,
    HOSTS,
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
    any_directory,
    any_id,
    any_offset,
    any_topics,
    some_id,
)
from kraft.sim.world.member_interface import CLUSTER_ID
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, NO_NODE, Uuid
from transport.protocol.messages import add_raft_voter as add_wire
from transport.protocol.messages import begin_quorum_epoch as begin_wire
from transport.protocol.messages import describe_quorum as describe_wire
from transport.protocol.messages import end_quorum_epoch as end_wire
from transport.protocol.messages import fetch as fetch_wire
from transport.protocol.messages import fetch_snapshot as snapshot_wire
from transport.protocol.messages import remove_raft_voter as remove_wire
from transport.protocol.messages import update_raft_voter as update_wire
from transport.protocol.messages import vote as vote_wire

Draw = Callable[[Random, AttackTarget], Hostile]
MANY: Final = 500
"""The number of elements in a list for which a correct peer sends a few."""


def absurd_request(rng: Random, target: AttackTarget) -> Hostile:
    """A request that must do no harm at its receiver."""
    return rng.choice(_ABSURD)(rng, target)


def forged_request(rng: Random, target: AttackTarget) -> Hostile:
    """A forged request in the name of a voter or a leader, with values in range."""
    return rng.choice(_FORGED)(rng, target)


def _addresses(rng: Random, leader_id: int) -> tuple[str, int]:
    return rng.choice((f"n{max(leader_id, 0)}", *HOSTS)), rng.choice((0, 9000, 65535))


# Vote


def _vote(part: vote_wire.VoteRequestPartitionData, **top: Any) -> vote_wire.VoteRequest:
    topic = vote_wire.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return vote_wire.VoteRequest(**{"cluster_id": CLUSTER_ID, "topics": [topic], **top})


def _any_vote(rng: Random, target: AttackTarget, *, pre_vote: bool) -> vote_wire.VoteRequestPartitionData:
    view = target.view
    epoch = rng.choice((view.epoch - 1, view.epoch, view.epoch, target.next_epoch, target.next_epoch))
    return vote_wire.VoteRequestPartitionData(
        replica_epoch=epoch,
        replica_id=some_id(rng, target),
        replica_directory_id=any_directory(rng, target),
        voter_directory_id=Uuid.ZERO,
        last_offset_epoch=max(min(view.epoch, epoch - 1), 0),
        last_offset=rng.choice((0, view.log_end_offset, view.log_end_offset + 1, INT64_MAX)),
        pre_vote=pre_vote,
    )


def _absurd_vote(rng: Random, target: AttackTarget) -> Hostile:
    """A vote that a voter has to refuse, or a pre-vote, which binds no voter."""
    pre_vote = rng.random() < 0.5
    part = _any_vote(rng, target, pre_vote=pre_vote)
    match rng.randrange(9):
        case 0:
            part = replace(part, replica_epoch=rng.choice(LAST_EPOCHS), last_offset_epoch=0)
        case 1:
            part = replace(part, replica_epoch=rng.choice(LAST_EPOCHS), last_offset_epoch=INT32_MAX - 2)
        case 2:
            part = replace(part, replica_epoch=rng.choice(NEGATIVE_EPOCHS))
        case 3:
            part = replace(part, replica_id=rng.choice(NEGATIVE_IDS))
        case 4:
            part = replace(part, last_offset=rng.choice(NEGATIVE_OFFSETS))
        case 5:
            part = replace(part, last_offset_epoch=rng.choice(NEGATIVE_EPOCHS))
        case 6:
            part = replace(part, last_offset_epoch=rng.choice((part.replica_epoch + 1, INT32_MAX)))
        case 7:
            return Hostile(_spoiled(rng, _vote(part)), f"Vote that is not for this partition or cluster: {part}")
        case _:
            part = replace(part, pre_vote=True)
    return Hostile(_vote(part), f"Vote {part}")


def _forged_vote(rng: Random, target: AttackTarget) -> Hostile:
    part = _any_vote(rng, target, pre_vote=rng.random() < 0.2)
    return Hostile(_vote(part), f"Vote {part}")


# BeginQuorumEpoch and EndQuorumEpoch


def _begin(part: begin_wire.BeginQuorumEpochRequestPartitionData, endpoints: list[Any]) -> Message:
    topic = begin_wire.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return begin_wire.BeginQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[topic], leader_endpoints=endpoints)


def _end(part: end_wire.EndQuorumEpochRequestPartitionData, endpoints: list[Any]) -> Message:
    topic = end_wire.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return end_wire.EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[topic], leader_endpoints=endpoints)


def _absurd_leader(rng: Random, target: AttackTarget) -> tuple[int, int, bool]:
    """The epoch and the id of a leader that no node may follow, and whether addresses may accompany them."""
    epoch, known = target.view.epoch, target.leader_id
    others = [one for one in (*target.node_ids, STRANGER_ID) if target.is_led_by_another(one)]
    soon = rng.choice((epoch, epoch + 1))
    match rng.randrange(6):
        case 0:
            return rng.choice(LAST_EPOCHS), some_id(rng, target), True
        case 1:
            return rng.choice((*NEGATIVE_EPOCHS, epoch - 1)), any_id(rng, target), True
        case 2:
            return soon, rng.choice(NEGATIVE_IDS), True
        case 3 if others:
            return epoch, rng.choice(others), True
        case 4 if known != target.key.id:
            return soon, target.key.id, True
        case _:
            return soon, STRANGER_ID, False


def _absurd_begin(rng: Random, target: AttackTarget) -> Hostile:
    epoch, leader_id, is_addressed = _absurd_leader(rng, target)
    part = begin_wire.BeginQuorumEpochRequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
    endpoints = []
    if is_addressed:
        host, port = _addresses(rng, leader_id)
        endpoints = [begin_wire.LeaderEndpoint(rng.choice((DEFAULT_LISTENER, "")), host, port)]
    if rng.random() < 0.2:
        part = replace(part, leader_epoch=target.view.epoch + 1, leader_id=some_id(rng, target))
        return Hostile(_spoiled(rng, _begin(part, endpoints)), f"BeginQuorumEpoch of another cluster: {part}")
    return Hostile(_begin(part, endpoints), f"BeginQuorumEpoch {part} {endpoints}")


def _absurd_end(rng: Random, target: AttackTarget) -> Hostile:
    epoch, leader_id, is_addressed = _absurd_leader(rng, target)
    part = end_wire.EndQuorumEpochRequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
    endpoints = []
    if is_addressed:
        host, port = _addresses(rng, leader_id)
        endpoints = [end_wire.LeaderEndpoint(DEFAULT_LISTENER, host, port)]
    if target.leader_id != NO_NODE and rng.random() < 0.4:
        # The request claims that the node's leader resigns; only the preferred successors are absurd.
        ids = [any_id(rng, target) for _ in range(rng.choice((0, 1, 3, MANY)))]
        named = [end_wire.ReplicaInfo(one, any_directory(rng, target)) for one in ids]
        part = end_wire.EndQuorumEpochRequestPartitionData(
            leader_id=target.leader_id, leader_epoch=target.view.epoch, preferred_candidates=named
        )
        return Hostile(_end(part, []), f"EndQuorumEpoch of {target.leader_id} with {len(ids)} successors")
    return Hostile(_end(part, endpoints), f"EndQuorumEpoch {part} {endpoints}")


def _forged_begin(rng: Random, target: AttackTarget) -> Hostile:
    leader_id, epoch = some_id(rng, target), target.view.epoch + rng.choice((0, 0, 1, 2))
    part = begin_wire.BeginQuorumEpochRequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
    endpoints = [begin_wire.LeaderEndpoint(DEFAULT_LISTENER, *_addresses(rng, leader_id))]
    return Hostile(_begin(part, rng.choice((endpoints, []))), f"BeginQuorumEpoch {part}")


def _forged_end(rng: Random, target: AttackTarget) -> Hostile:
    leader_id, epoch = some_id(rng, target), target.view.epoch + rng.choice((0, 0, 1, 2))
    part = end_wire.EndQuorumEpochRequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
    endpoints = [end_wire.LeaderEndpoint(DEFAULT_LISTENER, *_addresses(rng, leader_id))]
    return Hostile(_end(part, rng.choice((endpoints, []))), f"EndQuorumEpoch {part}")


# Fetch and FetchSnapshot


def _fetch(replica_id: int, part: fetch_wire.FetchPartition, **top: Any) -> fetch_wire.FetchRequest:
    topic = fetch_wire.FetchTopic(topic_id=Uuid.METADATA_TOPIC, partitions=[part])
    fields = {"cluster_id": CLUSTER_ID, "replica_state": fetch_wire.ReplicaState(replica_id=replica_id)}
    return fetch_wire.FetchRequest(**{**fields, "topics": [topic], **top})


def _any_fetch(rng: Random, target: AttackTarget) -> fetch_wire.FetchPartition:
    view = target.view
    return fetch_wire.FetchPartition(
        current_leader_epoch=rng.choice((view.epoch, view.epoch, view.epoch - 1, view.epoch + 1)),
        fetch_offset=any_offset(rng, target),
        last_fetched_epoch=rng.choice((0, view.epoch, view.epoch - 1, *NEGATIVE_EPOCHS, INT32_MAX)),
        replica_directory_id=any_directory(rng, target),
        high_watermark=any_offset(rng, target),
    )


def _absurd_fetch(rng: Random, target: AttackTarget) -> Hostile:
    """A Fetch of a node that does not vote, with any values, or one of a voter that acknowledges nothing."""
    epoch, end_offset = target.view.epoch, target.view.log_end_offset
    max_bytes, max_wait_ms = rng.choice((-(2**31), 0, 1, 1000, INT32_MAX)), rng.choice((0, 0, 500, INT32_MAX))
    part = _any_fetch(rng, target)
    strangers = (STRANGER_ID, STRANGER_ID + rng.randrange(5000), *NEGATIVE_IDS)
    replica_id = rng.choice((*strangers, *target.voter_ids))
    if replica_id in target.node_ids:
        match rng.randrange(6):
            case 0:
                part = replace(part, fetch_offset=rng.choice(NEGATIVE_OFFSETS))
            case 1:
                part = replace(part, fetch_offset=rng.choice((end_offset + 1, 2**62, INT64_MAX)))
            case 2:
                part = replace(part, last_fetched_epoch=rng.choice((*NEGATIVE_EPOCHS, epoch + 1, INT32_MAX)))
            case 3:
                part = replace(part, current_leader_epoch=rng.choice((*NEGATIVE_EPOCHS, *LAST_EPOCHS, epoch - 1)))
            case 4:
                max_wait_ms = rng.choice((-1, -(2**31)))
            case _:
                message = _spoiled(rng, _fetch(replica_id, part, max_wait_ms=0, max_bytes=max_bytes))
                return Hostile(message, f"Fetch of {replica_id} for another partition or cluster")
    message = _fetch(replica_id, part, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
    return Hostile(message, f"Fetch of {replica_id} {part}, {max_wait_ms} ms, {max_bytes} bytes", replica_id)


def _forged_fetch(rng: Random, target: AttackTarget) -> Hostile:
    view, replica_id = target.view, some_id(rng, target)
    part = replace(
        _any_fetch(rng, target),
        current_leader_epoch=view.epoch,
        fetch_offset=rng.randint(0, max(view.log_end_offset, 0)),
        last_fetched_epoch=max(view.epoch - rng.choice((0, 0, 1, 2)), 0),
    )
    return Hostile(_fetch(replica_id, part, max_wait_ms=rng.choice((0, 500))), f"Fetch of {replica_id} {part}")


def _absurd_fetch_snapshot(rng: Random, target: AttackTarget) -> Hostile:
    """A FetchSnapshot acknowledges nothing, with any sender and any content."""
    view, replica_id = target.view, any_id(rng, target)
    known = [snapshot_wire.FetchSnapshotRequestSnapshotId(one.offset, one.epoch) for one in view.snapshots]
    invented = snapshot_wire.FetchSnapshotRequestSnapshotId(
        any_offset(rng, target), rng.choice((0, view.epoch, *NEGATIVE_EPOCHS, INT32_MAX))
    )
    part = snapshot_wire.FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=rng.choice((view.epoch, view.epoch, view.epoch - 1, *NEGATIVE_EPOCHS, *LAST_EPOCHS)),
        snapshot_id=rng.choice((*known, *known, invented)),
        position=rng.choice((0, 1, 100, 10**6, INT64_MAX, *NEGATIVE_OFFSETS)),
        replica_directory_id=any_directory(rng, target),
    )
    topic = snapshot_wire.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    max_bytes = rng.choice((-(2**31), -1, 0, 1, 1000, INT32_MAX))
    message = snapshot_wire.FetchSnapshotRequest(
        cluster_id=CLUSTER_ID, replica_id=replica_id, max_bytes=max_bytes, topics=[topic]
    )
    if rng.random() < 0.1:
        return Hostile(_spoiled(rng, message), "FetchSnapshot for another partition or cluster")
    return Hostile(message, f"FetchSnapshot of {replica_id} {part}, {max_bytes} bytes", replica_id)


# Requests of operators


def _absurd_describe(rng: Random, target: AttackTarget) -> Hostile:
    part = describe_wire.DescribeQuorumRequestPartitionData(rng.choice((0, 0, -1, 1, INT32_MAX)))
    topic = describe_wire.DescribeQuorumRequestTopicData(rng.choice((METADATA_TOPIC, "", "x")), [part])
    topics = rng.choice(([topic], [], [topic, topic], [replace(topic, partitions=[part, part])]))
    return Hostile(describe_wire.DescribeQuorumRequest(topics=topics), f"DescribeQuorum {topics}")


def _listeners(rng: Random, kind: Any, *, is_absurd: bool) -> list[Any]:
    sound = kind(DEFAULT_LISTENER, "n9", 9000)
    if not is_absurd:
        return [sound]
    host = rng.choice(HOSTS)
    return rng.choice(
        (
            [],
            [sound, sound],
            [kind("", host, 0)],
            [kind("OTHER", host, 9000)],
            [kind(f"L{number}", host, 1) for number in range(MANY)],
        )
    )


def _absurd_add(rng: Random, target: AttackTarget) -> Hostile:
    """An AddRaftVoter that no leader may grant: a negative id, no directory, or another cluster."""
    message = add_wire.AddRaftVoterRequest(
        cluster_id=rng.choice((CLUSTER_ID, None)),
        timeout_ms=rng.choice((0, -1, INT32_MAX)),
        voter_id=some_id(rng, target),
        voter_directory_id=Uuid(rng.randbytes(16)),
        listeners=_listeners(rng, add_wire.Listener, is_absurd=rng.random() < 0.5),
        ack_when_committed=rng.random() < 0.5,
    )
    match rng.randrange(4):
        case 0:
            message = replace(message, voter_id=rng.choice(NEGATIVE_IDS))
        case 1:
            message = replace(message, voter_directory_id=Uuid.ZERO)
        case 2:
            message = replace(message, cluster_id=FOREIGN_CLUSTER_ID)
        case _:
            message = replace(message, listeners=[])
    return Hostile(message, f"AddRaftVoter {_short(message)}")


def _absurd_remove(rng: Random, target: AttackTarget) -> Hostile:
    """A RemoveRaftVoter of a node that does not vote, or of another cluster."""
    message = remove_wire.RemoveRaftVoterRequest(
        cluster_id=rng.choice((CLUSTER_ID, None)), voter_id=STRANGER_ID, voter_directory_id=Uuid(rng.randbytes(16))
    )
    match rng.randrange(3):
        case 0:
            message = replace(message, voter_id=rng.choice(NEGATIVE_IDS), voter_directory_id=any_directory(rng, target))
        case 1:
            message = replace(message, voter_id=some_id(rng, target), cluster_id=FOREIGN_CLUSTER_ID)
        case _:
            message = replace(message, voter_id=some_id(rng, target))
    return Hostile(message, f"RemoveRaftVoter {_short(message)}")


def _any_update(rng: Random, target: AttackTarget) -> update_wire.UpdateRaftVoterRequest:
    return update_wire.UpdateRaftVoterRequest(
        cluster_id=rng.choice((CLUSTER_ID, None)),
        current_leader_epoch=target.view.epoch,
        voter_id=some_id(rng, target),
        voter_directory_id=any_directory(rng, target),
        listeners=_listeners(rng, update_wire.Listener, is_absurd=False),
        kraft_version_feature=update_wire.KRaftVersionFeature(0, 1),
    )


def _absurd_update(rng: Random, target: AttackTarget) -> Hostile:
    """An UpdateRaftVoter that no leader may grant."""
    message, epoch = _any_update(rng, target), target.view.epoch
    match rng.randrange(5):
        case 0:
            epochs = *NEGATIVE_EPOCHS, *LAST_EPOCHS, epoch - 1, epoch + 1
            message = replace(message, current_leader_epoch=rng.choice(epochs))
        case 1:
            message = replace(message, voter_id=rng.choice((*NEGATIVE_IDS, STRANGER_ID)))
        case 2:
            low, high = rng.choice(((1, 0), (-5, -2), (2, 1), (INT16_MAX, INT16_MAX), (INT16_MAX, 0), (-1, -1)))
            message = replace(message, kraft_version_feature=update_wire.KRaftVersionFeature(low, high))
        case 3:
            message = replace(message, listeners=[])
        case _:
            message = replace(message, cluster_id=FOREIGN_CLUSTER_ID)
    return Hostile(message, f"UpdateRaftVoter {_short(message)}")


def _forged_change(rng: Random, target: AttackTarget) -> Hostile:
    key = rng.choice((target.key, *target.voters))
    match rng.randrange(3):
        case 0:
            add = add_wire.AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=1000,
                voter_id=some_id(rng, target),
                voter_directory_id=any_directory(rng, target),
                listeners=_listeners(rng, add_wire.Listener, is_absurd=rng.random() < 0.3),
            )
            return Hostile(add, f"AddRaftVoter {_short(add)}")
        case 1:
            remove = remove_wire.RemoveRaftVoterRequest(CLUSTER_ID, key.id, key.directory_id)
            return Hostile(remove, f"RemoveRaftVoter {_short(remove)}")
        case _:
            update = replace(_any_update(rng, target), voter_id=key.id, voter_directory_id=key.directory_id)
            return Hostile(update, f"UpdateRaftVoter {_short(update)}")


# Common parts


def _spoiled(rng: Random, message: Any) -> Message:
    """The same request for another cluster, or for other partitions than that of the metadata log."""
    if rng.random() < 0.4:
        spoiled: Message = replace(message, cluster_id=FOREIGN_CLUSTER_ID)
        return spoiled
    topic = message.topics[0]
    part = topic.partitions[0]
    index = next(name for name in ("partition_index", "partition") if hasattr(part, name))
    name = next(name for name in ("topic_name", "topic_id", "name") if hasattr(topic, name))
    topics = rng.choice(
        (
            any_topics(rng, topic, name),
            [replace(topic, partitions=[])],
            [replace(topic, partitions=[part, part])],
            [replace(topic, partitions=[replace(part, **{index: rng.choice((-1, 1, INT32_MAX))})])],
            [topic] * MANY,
        )
    )
    spoiled = replace(message, topics=topics)
    return spoiled


def _short(message: Message) -> str:
    return str(message)[:300]


_ABSURD: Final[tuple[Draw, ...]] = (
    _absurd_vote,
    _absurd_vote,
    _absurd_begin,
    _absurd_end,
    _absurd_fetch,
    _absurd_fetch,
    _absurd_fetch_snapshot,
    _absurd_describe,
    _absurd_add,
    _absurd_remove,
    _absurd_update,
)
_FORGED: Final[tuple[Draw, ...]] = (_forged_vote, _forged_begin, _forged_end, _forged_fetch, _forged_change)
