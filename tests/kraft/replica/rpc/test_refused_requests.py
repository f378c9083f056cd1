"""Requests that a replica refuses, with Kafka's bytes."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from kraft.access.errors import ApiError
from kraft.controller.server import ControllerServer
from kraft.process.hosting import host_controller
from kraft.quorum.messages import FetchSnapshotReply, VoteReply
from kraft.quorum.values import Endpoints, ListenerAddress
from kraft.replica.in_flight import InFlightRequests
from kraft.replica.interface.events import PeerRequest
from kraft.replica.peer_replies import records_of
from kraft.replica.rpc import election_rpc, fetch_rpc, snapshot_rpc
from kraft.replica.rpc.api_versions import describe_versions
from kraft.replica.rpc.refusals import refuse_quorum_request
from kraft.replica.rpc.rpc_parts import endpoint
from kraft.wire import Answer, Part, ReplyTo, Send, Target, WireRequest, WireSend
from metadata_log.errors import DecodeError
from metadata_log.serde import Message, schema_of
from metadata_log.types import OffsetAndEpoch, Uuid
from support import DATA
from support.differential.controller_sides import InProcess
from support.kraft.replica_net import Net, formatted_disk
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, encode_response
from transport.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    IncrementalAlterConfigsResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from transport.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
    SnapshotId,
)
from transport.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)

DENIED = Error.CLUSTER_AUTHORIZATION_FAILED


def refused(message: Message, version: int = 0) -> Message:
    api_key = schema_of(type(message)).api_key
    assert api_key is not None
    request = WireRequest(request_id=1, api_key=api_key, version=version, message=message, listener="CONTROLLER")
    return refuse_quorum_request(request, ApiError(DENIED, "not told to this client"))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (VoteRequest(), VoteResponse(error_code=DENIED)),
        (BeginQuorumEpochRequest(), BeginQuorumEpochResponse(error_code=DENIED)),
        (EndQuorumEpochRequest(), EndQuorumEpochResponse(error_code=DENIED)),
        (FetchSnapshotRequest(), FetchSnapshotResponse(error_code=DENIED)),
        (DescribeQuorumRequest(), DescribeQuorumResponse(error_code=DENIED, error_message=DENIED.message)),
        (AddRaftVoterRequest(), AddRaftVoterResponse(error_code=DENIED, error_message=DENIED.message)),
        (RemoveRaftVoterRequest(), RemoveRaftVoterResponse(error_code=DENIED, error_message=DENIED.message)),
        (UpdateRaftVoterRequest(), UpdateRaftVoterResponse(error_code=DENIED)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_each_request_of_the_quorum_is_refused_with_the_error_alone(asked: Message, answer: Message) -> None:
    assert refused(asked) == answer


@pytest.mark.parametrize("version", [4, 12, 13, 17])
def test_old_clients_find_the_error_of_a_fetch_in_its_partitions(version: int) -> None:
    """From version 13 on a client reads the error at the top."""
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=3), FetchPartition(partition=4)])
    answer = refused(FetchRequest(topics=[topic], session_id=9), version)
    assert isinstance(answer, FetchResponse)
    assert (answer.error_code, answer.session_id) == (DENIED, 9)
    found = [(one.topic, part.partition_index) for one in answer.responses for part in one.partitions]
    assert found == ([("t", 3), ("t", 4)] if version < 13 else [])
    for part in (part for one in answer.responses for part in one.partitions):
        assert (part.error_code, part.high_watermark, part.records) == (DENIED, -1, b"")


# ApiVersions


@pytest.mark.parametrize("level", [0, 1])
def test_api_versions_names_the_level_of_the_quorum_above_0(level: int) -> None:
    host = ControllerServer(InProcess().controller)
    asked = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    described = describe_versions(host, asked, 4, level)
    levels = {one.name: (one.min_version_level, one.max_version_level) for one in described.finalized_features}
    assert levels.get("kraft.version") == ((level, level) if level else None)
    assert [one.name for one in described.finalized_features] == sorted(levels)


@pytest.mark.parametrize("version", [3, 4])
def test_a_feature_with_minimum_level_0_is_named_to_clients_that_can_read_it(version: int) -> None:
    host = ControllerServer(InProcess().controller)
    asked = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    ranges = {one.name: one.min_version for one in describe_versions(host, asked, version, 0).supported_features}
    assert ("kraft.version" in ranges) == (version == 4)
    assert ranges["metadata.version"] == 7
    assert min(ranges.values()) == (0 if version == 4 else 7)


# Answers of peers


def snapshot_answer(name: str = "__cluster_metadata", partitions: int = 1, topics: int = 1) -> FetchSnapshotResponse:
    part = FetchSnapshotResponsePartitionSnapshot(index=0, unaligned_records=b"piece")
    topic = FetchSnapshotResponseTopicSnapshot(name=name, partitions=[part] * partitions)
    return FetchSnapshotResponse(topics=[topic] * topics)


@pytest.mark.parametrize(
    "answer",
    [
        snapshot_answer("another"),
        snapshot_answer(partitions=0),
        snapshot_answer(partitions=2),
        snapshot_answer(topics=0),
        snapshot_answer(topics=2),
    ],
    ids=["another topic", "no partition", "two partitions", "no topic", "two topics"],
)
def test_a_piece_of_something_else_is_refused(answer: FetchSnapshotResponse) -> None:
    with pytest.raises(DecodeError, match="not about the metadata partition"):
        snapshot_rpc.reply_from_wire(answer, "CONTROLLER")
    assert snapshot_rpc.reply_from_wire(snapshot_answer(), "CONTROLLER").data == b"piece"


def test_the_records_of_an_answer_about_one_partition_are_judged() -> None:
    assert records_of(snapshot_answer()) == b"piece"
    assert records_of(snapshot_answer(partitions=2)) == b""
    assert records_of(snapshot_answer(topics=2)) == b""
    for count in (0, 1, 2):
        part = PartitionData(partition_index=0, high_watermark=0, records=b"batches")
        topic = FetchableTopicResponse(topic="t", partitions=[part] * count)
        assert records_of(FetchResponse(responses=[topic])) == (b"batches" if count == 1 else b"")
        assert records_of(FetchResponse(responses=[topic, topic])) == b""
    assert records_of(VoteResponse()) == b""


# Requests of the application


def test_a_reply_finds_the_part_that_asked_and_each_request_has_its_own_patience() -> None:
    requests, asked = InFlightRequests(), VoteRequest()
    of_broker, of_quorum = ReplyTo(Part.BROKER, "key"), ReplyTo(Part.QUORUM, PeerRequest(7, 3))
    two, three = Target(2, "n2", 9093), Target(3, "n3", 9093)
    assert requests.send(Send(asked, of_broker, 500), two) == WireSend(1, two, asked, 500, Part.BROKER)
    assert requests.send(Send(asked, of_quorum, 0, three), three) == WireSend(2, three, asked, 0, Part.QUORUM)
    to_broker = requests.send(Send(asked, of_broker, 500, three), three)
    assert to_broker == WireSend(3, three, asked, 500, Part.BROKER, is_for_broker=True)
    assert requests.reply_to == {1: of_broker, 2: of_quorum, 3: of_broker}


# Addresses and snapshots in answers


@pytest.mark.parametrize(
    ("host", "port", "is_known"), [("h", 1, True), ("h", 65535, True), ("h", 0, False), ("", 9, False)]
)
def test_an_address_in_an_answer_needs_a_host_and_a_port(host: str, port: int, is_known: bool) -> None:
    known = Endpoints((ListenerAddress("CONTROLLER", host, port),))
    assert endpoint("CONTROLLER", host, port) == (known if is_known else Endpoints())


@pytest.mark.parametrize("port", [-1, 65536, 2**31 - 1])
def test_a_port_that_no_host_has_is_refused(port: int) -> None:
    with pytest.raises(DecodeError, match=f"port {port}"):
        endpoint("CONTROLLER", "h", port)


@pytest.mark.parametrize(
    ("epoch", "offset", "found"),
    [
        (-1, -1, None),
        (3, -1, (3, -1)),
        (0, -1, (0, -1)),
        (-1, 0, (-1, 0)),
        (-1, 7, (-1, 7)),
        (0, 0, (0, 0)),
        (3, 7, (3, 7)),
    ],
)
def test_half_a_snapshot_id_is_a_snapshot_id(epoch: int, offset: int, found: tuple[int, int] | None) -> None:
    """The core refuses such an id, and reports its sender."""
    part = PartitionData(
        partition_index=0, high_watermark=0, records=b"", snapshot_id=SnapshotId(epoch=epoch, end_offset=offset)
    )
    topic = FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[part])
    reply = fetch_rpc.reply_from_wire(FetchResponse(responses=[topic]), "CONTROLLER", None)
    assert reply.snapshot == (None if found is None else OffsetAndEpoch(epoch=found[0], offset=found[1]))


def test_an_answer_without_a_snapshot_has_its_id_at_zero() -> None:
    asked = WireRequest(request_id=1, api_key=59, version=1, message=FetchSnapshotRequest(), listener="CONTROLLER")
    answer = snapshot_rpc.reply_to_wire(asked, FetchSnapshotReply(epoch=3, error=Error.NOT_LEADER_OR_FOLLOWER))
    assert isinstance(answer, FetchSnapshotResponse)
    (part,) = answer.topics[0].partitions
    assert (part.snapshot_id.epoch, part.snapshot_id.end_offset, part.error_code) == (0, 0, 6)
    top = snapshot_rpc.reply_to_wire(asked, FetchSnapshotReply(epoch=3, top_error=Error.INVALID_REQUEST))
    assert top == FetchSnapshotResponse(error_code=Error.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("name", "software", "is_valid"),
    [("c", "1", True), ("", "1", False), ("c", "", False), ("c", "1 2", False), ("a b", "1", False)],
)
def test_clients_have_names_and_versions_without_spaces(name: str, software: str, is_valid: bool) -> None:
    """KIP-511. Versions of the request below 3 have no room for names."""
    host = ControllerServer(InProcess().controller)
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    assert describe_versions(host, asked, 3, 0).error_code == (0 if is_valid else Error.INVALID_REQUEST)
    assert describe_versions(host, asked, 2, 0).error_code == 0


def test_an_error_of_a_whole_vote_is_at_the_top_of_the_answer() -> None:
    asked = WireRequest(request_id=1, api_key=52, version=2, message=VoteRequest(), listener="CONTROLLER")
    reply = VoteReply(epoch=3, top_error=Error.INCONSISTENT_CLUSTER_ID)
    assert election_rpc.reply_to_wire(asked, reply) == VoteResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)


# Refusals that Apache Kafka 4.3.1's controllers gave on the wire, and ours to the same requests, byte for byte.


CLUSTER_ID = "YVU7_irm6WKT5bBIjUZi2g"
"""The cluster that was asked."""
EXCHANGES: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((DATA / "refusals.jsonl.gz").read_bytes()).splitlines()
]


@pytest.fixture(scope="module")
def net() -> Net:
    disks = {node: formatted_disk(node, cluster_id=CLUSTER_ID) for node in (1, 2, 3)}
    net = Net(3, application=host_controller, disks=disks, cluster_id=CLUSTER_ID)
    net.elect()
    net.advance(1000)
    return net


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: f"{one['api_key']}v{one['version']}")
def test_each_refusal_equals_kafkas(net: Net, exchange: dict[str, Any]) -> None:
    header, message = decode_request(bytes.fromhex(exchange["request"]))
    replica = net.processes[net.leader]
    request = WireRequest(
        request_id=5_000_000,
        api_key=exchange["api_key"],
        version=exchange["version"],
        message=message,
        listener="CONTROLLER",
        client_id=header.client_id,
    )
    answers = [output for output in replica.step(request, net.now_ms) if isinstance(output, Answer)]
    assert len(answers) == 1
    ours = encode_response(exchange["api_key"], exchange["version"], header.correlation_id, answers[0].message)
    assert ours.hex() == exchange["response"], (message, answers[0].message)


def test_client_metrics_settings_are_validated_as_by_kafka() -> None:
    """Some fifty changes, good and bad, one after the other, as a 4.3.1 controller answered them."""
    net = Net(1, application=host_controller, max_idle_interval_ms=0)
    net.elect()
    net.settle()
    for line in gzip.decompress((DATA / "client_metrics_answers.jsonl.gz").read_bytes()).splitlines():
        exchange = json.loads(line)
        _, message = decode_request(bytes.fromhex(exchange["request"]))
        answer = net.ask(1, message, 1)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        ours = sorted([one.resource_name, one.error_code, one.error_message] for one in answer.responses)
        assert ours == exchange["answers"], message
