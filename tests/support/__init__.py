"""What tests of two or more folders share.

`tests` is on the path of pytest, so a test of any folder writes `from support.interop.real_kafka import Nodes`. A
folder here serves the folders of its name, and whoever else needs it: `broker` some of those of `tests/kraft`,
`scenarios` some of those of `tests/interop`. What one folder alone uses lies beside its tests.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
ROOT = TESTS.parent
