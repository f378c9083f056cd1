"""`kraft fleet` in a process of its own, which starts and stops sessions of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from subprocess import CompletedProcess

from kraft.cli.main import main
from support import ROOT, TESTS

SECONDS = 600


def kraft_fleet(*words: str, **environment: str) -> CompletedProcess[str]:
    """Run one command."""
    command = [sys.executable, "-m", "kraft", "fleet", *words]
    return _run(command, environment)


def kraft_fleets(*commands: Sequence[str]) -> list[CompletedProcess[str]]:
    """Run one command after the other. Each has a session of its own; the JVM starts once, which takes longest."""
    done = _run([sys.executable, "-m", "support.spark.own_fleet", json.dumps(commands)], {})
    assert done.returncode == 0, done.stderr
    return [CompletedProcess("kraft fleet", *told) for told in json.loads(done.stdout)]


def _run(command: list[str], environment: dict[str, str]) -> CompletedProcess[str]:
    inherited = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]), **os.environ, **environment}
    return subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=SECONDS, check=False)


def _told(words: Sequence[str]) -> tuple[int, str, str]:
    """The exit code of a command, and what it wrote, Java included."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        files, kept, code = (out, err), (os.dup(1), os.dup(2)), 0
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        try:
            main(["fleet", *words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        for number, whole in enumerate(kept, 1):
            os.dup2(whole, number)
            os.close(whole)
        for file in files:
            file.seek(0)
        return code, out.read(), err.read()


if __name__ == "__main__":
    print(json.dumps([_told(words) for words in json.loads(sys.argv[1])]))
