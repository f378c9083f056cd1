"""What tests share: everything in `tests` that is neither a test nor a `conftest.py`.

`tests` is on the path of pytest, so a test of any folder writes `from support.interop.real_kafka import Nodes`. A
folder here serves the tests of the folder of its name, and whoever else needs it: `broker` and `invariants` some of
those of `tests/kraft`, `scenarios` and `doctor` some of those of `tests/interop`.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
ROOT = TESTS.parent
