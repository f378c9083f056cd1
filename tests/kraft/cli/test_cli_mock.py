"""`kraft mock`: a node for programs in any language, with faults from the start."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from kraft.testing import Kafka
from support.documented_programs import HOWTO
from support.kraft.command_line import run


@contextmanager
def ended_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def test_a_registry_serves_beside_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kraft", "mock", "--port", "0", "--registry", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ended_at_last(process):
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with urllib.request.urlopen(f"{ready['REGISTRY']}/subjects", timeout=60) as answer:
            assert json.load(answer) == []
        # The same as a process of its own, at the same brokers.
        command = [sys.executable, "-m", "kraft", "registry", "--bootstrap-server", ready["PLAINTEXT"], "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other, ended_at_last(other):
            assert other.stdout is not None
            told = json.loads(other.stdout.readline())
            assert told["event"] == "ready"
            with urllib.request.urlopen(f"{told['url']}/schemas/types", timeout=60) as answer:
                assert "AVRO" in json.load(answer)
            other.send_signal(signal.SIGINT)
            assert other.wait(60) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_it_says_when_it_serves_and_its_faults_happen(tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text('[{"fault": "fail_next", "api": "Produce", "error": "INVALID_RECORD"}]')
    command = [sys.executable, "-m", "kraft", "mock", "--port", "0", "--faults", str(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ended_at_last(process):
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready.keys() == {"event", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
        outcomes: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": ready["PLAINTEXT"]})
        for value in ("one", "two"):
            producer.produce("orders", value, on_delivery=lambda error, _: outcomes.append(error))
            producer.flush(20)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert [None if one is None else one.code() for one in outcomes] == [KafkaError.INVALID_RECORD, None]


def test_a_directory_is_kept_and_the_next_start_goes_on_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("mock", "--port", "0", "--dir", str(tmp_path / "kept"))
    with (
        subprocess.Popen([sys.executable, "-m", "kraft", *words], stdout=subprocess.PIPE, text=True) as process,
        ended_at_last(process),
    ):
        assert process.stdout is not None
        producer = Producer({"bootstrap.servers": json.loads(process.stdout.readline())["PLAINTEXT"]})
        producer.produce("orders", "one")
        assert producer.flush(20) == 0
        other = run(capsys, *words)
        assert (other.code, other.out) == (1, "")
        assert "node 1 of this directory runs already" in other.err
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with Kafka(directory=tmp_path / "kept") as kafka:
        kafka.produce("orders", ["two"])
        kafka.create_topic("later")
        kafka.kill(1)
        kafka.restart(1)
        assert [one.value for one in kafka.consume("orders")] == [b"one", b"two"]
        assert set(kafka.image.topics.by_name) == {"orders", "later"}
        assert "leads later-0" in kafka.picture()
        with pytest.raises(ValueError, match="disk in memory"):
            kafka.full_disk(1)
        kafka.reset()
        assert not kafka.image.topics.by_id


def test_the_faults_of_the_page_happen_and_a_node_that_ends_ends_the_command(tmp_path: Path) -> None:
    page = (HOWTO / "replace-a-container.md").read_text()
    [listed] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    faults = tmp_path / "faults.json"
    faults.write_text(listed)
    command = [sys.executable, "-m", "kraft", "mock", "--port", "0", "--faults", str(faults)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ended_at_last(process),
    ):
        assert process.stdout is not None
        servers = {"bootstrap.servers": json.loads(process.stdout.readline())["PLAINTEXT"]}
        producer = Producer({**servers, "retry.backoff.ms": 1, "linger.ms": 0})
        producer.produce("orders", "one")
        assert producer.flush(30) == 0
        for _ in range(3):
            producer.produce("orders", b"x" * 500_000)
            producer.flush(2)
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert "kraft: error: the node has ended: " in process.stderr.read()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no JSON list"),
        ('[{"fault": "kil"}]', "no fault 'kil'"),
        ('[{"fault": "throttle", "ms": 1}]', "throttle: "),
        ('[{"fault": "delay", "node_id": 1, "milliseconds": "5"}]', "delay: "),
    ],
)
def test_a_bad_file_of_faults_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text(text)
    done = run(capsys, "mock", "--port", "0", "--faults", str(faults))
    assert done.code == 2
    assert told in done.err


def test_its_control_outlives_its_node() -> None:
    command = [sys.executable, "-m", "kraft", "mock", "--port", "0", "--control", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ended_at_last(process):
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["CONTROL"]

        def ask(path: str, arguments: dict[str, object] | None = None) -> dict[str, object]:
            body = None if arguments is None else json.dumps(arguments).encode()
            asked = urllib.request.Request(f"{url}{path}", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                told: dict[str, object] = json.load(answer)
                return told

        assert ask("/")["running"] == [1]
        ask("/kill", {"node_id": 1})
        assert ask("/")["running"] == []
        ask("/restart", {"node_id": 1})
        assert ask("/")["running"] == [1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_port_of_its_control_may_be_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(capsys, "mock", "--port", "0", "--control", str(taken.getsockname()[1]))
    assert done.code == 1
    assert "Address already in use" in done.err
