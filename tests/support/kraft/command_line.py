"""Runs commands of ours inside the test's own process, and writes configurations for them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kraft.cli.main import main

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Done(NamedTuple):
    """The outcome of a command."""

    code: int
    out: str
    err: str


@contextmanager
def settings_of_the_process() -> Iterator[None]:
    """Restores what a command sets for its whole process: `kraft serve` the root logger and the garbage collector.

    A handler that stays would write into the captured stderr of this test when other tests have ended, and whatever
    logs then, as py4j does when Spark's session ends, would fail.
    """
    root = logging.getLogger()
    handlers, level, thresholds = root.handlers[:], root.level, gc.get_threshold()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        gc.set_threshold(*thresholds)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """Run `kraft` with these words."""
    capsys.readouterr()
    with settings_of_the_process(), pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out, err)


def write_config(directory: Path, *, port: int, **more: str) -> Path:
    """The configuration of an only voter with short time-outs; `more` has underscores for dots."""
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "log.dirs": str(directory / "log"),
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    path = directory / "node.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
