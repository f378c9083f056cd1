"""The modules that a command loads before it does anything: who types `kraft --help` waits for each module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from kraft.cli.commands import COMMANDS
from kraft.cli.main import kraft
from metadata_log.log.segment import file_name
from metadata_log.spark.materialize import find_fleet, make_job, run_here
from metadata_log.tables.cluster import Status
from metadata_log.types import PARTITION_DIRECTORY
from support import real_data

COUNT = """
import sys
before = set(sys.modules)
from kraft.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, *(set(sys.modules) - before), file=sys.stderr)
"""


def modules_loaded(*words: str) -> set[str]:
    """The modules that a command of `kraft` loads on top of those of a bare interpreter."""
    done = subprocess.run([sys.executable, "-c", COUNT, *words], capture_output=True, text=True, check=True)
    code, *names = done.stderr.split()
    assert code == "0", done
    assert done.stdout, done
    return set(names)


@pytest.mark.parametrize(("words", "most"), [(["--help"], 100), (["--version"], 90)])
def test_help_and_version_load_few_modules(words: list[str], most: int) -> None:
    assert len(modules_loaded(*words)) <= most


def test_who_imports_the_program_again_loads_nothing_of_it() -> None:
    """As a process that multiprocessing spawns does, by the name of the module or by the console script."""
    code = "import sys, kraft.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    of_ours = [one for one in done.stdout.split() if one.startswith(("kraft", "click", "trio"))]
    assert of_ours == ["kraft", "kraft.__main__"]


def test_a_dump_loads_few_modules(tmp_path: Path) -> None:
    path, content, _ = min(real_data.real_files(), key=lambda one: len(one[1]))
    file = tmp_path / Path(path).name
    file.write_bytes(content)
    assert len(modules_loaded("dump", str(file))) <= 270


def test_a_night_with_nothing_new_loads_few_modules(tmp_path: Path) -> None:
    """Most of the processor time of such a night is that of imports: pandas alone took as much as all the rest."""
    logs = {name: data for name, data in real_data.archive("clusters").items() if name.endswith("000.log")}
    log = tmp_path / "fleet" / "a" / PARTITION_DIRECTORY
    log.mkdir(parents=True)
    (log / file_name(0)).write_bytes(min(logs.values(), key=len))
    out = str(tmp_path / "tables")
    run = run_here(find_fleet([f"{tmp_path}/fleet/*"], {}), make_job(out, run="first", views=["topic_history"]))
    assert [one.status for one in run.outcomes] == [Status.NEW]
    found = modules_loaded("fleet", "materialize", f"{tmp_path}/fleet/*", "--out", out)
    assert found.isdisjoint(("pandas", "rich", "pyarrow.compute", "pyarrow.dataset", "multiprocessing"))
    own = [name for name in found if not name.startswith(("numpy", "pyarrow"))]
    assert len(own) <= 380


def test_the_help_says_of_each_command_what_its_own_help_begins_with() -> None:
    context = click.Context(kraft)
    for name, command in COMMANDS.items():
        found = kraft.get_command(context, name)
        assert found is not None, name
        assert found.get_short_help_str(limit=100) == command.about, name
