"""Runs commands of ours inside the test's own process, and writes configurations for them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from kraft.cli.main import main

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Done(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """Run `kraft` with these words."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
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
