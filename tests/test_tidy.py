"""What may be in the repository: nothing of one machine, and nothing that makes tests wait for a clock."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("kraft", "metadata_log", "transport")
TEXT = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".sh", ".properties", ""}
MACHINE = re.compile(r"/(?:root|home|work|Users)/\w|[A-Z]:\\Users")
REGISTRY = re.compile(
    r"pythonhosted|pypi\.(?:org|io)|index-url|maven\.org|repo1\.|\.m2/repository|artifactory|proxy\.golang", re.I
)
DATA_BYTES = 8_000_000


@cache
def files() -> tuple[Path, ...]:
    """The files under version control; where there is no git, as in a source archive, everything that is not hidden."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return tuple(
            path for name in (*PACKAGES, "tests", "bench", "docs") for path in sorted((ROOT / name).rglob("*.*"))
        )
    return tuple(ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file())


def texts() -> list[Path]:
    return [path for path in files() if path.suffix in TEXT and path != Path(__file__)]


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY], ids=["machine", "registry"])
def test_nothing_names_a_machine_or_a_registry(pattern: re.Pattern[str]) -> None:
    """A clone works anywhere, with whatever registry its user has."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_lock_file_is_committed() -> None:
    """Lock files name the hosts that packages came from; constraints.txt has the versions without them."""
    assert not [path for path in files() if path.name in {"uv.lock", "poetry.lock", "Pipfile.lock"}]


def test_constraints_are_exact_versions_without_hosts() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+|#.*", line)]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_data_stays_small() -> None:
    assert sum(path.stat().st_size for path in files() if path.is_relative_to(ROOT / "tests" / "data")) < DATA_BYTES


def test_tests_wait_for_conditions_and_not_for_time() -> None:
    """A test that sleeps on a real clock is slow where it passes and fails where the machine is busy."""
    found = []
    for path in files():
        if path.suffix != ".py" or not path.is_relative_to(ROOT / "tests"):
            continue
        source = path.read_text()
        virtual = "autojump_clock" in source or "MockClock" in source
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sleep"):
                module = ast.unparse(node.func).rpartition(".")[0]
                if module != "trio" or not virtual:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def test_nothing_is_left_for_later() -> None:
    """What stands in the product is finished."""
    pattern = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)
