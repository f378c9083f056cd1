from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.quorum.messages import (
    HIGH_WATERMARK_ABSENT,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    DescribeQuorum,
    DescribeQuorumReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshotReply,
    ReplicaProgress,
    Reply,
    Request,
    UpdateVoterReply,
    Vote,
    VoteReply,
)
from kraft.quorum.values import Endpoints, ListenerAddress, ReplicaKey
from kraft.replica.rpc.api_versions import describe_versions
from kraft.replica.rpc.rpc import Rpc
from kraft.replica.storage.fetched import facts_of
from kraft.wire import WireRequest
from metadata_log.errors import DecodeError
from metadata_log.records.batch_builder import build_batch
from metadata_log.serde import Message, decode, encode
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.apis import APIS
from transport.protocol.errors import Error
from transport.protocol.messages import (
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from transport.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData
from transport.protocol.messages.vote import (
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponseTopicData,
)

CLUSTER = "AAAAAAAAAAAAAAAAAAAkrD"
RPC = Rpc(cluster_id=CLUSTER, listener="CONTROLLER")
DIRECTORY = Uuid(bytes(range(16)))
LEADER = Endpoints((ListenerAddress("CONTROLLER", "h2", 9093),))
OFFSETS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 2**31 - 1)
KEYS = st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16).map(Uuid))


def over_the_wire(message: Message, version: int) -> Message:
    return decode(type(message), version, encode(message, version))


def request_of(message: Message, version: int, listener: str = "CONTROLLER") -> WireRequest:
    key = type(message).__schema__.api_key or 0
    return WireRequest(request_id=1, api_key=key, version=version, message=message, listener=listener)


def there(message: Request, version: int) -> object:
    """Our request, as a peer decodes it."""
    return RPC.request_from_wire(request_of(over_the_wire(RPC.request_to_wire(message), version), version))


def and_back(asked: type[Message], reply: Reply, version: int, records: bytes = b"") -> Reply:
    """A peer's reply to a request of this version, as we decode it."""
    return RPC.reply_from_wire(over_the_wire(RPC.reply_to_wire(request_of(asked(), version), reply, records), version))


@settings(deadline=None)
@given(epoch=EPOCHS, candidate=KEYS, voter=KEYS, offset=OFFSETS, last_epoch=EPOCHS, pre_vote=st.booleans())
def test_a_vote_request_survives_encoding(
    epoch: int, candidate: ReplicaKey, voter: ReplicaKey, offset: int, last_epoch: int, pre_vote: bool
) -> None:
    vote = Vote(
        epoch=epoch,
        candidate=candidate,
        voter=voter,
        last=OffsetAndEpoch(epoch=last_epoch, offset=offset),
        pre_vote=pre_vote,
    )
    assert there(vote, 2) == vote


@settings(deadline=None)
@given(epoch=EPOCHS, replica=KEYS, offset=OFFSETS, last_epoch=EPOCHS, high_watermark=st.integers(-1, 2**63 - 1))
def test_a_fetch_request_survives_encoding(
    epoch: int, replica: ReplicaKey, offset: int, last_epoch: int, high_watermark: int
) -> None:
    fetch = Fetch(epoch=epoch, replica=replica, offset=offset, last_epoch=last_epoch, high_watermark=high_watermark)
    assert there(fetch, 18) == fetch
    older = there(fetch, 17)
    assert isinstance(older, Fetch)
    assert older.high_watermark == HIGH_WATERMARK_ABSENT, "a high watermark that is not told must not look old"


def test_older_versions_lose_keys_and_endpoints_and_nothing_else() -> None:
    key = ReplicaKey(3, DIRECTORY)
    last = OffsetAndEpoch(epoch=4, offset=9)
    vote = Vote(epoch=5, candidate=key, voter=ReplicaKey(1, DIRECTORY), last=last, pre_vote=False)
    assert there(vote, 0) == Vote(epoch=5, candidate=ReplicaKey(3), voter=ReplicaKey(-1), last=last, pre_vote=False)
    begin = BeginQuorumEpoch(epoch=5, leader_id=2, voter=key, endpoints=LEADER)
    assert there(begin, 1) == begin
    assert there(begin, 0) == BeginQuorumEpoch(epoch=5, leader_id=2, voter=ReplicaKey(-1))
    end = EndQuorumEpoch(epoch=5, leader_id=2, successors=(key, ReplicaKey(1)))
    assert there(end, 1) == end
    assert there(end, 0) == EndQuorumEpoch(epoch=5, leader_id=2, successors=(ReplicaKey(3), ReplicaKey(1)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_vote_response_survives_encoding(version: int) -> None:
    reply = VoteReply(epoch=5, leader_id=2, endpoints=LEADER if version else Endpoints(), granted=True)
    with_all = VoteReply(epoch=5, leader_id=2, endpoints=LEADER, granted=True)
    assert and_back(VoteRequest, with_all, version) == reply
    refused = VoteReply(epoch=5, error=Error.FENCED_LEADER_EPOCH)
    assert and_back(VoteRequest, refused, version) == refused


@pytest.mark.parametrize("version", [0, 1])
def test_begin_and_end_quorum_epoch_responses_survive_encoding(version: int) -> None:
    endpoints = LEADER if version else Endpoints()
    begin = BeginQuorumEpochReply(epoch=5, leader_id=2, endpoints=LEADER)
    got = and_back(BeginQuorumEpochRequest, begin, version)
    assert got == BeginQuorumEpochReply(epoch=5, leader_id=2, endpoints=endpoints)
    end = EndQuorumEpochReply(epoch=5, leader_id=2, endpoints=LEADER, error=Error.INVALID_REQUEST)
    got = and_back(EndQuorumEpochRequest, end, version)
    assert got == EndQuorumEpochReply(epoch=5, leader_id=2, endpoints=endpoints, error=Error.INVALID_REQUEST)


@pytest.mark.parametrize("version", [13, 16, 17, 18])
def test_a_fetch_response_survives_encoding(version: int) -> None:
    endpoints = LEADER if version >= 17 else Endpoints()
    empty = FetchReply(epoch=5, leader_id=2, endpoints=LEADER, high_watermark=7, log_start_offset=1)
    for reply in (
        empty,
        FetchReply(epoch=5, leader_id=2, endpoints=LEADER, diverging=OffsetAndEpoch(epoch=0, offset=0)),
        FetchReply(epoch=5, leader_id=2, endpoints=LEADER, snapshot=OffsetAndEpoch(epoch=3, offset=100)),
        FetchReply(epoch=5, leader_id=-1, error=Error.NOT_LEADER_OR_FOLLOWER),
    ):
        got = and_back(FetchRequest, reply, version)
        assert isinstance(got, FetchReply)
        shown = endpoints if len(reply.endpoints) else Endpoints()
        facts = (got.epoch, got.leader_id, got.endpoints, got.error, got.diverging, got.snapshot, got.high_watermark)
        assert facts == (
            reply.epoch,
            reply.leader_id,
            shown,
            reply.error,
            reply.diverging,
            reply.snapshot,
            reply.high_watermark,
        )
    data = build_batch(7, 5, 1, [b"a", b"b"]) + build_batch(9, 5, 1, [b"c"])
    got = and_back(FetchRequest, empty, version, data)
    assert isinstance(got, FetchReply)
    assert got.data == data
    assert [(one.base_offset, one.next_offset) for one in got.batches] == [(7, 9), (9, 10)]
    assert got.batches[-1].end_position == len(data)


def test_the_leaders_endpoint_is_that_of_the_asked_listener() -> None:
    other = Endpoints((ListenerAddress("CONTROLLER", "in", 1), ListenerAddress("OUTSIDE", "out", 2)))
    reply = VoteReply(epoch=1, leader_id=2, endpoints=other)
    answer = RPC.reply_to_wire(request_of(VoteRequest(), 2, "OUTSIDE"), reply)
    assert isinstance(answer, VoteResponse)
    assert [(one.host, one.port) for one in answer.node_endpoints] == [("out", 2)]
    unnamed = RPC.reply_to_wire(request_of(VoteRequest(), 2, "NOWHERE"), reply)
    assert isinstance(unnamed, VoteResponse)
    assert unnamed.node_endpoints == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_description_of_the_quorum_can_be_written_in_every_version(version: int) -> None:
    one = ReplicaProgress(key=ReplicaKey(1, DIRECTORY), log_end_offset=5, last_fetch_ms=6, last_caught_up_ms=7)
    reply = DescribeQuorumReply(
        epoch=1, leader_id=1, high_watermark=4, voters=(one,), observers=(one,), nodes=((1, LEADER),)
    )
    answer: Any = over_the_wire(RPC.reply_to_wire(request_of(DescribeQuorumRequest(), version), reply), version)
    part = answer.topics[0].partitions[0]
    assert (part.leader_id, part.high_watermark, part.current_voters[0].log_end_offset) == (1, 4, 5)
    assert part.current_voters[0].replica_directory_id == (DIRECTORY if version == 2 else Uuid.ZERO)
    assert isinstance(RPC.request_from_wire(request_of(_describe(), version)), DescribeQuorum)


def _describe() -> DescribeQuorumRequest:
    from transport.protocol.messages import describe_quorum as wire

    part = wire.DescribeQuorumRequestPartitionData()
    return DescribeQuorumRequest(
        topics=[wire.DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[part])]
    )


@pytest.mark.parametrize("cls", [FetchRequest, VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest])
def test_a_foreign_cluster_id_is_a_top_level_error(cls: Any) -> None:
    for version in range(
        APIS[cls.__schema__.api_key].versions.lowest, APIS[cls.__schema__.api_key].versions.highest + 1
    ):
        answer: Any = RPC.request_from_wire(request_of(cls(cluster_id="another"), version))
        assert answer.error_code == Error.INCONSISTENT_CLUSTER_ID
        encode(answer, version)
        nothing: Any = RPC.request_from_wire(request_of(cls(), version))
        assert nothing.error_code == Error.INVALID_REQUEST, "without a topic"
        encode(nothing, version)


def test_a_foreign_topic_or_partition_is_a_top_level_error() -> None:
    for topic_id, partitions in (
        (Uuid.ZERO, [FetchPartition()]),
        (Uuid.METADATA_TOPIC, [FetchPartition(partition=1)]),
        (Uuid.METADATA_TOPIC, [FetchPartition(), FetchPartition()]),
        (Uuid.METADATA_TOPIC, []),
    ):
        topic = FetchTopic(topic_id=topic_id, partitions=partitions)
        answer = RPC.request_from_wire(request_of(FetchRequest(topics=[topic]), 18))
        assert answer == FetchResponse(error_code=Error.INVALID_REQUEST)
    part = VoteRequestPartitionData(partition_index=1)
    topic_of_vote = VoteRequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    answer = RPC.request_from_wire(request_of(VoteRequest(topics=[topic_of_vote]), 2))
    assert answer == VoteResponse(error_code=Error.INVALID_REQUEST)


def test_a_top_level_error_is_distinguished_from_a_response() -> None:
    assert RPC.reply_from_wire(VoteResponse(error_code=104)) == VoteReply(
        epoch=-1, top_error=Error.INCONSISTENT_CLUSTER_ID
    )
    unknown = RPC.reply_from_wire(FetchResponse(error_code=9999))
    assert isinstance(unknown, FetchReply)
    assert unknown.top_error == Error.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "message",
    [
        VoteResponse(),
        VoteResponse(topics=[VoteResponseTopicData(topic_name="other")]),
        FetchResponse(),
        FetchResponse(responses=[FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC)]),
        FetchResponse(
            responses=[
                FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[PartitionData(partition_index=3)])
            ]
        ),
        FetchRequest(),
    ],
)
def test_a_response_about_another_partition_is_a_decode_error(message: Message) -> None:
    with pytest.raises(DecodeError):
        RPC.reply_from_wire(message)


def test_a_truncated_last_batch_is_accepted_and_a_damaged_one_reported() -> None:
    first, second = build_batch(0, 1, 1, [b"a"]), build_batch(1, 1, 1, [b"b"])
    for cut in range(len(second)):
        facts, damage, _ = facts_of(first + second[:cut])
        assert len(facts) == 1
        assert damage is None, "Kafka fills an answer up to its size"
    flipped = bytearray(first + second)
    flipped[-1] ^= 1
    facts, damage, _ = facts_of(bytes(flipped))
    assert len(facts) == 1
    assert damage is not None
    assert "CRC" in damage


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_in_place_of_records_never_raises(data: bytes) -> None:
    facts, *_ = facts_of(data)
    assert all(fact.next_offset > fact.base_offset for fact in facts)


def test_equal_fetch_responses_share_one_message() -> None:
    """Whatever an answer depends on must be noticed: a message sent once more by mistake would mislead a follower."""
    records = build_batch(5, 3, 0, [b"a"])
    reply = FetchReply(epoch=3, leader_id=2, endpoints=LEADER, high_watermark=5)
    rpc = Rpc(cluster_id=CLUSTER, listener="CONTROLLER")
    asked = request_of(FetchRequest(), 18)
    first = rpc.reply_to_wire(asked, reply, records)
    assert (
        rpc.reply_to_wire(asked, FetchReply(epoch=3, leader_id=2, endpoints=LEADER, high_watermark=5), records) is first
    )
    others = [
        (asked, FetchReply(epoch=3, leader_id=2, endpoints=LEADER, high_watermark=6), records),
        (asked, FetchReply(epoch=4, leader_id=2, endpoints=LEADER, high_watermark=5), records),
        (asked, reply, build_batch(5, 3, 0, [b"b"])),
        (asked, reply, b""),
        (request_of(FetchRequest(), 16), reply, records),
        (request_of(FetchRequest(), 18, listener="OTHER"), reply, records),
    ]
    for request, other, data in others:
        assert rpc.reply_to_wire(asked, reply, records) == first
        alone = Rpc(cluster_id=CLUSTER, listener="CONTROLLER").reply_to_wire(request, other, data)
        assert rpc.reply_to_wire(request, other, data) == alone != first


def test_a_follower_of_an_older_version_shares_no_answer_with_one_that_reads_endpoints() -> None:
    reply = FetchReply(epoch=5, leader_id=2, endpoints=LEADER, high_watermark=1)
    records = build_batch(0, 5, 5, [b"x"])
    nodes = []
    for version in (16, 17, 18, 16):
        answer = RPC.reply_to_wire(request_of(FetchRequest(), version), reply, records)
        assert isinstance(answer, FetchResponse)
        nodes.append([node.node_id for node in answer.node_endpoints])
    assert nodes == [[], [2], [2], []]


@pytest.mark.parametrize("endpoints", [LEADER, Endpoints()])
def test_the_answer_to_an_updated_voter_names_the_leader_if_it_has_an_address(endpoints: Endpoints) -> None:
    reply = UpdateVoterReply(epoch=5, leader_id=2, endpoints=endpoints, error=Error.NONE)
    assert and_back(UpdateRaftVoterRequest, reply, 0) == reply


def test_a_refused_piece_of_a_snapshot_has_only_an_error() -> None:
    refused = RPC.reply_from_wire(FetchSnapshotResponse(error_code=Error.INCONSISTENT_CLUSTER_ID))
    assert isinstance(refused, FetchSnapshotReply)
    assert (refused.top_error, refused.data) == (Error.INCONSISTENT_CLUSTER_ID, b"")


def test_a_refused_fetch_has_only_an_error() -> None:
    reply = FetchReply(epoch=5, leader_id=2, top_error=Error.INCONSISTENT_CLUSTER_ID)
    answer = RPC.reply_to_wire(request_of(FetchRequest(), 18), reply, b"")
    assert answer == FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "broker", "error"),
    [
        (None, -1, ("c", 5), Error.NONE),
        ("c", 5, ("c", 5), Error.NONE),
        ("c", -1, ("c", 5), Error.INVALID_REQUEST),
        (None, 5, ("c", 5), Error.INVALID_REQUEST),
        ("other", 5, ("c", 5), Error.REBOOTSTRAP_REQUIRED),
        ("c", 6, ("c", 5), Error.REBOOTSTRAP_REQUIRED),
        ("other", 6, None, Error.NONE),
        ("c", -1, None, Error.INVALID_REQUEST),
    ],
)
def test_a_client_that_looks_for_another_cluster_or_node_is_told_so_by_brokers(
    cluster_id: str | None, node_id: int, broker: tuple[str, int] | None, error: Error
) -> None:
    """ApiVersions 5 names both or neither (KIP-1242); a controller does not compare them."""
    request = ApiVersionsRequest(
        client_software_name="t", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    answer = describe_versions(None, request, 5, 0, broker)
    assert (Error(answer.error_code), bool(answer.api_keys)) == (error, error is Error.NONE)
