"""A fleet of one quorum, from its example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def kraft_fleet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own: it starts and stops a session."""
    inherited = {"PYTHONPATH": str(ROOT), **os.environ, **environment}
    command = [sys.executable, "-m", "kraft", "fleet", *words]
    return subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=600, check=False)
