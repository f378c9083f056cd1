"""A directory that is formatted, and `kraft serve` in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import click
import pytest

from kraft.cli.main import kraft
from support.kraft.command_line import CLUSTER_ID, run, write_config
from support.loopback import free_ports

PATIENCE_SECONDS = 60
"""A node that says nothing for so long is ended, which fails its test."""


def formatted(capsys: pytest.CaptureFixture[str], directory: Path, **more: str) -> Path:
    config = write_config(directory, port=free_ports(1)[0], **more)
    assert run(capsys, "format", "-c", str(config), "-t", CLUSTER_ID).code == 0
    return config


class Serving:
    """A node in a process of its own, and what it has logged so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: list[str] = []

    def said(self, text: str) -> str:
        """The first line with this text, waiting for it; fails once the node has ended without."""
        for line in self._lines:
            if text in line:
                return line
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"the node ended with {self.process.wait()} and never said {text!r}: {self._lines}")

    def everything(self) -> list[str]:
        """All lines of a node that has ended."""
        assert self.process.stderr is not None
        self._lines.extend(self.process.stderr)
        return self._lines


@contextmanager
def serving(config: Path, *more: str) -> Iterator[Serving]:
    command = [sys.executable, "-m", "kraft", "serve", "-c", str(config), *more]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    patience = Timer(PATIENCE_SECONDS, process.kill)
    patience.start()
    try:
        yield Serving(process)
    finally:
        patience.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stderr):
            assert pipe is not None
            pipe.close()


def commands_below(group: click.Group, *path: str) -> Iterator[str]:
    """The words of every command and group of commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        yield " ".join((*path, name))
        if isinstance(found, click.Group):
            yield from commands_below(found, *path, name)


COMMANDS = tuple(commands_below(kraft))
