"""Requests of client telemetry with right and wrong fields, and connections on which both makes of brokers get them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from metadata_log.compression import Compression, deflate
from metadata_log.serde import Message, schema_of
from metadata_log.types import Uuid
from support.telemetry import a_sum, payload
from support.wire import ANSWER_SECONDS, framed
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from transport.protocol.messages.api_versions import ApiVersionsRequest

MAX_BYTES: Final = 10_000
SUBSCRIPTIONS: Final[dict[str, dict[str, str]]] = {
    "every": {"metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.,x.y.,z.,a,b,Aa,BB"},
    "software": {"metrics": "soft.", "match": "client_software_name=lib.*,client_software_version=1\\.2"},
    "unknown": {"metrics": "unknown.", "match": "client_software_name=unknown,client_software_version=unknown"},
    "address": {"metrics": "address.", "match": "client_source_address=127.0.0.1,client_source_port=[0-9]+"},
    "client": {"metrics": "client.", "match": "client_id=named"},
    "part": {"metrics": "part.", "match": "client_id=name"},
    "instance": {"metrics": "instance.", "match": "client_instance_id=AQM.*"},
    "all": {"metrics": "*", "match": "client_id=all", "interval.ms": "1000"},
    "quick": {"metrics": "quick.", "match": "client_id=quick", "interval.ms": "100"},
    "slow": {"metrics": "slow.", "match": "client_id=slow", "interval.ms": "3600000"},
    "nothing": {"interval.ms": "200000", "match": "client_id=nothing"},
}
TOLD: Final = {*SUBSCRIPTIONS["every"]["metrics"].split(","), "unknown.", "address."}
"""What a client is told without a name or a software of its own."""
GOOD: Final = payload(a_sum("org.apache.kafka.producer.x", 1, AGGREGATION_TEMPORALITY_DELTA)).SerializeToString()
ONE: Final = Uuid.METADATA_TOPIC
LEARNER: Final = Uuid(b"\2" * 16)
"""The client that asks for what `learned` tells; no other request is its, as one that asks again is throttled."""
LAST: Final = ("nothing", 200_000)
"""The client of the subscription that is made last, and its interval: who is told this is told of all others."""


class Talk:
    """A connection on which one request follows the answer to the one before."""

    def __init__(self, port: int, client_id: str | None = "c") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._client_id = client_id
        self._reader = FrameReader()

    def __call__(self, message: Message, version: int = 0) -> Any:
        """The answer; None if the connection ends instead."""
        key = schema_of(type(message)).api_key
        assert key is not None
        frame = self.raw(encode_request(key, version, 7, self._client_id, message, apis=ALL_APIS))
        return None if frame is None else decode_response(key, version, frame, apis=ALL_APIS)[1]

    def raw(self, content: bytes) -> bytes | None:
        """The frame that answers this one; None if the connection ends instead."""
        try:
            self._socket.sendall(framed(content))
            while data := self._socket.recv(1 << 16):
                if frames := self._reader.feed(data):
                    return frames[0]
        except (ConnectionResetError, BrokenPipeError):
            pass
        return None

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def told(answer: Any) -> Any:
    """An answer as it is compared: an id that the broker has drawn is none."""
    if isinstance(answer, GetTelemetrySubscriptionsResponse):
        return {name: getattr(answer, name) for name in answer.__struct_fields__ if name != "throttle_time_ms"}
    return None if answer is None else Error(answer.error_code).name


def _id(number: int) -> Uuid:
    return Uuid(bytes((1, number)) * 8)


def _hash(client_id: Uuid) -> int:
    """`Uuid.hashCode` of Kafka."""
    mixed = int.from_bytes(client_id[:8], "big") ^ int.from_bytes(client_id[8:], "big")
    return mixed >> 32 ^ mixed & 0xFFFF_FFFF


def learned(port: int) -> int:
    """The part of the id of a subscription that is the same for all clients without a name of their own."""
    connection = Talk(port)
    answer = connection(GetTelemetrySubscriptionsRequest(client_instance_id=LEARNER))
    connection.close()
    assert set(answer.requested_metrics) == TOLD
    return answer.subscription_id & 0xFFFF_FFFF ^ _hash(LEARNER)


def _push(common: int, client_id: Uuid, metrics: bytes = GOOD, **fields: Any) -> PushTelemetryRequest:
    subscription_id = common ^ _hash(client_id)
    usual = {"subscription_id": subscription_id - (subscription_id >> 31 << 32)}
    return PushTelemetryRequest(client_instance_id=client_id, metrics=metrics, **{**usual, **fields})


def _packed(codec: Compression, data: bytes) -> dict[str, Any]:
    return {"metrics": deflate(codec, data), "compression_type": int(codec)}


def pushes(common: int) -> Iterator[tuple[str, list[PushTelemetryRequest]]]:
    """Pushes of one client after the other, each on a connection of its own."""
    number = iter(range(10, 250))

    def one(name: str, *fields: dict[str, Any]) -> tuple[str, list[PushTelemetryRequest]]:
        client_id = _id(next(number))
        return name, [_push(common, client_id, **each) for each in fields]

    yield "without an id", [_push(common, Uuid.ZERO)]
    yield "with a reserved id", [_push(common, ONE)]
    yield one("as it should be", {})
    yield one("with nothing", {"metrics": b""})
    yield one("with a subscription that is none", {"subscription_id": 5}, {}, {"subscription_id": 0})
    yield one("at once again", {}, {}, {"terminating": True}, {}, {})
    yield one("the last one first", {"terminating": True}, {"terminating": True}, {})
    yield one("the last one of no subscription", {"terminating": True, "subscription_id": 9}, {})
    yield one("the last one with too much", {"terminating": True, "metrics": bytes(MAX_BYTES + 1)}, {})
    for codec in Compression:
        yield one(f"{codec.name} as it should be", _packed(codec, GOOD))
        yield one(f"{codec.name} of no metrics", _packed(codec, b"\xff\xff\xff"))
        yield one(f"{codec.name} of as much as fits", _packed(codec, GOOD + bytes((0x82, 1, 0)) * 30))
        if codec is not Compression.NONE:
            yield one(f"{codec.name} of too much", _packed(codec, bytes(MAX_BYTES + 1)))
            yield one(f"{codec.name} of much too much", _packed(codec, bytes(1 << 20)))
            yield one(f"{codec.name} that is none", {"compression_type": int(codec), "metrics": b"\xf1garbage"})
            yield one(f"{codec.name} that is cut", {**_packed(codec, GOOD), "metrics": deflate(codec, GOOD * 9)[:-7]})
            yield one(f"{codec.name} with nothing", {"compression_type": int(codec), "metrics": b""})
    for unknown in (5, 6, 127, -1, -128):
        yield one(f"with the codec {unknown}", {"compression_type": unknown}, {})
        yield one(f"with the codec {unknown} and nothing", {"compression_type": unknown, "metrics": b""})
    yield one("as much as there may be, and no metrics", {"metrics": b"\xff" * MAX_BYTES}, {})
    yield one("one byte too much", {"metrics": bytes(MAX_BYTES + 1)}, {})
    yield one("too much of an unknown codec", {"metrics": bytes(MAX_BYTES + 1), "compression_type": 9})
    yield one("too much of no subscription", {"metrics": bytes(MAX_BYTES + 1), "subscription_id": 9})
    yield one("an unknown codec of no subscription", {"compression_type": 9, "subscription_id": 9})
    yield one("a message that is cut", {"metrics": GOOD[:-1]})
    yield one("a field with the number 0", {"metrics": b"\x02\x00"})
    yield one("a group without an end", {"metrics": b"\x0b"})
    yield one("a name that is no UTF-8", {"metrics": GOOD.replace(b"producer", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8")})
    yield one("an unknown field", {"metrics": GOOD + b"\x98\x06\x01"})


def gets(port: int, common: int) -> dict[str, Any]:
    """What clients of different names and software are told, and what they are told if they ask again."""
    found: dict[str, Any] = {}

    def talk(name: str, client_id: str | None, *steps: Message) -> None:
        connection = Talk(port, client_id)
        for number, step in enumerate(steps):
            version = 3 if isinstance(step, ApiVersionsRequest) else 0
            answer = connection(step, version)
            if isinstance(step, ApiVersionsRequest):
                continue
            shown = told(answer)
            if isinstance(step, GetTelemetrySubscriptionsRequest) and step.client_instance_id == Uuid.ZERO:
                assert answer is not None
                assert Uuid.ZERO != answer.client_instance_id != ONE
                del shown["client_instance_id"], shown["subscription_id"]
            found[f"{name}, {number}"] = shown
        connection.close()

    def get(number: int) -> GetTelemetrySubscriptionsRequest:
        return GetTelemetrySubscriptionsRequest(client_instance_id=_id(number))

    zero = GetTelemetrySubscriptionsRequest()
    software = ApiVersionsRequest(client_software_name="library", client_software_version="1.2")
    bad = ApiVersionsRequest(client_software_name="library!", client_software_version="1.2")
    talk("without an id", "c", zero, zero)
    talk("with a reserved id", "c", GetTelemetrySubscriptionsRequest(client_instance_id=ONE))
    talk("without a name", None, get(1), get(1))
    talk("with an empty name", "", get(2))
    talk("by its software", "c", software, get(3))
    talk("with a software that is none", "c", bad, get(4))
    talk("by its name", "named", get(5))
    talk("of all metrics", "all", get(6))
    talk("quickly", "quick", get(7))
    talk("slowly", "slow", get(8), get(8))
    talk("of nothing", "nothing", get(9))
    talk("after a push", "c", _push(common, _id(250)), get(250), get(250), _push(common, _id(250)))
    talk("after a push of no subscription", "c", _push(common, _id(251), subscription_id=9), get(251), get(251))
    talk("after an unknown codec", "c", _push(common, _id(252), compression_type=9), get(252), get(252))
    talk("after what is no metrics", "c", _push(common, _id(253), metrics=b"\xff"), get(253))
    talk("after too much", "c", _push(common, _id(254), metrics=bytes(MAX_BYTES + 1)), get(254))
    talk("after the last push", "c", _push(common, _id(255), terminating=True), get(255), _push(common, _id(255)))
    return found
