"""Fixtures: Apache Kafka's own programs, or a skip that says why (under CI=true a failure); a quorum of each make."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from support.interop.dumps import wait_for_registrations
from support.interop.kafka_or_skip import found_or_skipped
from support.interop.our_nodes import our_controller, our_format
from support.interop.real_kafka import KafkaInstallation, Nodes, kafka_controller, kafka_format, layout_in, running
from support.kafka_jars import NEWER_VERSION, OLDER_VERSION

LAST_LINES: Final = 40


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last lines of each node's output with a test that failed: a process may have ended by itself."""
    report = yield
    root = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "call" and report.failed and isinstance(root, Path):
        for log in sorted(root.rglob("*.log")):
            if log.stem.isdigit():
                continue  # A segment.
            lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            report.sections.append((f"the last lines of {log.relative_to(root)}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def kafka() -> KafkaInstallation:
    return found_or_skipped()


@pytest.fixture(scope="session")
def older_kafka() -> KafkaInstallation:
    """The release before Kafka 4, which does not know pre-votes."""
    return found_or_skipped(OLDER_VERSION)


@pytest.fixture(scope="session")
def newer_kafka() -> KafkaInstallation:
    """The newest release."""
    return found_or_skipped(NEWER_VERSION)


@pytest.fixture(scope="session")
def turn_kafka() -> KafkaInstallation:
    """The release whose turn it is in the slice; the newest one in all other runs."""
    return found_or_skipped(os.environ.get("KAFKA_RELEASE") or NEWER_VERSION)


@pytest.fixture(scope="session")
def ours(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Our nodes, on directories that Kafka's storage tool has formatted."""
    layout = layout_in(tmp_path_factory.mktemp("ours"))
    kafka_format(kafka, layout)
    with running(layout, our_controller(layout), name="ours") as nodes:
        wait_for_registrations(layout)
        yield nodes


@pytest.fixture(scope="session")
def theirs(kafka: KafkaInstallation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Kafka's nodes, on directories that `kraft format` has formatted."""
    layout = layout_in(tmp_path_factory.mktemp("theirs"))
    our_format(layout)
    with running(layout, kafka_controller(kafka, layout), name="kafka") as nodes:
        wait_for_registrations(layout)
        yield nodes
