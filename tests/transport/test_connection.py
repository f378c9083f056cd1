"""Connections without sockets: if these were wrong, no node or client of Apache Kafka could talk to ours."""

from __future__ import annotations

import gc
import gzip
import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.errors import EncodeError
from metadata_log.serde import Versions
from transport.protocol.apis import APIS, Api, ApiKey
from transport.protocol.client_connection import ClientConnection
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.protocol.inbound import Cause, Failed, Reply, Request
from transport.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    VoteRequest,
    VoteResponse,
)
from transport.protocol.messages.api_versions import ApiVersion
from transport.protocol.server_connection import ServerConnection

CAPTURED = Path(__file__).parent.parent / "data" / "wire_exchanges.jsonl.gz"
"""One exchange with a controller of Apache Kafka 4.3.1 per API and version, as it went over the wire."""


def exchanges() -> list[dict[str, Any]]:
    with gzip.open(CAPTURED, "rt") as lines:
        return [json.loads(line) for line in lines]


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def server(**options: Any) -> ServerConnection:
    return ServerConnection(handle=None, listener="CONTROLLER", peer="10.0.0.1:5", **options)


def client() -> ClientConnection:
    return ClientConnection(software=("test", "1"))


def vote_frame(correlation_id: int, version: int = 2) -> bytes:
    return framed(encode_request(ApiKey.VOTE, version, correlation_id, "raft-client-1", VoteRequest(cluster_id="c")))


def all_versions(apis: dict[int, Api] = APIS) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.versions.lowest, max_version=api.versions.highest)
            for api in apis.values()
        ]
    )


def shake_hands(connection: ClientConnection, answer: ApiVersionsResponse) -> tuple[list[Reply | Failed], bytes]:
    """Open `connection` as a peer that answers ApiVersions with `answer`."""
    header, message = decode_request(connection.begin("me")[4:])
    assert isinstance(message, ApiVersionsRequest)
    content = encode_response(ApiKey.API_VERSIONS, header.request_api_version, header.correlation_id, answer)
    return connection.feed(framed(content))


class TestFrames:
    @given(contents=st.lists(st.binary(max_size=40), max_size=8), data=st.data())
    def test_frames_are_read_from_any_slicing_of_the_stream(self, contents: list[bytes], data: st.DataObject):
        """TCP may split a stream at any byte."""
        stream = b"".join(framed(content) for content in contents)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
        reader, seen = FrameReader(), []
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            seen += reader.feed(stream[start:stop])
        assert seen == contents
        assert reader.broken is None
        assert reader.missing == 4

    def test_missing_bytes_are_counted(self):
        reader = FrameReader()
        assert reader.feed(b"\x00\x00") == []
        assert reader.missing == 2
        assert reader.feed(b"\x00\x05abc") == []
        assert reader.missing == 2
        assert reader.feed(b"de") == [b"abcde"]

    @pytest.mark.parametrize("length", [b"\x00\x00\x00\x65", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"])
    def test_an_invalid_frame_length_breaks_the_stream(self, length: bytes):
        """A hostile length must cost no memory: it is refused before a byte of the frame is kept."""
        reader = FrameReader(max_frame_bytes=100)
        assert reader.feed(framed(b"good") + length) == [b"good"]
        assert reader.broken is not None
        assert "at most 100" in reader.broken
        assert reader.feed(framed(b"more")) == []


class TestServer:
    def test_every_captured_exchange_is_answered_byte_for_byte(self):
        """The exchanges are of Apache Kafka's own nodes and clients with its controllers."""
        seen: Counter[str] = Counter()
        for exchange in exchanges():
            connection = server()
            requests, at_once = connection.feed(framed(bytes.fromhex(exchange["request"])))
            expected = framed(bytes.fromhex(exchange["response"]))
            assert connection.broken is None, (exchange, connection.broken)
            if not requests:
                seen["refused"] += 1
                assert exchange["api_key"] == ApiKey.API_VERSIONS
                assert at_once == expected[:-1] + b"\x05", "4.3.1 knew version 4 as the highest"
                continue
            [request] = requests
            assert (request.api_key, request.version) == (exchange["api_key"], exchange["version"])
            assert request.size == len(bytes.fromhex(exchange["request"]))
            _, message = decode_response(request.api_key, request.version, expected[4:])
            assert connection.answer(request, message) == expected, exchange
            seen["answered"] += 1
        assert seen == {"answered": 100, "refused": 1}

    def test_answers_leave_in_the_order_of_requests(self):
        connection = server()
        requests, _ = connection.feed(b"".join(vote_frame(number) for number in range(4)))
        first, second, third, fourth = requests
        assert connection.answer(third, VoteResponse()) == b""
        assert connection.answer(second, VoteResponse()) == b""
        assert connection.unanswered == 4
        assert correlation_ids(connection.answer(first, VoteResponse())) == [0, 1, 2]
        assert correlation_ids(connection.answer(fourth, VoteResponse())) == [3]
        assert connection.unanswered == 0

    @given(order=st.permutations(range(7)))
    def test_any_order_of_answering_gives_the_same_bytes(self, order: list[int]):
        connection = server()
        requests, _ = connection.feed(b"".join(vote_frame(number) for number in range(7)))
        sent = b"".join(connection.answer(requests[number], VoteResponse()) for number in order)
        assert correlation_ids(sent) == list(range(7))

    def test_a_request_is_answered_once(self):
        connection = server()
        [request], _ = connection.feed(vote_frame(1))
        connection.answer(request, VoteResponse())
        with pytest.raises(AssertionError, match="answered twice"):
            connection.answer(request, VoteResponse())

    def test_a_refused_api_versions_request_is_answered_in_order(self):
        connection = server()
        unknown = framed(b"\x00\x12\x00\x63" + (9).to_bytes(4, "big") + b"\x00\x02me\x00")
        [request], at_once = connection.feed(vote_frame(8) + unknown)
        assert at_once == b""
        assert correlation_ids(connection.answer(request, VoteResponse())) == [8, 9]

    @pytest.mark.parametrize("frame", ["0012006300000550000570726f626500", "0012ffff00000550000570726f6265"])
    def test_an_unknown_version_of_api_versions_is_refused_in_version_0(self, frame: str):
        """Request and answer as an Apache Kafka 4.4.0 controller took and gave them; a negative version has no tags."""
        connection = server()
        refusal = bytes.fromhex("0000001000000550002300000001001200000005")
        assert connection.feed(framed(bytes.fromhex(frame))) == ([], refusal)
        assert connection.broken is None

    @pytest.mark.parametrize(
        ("frame", "reason"),
        [
            (bytes.fromhex("0012006300000550000570726f6265"), "RequestHeader"),
            (b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x02me\x00", "api key 0"),
            (vote_frame(1)[4:13], "RequestHeader"),
            (b"\x27\x0f\x00\x00\x00\x00\x00\x01\x00\x02me", "9999"),
            (b"\x00\x34\x00\x63\x00\x00\x00\x01\x00\x02me\x00", "Vote"),
            (b"\x00\x34\xff\xff\x00\x00\x00\x01\x00\x02me\x00", "Vote"),
            (b"", "0 bytes"),
            (b"\x00\x34\x00\x02\x00\x00", "6 bytes"),
            (vote_frame(1)[4:-3], "VoteRequest"),
            (b"GET / HTTP/1.1\r\n\r\n", "18245"),
        ],
    )
    def test_an_invalid_request_breaks_the_connection_with_a_reason(self, frame: bytes, reason: str):
        """The good request before it is still served; nothing after it is."""
        connection = server()
        requests, at_once = connection.feed(vote_frame(7) + framed(frame) + vote_frame(8))
        assert [request.correlation_id for request in requests] == [7]
        assert at_once == b""
        assert connection.broken is not None
        assert reason in connection.broken
        assert connection.feed(vote_frame(9)) == ([], b"")
        assert connection.answer(requests[0], VoteResponse()) != b""
        assert connection.unanswered == 0

    def test_an_api_that_is_not_served_breaks_the_connection(self):
        connection = server(served={ApiKey.API_VERSIONS: APIS[ApiKey.API_VERSIONS]})
        assert connection.feed(vote_frame(1)) == ([], b"")
        assert connection.broken is not None
        assert "API 52" in connection.broken

    def test_bytes_behind_the_body_are_ignored_as_by_kafka(self):
        connection = server()
        [request], _ = connection.feed(framed(vote_frame(1)[4:] + b"xyz"))
        assert request.message == VoteRequest(cluster_id="c")

    @given(data=st.binary(max_size=200))
    def test_random_bytes_never_raise(self, data: bytes):
        connection = server(max_frame_bytes=1000)
        connection.feed(data)
        connection.feed(framed(data))


def correlation_ids(stream: bytes) -> list[int]:
    return [int.from_bytes(frame[:4], "big") for frame in FrameReader().feed(stream)]


class TestClient:
    def test_begins_with_the_highest_api_versions(self):
        header, message = decode_request(client().begin("raft-client-3")[4:])
        assert (header.request_api_key, header.request_api_version, header.client_id) == (18, 5, "raft-client-3")
        assert message == ApiVersionsRequest(client_software_name="test", client_software_version="1")

    def test_requests_wait_for_the_handshake(self):
        connection = client()
        assert connection.send(5, VoteRequest(), "me") == b""
        outcomes, released = shake_hands(connection, all_versions())
        assert outcomes == []
        [request], _ = server().feed(released)
        assert request.version == 2
        assert connection.unanswered == 1

    def test_takes_the_highest_common_version(self):
        """A request to an older peer uses a version that the peer knows."""
        connection = client()
        older = msgspec.structs.replace(APIS[ApiKey.VOTE], versions=Versions(0, 1))
        shake_hands(connection, all_versions({**APIS, ApiKey.VOTE: older}))
        header, _ = decode_request(connection.send(1, VoteRequest(cluster_id="c"), "me")[4:])
        assert header.request_api_version == 1

    def test_an_api_that_the_peer_lacks_fails_alone(self):
        connection = client()
        connection.send(1, VoteRequest(), "me")
        connection.send(2, FetchRequest(), "me")
        outcomes, released = shake_hands(connection, all_versions({1: APIS[1], 18: APIS[18]}))
        [failed] = outcomes
        assert isinstance(failed, Failed)
        assert (failed.token, failed.cause) == (1, Cause.UNSUPPORTED_VERSION)
        assert decode_request(released[4:])[0].request_api_key == ApiKey.FETCH
        with pytest.raises(EncodeError, match="Vote"):
            connection.send(3, VoteRequest(), "me")

    @pytest.mark.parametrize("theirs", [(3, 9), (-4, -1)])
    def test_an_api_without_a_common_version(self, theirs: tuple[int, int]):
        connection = client()
        shake_hands(
            connection,
            ApiVersionsResponse(api_keys=[ApiVersion(api_key=52, min_version=theirs[0], max_version=theirs[1])]),
        )
        with pytest.raises(EncodeError, match="no version of Vote"):
            connection.send(3, VoteRequest(), "me")

    def test_retries_in_the_version_that_an_older_peer_names(self):
        """KIP-511: error 35 in the layout of version 0, naming what the peer knows."""
        connection = client()
        connection.send(1, VoteRequest(), "me")
        first, _ = decode_request(connection.begin("me")[4:])
        older = ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)]
        )
        outcomes, again = connection.feed(framed(encode_response(18, 0, first.correlation_id, older)))
        second, _ = decode_request(again[4:])
        assert (outcomes, second.request_api_version, second.client_id) == ([], 2, "me")
        _, released = connection.feed(framed(encode_response(18, 2, second.correlation_id, all_versions())))
        assert decode_request(released[4:])[0].request_api_key == ApiKey.VOTE
        assert connection.ready

    def test_a_peer_that_refuses_every_version_is_given_up(self):
        connection = client()
        header, _ = decode_request(connection.begin("me")[4:])
        refusal = ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=5)]
        )
        assert connection.feed(framed(encode_response(18, 0, header.correlation_id, refusal))) == ([], b"")
        assert connection.broken is not None

    def test_replies_carry_their_tokens_in_order(self):
        connection = client()
        shake_hands(connection, all_versions())
        asked = b"".join(connection.send(token, VoteRequest(), "me") for token in (10, 11, 12))
        peer = server()
        requests, _ = peer.feed(asked)
        answers = b"".join(peer.answer(request, VoteResponse(error_code=request.sequence)) for request in requests)
        outcomes, _ = connection.feed(answers)
        replies: list[Any] = outcomes
        assert [(reply.token, reply.message.error_code) for reply in replies] == [(10, 0), (11, 1), (12, 2)]
        assert connection.unanswered == 0

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (encode_response(52, 2, 77, VoteResponse()), "correlation id 77"),
            (encode_response(52, 2, 1, VoteResponse())[:-1], "VoteResponse"),
            (b"", "0 bytes"),
        ],
    )
    def test_an_invalid_response_breaks_the_connection(self, answer: bytes, reason: str):
        connection = client()
        shake_hands(connection, all_versions())
        connection.send(5, VoteRequest(), "me")
        assert connection.feed(framed(answer)) == ([], b"")
        assert connection.broken is not None
        assert reason in connection.broken
        assert connection.lost(Cause.BAD_BYTES, "x") == [Failed(5, Cause.BAD_BYTES, "x")]

    def test_an_unsolicited_response_breaks_the_connection(self):
        connection = client()
        shake_hands(connection, all_versions())
        connection.feed(framed(encode_response(52, 2, 1, VoteResponse())))
        assert connection.broken == "an answer arrived without a request"

    def test_a_lost_connection_fails_everything_once_oldest_first(self):
        connection = client()
        connection.send(1, VoteRequest(), "me")
        connection.send(2, VoteRequest(), "me")
        connection.begin("me")
        tokens = [failed.token for failed in connection.lost(Cause.RESET, "gone")]
        assert tokens == [1, 2]
        assert connection.lost(Cause.RESET, "gone") == []

    @given(data=st.binary(max_size=200))
    def test_random_bytes_never_raise(self, data: bytes):
        for connection in (client(), client()):
            connection.begin("me")
            connection.send(1, VoteRequest(), "me")
            connection.feed(data)
            connection.feed(framed(bytes(4) + data))


def test_client_and_server_exchange_frames_in_any_slicing():
    asking, serving = client(), server()
    requests: list[Request] = []
    to_server, to_client = asking.begin("me"), b""
    for token in range(20):
        to_server += asking.send(token, VoteRequest(cluster_id=str(token)), "me")
    tokens: list[int] = []
    while to_server or to_client or requests:
        received, to_send = serving.feed(to_server[:7])
        to_server, to_client = to_server[7:], to_client + to_send
        requests += received
        if requests:
            request = requests.pop()
            answer = all_versions() if request.api_key == ApiKey.API_VERSIONS else VoteResponse()
            to_client += serving.answer(request, answer)
        outcomes, to_send = asking.feed(to_client[:5])
        to_client, to_server = to_client[5:], to_server + to_send
        tokens += [outcome.token for outcome in outcomes]
    assert tokens == list(range(20))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [(ApiKey.VOTE, 0), (ApiKey.VOTE, 2), (ApiKey.FETCH, 17), (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0)]
            ),
            st.integers(-(2**31), 2**31 - 1),
            st.sampled_from([None, "", "a", "ab", "raft-client-1"]),
        ),
        max_size=12,
    )
)
def test_repeated_headers_are_decoded_like_any_other(sent: list[tuple[tuple[int, int], int, str | None]]):
    connection = server()
    for (api_key, version), correlation_id, client_id in sent:
        frame = encode_request(api_key, version, correlation_id, client_id, APIS[api_key].request())
        header, message = decode_request(frame)
        requests, released = connection.feed(framed(frame))
        assert (connection.broken, released, len(requests)) == (None, b"", 1)
        read = requests[0]
        assert (read.api_key, read.version, read.correlation_id, read.client_id, read.message) == (
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
            header.client_id,
            message,
        )
        connection.answer(read, APIS[api_key].response())


def test_a_shared_response_is_encoded_for_each_connection() -> None:
    """The encoded answer is kept from one connection to the next; version and correlation id are each request's own."""
    answer, other = VoteResponse(error_code=1), VoteResponse(error_code=2)
    for version, correlation_id, message in (
        (2, 1, answer),
        (2, 2, answer),
        (0, 3, answer),
        (2, 4, other),
        (2, 5, answer),
    ):
        frame = encode_response(ApiKey.VOTE, version, correlation_id, message)
        header, decoded = decode_response(ApiKey.VOTE, version, frame)
        assert (header.correlation_id, decoded) == (correlation_id, message)


class TestMemory:
    """What a connection keeps is what it counts, also of a client that gives itself a very long name."""

    CONNECTIONS = 20
    NAME = "n" * 30_000
    ITSELF = 4096
    """The bytes of a connection without a request, which nobody counts."""

    def held(self, *, is_answered: bool) -> tuple[int, int]:
        """The bytes that connections count, and those that they keep."""
        frames = [
            framed(encode_request(ApiKey.CREATE_TOPICS, 7, number, self.NAME, CreateTopicsRequest()))
            for number in range(self.CONNECTIONS)
        ]
        for_caches = server()
        for_caches.feed(frames[0])
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            connections = [server() for _ in frames]
            open_requests = []
            for connection, frame in zip(connections, frames, strict=True):
                requests, _ = connection.feed(frame)
                while not requests and connection.is_reading:
                    requests, _ = connection.read_on()
                [request] = requests
                requests.clear()
                open_requests.append((connection, request))
                del request
            if is_answered:
                while open_requests:
                    connection, request = open_requests.pop()
                    connection.answer(request, CreateTopicsResponse())
                    del connection, request
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return sum(connection.held_bytes for connection in connections), after - before

    def test_an_unanswered_request_counts_what_is_kept_of_it(self):
        counted, kept = self.held(is_answered=False)
        assert counted / 2 <= kept <= counted + self.CONNECTIONS * self.ITSELF

    def test_nothing_is_kept_of_an_answered_request(self):
        counted, kept = self.held(is_answered=True)
        assert counted == 0
        assert kept <= self.CONNECTIONS * self.ITSELF
