"""The damaged directories of `tests/data`: each is the one of static3's first controller, with some files changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.real_data import archive, unpack

CASES: dict[str, dict[str, Any]] = {case["case"]: case for case in json.loads(archive("damaged")["cases.json"])}


def damaged(name: str, target: Path) -> Path:
    """Lay out the directory of a case."""
    unpack("static3", "nodes/c1", target)
    unpack("damaged", f"cases/{name}", target)
    for removed in CASES[name]["removed_files"]:
        (target / removed).unlink()
    return target
