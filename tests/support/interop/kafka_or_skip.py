"""Apache Kafka for the tests that need it, or the reason why it cannot be run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from support.interop.class_archive import with_archive
from support.interop.real_kafka import KafkaInstallation
from support.kafka_jars import KAFKA_VERSION, KafkaUnavailable


def found_or_skipped(version: str = KAFKA_VERSION) -> KafkaInstallation:
    """The installation to run; without one the test is skipped with the reason, and with CI=true it fails."""
    try:
        return with_archive(KafkaInstallation.find(version))
    except KafkaUnavailable as unavailable:
        skip_here(f"Apache Kafka cannot be run here: {unavailable}")


def with_programs_or_skipped(kafka: KafkaInstallation) -> KafkaInstallation:
    """The same with Streams and Connect's file connectors; else the test is skipped, and with CI=true it fails."""
    try:
        return kafka.with_programs()
    except KafkaUnavailable as unavailable:
        skip_here(f"Streams and Connect cannot be run here: {unavailable}")


def oracle(kafka: KafkaInstallation, source: Path, lines: list[str]) -> str:
    """The output of a Java program of one file for these lines; skipped where there is no compiler."""
    done = kafka.run(str(source), stdin="\n".join(lines))
    if "Module jdk.compiler not found" in done.stderr:
        skip_here("this Java cannot run a source file")
    assert done.returncode == 0, done.stderr
    return done.stdout


def skip_here(reason: str) -> NoReturn:
    """Skip a test for want of something on this machine; continuous integration has to have it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
