"""The same requests to Apache Kafka's controller and to ours: answers equal field by field, records batch by batch.

Differ may only what chance draws: topic ids, and where a controller places replicas. Brokers are stubs that register
and beat over the wire. What Kafka answers here is recorded in tests/data, for `tests/kraft/test_controller_answers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from controller_draws import Draw
from controller_sides import CLUSTER_ID, InProcess, Side, by_batches, plain, recorded_answers
from controller_stories import DIFFERENCES, STORIES, told
from our_nodes import our_controller, our_format
from real_kafka import (
    QUIET,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    kafka_format,
    running,
)
from wire import active_controller, ask

from kraft.controller.deciding import DecisionSettings
from metadata_log.disk import OsDisk
from metadata_log.reader import Entry
from metadata_log.serde import Message
from metadata_log.timeline import TimelineBatch, read_timeline
from transport.protocol import messages

pytestmark = pytest.mark.kafka

SETTINGS = (*QUIET, "broker.session.timeout.ms=600000")


def side_of(layout: QuorumLayout) -> Side:
    """The one node of a layout, asked over the wire."""

    def over_the_wire(request: Message, version: int) -> Message:
        answer: type[Message] = getattr(messages, type(request).__name__.replace("Request", "Response"))
        return ask(layout.ports[1], request, version, answer)

    return Side(over_the_wire)


def log_of(layout: QuorumLayout) -> Iterator[list[tuple[int, Message]]]:
    """The batches in a node's log, each with its records in their versions."""
    for item in read_timeline(OsDisk(), str(layout.log_dir(1)), from_base="earliest"):
        if isinstance(item, TimelineBatch):
            entries = [entry for entry in item.entries() if isinstance(entry, Entry) and not entry.is_control]
            yield [(entry.version, entry.record) for entry in entries if entry.record is not None]


def single(root: Path) -> QuorumLayout:
    """One controller in a directory."""
    root.mkdir()
    return QuorumLayout(root, CLUSTER_ID, dict(zip((1,), free_ports(1), strict=True)), SETTINGS)


def test_answers_and_records_are_kafkas(kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = single(tmp_path / "theirs"), single(tmp_path / "ours")
    kafka_format(kafka, theirs)
    our_format(ours)
    with (
        running(theirs, kafka_controller(kafka, theirs), name="kafka"),
        running(ours, our_controller(ours), name="ours"),
    ):
        for layout in (theirs, ours):
            eventually(lambda layout=layout: active_controller(layout.ports[1]) == 1, "it is active")
        one, other = side_of(theirs), side_of(ours)
        for name, story in STORIES.items():
            kafkas = told(one, story)
            assert told(other, story) == kafkas, name
            assert plain(kafkas) == recorded_answers()[name], f"tests/data has other answers to the story {name}"
        assert by_batches(log_of(ours)) == by_batches(log_of(theirs))
        for reason, story in DIFFERENCES.items():
            kafkas, our = told(one, story), told(other, story)
            assert kafkas[:-1] == our[:-1], reason
            assert kafkas[-1] != our[-1], reason


STEPS = 25
"""In each drawn sequence, not counting what brings the brokers back."""


@pytest.mark.parametrize(("seed", "count"), [(1, 30), pytest.param(2, 300, marks=pytest.mark.soak)])
def test_random_sequences_have_kafkas_answers_and_records(
    kafka: KafkaInstallation, tmp_path: Path, seed: int, count: int
) -> None:
    """Our controller decides in this process, so that what is drawn can depend on the state."""
    layout = single(tmp_path / "theirs")
    kafka_format(kafka, layout)
    controller = InProcess(max_idle_interval_ms=0, decisions=DecisionSettings(broker_session_timeout_ms=600_000))
    with running(layout, kafka_controller(kafka, layout), name="kafka"):
        eventually(lambda: active_controller(layout.ports[1]) == 1, "it is active")
        theirs, ours = side_of(layout), Side(controller.ask)
        for number in range(count):
            draw = Draw(Random(seed * 1000 + number), f"s{number}")
            for step in draw.sequence(STEPS, lambda: controller.controller.history.latest):
                where = f"seed {seed}, sequence {number}: {step[0](ours)}"
                assert told(ours, [step]) == told(theirs, [step]), where
        assert by_batches(controller.batches) == by_batches(log_of(layout))
