"""Rules for the repository's files: nothing of one machine, nothing unfinished, no tests that wait for a clock.

No test file imports another one, so that each can be collected, read and changed alone.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import sysconfig
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support import ROOT

TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
PACKAGES = ("kraft", "metadata_log", "transport")
BINARY = {".gz", ".webp", ".xz"}
MACHINE = re.compile(r"(?<![\w.>}])/(?:root|home|work|Users|tmp|var/tmp)\b|[A-Z]:\\Users")
REGISTRY = re.compile(
    r"pythonhosted|pypi\.(?:org|io)|index-url|maven\.org|repo1\.|\.m2/repository|artifactory|proxy\.golang", re.I
)
ALLOWED = {MACHINE: "/tmp/kafka-logs", REGISTRY: ""}
"""Kafka's own default of log.dir."""
FILE_BYTES = 2_000_000
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


@cache
def texts() -> dict[str, str]:
    """Every text file under version control, by its path from the root."""
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files() if path.suffix not in BINARY
    }


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    for name, text in texts().items():
        if name.endswith(".py") and name.startswith(tuple(f"{folder}/" for folder in folders)):
            yield name, text


def lines_with(pattern: re.Pattern[str], allowed: str) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts().items()
        if name != "tests/test_tidy.py" and pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line.replace(allowed, "") if allowed else line)
    ]


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY], ids=["machine", "registry"])
def test_no_file_names_a_private_machine_or_registry(pattern: re.Pattern[str]) -> None:
    """A clone works anywhere, with whatever registry its user has."""
    found = lines_with(pattern, ALLOWED[pattern])
    assert not found, "\n".join(found)


def test_no_lock_file_is_committed() -> None:
    """Lock files name the hosts that packages came from; constraints.txt has the versions without them."""
    assert not [path for path in files() if re.fullmatch(r"(?:uv|poetry|Pipfile)\.lock|pylock\..*toml", path.name)]
    assert "uv.lock" in (ROOT / ".gitignore").read_text().splitlines()


@cache
def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert not [line for line in pinned if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)]
    return dict(line.split("==") for line in pinned)


def requirements() -> list[Requirement]:
    """Everything that pyproject.toml asks for to run, to test and to build the documentation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [text for texts in project["project"]["optional-dependencies"].values() for text in texts]
    groups = [text for texts in project["dependency-groups"].values() for text in texts if isinstance(text, str)]
    asked = project["project"]["dependencies"] + extras + groups
    return [wanted for text in asked if (wanted := Requirement(text)).name != project["project"]["name"]]


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_the_tested_versions_are_within_the_bounds(wanted: Requirement) -> None:
    name = canonicalize_name(wanted.name)
    assert name in constraints(), f"constraints.txt does not say which {name} was tested"
    assert wanted.specifier.contains(constraints()[name])


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_every_exemption_from_a_checker_gives_its_reason() -> None:
    """`# noqa: RULE` or `# type: ignore[rule]`, then two words at least about why."""
    bare = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b(?:\[[\w, -]+\]|:\s*[A-Z]+\d+)?(?P<why>.*)")
    found = [
        f"{name}:{token.start[0]}: {token.string}"
        for name, text in sources(*PACKAGES)
        if bare.search(text)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        if (exemption := bare.match(token.string)) and len(exemption["why"].split()) < 3
    ]
    assert not found, "\n".join(found)


def test_files_are_small_and_end_in_one_newline() -> None:
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in files()}
    assert {name: size for name, size in sizes.items() if size >= FILE_BYTES} == {}
    assert sum(size for name, size in sizes.items() if name.startswith("tests/data/")) < DATA_BYTES
    assert [name for name, text in texts().items() if text and text.rstrip("\n") + "\n" != text] == []
    assert [name for name, text in texts().items() if "\r" in text] == []


def test_tests_wait_for_conditions_and_not_for_time() -> None:
    """A test that sleeps on a real clock is slow where it passes and fails where the machine is busy.

    Under Trio's MockClock `trio.sleep` takes no time: the clock jumps.
    """
    found = []
    for name, text in sources("tests"):
        if "sleep" not in text:
            continue
        virtual = any(one in text for one in ("autojump_clock", "MockClock", "in_virtual_time"))
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            call = ast.unparse(node.func)
            if re.fullmatch(r"(?:\w+\.)?sleep(?:_until)?", call) and not (virtual and call.startswith("trio.")):
                found.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def test_no_file_has_unfinished_work() -> None:
    """The product has no unfinished code, and no test is expected to fail or run twice."""
    pattern = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError|mark\.xfail|pragma: no cover|mark\.flaky")
    found = [
        f"{name}:{number}"
        for name, text in sources(*PACKAGES, "tests", "bench")
        if name != "tests/test_tidy.py"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def is_support(path: Path) -> bool:
    return path.is_relative_to(SUPPORT)


def test_a_docstring_has_its_subject_first() -> None:
    """No sentence begins with a question word in place of a noun."""
    found = [
        f"{name}:{number}"
        for name, text in sources(*PACKAGES)
        for number, line in enumerate(text.splitlines(), 1)
        if re.match(r'\s*r?"""(?:What|Who|Whom|Whose|Whoever|Whatever|Which|They|It)\b', line)
    ]
    assert found == []


def test_what_folders_share_is_in_one_place() -> None:
    """In `tests/support`, below the one folder that pytest adds to the path of every test."""
    assert [path for path in python_files(SUPPORT) if path.name.startswith("test_")] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["pythonpath"] == ["tests"]


def beside_tests() -> list[Path]:
    """The modules that only the tests of their folder use."""
    names = [path for path in python_files(TESTS) if not path.name.startswith(("test_", "conftest"))]
    return [path for path in names if not is_support(path)]


def test_what_lies_beside_tests_is_for_these_tests() -> None:
    """A test of another folder finds such a module only if it does not run alone."""
    folders = {path.stem: str(path.parent.relative_to(ROOT)) for path in beside_tests()}
    found = [
        f"{name}: {module} is in {folders[module]}; tests/support can hold what both folders need"
        for name, text in sources("tests")
        for module in re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE)
        if folders.get(module, name.rpartition("/")[0]) != name.rpartition("/")[0]
    ]
    assert not found, "\n".join(found)


def named_support(text: str) -> set[str]:
    """What may be files of `tests/support` that a text imports, runs or names."""
    dotted = [path.rstrip(".").removesuffix(".py") for path in re.findall(r"support[./](\w[\w./]*)", text)]
    for package, names in re.findall(r"from support\.?([\w.]*) import ([\w, ]+|\([^)]*\))", text):
        dotted += (f"{package}.{name}".lstrip(".") for name in re.findall(r"\w+", names))
    return {f"tests/support/{path.replace('.', '/')}.py" for path in dotted}


def of_one_folder(written: Mapping[str, str]) -> dict[str, str]:
    """The modules of `tests/support` that one folder of tests uses alone, directly or through others, with the folder.

    A program has users at the command line. Benches and pages are users, too.
    """
    users: dict[str, set[str]] = {name: set() for name in written if re.match(r"tests/support/.+\.py", name)}
    for name, text in written.items():
        for module in users.keys() & named_support(text):
            users[module].add(name)
    alone = {}
    for module in sorted(users):
        folders, seen, ahead = set(), set(), [module]
        while ahead:
            if (name := ahead.pop()) in seen:
                continue
            seen.add(name)
            ahead.extend(users.get(name, ()))
            if name not in users:
                folders.add(name.rpartition("/")[0])
            elif '__name__ == "__main__"' in written[name]:
                folders.add("a command")
        if len(folders) == 1 and (only := folders.pop()).startswith("tests/"):
            alone[module] = only
    return alone


def test_support_has_what_two_folders_share() -> None:
    """What the tests of one folder use lies beside them; of `tests` itself, that is in `tests/support`."""
    used = "from support.own.clock import Clock"
    planted = {"tests/support/own/clock.py": "", "tests/a/test_a.py": used}
    assert of_one_folder(planted) == {"tests/support/own/clock.py": "tests/a"}
    assert of_one_folder(planted | {"tests/support/b.py": used, "bench/b.py": "import support.b"}) == {}
    assert of_one_folder(texts()) == {}, "each is for the tests of one folder, and can lie beside them"


def imported(source: str) -> Iterator[tuple[int, str]]:
    """The module of each import, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module


def of_other_tests(source: str) -> list[str]:
    """The imports of test files: who reads or changes one of two such files must know the other one."""
    return [
        f"{line}: {name} is a test; a module beside them can hold what both need"
        for line, name in imported(source)
        if name.rpartition(".")[2].startswith("test_")
    ]


def test_no_test_takes_anything_from_another_one() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in python_files(TESTS) for line in of_other_tests(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Folders without `__init__.py` share one name space: the first module of a name would hide the second one."""
    names = Counter(path.stem for path in python_files(TESTS) if not is_support(path) and path.name != "conftest.py")
    names.update({path.stem for path in python_files(ROOT / "bench", ROOT / "docs" / "site")} & names.keys())
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_beside_tests_hides_a_library() -> None:
    names = {path.stem for path in beside_tests()}
    installed = [str(ROOT), *{sysconfig.get_path(kind) for kind in ("purelib", "platlib")}]
    assert names & sys.stdlib_module_names == set()
    assert [name for name in sorted(names) if PathFinder.find_spec(name, installed)] == []
