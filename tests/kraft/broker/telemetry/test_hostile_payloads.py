"""What strangers push costs no long turn and little memory, and leaves a page that Prometheus can read."""

from __future__ import annotations

import gc
import math
import re
import tracemalloc
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any, Final

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.telemetry.payload import BadPayload, Points, TooManyMetrics, points_of, prometheus_word
from kraft.broker.telemetry.pushed import PushedTable
from kraft.limits import (
    TELEMETRY_LABELS,
    TELEMETRY_SERIES,
    TELEMETRY_SERIES_BYTES,
    TELEMETRY_SERIES_OF_CLIENT,
    TURN_MS,
)
from kraft.metrics.exposition import texts_of
from kraft.metrics.telemetry import client_families
from metadata_log.types import Uuid
from support.telemetry import a_gauge, a_sum, payload

ID: Final = Uuid(b"1" * 16)
OURS: Final = (("client_instance_id", str(ID)), ("client_id", "c"))
STEP_S: Final = TURN_MS / 1000
"""As long as a turn, which has twenty steps and more: the memory of the process is traced meanwhile."""
MIB: Final = 1 << 20


def finished(steps: Any, longest_s: float = STEP_S) -> Any:
    """The result of some steps, none of which took long."""
    while True:
        began = process_time()
        try:
            next(steps)
        except StopIteration as done:
            return done.value
        assert process_time() - began < longest_s


def read(data: bytes) -> Points:
    points: Points = finished(points_of(data))
    return points


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def of_one_scope(metrics: bytes) -> bytes:
    return field(1, field(2, metrics))


def nested(depth: int) -> bytes:
    value = AnyValue(string_value="x").SerializeToString()
    for _ in range(depth):
        value = field(5, field(1, value))  # AnyValue.array_value, ArrayValue.values
    attribute = field(1, b"k") + field(2, value)
    return of_one_scope(field(2, field(1, b"m") + field(5, field(1, field(7, attribute) + b"\x21" + bytes(8)))))


BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    "half a million empty resources": lambda: field(1, b"") * (MIB // 2),
    "half a million empty scopes": lambda: field(1, field(2, b"") * (MIB // 2)),
    "half a million empty metrics": lambda: of_one_scope(field(2, b"") * (MIB // 2)),
    "half a million empty points": lambda: of_one_scope(
        field(2, field(1, b"m") + field(5, field(1, b"") * (MIB // 2)))
    ),
    "points up to the bound of a metric": lambda: of_one_scope(
        field(2, field(1, b"m") + field(5, field(1, b"") * 32_000)) * 16
    ),
    "attributes up to the bound of a metric": lambda: of_one_scope(
        field(2, field(1, b"m") + field(5, field(1, field(7, b"") * 32_000))) * 16
    ),
    "unknown fields": lambda: b"\x98\x06\x01" * (MIB // 3),
    "a long text": lambda: of_one_scope(field(2, field(1, b"m" * MIB))),
    "deep values": lambda: nested(20_000),
    "buckets": lambda: payload(
        Metric(name="h", histogram=Histogram(data_points=[HistogramDataPoint(bucket_counts=range(8000))]))
    ).SerializeToString(),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_takes_little_time_and_memory(bomb: str) -> None:
    data = BOMBS[bomb]()
    read(payload(a_gauge("warm", 1)).SerializeToString())
    gc.collect()
    gc.disable()  # as in a node that serves, where no full collection takes part in a turn
    tracemalloc.start()
    began = perf_counter()
    try:
        points = read(data)
    except (BadPayload, TooManyMetrics):
        points = Points()
    finally:
        gc.enable()
        took = perf_counter() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert points.found == []
    assert peak < 8 * MIB
    assert took < 20


def test_more_points_than_a_client_may_have_are_left_out() -> None:
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)] * 1000))
    points = read(payload(*[metric] * (TELEMETRY_SERIES_OF_CLIENT // 1000 + 1)).SerializeToString())
    assert len(points.found) == TELEMETRY_SERIES_OF_CLIENT
    assert points.left_out == 1000


def test_a_number_with_too_many_labels_is_left_out() -> None:
    many = {f"l{number}": "v" for number in range(TELEMETRY_LABELS + 1)}
    points = read(payload(a_gauge("m", 1, **many), a_gauge("n", 2)).SerializeToString())
    assert [one.name for one in points.found] == ["n"]
    assert points.left_out == 1


def test_what_is_no_number_is_left_out() -> None:
    empty = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint()]))
    points = read(payload(empty, Metric(name="n"), a_gauge("", 1), a_gauge("x" * 201, 1)).SerializeToString())
    assert (points.found, points.left_out) == ([], 4)


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80"])
def test_a_name_that_is_no_utf_8_is_refused(text: bytes) -> None:
    with pytest.raises(BadPayload):
        read(of_one_scope(field(2, field(1, text) + field(5, field(1, b"\x21" + bytes(8))))))


def test_labels_are_texts_or_numbers() -> None:
    values = [
        AnyValue(string_value="s"),
        AnyValue(bool_value=True),
        AnyValue(int_value=-5),
        AnyValue(double_value=0.5),
        AnyValue(bytes_value=b"x"),
        AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)])),
        AnyValue(),
    ]
    attributes = [KeyValue(key=f"k{number}", value=value) for number, value in enumerate(values)]
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=1, attributes=attributes)]))
    [point] = read(payload(metric).SerializeToString()).found
    assert point.labels == (("k0", "s"), ("k1", "true"), ("k2", "-5"), ("k3", "0.5"))


# The page

EVIL: Final = (
    'org.apache.kafka.x"} 1\nkraft_ready 0',
    "kraft_ready",
    "process_cpu_seconds_total",
    "org.apache.kafka.\N{SNOWMAN}\N{PILE OF POO}",
    "\x00\r\x1b[2J",
    "org.apache.kafka.a.total",
    "org.apache.kafka.a_total",
    "0",
    "{}",
    "# TYPE",
)
LABEL_KEYS: Final = ("client_instance_id", "client.id", "__name__", "le", "0", "a b", "a.b", "\N{SNOWMAN}", 'x="')


def page(table: PushedTable) -> str:
    return b"".join(texts_of(finished(client_families(table, 0), TURN_MS / 1000))).decode()


def pushed(*metrics: Metric, client_id: Uuid = ID, table: PushedTable | None = None, **labels: str) -> PushedTable:
    table = PushedTable() if table is None else table
    table.put(client_id, OURS, read(payload(*metrics, **labels).SerializeToString()).found, 1)
    return table


def test_the_page_stays_one_that_prometheus_reads() -> None:
    metrics = []
    for number, name in enumerate(EVIL):
        for key in LABEL_KEYS:
            labels = {key: EVIL[number - 1]}
            metrics.append(a_gauge(name, number, **labels))
            metrics.append(a_sum(name, number, AGGREGATION_TEMPORALITY_CUMULATIVE, **labels))
    text = page(pushed(*metrics))
    assert re.search(r"[\x00-\x09\x0b-\x1f]", text) is None
    families = list(text_string_to_metric_families(text))
    types = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(types) == len(set(types))
    for family in families:
        assert family.name.startswith(("org_apache_kafka_", "client_", "kraft_client_telemetry_")), family.name
        for sample in family.samples:
            if family.name != "kraft_client_telemetry_clashes":
                assert sample.labels["client_instance_id"] == str(ID)
                assert sample.labels["client_id"] == "c"
            assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", key) for key in sample.labels)
            assert all(not key.startswith("__") for key in sample.labels)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324])
def test_any_number_is_shown_as_it_is(value: float) -> None:
    text = page(pushed(a_gauge("org.apache.kafka.x", value)))
    [sample] = [
        one for family in text_string_to_metric_families(text) for one in family.samples if one.name.endswith("kafka_x")
    ]
    assert math.isnan(sample.value) if math.isnan(value) else sample.value == value


def test_a_counter_is_the_sum_of_what_was_pushed() -> None:
    table = PushedTable()
    for growth in (3, 0, 4):
        pushed(a_sum("org.apache.kafka.x", growth, AGGREGATION_TEMPORALITY_DELTA), table=table)
    assert "\norg_apache_kafka_x_total{" in page(table)
    assert page(table).count(" 7.0\n") == 1
    pushed(a_sum("org.apache.kafka.x", 5, AGGREGATION_TEMPORALITY_CUMULATIVE), table=table)
    assert page(table).count(" 5.0\n") == 1


def test_of_two_types_of_one_name_the_first_is_shown() -> None:
    other = Uuid(b"2" * 16)
    table = pushed(a_sum("org.apache.kafka.x", 5, AGGREGATION_TEMPORALITY_CUMULATIVE))
    pushed(a_gauge("org.apache.kafka.x.total", 6), client_id=other, table=table)
    text = page(table)
    assert "kraft_client_telemetry_clashes 1.0" in text
    assert text.count("# TYPE org_apache_kafka_x_total ") == 1


def test_clients_that_have_pushed_longest_ago_give_way() -> None:
    table = PushedTable()
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)]))
    wide = [a_gauge(f"m{number}", 1) for number in range(TELEMETRY_SERIES // 4)]
    for number in range(6):
        pushed(*wide, client_id=Uuid(bytes((number,)) * 16), table=table)
    assert table.series == TELEMETRY_SERIES
    for number in range(100, 110):
        pushed(metric, client_id=Uuid(bytes((number,)) * 16), table=table)
    assert table.series <= TELEMETRY_SERIES
    assert table._bytes <= TELEMETRY_SERIES_BYTES
    assert table.live(2) == []
    assert (table.series, table._bytes) == (0, 0)


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """No search for garbage among the objects of all tests: a node has frozen its own (`kraft.node.gc_freeze`)."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
def test_a_full_table_is_shown_in_short_steps() -> None:
    table = PushedTable()
    for number in range(4):
        wide = [a_gauge(f"m{each}", 1, topic="t") for each in range(TELEMETRY_SERIES // 4)]
        table.put(
            Uuid(bytes((number,)) * 16),
            (("client_id", str(number)),),
            read(payload(*wide).SerializeToString()).found,
            1,
        )
    assert page(table).count("client_m") >= TELEMETRY_SERIES


@pytest.mark.parametrize(("name", "word"), [("a.b", "a_b"), ("0a", "_0a"), ("__a", "a"), ("__", "_"), ("é", "_")])
def test_labels_have_the_characters_of_prometheus(name: str, word: str) -> None:
    assert prometheus_word(name) == word
