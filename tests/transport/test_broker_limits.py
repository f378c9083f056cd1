"""How large requests to a broker and answers to a broker may be, and which APIs a broker asks other brokers for."""

from __future__ import annotations

import pytest

from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.broker_listener import AT_BROKERS, broker_answer_limit, broker_request_limit
from transport.protocol.client_connection import ClientConnection
from transport.protocol.headers import encode_response
from transport.protocol.inbound import Cause, Failed, Reply
from transport.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from transport.protocol.messages.api_versions import ApiVersion
from transport.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from transport.protocol.server_connection import ServerConnection
from transport.serving import Serving, ServingLimits


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def ready(client: ClientConnection, token: int, request: Message) -> list[Reply | Failed]:
    """Send a request on a connection after the peer has named its versions."""
    versions = [ApiVersion(key, api.versions.lowest, api.versions.highest) for key, api in AT_BROKERS.items()]
    client.begin("me")
    client.send(token, request, "me")
    outcomes, _ = client.feed(
        framed(encode_response(ApiKey.API_VERSIONS, 4, 0, ApiVersionsResponse(api_keys=versions)))
    )
    return outcomes


def answered(client: ClientConnection, api_key: int, version: int, answer: Message) -> list[Reply | Failed]:
    """Feed the answer to the one request."""
    outcomes, _ = client.feed(framed(encode_response(api_key, version, 1, answer, apis=ALL_APIS)))
    return outcomes


def of_broker() -> ClientConnection:
    return ClientConnection(software=("a", "1"), apis=ALL_APIS, answer_limits=broker_answer_limit)


def server(most: int) -> ServerConnection:
    return ServerConnection(
        handle=None,
        listener="PLAINTEXT",
        peer="h:1",
        served=AT_BROKERS,
        limits=broker_request_limit,
        max_frame_bytes=most,
    )


@pytest.mark.parametrize("most", [1 << 20, 100 << 20])
def test_socket_request_max_bytes_bounds_a_produce_request(most: int) -> None:
    start = b"\x00\x00\x00\x0d"
    allowed, refused = server(most), server(most)
    allowed.receive(most.to_bytes(4, "big") + start)
    assert allowed.broken is None
    refused.receive((most + 1).to_bytes(4, "big") + start)
    assert refused.broken == f"a frame of {most + 1} bytes was announced; at most {most} are allowed"


def test_the_memory_for_requests_has_room_for_two_of_the_largest_produce_requests() -> None:
    largest = 100 << 20
    limits = ServingLimits(max_frame_bytes=largest, largest_request_bytes=largest)
    serving = Serving(limits, later=lambda *_: None, now=lambda: 0.0)
    assert serving.received_bytes == 2 * largest
    assert Serving(ServingLimits(), later=lambda *_: None, now=lambda: 0.0).received_bytes == 64 << 20


@pytest.mark.parametrize("partitions", [600, 2000])
def test_a_follower_reads_an_answer_about_all_partitions_of_a_leader(partitions: int) -> None:
    topic_id = Uuid(bytes(range(16)))
    parts = [
        PartitionData(
            partition_index=number,
            records=b"x",
            diverging_epoch=EpochEndOffset(1, 2),
            current_leader=LeaderIdAndEpoch(1, 2),
            aborted_transactions=None,
        )
        for number in range(partitions)
    ]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=parts)])
    client = of_broker()
    assert ready(client, 7, FetchRequest()) == []
    assert answered(client, ApiKey.FETCH, 18, answer) == [Reply(7, answer)]


@pytest.mark.parametrize(
    ("key", "request_", "answer", "version"),
    [
        (ApiKey.LIST_OFFSETS, ListOffsetsRequest(replica_id=1), ListOffsetsResponse(), 11),
        (ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(), AddPartitionsToTxnResponse(), 5),
    ],
    ids=["ListOffsets", "AddPartitionsToTxn"],
)
def test_a_broker_asks_another_for_what_only_brokers_answer(
    key: ApiKey, request_: Message, answer: Message, version: int
) -> None:
    client = of_broker()
    assert ready(client, 7, request_) == []
    assert answered(client, key, version, answer) == [Reply(7, answer)]


def test_a_request_of_an_api_that_this_side_does_not_ask_for_fails_alone() -> None:
    client = ClientConnection(software=("a", "1"))
    why = "the peer has no version of LIST_OFFSETS that is known here"
    assert ready(client, 7, ListOffsetsRequest(replica_id=1)) == [Failed(7, Cause.UNSUPPORTED_VERSION, why)]
    assert client.broken is None
