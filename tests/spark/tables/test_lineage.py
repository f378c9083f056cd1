"""Events of OpenLineage: what a run sends by the transports of OpenLineage's client, and that no run ends by them."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kraft.cli.main import main
from metadata_log.log.segment import file_name
from metadata_log.spark.lakes.lineage import is_configured
from support.spark.fleets import write_log

VIEW = ("--view", "topic_history")


@pytest.fixture(autouse=True)
def away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory and a home without a configuration of OpenLineage."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "logs" / "a", [1, 1, 2], cluster="cluster-a")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file to which OpenLineage's client writes events, one a line."""
    file = tmp_path / "events.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    return file


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a run, and its standard error."""
    with pytest.raises(SystemExit) as ended:
        main(("fleet", "materialize", *words))
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_tells_its_logs_and_tables(
    events: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "nights")
    above = "0198b0a0-0000-7000-8000-000000000001"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/kraft_fleet.tables/{above}")
    out = tmp_path / "tables"
    assert run(capsys, f"{tmp_path}/logs/*", "--out", str(out), "--run-id", "night-1", *VIEW) == (0, "")
    start, complete = read(events)
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["job"] == complete["job"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("nights", f"kraft fleet materialize {out}")
    facets = complete["run"]["facets"]
    assert facets["parent"]["run"]["runId"] == above
    assert facets["parent"]["job"] == {"namespace": "airflow", "name": "kraft_fleet.tables", "facets": {}}
    assert [(tag["key"], tag["value"]) for tag in facets["tags"]["tags"][:1]] == [("run", "night-1")]
    (source,) = complete["inputs"]
    assert (source["namespace"], source["name"]) == ("file", str(log))
    assert start["inputs"][0]["name"] == str(log)
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 6
    assert source["facets"]["version"]["datasetVersion"] == "6"
    assert source["facets"]["tags"]["tags"][0]["value"] == "cluster-a"
    tables = {Path(one["name"]).relative_to(out).name: one for one in complete["outputs"]}
    assert list(tables) == ["topic_history", "runs"]
    assert [one["name"] for one in start["outputs"]] == [one["name"] for one in complete["outputs"]]
    columns = {one["name"]: one for one in tables["topic_history"]["facets"]["schema"]["fields"]}
    assert columns["topic_id"]["type"] == "string"
    assert columns["partitions"]["description"].endswith("how many")
    assert {"cluster", "date", "lineage_run"} <= columns.keys()


def test_a_night_that_is_not_sound_has_failed_and_one_without_logs_too(
    events: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = log / file_name(0)
    segment.write_bytes(segment.read_bytes()[:-9] + b"noise----")
    out = str(tmp_path / "tables")
    assert run(capsys, str(log), "--out", out, *VIEW)[0] == 1
    assert run(capsys, str(log), "--out", out, "--gate", "warn", *VIEW)[0] == 0
    assert run(capsys, f"{tmp_path}/nothing/*", "--out", out, *VIEW)[0] == 1
    told = read(events)
    assert [one["eventType"] for one in told] == ["START", "FAIL", "START", "COMPLETE", "START", "FAIL"]
    assert "cluster-a" in told[1]["run"]["facets"]["errorMessage"]["message"]
    assert [len(one["outputs"]) for one in told] == [2] * 6
    assert "matches no metadata log" in told[5]["run"]["facets"]["errorMessage"]["message"]
    assert told[5]["inputs"] == []


def test_a_night_that_is_stopped_is_aborted(
    events: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("metadata_log.spark.materialize.run_here", stop)
    assert run(capsys, str(log), "--out", str(tmp_path / "tables"), *VIEW)[0] == 130
    assert [one["eventType"] for one in read(events)] == ["START", "ABORT"]


class Collector(BaseHTTPRequestHandler):
    """Keeps the events that are posted, and answers with `answer`."""

    events: ClassVar[list[tuple[str, dict[str, Any]]]] = []
    answer: ClassVar[int] = 201

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.events.append((self.path, json.loads(content)))
        self.send_response(self.answer)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    Collector.events.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_over_http_gets_the_events_and_may_refuse_them(
    url: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "openlineage.yml"
    config.write_text(f"transport:\n  type: http\n  url: {url}\n  endpoint: api/v1/lineage\n")
    assert run(capsys, str(log), "--out", str(tmp_path / "tables"), *VIEW) == (0, "")
    assert [(path, one["eventType"]) for path, one in Collector.events] == [
        ("/api/v1/lineage", "START"),
        ("/api/v1/lineage", "COMPLETE"),
    ]
    monkeypatch.setattr(Collector, "answer", 403)
    code, said = run(capsys, str(log), "--out", str(tmp_path / "tables"), *VIEW)
    assert code == 0
    assert [line.partition(": 403")[0] for line in said.splitlines()] == [
        "kraft: warning: OpenLineage has not got the event START of this run",
        "kraft: warning: OpenLineage has not got the event COMPLETE of this run",
    ]


def test_no_night_ends_as_the_collector_is_down(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = {"type": "http", "url": f"http://127.0.0.1:{taken.getsockname()[1]}", "retry": {"total": 1}}
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
        code, said = run(capsys, str(log), "--out", str(tmp_path / "tables"), *VIEW)
    assert code == 0
    assert "not got the event START of this run: " in said
    assert "not got the event COMPLETE of this run: " in said
    assert len(said.splitlines()) == 2
    assert "refused" in said


def test_without_a_configuration_nothing_is_imported_and_without_the_package_that_is_said(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("openlineage", "metadata_log.spark.lakes.lineage_events"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    assert run(capsys, str(log), "--out", str(tmp_path / "tables"), *VIEW) == (0, "")
    assert not [name for name in sys.modules if name.startswith("openlineage")]
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    assert not is_configured()
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    monkeypatch.setitem(sys.modules, "openlineage", None)
    code, said = run(capsys, str(log), "--out", str(tmp_path / "tables"), *VIEW)
    assert (code, said.count("pip install 'trio-kraft[openlineage]'")) == (0, 1)
