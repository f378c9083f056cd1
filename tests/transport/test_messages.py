"""Headers, frames and the tables of the protocol, against frames captured between Apache Kafka's own nodes."""

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from metadata_log.errors import DecodeError, UnsupportedVersion
from metadata_log.serde import schema_of, to_json
from metadata_log.serde.declare import read_facts
from support.kafka_json import with_sizes
from transport.protocol import headers
from transport.protocol.apis import APIS, ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    RequestHeader,
    VoteRequest,
    VoteResponse,
)

DATA = Path(__file__).parents[1] / "data"
FACTS = read_facts([DATA / "schemas.json.gz"])
LIVING_APIS = [fact for fact in FACTS["apis.json"] if fact["oldest"] <= fact["latest"]]
CONTROLLER_APIS = [fact for fact in FACTS["apis.json"] if "controller" in fact["listeners"]]


def frames():
    with lzma.open(DATA / "golden" / "frames.jsonl.xz", "rt") as lines:
        return [json.loads(line) for line in lines]


def test_frames_between_real_nodes():
    """Every frame that was captured between nodes of Apache Kafka: read, shown as Kafka shows it, written back."""
    count = 0
    for line in frames():
        key, version, frame = line["api_key"], line["api_version"], bytes.fromhex(line["hex"])
        api = ALL_APIS[key]
        if version not in api.versions:
            assert (key, line["direction"]) in {(ApiKey.API_VERSIONS, "request"), (ApiKey.API_VERSIONS, "response")}
            continue
        if line["direction"] == "request":
            asked, body = headers.decode_request(frame, apis=ALL_APIS)
            assert to_json(asked, line["header_version"]) == line["header"]
            assert api.request_header_version(version) == line["header_version"]
            again = headers.encode_request(key, version, asked.correlation_id, asked.client_id, body, apis=ALL_APIS)
            number = asked.correlation_id
        else:
            answered, body = headers.decode_response(key, version, frame, apis=ALL_APIS)
            assert api.response_header_version(version) == line["header_version"]
            number = answered.correlation_id
            again = headers.encode_response(key, version, number, body, apis=ALL_APIS)
        assert again == frame
        assert number == line["correlation_id"]
        assert with_sizes(to_json(body, version)) == line["json"]
        count += 1
    assert count > 3600


def test_an_api_versions_exchange_beyond_our_versions():
    """Kafka answers a version that it does not have in version 0, with its own versions (KIP-511)."""
    found = [line for line in frames() if line["api_version"] not in ALL_APIS[line["api_key"]].versions]
    assert [line["direction"] for line in found].count("response") == 3
    for line in found:
        frame = bytes.fromhex(line["hex"])
        if line["direction"] == "request":
            header, _ = headers.decode_request_header(frame)
            assert header.request_api_version == line["api_version"]
        else:
            _, body = headers.decode_response(ApiKey.API_VERSIONS, 0, frame)
            assert isinstance(body, ApiVersionsResponse)
            assert body.error_code == Error.UNSUPPORTED_VERSION
            assert body.api_keys


@pytest.mark.parametrize("fact", LIVING_APIS, ids=lambda fact: fact["name"])
def test_api_table(fact):
    api = ALL_APIS[fact["api_key"]]
    assert (api.name, api.key.name) == (fact["name"], fact["enum"])
    assert (api.versions.lowest, api.versions.highest) == (fact["oldest"], fact["latest"])
    assert (api.stable.lowest, api.stable.highest) == (fact["oldest"], fact["latest_stable"])
    assert (api.forwardable, api.cluster_action) == (fact["forwardable"], fact["cluster_action"])
    assert list(api.listeners) == fact["listeners"]
    assert schema_of(api.request).api_key == schema_of(api.response).api_key == fact["api_key"]
    assert schema_of(api.request).versions == schema_of(api.response).versions == api.versions
    assert schema_of(api.request).flexible == api.flexible
    for version in range(fact["oldest"], fact["latest"] + 1):
        assert api.request_header_version(version) == fact["request_header_versions"][str(version)]
        assert api.response_header_version(version) == fact["response_header_versions"][str(version)]


def test_all_apis_of_a_controller_are_declared():
    assert list(APIS) == [fact["api_key"] for fact in CONTROLLER_APIS]
    assert len(APIS) == 42
    assert all(api.stable == api.versions for api in APIS.values()), "controllers answer all versions that are declared"
    assert list(ALL_APIS) == [fact["api_key"] for fact in LIVING_APIS] == [key.value for key in ApiKey]
    assert len(ALL_APIS) == 91


def test_importing_the_tables_imports_no_message():
    """A node should not pay for the declarations of messages that it never sends."""
    script = (
        "import sys; from transport.protocol.broker_apis import ALL_APIS; assert ALL_APIS[52].request.__name__;"
        "print(*(name for name in sys.modules if 'protocol.messages' in name))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["transport.protocol.messages", "transport.protocol.messages.vote"]


def test_the_header_of_a_newer_api_versions_request_is_decoded():
    """A newer client asks in a version we do not have, and must learn ours (KIP-511)."""
    frame = bytes.fromhex("0012006300000550000570726f62650000")
    header, position = headers.decode_request_header(frame)
    assert header == RequestHeader(18, 99, 0x550, "probe")
    assert position == 16
    with pytest.raises(UnsupportedVersion, match="ApiVersions has no version 99"):
        headers.decode_request(frame)


@pytest.mark.parametrize(
    ("key", "version", "what"), [(999, 0, "api key 999 is unknown"), (52, 9, "Vote has no version 9")]
)
def test_unknown_apis_and_versions(key, version, what):
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(20)
    with pytest.raises(UnsupportedVersion, match=what) as caught:
        headers.decode_request_header(frame, where="peer 2")
    assert caught.value.where == "peer 2"
    with pytest.raises(UnsupportedVersion, match=what):
        headers.encode_request(key, version, 1, None, VoteRequest())


@pytest.mark.parametrize("size", [0, 7, 8, 9, 12])
def test_short_frames(size):
    frame = headers.encode_request(ApiKey.VOTE, 2, 7, "a client", VoteRequest())
    with pytest.raises(DecodeError):
        headers.decode_request_header(frame[:size])


def test_trailing_bytes():
    with pytest.raises(DecodeError, match="trailing bytes"):
        headers.decode_request(headers.encode_request(18, 0, 7, None, ApiVersionsRequest()) + b"\0")
    with pytest.raises(DecodeError, match="trailing bytes"):
        headers.decode_response(52, 2, headers.encode_response(52, 2, 7, VoteResponse()) + b"\0")


def test_response_round_trip():
    frame = headers.encode_response(52, 1, 7, VoteResponse(error_code=Error.BROKER_NOT_AVAILABLE))
    header, body = headers.decode_response(52, 1, frame)
    assert (header.correlation_id, body) == (7, VoteResponse(error_code=8))


def test_errors():
    assert int(Error.NOT_LEADER_OR_FOLLOWER) == 6
    assert Error.NOT_LEADER_OR_FOLLOWER.message == "Not leader or follower."
    assert Error.NONE.message == ""
    assert Error.NOT_CONTROLLER.retriable
    assert not Error.INVALID_REQUEST.retriable
    assert Error.of(41) is Error.NOT_CONTROLLER
    assert Error.of(12345) is Error.UNKNOWN_SERVER_ERROR
    assert [(error.value, error.name) for error in Error] == [(e["code"], e["name"]) for e in FACTS["errors.json"]]
