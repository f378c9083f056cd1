"""The settings of a broker with data are parsed once, with the configuration, as Kafka parses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest
from msgspec import Struct

from kraft.config import Config
from kraft.config.data_settings import RACK_AWARE
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import DataSettings
from kraft.partitions.replicas.topic_settings import topic_settings
from metadata_log.image import ConfigsImage, ResourceType
from metadata_log.image.configs import replay_config
from metadata_log.records.metadata import ConfigRecord
from support import ROOT

BROKER: Final = """process.roles=broker
node.id=1
controller.quorum.voters=100@localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
"""


def data_of(line: str) -> tuple[Struct, ...]:
    """The settings of a broker with one more line."""
    config = Config.parse(f"{BROKER}{line}\n")
    data = config.of(DataSettings, broker_id=1, directories=())
    return data.cleaner, data, config.of(RequestSettings, broker_id=1)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("log.cleaner.enable= FALSE\t", "has_cleaner", False),
        ("log.cleaner.dedupe.buffer.size=+04194304", "buffer_bytes", 4 << 20),
        ("log.cleaner.io.buffer.load.factor=0.7d", "load_factor", 0.7),
        ("log.cleaner.io.buffer.load.factor=.5F", "load_factor", 0.5),
        ("log.cleaner.backoff.ms= 15 ", "cleaner_backoff_ms", 15),
        ("log.flush.scheduler.interval.ms=7", "flush_check_ms", 7),
        ("replica.alter.log.dirs.io.max.bytes.per.second=9", "move_bytes_per_second", 9),
        ("transaction.partition.verification.enable=False ", "verifies_transactions", False),
        ("quota.window.num=+7", "quota_samples", 7),
        (f"replica.selector.class= {RACK_AWARE} ", "prefers_rack_of_client", True),
        ("replica.selector.class=", "prefers_rack_of_client", False),
    ],
)
def test_a_value_is_read_as_kafka_reads_it(line: str, field: str, value: object) -> None:
    assert [getattr(one, field) for one in data_of(line) if hasattr(one, field)] == [value]


def test_a_controller_reads_none_of_them() -> None:
    text = BROKER.replace("roles=broker", "roles=controller").replace("node.id=1\n", "node.id=100\n")
    text = text.replace("PLAINTEXT://localhost:9092", "CONTROLLER://localhost:9093")
    assert Config.parse(f"{text}replica.selector.class=org.example.Selector\n").is_controller


@pytest.mark.parametrize(("text", "ratio"), [("0.25d", 0.25), (" 0.25 ", 0.25), ("half", 0.5)])
def test_a_topics_ratio_is_read_as_kafka_reads_it(text: str, ratio: float) -> None:
    record = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="t", name="min.cleanable.dirty.ratio", value=text
    )
    assert topic_settings("t", replay_config(ConfigsImage(), record), 1, {}).log.min_dirty_ratio == ratio


def parsed_settings(tree: ast.AST) -> Iterator[ast.expr]:
    """The places where a text out of a mapping becomes a number or a flag."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="int" | "float"), args=[ast.Call(func=ast.Attribute(attr="get")), *_]):
                yield node
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="get")), attr="lower" | "strip")):
                yield node


def test_only_the_configuration_parses_settings() -> None:
    """A node that starts must not find out then that a value is wrong."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for room in ("broker", "node", "replica", "access", "reads")
        for path in sorted((ROOT / "kraft" / room).rglob("*.py"))
        for node in parsed_settings(ast.parse(path.read_text("utf-8")))
    ]
    assert found == []
    assert list(parsed_settings(ast.parse('int(static.get("quota.window.num", 11))')))
    assert list(parsed_settings(ast.parse('static.get("log.cleaner.enable", "true").lower() != "false"')))
