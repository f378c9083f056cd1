"""The dependencies of the project: no floor admits a version with a published advisory, and what runs has hashes."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support import ROOT

ALL: Final = "constraints-hashed.txt"
CONTAINER: Final = "deploy/container/requirements.txt"
BUILD: Final = "deploy/container/build-requirements.txt"
_PIN: Final = re.compile(r"([a-z0-9.-]+==[\w.+!]+)(?: ; .*?)?((?: +--hash=sha256:[0-9a-f]{64})+)")
CONTAINERFILE: Final = (ROOT / "deploy/container/Containerfile").read_text()


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def asked(*, everything: bool) -> list[Requirement]:
    """The requirements of the project: to run, and with `everything` also in its extras and to be tested."""
    texts = list(project()["project"]["dependencies"])
    if everything:
        texts += [text for one in project()["project"]["optional-dependencies"].values() for text in one]
        texts += [text for one in project()["dependency-groups"].values() for text in one if isinstance(text, str)]
    return [one for text in texts if (one := Requirement(text)).name != project()["project"]["name"]]


def advisories() -> list[dict[str, str]]:
    found: list[dict[str, str]] = tomllib.loads((ROOT / "tests/data/advisories.toml").read_text())["advisory"]
    return found


@pytest.mark.parametrize("advisory", advisories(), ids=lambda one: one["id"])
def test_no_floor_admits_a_version_with_a_published_advisory(advisory: dict[str, str]) -> None:
    assert advisory["source"].startswith("https://")
    wanted = [one for one in asked(everything=True) if canonicalize_name(one.name) == advisory["package"]]
    assert wanted, f"nothing asks for {advisory['package']} any more: remove the advisory"
    for one in wanted:
        [floor] = [Version(each.version) for each in one.specifier if each.operator == ">="]
        assert floor >= Version(advisory["fixed"]), f"{one} admits {advisory['id']}, fixed in {advisory['fixed']}"


def test_each_dependency_was_looked_up() -> None:
    none = tomllib.loads((ROOT / "tests/data/advisories.toml").read_text())["none"]["packages"]
    known = {one["package"] for one in advisories()} | set(none)
    extras = [text for one in project()["project"]["optional-dependencies"].values() for text in one]
    names = {canonicalize_name(one.name) for one in [*asked(everything=False), *map(Requirement, extras)]}
    assert names - {project()["project"]["name"]} <= known


def pins(path: str) -> dict[str, list[str]]:
    """The pinned versions of a file with hashes, each with its hashes."""
    found = {}
    for line in (ROOT / path).read_text().replace("\\\n", "").splitlines():
        if not line.startswith("#"):
            pin = _PIN.fullmatch(line)
            assert pin is not None, line
            found[pin[1]] = pin[2].split()
    return found


def names(path: str) -> set[str]:
    return {pin.partition("==")[0] for pin in pins(path)}


@pytest.mark.parametrize("path", [ALL, CONTAINER])
def test_hashes_are_those_of_the_tested_versions(path: str) -> None:
    tested = set((ROOT / "constraints.txt").read_text().splitlines())
    assert pins(path).keys() <= tested, "run .ci/hashes"


def test_everything_that_runs_has_hashes() -> None:
    needed = {canonicalize_name(one.name) for one in asked(everything=False)}
    assert needed <= names(CONTAINER)
    assert pins(CONTAINER).items() <= pins(ALL).items()
    assert "hatchling" in names(BUILD)


def test_the_container_is_built_from_digests_and_hashes_alone() -> None:
    """There is no default base: whoever builds names one by its digest, and the build checks that."""
    bases = re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)
    assert bases == ["${PYTHON_IMAGE}"] * 2
    assert re.findall(r"^ARG PYTHON_IMAGE.*", CONTAINERFILE, re.MULTILINE) == ["ARG PYTHON_IMAGE"] * 2
    assert 'case "$PYTHON_IMAGE" in *@sha256:*)' in CONTAINERFILE
    for command in re.findall(r"pip (?:install|wheel) [^&\\\n]*", CONTAINERFILE):
        assert "--require-hashes" in command or "--no-deps" in command, command
