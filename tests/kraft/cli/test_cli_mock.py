"""`kraft mock`: a node for programs in any language, with faults from the start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import run
from confluent_kafka import KafkaError, Producer


@contextmanager
def ended_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


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
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert [None if one is None else one.code() for one in outcomes] == [KafkaError.INVALID_RECORD, None]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no JSON list"),
        ('[{"fault": "kil"}]', "no fault 'kil'"),
        ('[{"fault": "throttle", "ms": 1}]', "throttle: "),
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
