"""Decisions of `poe release-check` by itself; the check as a whole takes minutes, and builds and installs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / ".ci"))

import pythons  # noqa: E402
import release_check  # noqa: E402

URLS = {"Source": "https://example.org"}
READY = "# Changelog\n\n## 0.2.0 (2026-12-01)\n"


def test_nothing_is_left_but_to_tag_and_publish() -> None:
    assert release_check.left_to_a_person("0.2.0", READY, 0, URLS, ["v0.1.0"]) == []


@pytest.mark.parametrize(
    ("version", "changelog", "fragments", "urls", "tags", "left"),
    [
        ("0.1.0", "## 0.1.0 (2026-12-01)", 0, URLS, ["v0.1.0"], "raise the version"),
        ("0.3.0", READY, 0, URLS, [], "write the changelog"),
        ("0.2.0", READY, 2, URLS, [], "2 files wait"),
        ("0.2.0", "## 0.2.0, not yet released", 0, URLS, [], "put the day"),
        ("0.2.0", READY, 0, {}, [], "public address"),
    ],
)
def test_what_a_person_has_to_do_is_named(
    version: str, changelog: str, fragments: int, urls: dict[str, str], tags: list[str], left: str
) -> None:
    (found,) = release_check.left_to_a_person(version, changelog, fragments, urls, tags)
    assert left in found


def test_each_dependency_has_a_permissive_licence() -> None:
    found = dict(release_check.licences())
    assert len(found) > 40
    assert {name: named for name, named in found.items() if not release_check.is_permissive(named)} == {}


@pytest.mark.parametrize(
    ("headers", "named", "permissive"),
    [
        ({"License-Expression": ["MIT OR Apache-2.0"]}, "MIT OR Apache-2.0", True),
        ({"Classifier": ["Typing :: Typed", "License :: OSI Approved :: BSD License"]}, "BSD License", True),
        ({"License": ["MIT\nPermission is hereby granted"]}, "MIT", True),
        ({"License-Expression": ["MIT AND GPL-3.0-only"]}, "MIT AND GPL-3.0-only", False),
        ({}, "none", False),
    ],
)
def test_a_licence_is_read_from_any_of_its_places(headers: dict[str, list[str]], named: str, permissive: bool) -> None:
    full = {key: headers.get(key, []) for key in ("License-Expression", "Classifier", "License")}
    assert release_check.licence(full) == named
    assert release_check.is_permissive(named) is permissive


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
