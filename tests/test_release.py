"""Decisions of `poe release-check` by itself; the check as a whole takes minutes, and builds and installs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".ci"))

import pythons  # noqa: E402
import release_check  # noqa: E402


def test_each_dependency_has_a_permissive_licence() -> None:
    found = dict(release_check.licences())
    assert len(found) > 40
    assert {name: named for name, named in found.items() if not release_check.is_permissive(named)} == {}


def test_this_python_is_among_those_that_the_wheel_is_tried_on() -> None:
    assert pythons.is_release(sys.executable, sys.version_info.minor)
    assert not pythons.is_release(sys.executable, sys.version_info.minor + 1)
    classified = [text.rpartition(" ")[2] for text in release_check.project()["classifiers"] if ":: 3." in text]
    assert classified == [f"3.{minor}" for minor in pythons.MINORS]


def test_the_version_stands_in_one_place() -> None:
    version = release_check.project()["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    printed = subprocess.run([sys.executable, "-m", "kraft", "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout == f"kraft {version}\n"
    assert not [path for path in ROOT.glob("*/__init__.py") if "__version__" in path.read_text()]
