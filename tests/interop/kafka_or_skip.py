"""Apache Kafka for the tests that need it, or the reason why it cannot be run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from class_archive import with_archive
from kafka_jars import KAFKA_VERSION, KafkaUnavailable
from real_kafka import KafkaInstallation


def found_or_skipped(version: str = KAFKA_VERSION) -> KafkaInstallation:
    """What can be run; else the test is skipped with the reason, and with CI=true it fails."""
    try:
        return with_archive(KafkaInstallation.find(version))
    except KafkaUnavailable as unavailable:
        skip_here(f"Apache Kafka cannot be run here: {unavailable}")


def oracle(kafka: KafkaInstallation, source: Path, lines: list[str]) -> str:
    """What a Java program of one file prints for these lines; skipped where there is no compiler."""
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
