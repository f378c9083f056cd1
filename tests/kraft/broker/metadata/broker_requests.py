"""Requests to the metadata APIs of a broker, as a connection delivers them, and an image to answer them from."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from kraft.broker.requests import Requests
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataSettings, ReplicaManager
from kraft.wire import Answer, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.replay_log import replay
from metadata_log.reading.timeline import At
from metadata_log.serde import Message
from support.broker.request_brokers import due_of
from support.real_data import archive, json_lines
from transport.protocol.broker_listener import AT_BROKERS
from transport.protocol.headers import decode_request, decode_response

RECORDED = "broker_metadata"
"""The metadata log of a Kafka 4.3.1 cluster, and what one of its brokers answered while the log was written."""
CLUSTER_ID = "XO-P46ilIL7-8UjP1bEZHg"


@cache
def image_at(time_ms: int) -> MetadataImage:
    """The recorded cluster at a time."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "__cluster_metadata-0" / f"{0:020d}.log"
        log.parent.mkdir()
        log.write_bytes(archive(RECORDED)[f"__cluster_metadata-0/{log.name}"])
        return replay(str(log.parent), At(timestamp_ms=time_ms))


def probes(api: str) -> list[dict[str, Any]]:
    """The recorded exchanges of an API that Kafka answered."""
    return [one for one in json_lines(RECORDED, f"{api}.jsonl") if "response_hex" in one]


def exchange(probe: dict[str, Any]) -> tuple[WireRequest, Message]:
    """The request of a probe, and Kafka's answer."""
    header, message = decode_request(bytes.fromhex(probe["request_hex"]), apis=AT_BROKERS)
    key, version = header.request_api_key, header.request_api_version
    _, answer = decode_response(key, version, bytes.fromhex(probe["response_hex"]), apis=AT_BROKERS)
    return asked(message, version, key), answer


def asked(message: Message, version: int, api_key: int, request_id: int = 1) -> WireRequest:
    return WireRequest(
        request_id=request_id,
        api_key=api_key,
        version=version,
        message=message,
        listener="PLAINTEXT",
        client_id="probe",
        peer="127.0.0.1:4711",
    )


def new_requests(**settings: Any) -> Requests:
    known: dict[str, Any] = {"broker_id": 101, "cluster_id": CLUSTER_ID, "auto_create_topics": False} | settings
    return Requests(no_replicas(), RequestSettings(**known), Random(7))


def no_replicas() -> ReplicaManager:
    """The replicas of a broker that has none."""
    return ReplicaManager(MemoryDisk(), DataSettings(broker_id=101, directories=()))


def answer_to(requests: Requests, request: WireRequest, image: MetadataImage, now_ms: int = 0) -> Message:
    """The whole answer to one request, however many turns it takes."""
    answer = requests.on_request(request, image, now_ms)
    while answer is None:
        now_ms += 1
        answers = [one for one in due_of(requests, now_ms) if isinstance(one, Answer)]
        answer = answers[0] if answers else None
    assert isinstance(answer, Answer)
    assert answer.request_id == request.request_id
    return answer.message
