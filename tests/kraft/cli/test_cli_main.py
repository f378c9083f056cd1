"""The `kraft` command as a whole: help, errors, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.cli.main import report
from kraft.config import ConfigError, UsageError
from kraft.config.errors import CommandFailed
from metadata_log.errors import DirectoryError
from support.kraft.cli_serving import COMMANDS
from support.kraft.command_line import run


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_level_has_help_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    done = run(capsys, *command.split(), "--help")
    assert done.code == 0
    assert re.search(rf"Example:\s+kraft {command}", done.out)


def test_the_folder_of_a_quickstart_is_told_from_the_directory_of_a_node(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "controller-1" / "__cluster_metadata-0").mkdir(parents=True)
    (tmp_path / "notes").write_text("")
    done = run(capsys, "history", str(tmp_path))
    assert done.code == 1
    assert f"Did you mean {tmp_path}/controller-1?" in done.err


@pytest.mark.parametrize(
    "words", [["no-such-command"], ["serve", "--no-such-option"], ["quickstart", "--controllers", "x"]]
)
def test_wrong_usage_is_one_line_a_hint_and_exit_code_2(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    done = run(capsys, *words)
    assert done.code == 2
    error, hint = done.err.splitlines()
    assert error.startswith("kraft: error: ")
    assert re.fullmatch(r"hint: See `kraft.* --help`\.", hint)


@pytest.mark.parametrize(
    ("failed", "code", "text"),
    [
        (UsageError("what", where="where", hint="hint"), 2, "kraft: error: what (where)\nhint: hint\n"),
        (ConfigError("what", where="f:1", hint="hint"), 1, "kraft: error: what (f:1)\nhint: hint\n"),
        (DirectoryError("what", where="/d", field="x", hint="hint"), 1, "kraft: error: what (/d, x)\nhint: hint\n"),
        (CommandFailed("what"), 1, "kraft: error: what\n"),
        (CommandFailed(exit_code=130), 130, ""),
        (PermissionError(13, "Permission denied", "/d/f"), 1, "kraft: error: Permission denied (/d/f)\nhint: Check"),
        (
            ExceptionGroup("g", [CommandFailed("a"), ExceptionGroup("h", [CommandFailed("b")])]),
            1,
            "error: a\nkraft: error: b\n",
        ),
        (AssertionError((5, 3)), 1, "kraft: error: an invariant is broken: (5, 3)\nhint: This is a bug"),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"),
            1,
            "kraft: error: pyspark.sql is not installed\nhint: This needs an extra: pip install 'trio-kraft[spark]', or"
            " in a clone: uv pip install -e '.[spark]'.",
        ),
        (RuntimeError("odd"), 1, "kraft: error: RuntimeError: odd\nhint: Run `kraft --debug"),
    ],
)
def test_each_exception_has_an_error_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], failed: Exception, code: int, text: str
) -> None:
    assert report(failed) == code
    assert text in capsys.readouterr().err


def test_a_traceback_is_shown_only_when_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "none.properties")
    assert "Traceback" not in run(capsys, "serve", "-c", missing).err
    with pytest.raises(ConfigError):
        run(capsys, "--debug", "serve", "-c", missing)


def test_kraft_refuses_to_run_with_disabled_assertions() -> None:
    """Under -O a broken invariant would go unnoticed, and a log with it."""
    done = subprocess.run(
        [sys.executable, "-O", "-m", "kraft", "random-uuid"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "does not run under python -O" in done.stderr
    assert done.stdout == ""


def test_random_uuids_are_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    plain = run(capsys, "random-uuid").out.strip()
    other = json.loads(run(capsys, "random-uuid", "--json").out)["uuid"]
    assert plain != other
    for text in (plain, other):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", text)
