"""The cases of `tests/data/doctor.tar.xz`: small sets of directories, each with one deliberate change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.real_data import archive, unpack

CASES: dict[str, dict[str, Any]] = {case["case"]: case for case in json.loads(archive("doctor")["cases.json"])}


def configs_of(name: str, target: Path) -> list[str]:
    """Lay out the directories of a case; returns the properties files of its nodes."""
    unpack("doctor", name, target)
    return [str(target / node / "server.properties") for node in CASES[name]["nodes"]]
