"""The composite action and the devcontainer: their steps, run by a shell here, give a job a Kafka by pip."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from support import ROOT
from support.loopback import free_ports

ACTION = ROOT / "deploy" / "github-action" / "action.yml"
DEVCONTAINER = ROOT / "deploy" / "devcontainer" / "devcontainer.json"
EXPRESSION = re.compile(r"\$\{\{ *inputs\.([\w-]+) *\}\}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv is not None, "run the tests with `uv run pytest`"
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True)
    (path,) = folder.glob("*.whl")
    return path


def delivered(servers: str) -> None:
    """A record reaches the brokers."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", "apples", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]


class Job:
    """A job that runs the steps of a composite action, as a runner does."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.action: dict[str, Any] = yaml.safe_load(ACTION.read_text())
        assert set(inputs) <= self.action["inputs"].keys()
        self.inputs = {name: one["default"] for name, one in self.action["inputs"].items()} | inputs
        self.folder = folder
        self.outputs: dict[str, str] = {}

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the steps up to the first that fails; what the last one said."""
        assert self.action["runs"]["using"] == "composite"
        for step in self.action["runs"]["steps"]:
            assert step["shell"] == "bash"
            written = self.folder / "output"
            written.write_text("")
            given = {
                name: EXPRESSION.sub(lambda found: self.inputs[found[1]], text) for name, text in step["env"].items()
            }
            assert not any("${{" in text for text in (*given.values(), step["run"]))
            environment = {**os.environ, **given, "RUNNER_TEMP": str(self.folder), "GITHUB_OUTPUT": str(written)}
            script = self.folder / "step.sh"
            script.write_text(step["run"])
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
            done = subprocess.run(
                command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
            )
            self.outputs |= dict(line.split("=", 1) for line in written.read_text().splitlines())
            if done.returncode:
                break
        return done

    def end(self) -> None:
        """What a runner does at the end of a job."""
        with suppress(KeyError, ProcessLookupError):
            os.kill(int(self.outputs["pid"]), signal.SIGTERM)


@pytest.mark.soak
def test_the_steps_of_the_action_give_a_job_a_kafka(tmp_path: Path, wheel: Path) -> None:
    job = Job(tmp_path, package=str(wheel), python=sys.executable, port="0", brokers="2")
    try:
        done = job.run()
        assert done.returncode == 0, done.stderr
        assert set(job.action["outputs"]) == job.outputs.keys()
        assert len(job.outputs["bootstrap-servers"].split(",")) == 2
        delivered(job.outputs["bootstrap-servers"])
        with urllib.request.urlopen(f"{job.outputs['control']}/", timeout=60) as answer:
            assert json.load(answer)["brokers"] == [101, 102]
    finally:
        job.end()
    again = Job(tmp_path, package=str(wheel), python=sys.executable, port="0", more="--seed none")
    refused = again.run()
    assert refused.returncode != 0
    assert "'none' is not a valid integer" in refused.stderr


@pytest.mark.soak
def test_the_commands_of_the_devcontainer_give_it_a_kafka(tmp_path: Path, wheel: Path) -> None:
    described = json.loads(DEVCONTAINER.read_text())
    kafka, control = free_ports(2)
    subprocess.run([sys.executable, "-m", "venv", "venv"], cwd=tmp_path, check=True)
    environment = {**os.environ, "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}", "KRAFT_PACKAGE": str(wheel)}
    environment |= {"KAFKA_PORT": str(kafka), "KAFKA_CONTROL": str(control)}
    subprocess.run(["sh", "-ec", described["postCreateCommand"]], cwd=tmp_path, env=environment, check=True)
    start = f"{described['postStartCommand']}\necho $!"
    started = subprocess.run(
        ["sh", "-ec", start], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    try:
        delivered(f"127.0.0.1:{kafka}")
        assert (tmp_path / ".kafka").is_dir(), "the records outlive the container's end"
    finally:
        os.kill(int(started.stdout), signal.SIGTERM)
