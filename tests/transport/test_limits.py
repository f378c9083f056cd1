"""One frame from any sender costs the task little: bytes and values are limited before they are read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from metadata_log.errors import LimitExceeded
from metadata_log.serde import Message, encode
from metadata_log.serde.codec import UNCOUNTED_BYTES
from metadata_log.serde.primitives import unsigned_varint
from metadata_log.types import Uuid
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.client_connection import ClientConnection
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.protocol.inbound import Reply, Request
from transport.protocol.limits import ADMIN, HEADER_VALUES, ISR_CHANGES, answer_limit, request_limit
from transport.protocol.messages import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ApiVersionsResponse,
    AssignReplicasToDirsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    EnvelopeRequest,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    VoteRequest,
    VoteResponse,
    alter_partition,
    assign_replicas_to_dirs,
)
from transport.protocol.messages.alter_client_quotas import AlterClientQuotasRequestEntityData as EntityData
from transport.protocol.messages.alter_client_quotas import AlterClientQuotasRequestEntryData as EntryData
from transport.protocol.messages.alter_client_quotas import OpData
from transport.protocol.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from transport.protocol.messages.api_versions import ApiVersion
from transport.protocol.messages.create_acls import AclCreation
from transport.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic
from transport.protocol.messages.describe_user_scram_credentials import UserName
from transport.protocol.messages.elect_leaders import TopicPartitions
from transport.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from transport.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from transport.protocol.messages.vote import VoteResponseTopicData
from transport.protocol.server_connection import ServerConnection

RF = 5


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def server(**options: Any) -> ServerConnection:
    return ServerConnection(handle=None, listener="CONTROLLER", peer="10.0.0.1:5", **options)


def frame_of(message: Message, correlation_id: int = 1) -> bytes:
    key = type(message).__schema__.api_key
    assert key is not None
    return encode_request(key, APIS[key].versions.highest, correlation_id, "x", message)


def isr_changes(count: int) -> AlterPartitionRequest:
    isr = [alter_partition.BrokerState(broker_id=number, broker_epoch=9) for number in range(RF)]
    partitions = [
        alter_partition.AlterPartitionRequestPartitionData(partition_index=number, new_isr_with_epochs=isr)
        for number in range(count // 100)
    ]
    topics = [
        alter_partition.AlterPartitionRequestTopicData(topic_id=Uuid(number.to_bytes(16, "big")), partitions=partitions)
        for number in range(100)
    ]
    return AlterPartitionRequest(broker_id=1, topics=topics)


def assignments(count: int) -> AssignReplicasToDirsRequest:
    module = assign_replicas_to_dirs
    one = [module.AssignReplicasToDirsRequestPartitionData(partition_index=1)]
    topics = [
        module.AssignReplicasToDirsRequestTopicData(topic_id=Uuid(number.to_bytes(16, "big")), partitions=one)
        for number in range(count)
    ]
    return AssignReplicasToDirsRequest(directories=[module.AssignReplicasToDirsRequestDirectoryData(topics=topics)])


def read_whole(connection: ServerConnection, data: bytes) -> tuple[list[Request], int]:
    """The requests in these bytes, and in how many steps they were read."""
    requests, _ = connection.feed(data)
    steps = 1
    while connection.is_reading:
        requests += connection.read_on()[0]
        steps += 1
    return requests, steps


LEGITIMATE: list[Message] = [
    CreateTopicsRequest(topics=[CreatableTopic(name=f"topic-{number}") for number in range(10_000)]),
    CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="t",
                assignments=[
                    CreatableReplicaAssignment(partition_index=number, broker_ids=[1, 2, 3]) for number in range(10_000)
                ],
            )
        ]
    ),
    ElectLeadersRequest(topic_partitions=None),
    ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=f"topic-{number}", partitions=[*range(10)]) for number in range(20_000)]
    ),
    ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="one", partitions=[*range(200_000)])]),
    IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name=f"topic-{number}",
                configs=[AlterableConfig(name="retention.ms", value="86400000")],
            )
            for number in range(10_000)
        ]
    ),
    AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=f"user-{number}")],
                ops=[OpData(key="producer_byte_rate", value=1e6)],
            )
            for number in range(10_000)
        ]
    ),
    CreateAclsRequest(creations=[AclCreation(resource_name=f"topic-{number}") for number in range(10_000)]),
    AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=f"topic-{number}", partitions=[ReassignablePartition(partition_index=1, replicas=[1, 2, 3])]
            )
            for number in range(10_000)
        ]
    ),
    assignments(2250),
    EnvelopeRequest(request_data=bytes(ADMIN.size)),
]


@pytest.mark.parametrize("message", LEGITIMATE, ids=lambda message: type(message).__name__)
def test_the_largest_requests_of_brokers_and_tools_are_within_the_limits(message: Message) -> None:
    """Kafka's own bounds: 10,000 records of a change, 2,250 replicas to assign, elections in a whole cluster."""
    connection = server()
    [request], _ = read_whole(connection, framed(frame_of(message)))
    assert request.message == message
    assert decode_request(frame_of(message))[1] == message


def test_a_broker_may_change_the_isr_of_all_its_partitions_at_once() -> None:
    """The broker names every partition in one request, and would repeat the request for ever if it was refused."""
    message = isr_changes(100_000)
    frame = frame_of(message)
    assert len(frame) < ISR_CHANGES.size
    connection = server()
    [request], steps = read_whole(connection, framed(frame))
    assert request.message == message
    assert steps > 150  # of at most a few milliseconds each; the whole takes half a second


def test_requests_behind_a_long_one_keep_their_order() -> None:
    message, votes = isr_changes(2_000), [frame_of(VoteRequest(voter_id=number)) for number in range(3)]
    connection = server()
    stream = framed(votes[0]) + framed(frame_of(message)) + framed(votes[1])
    requests, released = connection.feed(stream)
    assert [request.message for request in requests] == [VoteRequest(voter_id=0)]
    assert connection.is_reading
    assert connection.feed(framed(votes[2])) == ([], b"")
    while connection.is_reading:
        more, _ = connection.read_on()
        requests += more
    expected = [VoteRequest(voter_id=0), message, VoteRequest(voter_id=1), VoteRequest(voter_id=2)]
    assert [request.message for request in requests] == expected
    assert [request.sequence for request in requests] == [0, 1, 2, 3]
    assert released == b""
    assert connection.unanswered == 4


def test_a_damaged_long_frame_breaks_the_connection() -> None:
    frame = bytearray(frame_of(isr_changes(2_000)))
    connection = server()
    requests, steps = read_whole(connection, framed(bytes(frame[:-30])) + framed(frame_of(VoteRequest())))
    assert (requests, connection.is_reading) == ([], False)
    assert steps > 3
    assert connection.broken is not None
    assert "AlterPartitionRequest version 3" in connection.broken
    assert connection.feed(framed(frame_of(VoteRequest()))) == ([], b"")


@pytest.mark.parametrize("key", [int(key) for key in APIS])
def test_a_frame_beyond_its_limit_is_refused_before_it_is_read(key: int) -> None:
    """By its length and the two bytes of its API key, however they are cut."""
    limit = request_limit(key)
    announced = (limit.size + 1).to_bytes(4, "big") + key.to_bytes(2, "big")
    for cut in range(1, 7):
        connection = server()
        connection.feed(announced[:cut])
        assert connection.broken is None or cut == 6
        connection.feed(announced[cut:])
        assert connection.broken == (
            f"a frame of {limit.size + 1} bytes was announced; at most {limit.size} are allowed for "
            f"{APIS[key].name} requests"
        )
    allowed = server()
    allowed.feed(limit.size.to_bytes(4, "big") + key.to_bytes(2, "big"))
    assert allowed.broken is None
    assert allowed.frames.missing == limit.size - 2


def test_a_long_frame_of_no_api_is_refused_before_it_is_read() -> None:
    connection = server()
    connection.feed((UNCOUNTED_BYTES + 1).to_bytes(4, "big") + (999).to_bytes(2, "big"))
    assert connection.broken is not None
    assert "API 999, which is not served" in connection.broken


def test_socket_request_max_bytes_bounds_every_frame() -> None:
    connection = server(max_frame_bytes=100_000)
    connection.feed((100_001).to_bytes(4, "big") + (int(ApiKey.ALTER_PARTITION)).to_bytes(2, "big"))
    assert connection.broken is not None
    assert "at most 100000" in connection.broken


def tagged_header(tags: int) -> bytes:
    """An AlterPartition with so many unknown tags in its header."""
    start = bytes.fromhex("0038 0003 00000001 0001 78")
    return start + unsigned_varint(tags) + b"".join(unsigned_varint(200 + at) + b"\0" for at in range(tags))


def scram_names(count: int) -> bytes:
    return frame_of(DescribeUserScramCredentialsRequest(users=[UserName(name="")] * count))


def elections(count: int) -> bytes:
    return frame_of(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t")] * count))


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (lambda: scram_names(500_000), "DescribeUserScramCredentialsRequest version 0 has more than"),
        (
            lambda: frame_of(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t")] * 300_000)),
            "ElectLeaders",
        ),
        (lambda: frame_of(CreateTopicsRequest(topics=[CreatableTopic(name="t")] * 100_000)), "CreateTopics"),
        (lambda: tagged_header(9_000), f"RequestHeader version 2 has more than {HEADER_VALUES} values"),
    ],
    ids=["DescribeUserScramCredentials", "ElectLeaders", "CreateTopics", "header"],
)
def test_a_frame_with_too_many_values_costs_no_memory(frame: Callable[[], bytes], what: str) -> None:
    content = framed(frame())
    connection = server()
    tracemalloc.start()
    requests, _ = read_whole(connection, content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert requests == []
    assert connection.broken is not None
    assert what in connection.broken
    assert peak < 2 * len(content) + 1_000_000


@pytest.mark.parametrize("key", [int(key) for key in APIS])
def test_apis_decoded_at_once_have_a_bounded_size(key: int) -> None:
    """120,000 values of at most 0.4 microseconds each are 48 milliseconds."""
    assert request_limit(key).values <= 120_000 or key == ApiKey.ALTER_PARTITION


class TestAnswers:
    """A peer's answers are bounded like its requests: without authentication any process may act as a controller."""

    def asked(self, message: Message, max_frame_bytes: int = 1 << 24) -> ClientConnection:
        connection = ClientConnection(software=("test", "1"), max_frame_bytes=max_frame_bytes)
        connection.begin("me")
        versions = [
            ApiVersion(api_key=api.key, min_version=api.versions.lowest, max_version=api.versions.highest)
            for api in APIS.values()
        ]
        connection.feed(framed(encode_response(18, 4, 0, ApiVersionsResponse(api_keys=versions))))
        assert connection.ready
        connection.send(7, message, "me")
        return connection

    def test_a_long_answer_to_a_vote_is_refused_before_it_is_read(self) -> None:
        connection = self.asked(VoteRequest())
        size = answer_limit(ApiKey.VOTE).size
        connection.feed((size + 1).to_bytes(4, "big") + bytes(2))
        assert connection.broken == (
            f"a frame of {size + 1} bytes was announced; at most {size} are allowed for Vote answers"
        )

    def test_a_long_unsolicited_response_is_refused_before_it_is_read(self) -> None:
        connection = self.asked(VoteRequest())
        connection.feed(framed(encode_response(ApiKey.VOTE, 2, 1, VoteResponse())))
        connection.feed((UNCOUNTED_BYTES + 1).to_bytes(4, "big") + bytes(2))
        assert connection.broken is not None
        assert "no request is outstanding" in connection.broken

    def test_an_answer_with_many_records_is_read(self) -> None:
        connection = self.asked(FetchRequest())
        part = PartitionData(records=bytes(9_000_000))
        answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[part])])
        outcomes, _ = connection.feed(framed(encode_response(ApiKey.FETCH, 18, 1, answer)))
        assert outcomes == [Reply(7, answer)]

    def test_an_answer_with_many_values_is_refused(self) -> None:
        connection = self.asked(FetchRequest())
        answer = FetchResponse(responses=[FetchableTopicResponse()] * 50_000)
        outcomes, _ = connection.feed(framed(encode_response(ApiKey.FETCH, 18, 1, answer)))
        assert outcomes == []
        assert connection.broken is not None
        assert "FetchResponse version 18 has more than" in connection.broken

    def test_vote_requests_and_responses_with_many_topics_are_refused(self) -> None:
        answer = VoteResponse(topics=[VoteResponseTopicData()] * 30_000)
        with pytest.raises(LimitExceeded):
            decode_response(ApiKey.VOTE, 2, bytes(5) + encode(answer, 2))
