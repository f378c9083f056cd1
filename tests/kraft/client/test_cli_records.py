"""`kraft produce` and `kraft consume`: lines, JSON lines, keys, headers, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.cluster.record_lines import BadLine, record_of_json, record_of_line
from kraft.client import Header
from support.kraft.command_line import Done, run
from support.kraft.data_cluster import DataCluster, data_cluster

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    with data_cluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster


class Command:
    """The two commands, with the address of the cluster."""

    def __init__(self, cluster: DataCluster, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._server = f"--bootstrap-server={cluster.bootstrap}"
        self._capsys = capsys
        self._file = folder / "lines.txt"

    def produce(self, topic: str, text: str | bytes, *words: str) -> Done:
        self._file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return run(self._capsys, "produce", topic, str(self._file), self._server, *words)

    def consume(self, topic: str, *words: str) -> Done:
        return run(self._capsys, "consume", topic, self._server, *words)

    def objects(self, topic: str, *words: str) -> list[dict[str, Any]]:
        done = self.consume(topic, "--json", *words)
        assert (done.code, done.err) == (0, "")
        return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def kraft(cluster: DataCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(cluster, capsys, tmp_path)


def test_lines_become_records_and_records_lines(kraft: Command):
    done = kraft.produce("lines", "one\ntwo\r\n\nno end")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("4 records written to lines in ")
    assert done.out.endswith(" s (by partition: 0: 4 up to offset 3)\n")
    assert kraft.consume("lines") == Done(0, "one\ntwo\n\nno end\n", "")
    assert kraft.consume("lines", "--from", "1", "--max-messages", "1").out == "two\n"
    assert kraft.consume("lines", "--from", "end").out == ""
    assert kraft.consume("lines", "--follow", "--idle", "0.3", "--from", "3").out == "no end\n"


def test_keys_headers_and_formats(kraft: Command):
    words = ("--key-separator", ":", "--header", "source=test", "--header", "x=", "--compression", "zstd")
    assert kraft.produce("keys", "k1:v1\nk2:v:2\n", *words).code == 0
    found = kraft.consume("keys", "--format", r"{partition}:{offset}\t{key}={value} [{headers}] {topic}")
    assert found.out == "0:0\tk1=v1 [source=test,x=] keys\n0:1\tk2=v:2 [source=test,x=] keys\n"
    done = kraft.produce("keys", "no separator\n", "--key-separator", ":")
    assert done.code == 1
    assert "the line has no ':' between key and value" in done.err
    assert "lines.txt:1" in done.err
    assert "0 records were acknowledged before." in done.err


def test_json_lines_come_back_as_they_were_written(kraft: Command):
    lines: list[dict[str, Any]] = [
        {"key": "k", "value": "v", "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}]},
        {"key": {"base64": "/w=="}, "value": None, "timestamp": "2020-02-29T12:00:00.001Z"},
        {"value": "\N{SNOWMAN}"},
    ]
    done = kraft.produce("json", "".join(f"{json.dumps(line)}\n" for line in lines), "--json")
    assert [json.loads(line)["offset"] for line in done.out.splitlines()] == [0, 1, 2]
    found = kraft.objects("json")
    assert [(one["key"], one["value"]) for one in found] == [
        ("k", "v"),
        ({"base64": "/w=="}, None),
        (None, "\N{SNOWMAN}"),
    ]
    assert found[0]["headers"] == lines[0]["headers"]
    assert found[1]["timestamp"] == "2020-02-29T12:00:00.001Z"
    assert {one["timestampType"] for one in found} == {"CreateTime"}
    copied = "".join(f"{json.dumps(one)}\n" for one in found)
    assert kraft.produce("copy", copied, "--json").code == 0
    different = ("topic", "leaderEpoch")
    assert [{**one, **dict.fromkeys(different)} for one in kraft.objects("copy")] == [
        {**one, **dict.fromkeys(different)} for one in found
    ]


def test_bytes_of_a_value_reach_a_pipe_unchanged(cluster: DataCluster, kraft: Command):
    data = bytes(set(range(256)) - {10, 13})
    assert kraft.produce("bytes", data).code == 0
    command = [sys.executable, "-m", "kraft", "consume", "bytes", "--bootstrap-server", cluster.bootstrap]
    assert subprocess.run(command, capture_output=True, check=True).stdout == data + b"\n"


def test_ctrl_c_ends_the_reading_of_lines_and_writes_those_that_were_read(cluster: DataCluster, kraft: Command):
    command = [sys.executable, "-m", "kraft", "produce", "pipe", "--json", "--bootstrap-server", cluster.bootstrap]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"value": "first"}\n')
    process.stdin.flush()
    while kraft.consume("pipe").out != "first\n":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (130, b"\n") or (process.returncode, err) == (130, b"")
    assert json.loads(out)["offset"] == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"x", "not JSON"),
        (b"[]", "no JSON object"),
        (b'{"valu": "x"}', "a record has no valu"),
        (b'{"value": 1}', "value is neither a text"),
        (b'{"value": {"base64": "?"}}', "value is not base64"),
        (b'{"partition": -1}', "partition is no number from 0"),
        (b'{"headers": ["h"]}', "headers are neither"),
        (b'{"timestamp": "soon"}', "timestamp is neither"),
    ],
)
def test_a_json_line_that_is_no_record_is_an_error_that_says_why(line: bytes, said: str):
    with pytest.raises(BadLine, match=said):
        record_of_json(line, key=None, headers=(), partition=None)


def test_options_hold_where_a_line_says_nothing():
    default = (Header("h", b"1"),)
    found = record_of_json(b'{"value": "v", "headers": {"x": "y"}}', key=b"k", headers=default, partition=3)
    assert (found.key, found.headers, found.partition) == (b"k", (Header("x", b"y"),), 3)
    plain = record_of_line(b"v", separator=None, key=b"k", headers=default, partition=None)
    assert (plain.key, plain.value, plain.headers) == (b"k", b"v", default)
