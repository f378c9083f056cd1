"""A quorum of one controller, be it Kafka's or ours: asked over the wire, and its log read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metadata_log.disk import OsDisk
from metadata_log.reading.entries import Entry
from metadata_log.reading.timeline import TimelineBatch, read_timeline
from metadata_log.serde import Message
from support.differential.controller_sides import CLUSTER_ID, Side
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import (
    QUIET,
    KafkaInstallation,
    QuorumLayout,
    eventually,
    free_ports,
    kafka_controller,
    kafka_format,
    running,
)
from support.wire import active_controller, ask
from transport.protocol import messages

SETTINGS = (*QUIET, "broker.session.timeout.ms=86400000")
"""Stubs of brokers beat when a story says so: on a slow machine a long comparison takes more than ten minutes."""


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


@contextmanager
def both(kafka: KafkaInstallation, root: Path, *settings: str) -> Iterator[tuple[QuorumLayout, QuorumLayout]]:
    """A controller of Kafka's and one of ours, both active, until the block ends."""
    theirs, ours = single(root / "theirs", *settings), single(root / "ours", *settings)
    kafka_format(kafka, theirs)
    our_format(ours, release=kafka.release)
    with (
        running(theirs, kafka_controller(kafka, theirs), name="kafka"),
        running(ours, our_controller(ours), name="ours"),
    ):
        for layout in (theirs, ours):
            eventually(lambda layout=layout: active_controller(layout.ports[1]) == 1, "it is active")
        yield theirs, ours


def single(root: Path, *settings: str) -> QuorumLayout:
    """One controller in a directory, with more settings than every one of these tests needs."""
    root.mkdir()
    return QuorumLayout(root, CLUSTER_ID, dict(zip((1,), free_ports(1), strict=True)), (*SETTINGS, *settings))
