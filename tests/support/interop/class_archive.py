"""An archive of Kafka's classes as a JVM has loaded them (JEP 350), which halves the time of the next start."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from support.interop.real_kafka import (
    CLUSTER_ID,
    QUICK_START,
    KafkaInstallation,
    Process,
    QuorumLayout,
    free_ports,
    kafka_controller,
    kafka_format,
)
from support.kafka_jars import only_one


def with_archive(kafka: KafkaInstallation) -> KafkaInstallation:
    """The installation with its archive, made once; without, where this Java makes none.

    It takes a few seconds to make: a controller starts and stops. Nothing that was archived for another Java is used.
    """
    archive = kafka.jars.parent / f"{kafka.jars.name}-{_identity(kafka)}.jsa"
    with only_one(kafka.jars):
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=kafka.jars.parent, prefix="archive-") as scratch:
                _make(kafka, Path(scratch)).rename(archive)
    return replace(kafka, archive=archive) if archive.stat().st_size else kafka


def _identity(kafka: KafkaInstallation) -> str:
    """A short hash of the Kafka and Java for which an archive is good."""
    java = Path(kafka.java).resolve()
    about = str(java), java.stat().st_mtime_ns, kafka.jars.stat().st_mtime_ns, QUICK_START
    return hashlib.sha256(repr(about).encode()).hexdigest()[:12]


def _make(kafka: KafkaInstallation, scratch: Path) -> Path:
    """Start a controller, and have what it has loaded written down when it stops; an empty file if that cannot be."""
    archive = scratch / "classes.jsa"
    (port,) = free_ports(1)
    layout = QuorumLayout(scratch, CLUSTER_ID, {1: port})
    kafka_format(kafka, layout)
    java, *rest = kafka_controller(kafka, layout)(1)
    controller = Process([java, f"-XX:ArchiveClassesAtExit={archive}", *rest], scratch / "controller.log")
    with suppress(AssertionError):  # a Java before 13 does not know the option, and ends
        controller.wait_for("Kafka Server started")
    controller.stop()
    if not archive.exists():
        archive.touch()
    return archive
