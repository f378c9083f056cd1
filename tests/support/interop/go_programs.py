"""The client of franz-go, which the Go toolchain builds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support import TESTS
from support.interop.kafka_or_skip import skip_here

FRANZ = TESTS / "interop" / "brokers" / "franz"


def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; the test is skipped without a toolchain."""
    if shutil.which("go") is None:
        skip_here("franz-go needs a Go toolchain")
    program = tmp_path_factory.mktemp("franz") / "franz"
    command = ["go", "build", "-o", str(program), "."]
    built = subprocess.run(command, cwd=FRANZ, capture_output=True, text=True, timeout=600, check=False)
    if built.returncode != 0 and "dial tcp" in built.stderr:
        skip_here("the modules of franz-go are not here, and the module proxy is out of reach")
    assert built.returncode == 0, built.stderr
    return program
