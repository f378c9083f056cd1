"""The install lines of the pages bring what their programs import: by their names, and in an empty environment."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support import ROOT
from support.documented_programs import PYTHON

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?<![/\w])pip install (?!-q)([^`\n#]+)")
OURS = ("kraft", "metadata_log", "transport", "pyspark_kraft")
LEFT = {"redis"}
"""What programs import that a page shows as the ones to be replaced."""
SET_UP = "uv sync --inexact --no-dev --group doors && source .venv/bin/activate"
"""The line with which each tutorial begins, and the doors of the README. It takes nothing away."""
DOORS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["doors"]
PAGES = sorted(path for path in (*DOCS.rglob("*.md"), ROOT / "README.md") if BLOCK.search(path.read_text()))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def installs(page: Path) -> list[str]:
    """What the install lines of a page name: of a clone, the project itself."""
    text = page.read_text()
    words = " ".join(LINE.findall(text)).replace("'", "").replace('"', "").split()
    words += DOORS if SET_UP in text else []
    return list(dict.fromkeys(word.replace(".[", "trio-kraft[") for word in words if word != "-e"))


def imports(page: Path) -> dict[str, str]:
    """The modules of others that the programs of a page import, by their first name."""
    text = page.read_text()
    own = {match["name"].removesuffix(".py") for match in PYTHON.finditer(text)}
    found: dict[str, str] = {}
    for code in BLOCK.findall(text):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            found |= {name.partition(".")[0]: name for name in names}
    return {top: name for top, name in found.items() if top not in {*sys.stdlib_module_names, *OURS, *own, *LEFT}}


@cache
def needs(requirement: str) -> tuple[str, ...]:
    """What a requirement needs itself, with its extras."""
    wanted = Requirement(requirement)
    try:
        told = [Requirement(one) for one in requires(wanted.name) or ()]
    except PackageNotFoundError:
        return ()
    return tuple(
        f"{one.name}[{','.join(sorted(one.extras))}]"
        for one in told
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (wanted.extras or {""}))
    )


def brought_by(requirements: Iterable[str]) -> set[str]:
    """The distributions that these requirements install."""
    seen: set[str] = set()
    waiting = list(requirements)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += needs(one)
    return {canonicalize_name(Requirement(one).name) for one in seen}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_install_lines_of_a_page_name_what_its_programs_import(page: Path) -> None:
    installed = brought_by(["trio-kraft", *installs(page)])
    names = packages_distributions()
    missing = {
        top: names.get(top, ["?"])
        for top in imports(page)
        if not {canonicalize_name(one) for one in names.get(top, ())} & installed
    }
    assert not missing, f"{name_of(page)} installs {installs(page)}"


BARE = [page for page in PAGES if installs(page)]


def program_of_uv() -> str:
    program = os.environ.get("UV") or shutil.which("uv")
    assert program is not None, "run the tests with `uv run pytest`"
    return program


def uv(*words: str) -> None:
    done = subprocess.run([program_of_uv(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT))
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.soak if "pyspark" in imports(page) else (), id=name_of(page))
        for page in BARE
    ],
)
def test_the_programs_of_a_page_load_after_its_install_line_alone(page: Path, wheel: Path, tmp_path: Path) -> None:
    """In an empty environment, and away from the clone; the tests among the programs run."""
    python = str(tmp_path / "venv" / "bin" / "python")
    uv("venv", "--quiet", str(tmp_path / "venv"))
    lines = [re.sub(r"^trio-kraft", f"trio-kraft@{wheel.as_uri()}", line) for line in ("trio-kraft", *installs(page))]
    lines = [re.sub(r"^trio-kraft@(\S+?)(\[[\w,]+\])$", r"trio-kraft\2@\1", line) for line in lines]
    uv("pip", "install", "--quiet", "--python", python, "--constraint", str(ROOT / "constraints.txt"), *lines)
    text = page.read_text()
    folder = tmp_path / "programs"
    folder.mkdir()
    for match in PYTHON.finditer(text):
        (folder / match["name"]).write_text(match["code"])
    loads = "\n".join(statement for code in BLOCK.findall(text) for statement in statements(code, folder))
    (folder / "loads.py").write_text(loads)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run([python, "loads.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    if any(path.name.startswith("test_") for path in folder.iterdir()):
        command = [python, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "."]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def statements(code: str, folder: Path) -> list[str]:
    """The imports of a program, but those of the other programs of its page."""
    own = {path.stem for path in folder.iterdir()} | LEFT
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(code))
        if (isinstance(node, ast.Import) and not {one.name for one in node.names} & own)
        or (isinstance(node, ast.ImportFrom) and node.module not in {*own, "__future__"})
    ]


@pytest.mark.soak
def test_the_line_takes_nothing_away_and_is_enough_for_each_door(tmp_path: Path) -> None:
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(tmp_path / "venv")}
    environment.pop("VIRTUAL_ENV", None)

    def ran(*words: str) -> str:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode in {0, 1} else done.stderr

    set_up = (program_of_uv(), *SET_UP.partition(" && ")[0].split()[1:], "--quiet")
    python = str(tmp_path / "venv" / "bin" / "python")
    assert ran(*set_up) == ""
    uv("pip", "install", "--quiet", "--no-deps", "--python", python, "toolz")
    assert ran(*set_up) == ""
    assert ran(python, "-c", "import toolz, pytest, confluent_kafka, kraft.testing; print('all')") == "all\n"
    mutant = ("sim", "run", "--mutant", "vote-without-log-check")
    assert ran(python, "-m", "kraft", *mutant).startswith("InvariantViolated")
