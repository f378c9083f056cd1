"""The programs of the page about an embedded log that append many values, and that keep snapshots, do what it says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

import kraft.sync
from support import ROOT
from support.documented_programs import program
from support.eventually import eventually
from support.loopback import free_ports


def test_the_examples_of_many_appends_and_of_snapshots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs append to one log, and a third keeps a total of another, of which it begins with the snapshot."""
    page = "embed-a-replicated-log.md"
    monkeypatch.chdir(tmp_path)
    words, numbers = (one_voter(tmp_path, name) for name in ("words", "numbers"))
    for name in ("in_threads.py", "handles.py"):
        monkeypatch.setattr(sys, "argv", [name, words])
        runpy.run_path(str(program(page, name, tmp_path)), run_name="__main__")
        first, *rest = capsys.readouterr().out.splitlines()
        told = re.fullmatch(r"offsets (\d+) to (\d+)", first)
        assert told is not None, first
        assert int(told[2]) - int(told[1]) >= 999
        assert [line.rpartition(" ")[0] for line in rest] == ["committed at offset"] * 3
    with kraft.sync.open_node(kraft.Config.load(numbers)) as node:
        node.wait_for_leader()
        for _ in range(2):
            node.append([b"1"] * 1000)
    totals = str(program(page, "totals.py", tmp_path))
    with running(totals, numbers):
        log = tmp_path / "data-numbers" / "__cluster_metadata-0"
        eventually(lambda: any(log.glob("0*[1-9]*-*.checkpoint")), "a snapshot of the totals")
    with running(totals, numbers) as again:
        assert again.stdout is not None
        told = re.fullmatch(r"the total is (\d+) at offset (\d+)\n", again.stdout.readline())
        assert told is not None
        assert 1000 <= int(told[1]) < int(told[2])


def one_voter(folder: Path, name: str) -> str:
    """The properties file of a quorum of one node, whose directory is formatted."""
    (port,) = free_ports(1)
    path = folder / f"{name}.properties"
    path.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlog.dirs=data-{name}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
    )
    kraft.format(kraft.Config.load(str(path)), "4L6g3nShT-eMCtK--X86sw")
    return str(path)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program that is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True) as process:
        patience = Timer(60, process.kill)
        patience.start()
        try:
            yield process
        finally:
            patience.cancel()
            process.kill()
