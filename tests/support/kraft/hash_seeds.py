"""The same program in other processes, which order their sets and hash their strings differently."""

from __future__ import annotations

import os
import subprocess
import sys


def outputs_of(script: str, *arguments: str, seeds: tuple[str, ...] = ("1", "2"), **environment: str) -> set[str]:
    """Outputs of a program, run once with each of these `PYTHONHASHSEED`s; one text if it is the same every time."""
    return {
        subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env={**os.environ, "PYTHONHASHSEED": seed, **environment},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in seeds
    }
