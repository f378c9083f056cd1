"""What clients are asked to push, when they may, and which pushes are taken (`ClientMetricsManager`; KIP-714)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData

from kraft.broker.telemetry.handler import TelemetryHandler
from kraft.broker.telemetry.subscriptions import Wanted
from kraft.config.telemetry_settings import TelemetryConfig
from kraft.handling.orders import in_slot_order
from kraft.limits import SOFTWARE_NOTED, TELEMETRY_INSTANCES, TELEMETRY_SUBSCRIPTIONS
from kraft.wire import WireRequest
from metadata_log.compression import Compression, deflate
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.image.configs import ConfigsImage
from metadata_log.image.persistent_map import Map
from metadata_log.types import Uuid
from support.telemetry import a_sum, payload
from transport.protocol.errors import Error
from transport.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

ID = Uuid(bytes(range(16)))
BEGIN_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def image(**subscriptions: dict[str, str]) -> MetadataImage:
    by_resource = {(int(ResourceType.CLIENT_METRICS), name): Map(values) for name, values in subscriptions.items()}
    return MetadataImage(configs=ConfigsImage(Map(by_resource)))


ALL = image(all={"metrics": "*", "interval.ms": "1000"})


class Asking:
    """One broker's handler, and a clock."""

    def __init__(self, metadata: MetadataImage = ALL, max_bytes: int = 1 << 20) -> None:
        self.findings: list[str] = []
        self.handler = TelemetryHandler(TelemetryConfig(max_bytes=max_bytes), Random(1), self.findings.append)
        self.metadata = metadata
        self.now_ms = BEGIN_MS

    def get(self, client_id: Uuid = ID, client: str | None = "c", peer: str = "1.2.3.4:5") -> Any:
        message = GetTelemetrySubscriptionsRequest(client_instance_id=client_id)
        answer = self._finished(self.handler.get(self._wire(message, client, peer), self.metadata, self.now_ms))
        assert isinstance(answer, GetTelemetrySubscriptionsResponse)
        return answer

    def push(self, metrics: bytes = b"", client_id: Uuid = ID, **fields: Any) -> Error:
        told = {"subscription_id": Wanted(("*",), 1000).subscription_id(client_id), **fields}
        message = PushTelemetryRequest(client_instance_id=client_id, metrics=metrics, **told)
        answer = self._finished(self.handler.push(self._wire(message), self.metadata, self.now_ms))
        assert isinstance(answer, PushTelemetryResponse)
        return Error(answer.error_code)

    def shown(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (one.name, one.labels): one.value
            for client in self.handler.pushed.live(self.now_ms)
            for one in client.series.values()
        }

    @staticmethod
    def _wire(message: Any, client: str | None = "c", peer: str = "1.2.3.4:5") -> WireRequest[Any]:
        return WireRequest(
            request_id=1, api_key=71, version=0, message=message, listener="L", client_id=client, peer=peer
        )

    @staticmethod
    def _finished(steps: Any) -> Any:
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return done.value.message


def test_a_client_gets_an_id_and_is_told_what_to_push() -> None:
    asking = Asking()
    told = asking.get(Uuid.ZERO)
    assert told.error_code == Error.NONE
    assert told.client_instance_id != Uuid.ZERO
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.push_interval_ms, told.telemetry_max_bytes) == (1000, 1 << 20)
    assert told.delta_temporality
    assert told.requested_metrics == ["*"]
    assert told.subscription_id == Wanted(("*",), 1000).subscription_id(told.client_instance_id)


def test_without_a_subscription_nothing_is_asked_every_five_minutes() -> None:
    told = Asking(image()).get()
    assert (told.requested_metrics, told.push_interval_ms) == ([], 300_000)


def test_subscriptions_that_fit_are_taken_together() -> None:
    metadata = image(
        one={"metrics": "a.,b.", "interval.ms": "5000", "match": "client_id=c.*"},
        other={"metrics": "b.,c.", "interval.ms": "2000", "match": "client_software_name=rd,client_source_port=5"},
        none={"metrics": "d.", "interval.ms": "100", "match": "client_source_address=1\\.2\\.3\\.5"},
    )
    asking = Asking(metadata)
    asking.handler.on_software(("L", "1.2.3.4:5"), "rd", "2")
    told = asking.get()
    assert told.requested_metrics == in_slot_order(["a.", "b.", "c."])
    assert told.push_interval_ms == 2000
    assert asking.get(Uuid(b"1" * 16), peer="1.2.3.4:6").requested_metrics == in_slot_order(["a.", "b."])
    assert asking.get(Uuid(b"2" * 16), client=None, peer="1.2.3.5:7").requested_metrics == ["d."]


def test_all_metrics_stand_for_all_others() -> None:
    assert Asking(image(a={"metrics": "x."}, b={"metrics": "*"})).get().requested_metrics == ["*"]


def test_a_pattern_that_only_java_knows_matches_no_client_and_is_told() -> None:
    asking = Asking(image(a={"metrics": "x.", "match": "client_id=(?=c)c"}))
    assert asking.get().requested_metrics == []
    [finding] = asking.findings
    assert "'a'" in finding


def test_of_too_many_subscriptions_the_first_are_used() -> None:
    asking = Asking(image(**{f"s{number}": {"metrics": f"m{number}"} for number in range(TELEMETRY_SUBSCRIPTIONS + 1)}))
    assert len(asking.get().requested_metrics) == TELEMETRY_SUBSCRIPTIONS
    assert len(asking.findings) == 1


def test_questions_before_the_interval_is_over_are_too_early() -> None:
    asking = Asking()
    assert asking.get().error_code == Error.NONE
    asking.now_ms += 999
    early = asking.get()
    assert early == GetTelemetrySubscriptionsResponse(error_code=Error.THROTTLING_QUOTA_EXCEEDED)
    asking.now_ms += 1
    assert asking.get().error_code == Error.NONE
    assert asking.handler.counts.throttled == 1


def test_a_changed_subscription_may_be_asked_for_at_once() -> None:
    asking = Asking()
    first = asking.get()
    asking.metadata = image(all={"metrics": "*", "interval.ms": "2000"})
    second = asking.get()
    assert second.error_code == Error.NONE
    assert second.subscription_id != first.subscription_id
    asking.metadata = image(all={"metrics": "*", "interval.ms": "2000"})
    assert asking.get().error_code == Error.THROTTLING_QUOTA_EXCEEDED, "nothing has changed"


def test_a_push_follows_a_question_at_once_and_then_the_interval() -> None:
    asking = Asking()
    asking.get()
    asking.now_ms += 1
    assert asking.push() == Error.NONE
    asking.now_ms += 999
    assert asking.push() == Error.THROTTLING_QUOTA_EXCEEDED
    asking.now_ms += 1
    assert asking.push() == Error.NONE


def test_the_last_push_may_be_early_and_nothing_follows_it() -> None:
    asking = Asking()
    asking.get()
    assert asking.push() == Error.NONE
    assert asking.push() == Error.THROTTLING_QUOTA_EXCEEDED
    assert asking.push(terminating=True) == Error.NONE
    asking.now_ms += 1000
    assert asking.push() == Error.INVALID_REQUEST
    assert asking.push() == Error.NONE, "the refused one was not the last"


@pytest.mark.parametrize("reserved", [Uuid.ZERO, Uuid.METADATA_TOPIC])
def test_a_push_needs_an_id(reserved: Uuid) -> None:
    asking = Asking()
    assert asking.push(client_id=reserved) == Error.INVALID_REQUEST
    assert len(asking.handler.instances) == 0


def test_a_push_by_another_subscription_is_unknown_and_may_be_followed_by_a_question() -> None:
    asking = Asking()
    assert asking.push(subscription_id=7) == Error.UNKNOWN_SUBSCRIPTION_ID
    assert asking.get().error_code == Error.NONE
    assert asking.get().error_code == Error.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("codec", [-1, 5, 127])
def test_an_unknown_compression_is_refused_and_may_be_followed_by_a_question(codec: int) -> None:
    asking = Asking()
    assert asking.push(b"x", compression_type=codec) == Error.UNSUPPORTED_COMPRESSION_TYPE
    assert asking.get().error_code == Error.NONE


def test_a_push_is_bounded_compressed_and_uncompressed() -> None:
    asking = Asking(max_bytes=1000)
    assert asking.push(bytes(1001)) == Error.TELEMETRY_TOO_LARGE
    for codec in list(Compression)[1:]:
        asking.now_ms += 1000
        packed = deflate(codec, bytes(1001))
        assert len(packed) < 1000
        assert asking.push(packed, compression_type=codec) == Error.INVALID_RECORD
    assert asking.handler._unpacked_bytes == 0


@pytest.mark.parametrize("codec", list(Compression))
def test_pushed_numbers_are_kept_until_the_next_push(codec: Compression) -> None:
    asking = Asking()
    metric = a_sum("org.apache.kafka.producer.x.total", 3, AGGREGATION_TEMPORALITY_DELTA, topic="t")
    data = payload(metric, group_id="g").SerializeToString()
    for _ in range(2):
        assert asking.push(deflate(codec, data), compression_type=codec) == Error.NONE
        asking.now_ms += 1000
    [((name, labels), value)] = asking.shown().items()
    assert (name, labels, value) == ("org.apache.kafka.producer.x.total", (("group_id", "g"), ("topic", "t")), 6.0)
    assert asking.push(MetricsData().SerializeToString() or b"\x12\x00") == Error.NONE
    assert asking.shown() == {}


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.NONE, b"\xff\xff"),
        (Compression.NONE, b"\x0a\x05abc"),
        (Compression.NONE, b"\x0b"),
        (Compression.NONE, b"\x02\x00"),
        (Compression.NONE, b"\x0a\x04\x12\x02\x12\x7f"),
        (Compression.GZIP, b"not gzip"),
        (Compression.SNAPPY, b"\xff\xff\xff\xff\xff"),
        (Compression.LZ4, b"not lz4"),
        (Compression.ZSTD, b"not zstd"),
    ],
)
def test_what_is_no_metrics_is_an_invalid_record(codec: Compression, data: bytes) -> None:
    asking = Asking()
    assert asking.push(data, compression_type=codec) == Error.INVALID_RECORD
    assert asking.handler.counts.failed == 1
    assert asking.handler.pushed.series == 0


def test_a_client_is_forgotten_after_a_minute_or_three_intervals() -> None:
    asking = Asking()
    asking.get()
    asking.now_ms += MINUTE_MS - 1
    assert asking.handler.instances.live(asking.now_ms) == 1
    asking.now_ms += 1
    assert asking.handler.instances.live(asking.now_ms) == 0
    assert asking.handler.instances.get(ID, asking.now_ms) is None
    slow = Asking(image(a={"metrics": "*", "interval.ms": "200000"}))
    slow.get()
    slow.now_ms += 3 * 200_000 - 1
    assert slow.handler.instances.live(slow.now_ms) == 1


def test_a_client_is_forgotten_with_its_connection() -> None:
    asking = Asking()
    asking.handler.on_software(("L", "1.2.3.4:5"), "rd", "2")
    asking.get()
    asking.handler.on_closed(("L", "1.2.3.4:5"))
    assert len(asking.handler.instances) == 0
    assert asking.get().error_code == Error.NONE


def test_only_so_many_clients_are_known() -> None:
    asking = Asking()
    for number in range(TELEMETRY_INSTANCES + 5):
        asking.handler.on_software(("L", f"1.2.3.4:{number}"), "rd", "2")
        asking.get(Uuid(number.to_bytes(16, "big")), peer=f"1.2.3.4:{number}")
    assert len(asking.handler.instances) == TELEMETRY_INSTANCES
    assert len(asking.handler.instances._of_connection) == TELEMETRY_INSTANCES
    assert len(asking.handler._software) == SOFTWARE_NOTED
    first = Uuid((6).to_bytes(16, "big"))
    assert first in list(asking.handler.instances)


def test_the_longest_interval_is_the_one_without_a_subscription() -> None:
    assert Asking(image(a={"metrics": "*", "interval.ms": "600000"})).get().push_interval_ms == 300_000


def test_the_order_of_names_is_that_of_a_java_hash_set() -> None:
    """As Java 17 prints a `HashSet` to which these were added one after the other."""
    names = ["org.apache.kafka.producer.", "org.apache.kafka.consumer.", "a", "b", "zz", "Aa", "BB"]
    assert in_slot_order(names) == [
        "org.apache.kafka.producer.",
        "zz",
        "Aa",
        "BB",
        "a",
        "org.apache.kafka.consumer.",
        "b",
    ]
    assert in_slot_order([f"n{number}" for number in range(14)]) == [
        f"n{number}" for number in (*range(11), 12, 11, 13)
    ]


def test_the_id_of_a_subscription_is_kafkas() -> None:
    """As Kafka 4.4.0 computes it with `Crc32C` and `Uuid.hashCode`."""
    assert Wanted(("*",), 1000).subscription_id(ID) == 848016057
