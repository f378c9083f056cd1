"""A node as a service: JSON logs, levels by signal, settings from the environment, containers, completion."""

from __future__ import annotations

import configparser
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kraft.cli.main import kraft
from kraft.cli.run.log_output import LESS, MORE, shift_level
from kraft.config.environment import settings_of
from kraft.node.loggers import LEVELS
from support import ROOT
from support.eventually import eventually
from support.kraft.cli_serving import formatted, serving
from support.kraft.command_line import CLUSTER_ID, run, settings_of_the_process, write_config
from support.loopback import free_ports

DEPLOY = ROOT / "deploy"


def test_every_line_of_a_json_log_is_an_object_with_a_stable_event(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = formatted(
        capsys, tmp_path, controller_quorum_election_timeout_ms="100", controller_quorum_election_timout_ms="5"
    )
    with serving(config, "--log-format", "json", "--metrics", "127.0.0.1:0") as node:
        node.said('"event": "high-watermark"')
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait() == 0
        lines = [json.loads(line) for line in node.everything()]
    assert all({"time", "level", "logger", "event"} <= set(line) for line in lines), lines
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    events = [line["event"] for line in lines]
    assert {"metrics", "state", "leader", "listening", "high-watermark", "stopping", "stopped"} <= set(events)
    (listening,) = [line for line in lines if line["event"] == "listening"]
    assert listening["node"] == 1
    assert listening["level"] == "info"
    (warning,) = [line for line in lines if "did you mean" in line.get("message", "")]
    assert (warning["event"], warning["level"]) == ("message", "warning")
    became = [line for line in lines if line["event"] == "state" and line["to"] == "Leader"]
    assert [(line["from"], line["epoch"], line["node"]) for line in became] == [("Candidate", 1, 1)]


def test_signals_change_the_level_of_a_running_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path, controller_quorum_election_timeout_ms="100")
    with serving(config) as node:
        node.said("to=Leader")
        node.process.send_signal(signal.SIGUSR1)
        assert "to=debug by=SIGUSR1" in node.said("log-level to=debug")
        node.process.send_signal(signal.SIGUSR2)
        node.said("log-level to=info")
        node.process.send_signal(signal.SIGUSR2)
        node.said("log-level to=warning")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait() == 0
        lines = node.everything()
    last = next(at for at, line in enumerate(lines) if "log-level to=warning" in line)
    assert not [line for line in lines[last:] if " info " in line], "the level of the root is warning"


def test_a_request_changes_the_level_of_a_running_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path, controller_quorum_election_timeout_ms="100")
    with serving(config) as node:
        address = node.said("listening").split("on=")[1].strip()
        node.said("to=Leader")

        def configs(*words: str, code: int = 0) -> str:
            done = run(capsys, "configs", *words, "--bootstrap-controller", address)
            assert done.code == code, done.err
            return done.err if code else done.out

        def level(logger: str) -> str:
            shown = json.loads(configs("describe", "broker-logger", "1", "--json"))["configs"]
            (row,) = [one for one in shown if one["key"] == logger]
            assert row["source"] == "DYNAMIC_BROKER_LOGGER_CONFIG"
            return str(row["value"])

        assert (level("kraft.node"), level("transport")) == ("INFO", "INFO")
        assert configs("set", "broker-logger", "1", "kraft.node=DEBUG") == "set kraft.node=DEBUG (broker-logger 1)\n"
        assert "name=kraft.node to=debug by='User:ANONYMOUS'" in node.said("log-level")
        assert (level("kraft.node"), level("root")) == ("DEBUG", "INFO")
        configs("set", "broker-logger", "1", "root=ERROR", "--validate-only")
        configs("delete", "broker-logger", "1", "kraft.node")
        assert (level("kraft.node"), level("root")) == ("INFO", "INFO")
        assert "INVALID_CONFIG: Logger no.such does not exist!" in configs(
            "set", "broker-logger", "1", "no.such=INFO", code=1
        )
        assert "there is no controller 7" in configs("set", "broker-logger", "7", "root=INFO", code=1)
        assert "needs the id of a controller" in configs("describe", "broker-logger", code=2)
        configs("set", "broker-logger", "1", "root=ERROR")
        node.process.send_signal(signal.SIGUSR1)
        node.said("log-level to=warning by=SIGUSR1")


@pytest.mark.parametrize(
    ("before", "number", "after"),
    [
        ("ERROR", LESS, "error"),
        ("ERROR", MORE, "warning"),
        ("WARNING", LESS, "warning"),
        ("TRACE", MORE, "trace"),
        ("TRACE", LESS, "debug"),
    ],
)
def test_a_signal_steps_from_a_level_that_a_request_has_set(before: str, number: int, after: str) -> None:
    with settings_of_the_process():
        logging.getLogger().setLevel(LEVELS.get(before, before))
        assert shift_level(number) == after


def test_a_node_without_a_leader_changes_its_level(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    port, other = free_ports(2)
    config = write_config(tmp_path, port=port, controller_quorum_voters=f"1@127.0.0.1:{port},2@127.0.0.1:{other}")
    assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID).code == 0
    with serving(config) as node:
        node.said("listening")
        words = ("configs", "set", "broker-logger", "1", "root=DEBUG")
        done = run(capsys, *words, "--bootstrap-controller", f"127.0.0.1:{other},127.0.0.1:{port}")
        assert done.code == 0, done.err
        node.said("log-level")


def test_events_of_the_log_are_those_of_the_page() -> None:
    """A name that is not on the page, or a name on the page that the code does not use, fails."""
    pattern = re.compile(r"(?:_log|\blog|node_log|self)(?:\.(?:write|warn))?\(\s*\"([a-z][a-z-]+)\"")
    sources = [*(ROOT / "kraft/node").rglob("*.py"), ROOT / "kraft/cli/run/node_process.py"]
    used = {name for path in sources for name in pattern.findall(path.read_text())} | {"log-level", "message"}
    page = (ROOT / "docs/howto/run-as-a-service.md").read_text()
    table = page.partition("| event |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == used


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "controller.quorum.voters"),
        ("KAFKA_LISTENER_NAME_CONTROLLER_SSL_KEYSTORE__TYPE", "listener.name.controller.ssl.keystore_type"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_KRAFT_METRICS_LISTENER", "kraft.metrics.listener"),
    ],
)
def test_variables_have_the_keys_of_kafkas_images(name: str, key: str) -> None:
    assert settings_of({name: "x", "KAFKA_HEAP_OPTS": "-Xmx1g", "OTHER": "y"}) == {key: "x"}


def test_variables_win_over_the_file_and_values_keep_their_characters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base.properties"
    base.write_text("node.id=1\nprocess.roles=controller\n")
    hostile = "a=b:c#d\\e\u00e9 \nf"
    monkeypatch.setenv("KAFKA_NODE_ID", "7")
    monkeypatch.setenv("KAFKA_X", hostile)
    done = run(capsys, "environment", str(base))
    assert done.code == 0
    import javaproperties

    assert javaproperties.loads(done.out) == {"node.id": "7", "process.roles": "controller", "x": hostile}


def start_container(tmp_path: Path, **environment: str) -> subprocess.Popen[str]:
    """The start of the image, with a `kraft` of this tree, as a user without a home."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "kraft"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kraft "$@"\n')
    command.chmod(0o755)
    return subprocess.Popen(
        ["/bin/sh", str(DEPLOY / "container/start"), "--log-format", "json"],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(tmp_path),
            "KAFKA_LOG_DIRS": str(tmp_path / "data"),
            **{name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ},
            **environment,
        },
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_container_formats_its_volume_once_and_serves_with_settings_of_variables(tmp_path: Path) -> None:
    from http.client import HTTPConnection

    port, metrics = free_ports(2)
    environment = {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_NODE_ID": "1",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": f"CONTROLLER://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{port}",
        "KAFKA_KRAFT_METRICS_LISTENER": str(metrics),
    }

    def is_ready() -> bool:
        connection = HTTPConnection("127.0.0.1", metrics, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    for wanted in ("Formatting", "is formatted already"):
        process = start_container(tmp_path, **environment)
        try:
            eventually(is_ready, "the node in the container is ready")
            process.terminate()
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0, err
        assert wanted in out
    (properties, _) = sorted(tmp_path.glob("tmp.*/server.properties"))
    assert properties.stat().st_mode & 0o077 == 0, "secrets of variables are private"


def test_a_container_without_a_cluster_id_says_what_to_do(tmp_path: Path) -> None:
    process = start_container(tmp_path, KAFKA_NODE_ID="1")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.splitlines()[-2:] == [
        "kraft: error: CLUSTER_ID is not set",
        "hint: Make one with `kraft random-uuid`, and give every node the same.",
    ]


class UnitFile(configparser.ConfigParser):
    """Keys keep their case."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def test_the_systemd_unit_runs_a_command_that_exists() -> None:
    parser = UnitFile(strict=False, interpolation=None)
    parser.read(DEPLOY / "systemd/kraft.service")
    words = shlex.split(parser["Service"]["ExecStart"])
    command = kraft.get_command(click.Context(kraft), words[1])
    assert command is not None
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options
    assert parser["Service"]["KillSignal"] == "SIGTERM"
    if (analyze := shutil.which("systemd-analyze")) is not None:
        said = subprocess.run(
            [analyze, "verify", str(DEPLOY / "systemd/kraft.service")], capture_output=True, text=True, check=False
        ).stderr
        assert not [line for line in said.splitlines() if "Unknown" in line], said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kraft quo", ["quorum"]),
        ("kraft quorum st", ["status"]),
        ("kraft serve --log-f", ["--log-format"]),
        ("kraft serve --log-format j", ["json"]),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, words: list[str]) -> None:
    typed = line.split(" ")
    said = subprocess.run(
        [sys.executable, "-m", "kraft"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "_KRAFT_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(typed) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [found.partition(",")[2] for found in said.splitlines()] == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    done = run(capsys, "completion", shell)
    assert done.code == 0
    assert "_KRAFT_COMPLETE" in done.out
    assert f"{shell}_complete" in done.out
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=done.out, text=True, check=True)
