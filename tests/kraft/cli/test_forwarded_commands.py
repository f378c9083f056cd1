"""Commands at brokers with a login whose controllers have none: brokers pass the requests on, as to Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.testing import Kafka
from support.kraft.command_line import run

CHANGES = (
    ("topics create t", "created t: 1 partition, replication factor 1"),
    ("topics grow t --partitions 3", "grew t to 3 partitions"),
    ("configs set topic t retention.ms=1000", "set retention.ms=1000 (topic t)"),
    ("configs set quota user=eva producer_byte_rate=1000", "set producer_byte_rate=1000 (quota user=eva)"),
    ("acls add --principal User:eva --operation read --topic t", "added 1 rule"),
    ("acls list", "User:eva"),
    ("acls remove --all", "removed 1 rule"),
    ("elect preferred --all", "No partition needed an election."),
    ("topics delete t", "deleted t"),
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def options(kafka: Kafka, tmp_path: Path) -> list[str]:
    """How a client with a login reaches the broker."""
    login = kafka.client_config("java", security="SASL_PLAINTEXT")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login.items()))
    return [f"--bootstrap-server={login['bootstrap.servers']}", f"--command-config={file}"]


def test_a_broker_passes_changes_on(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    for command, said in CHANGES:
        done = run(capsys, *command.split(), *options)
        assert (done.code, done.err) == (0, ""), command
        assert said in done.out, command


def test_a_refusal_is_the_controllers(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    done = run(capsys, "topics", "delete", "missing", *options)
    assert (done.code, done.out) == (1, "")
    assert "missing: UNKNOWN_TOPIC_OR_PARTITION" in done.err


def test_what_only_a_controller_tells_names_the_cure(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    done = run(capsys, "topics", "list", *options)
    assert (done.code, done.out) == (1, "")
    assert "the peer's listener has no login" in done.err
    assert "A broker named this controller, which speaks another security protocol." in done.err
    assert "--bootstrap-controller" in done.err
