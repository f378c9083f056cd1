"""The commands over files in the page of the lab: what they print of a directory, a bundle and an archive."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraft.cli.doctor.command import doctor_command
from kraft.cli.doctor.in_page import run_tool, unpacked
from support.real_data import unpack


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clusters", "failover/nodes/c3", tmp_path_factory.mktemp("cluster") / "c3")


@pytest.fixture(scope="module")
def bundle(node: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("bundle") / "host.tar.gz")
    made = CliRunner().invoke(doctor_command, ["collect", "--records", "--into", path, str(node)])
    assert made.exit_code == 0, made.output
    assert unpacked(path) == "[]"
    return path


def test_a_bundle_has_the_state_of_a_partition(bundle: str) -> None:
    assert "alerts-16-0: 101 leads" in run_tool("replay", bundle, "alerts-16-0")
    assert "begins with a snapshot" in run_tool("history", bundle)
    assert run_tool("doctor", bundle).startswith("1 node read")


def test_a_bundle_without_metadata_says_how_to_add_it(node: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "host.tar.gz")
    CliRunner().invoke(doctor_command, ["collect", "--into", path, str(node)], catch_exceptions=False)
    assert unpacked(path) == "[]"
    assert "--records" in run_tool("dump", path)


def test_an_archive_of_a_directory_is_that_directory(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "c3.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(node, "c3")
    inside = json.loads(unpacked(str(path)))
    assert f"{path}.unpacked/c3/meta.properties" in inside
    assert "controller 2: active" in run_tool("history", str(path))
    assert run_tool("doctor", str(path)).startswith("1 node read")


def test_nothing_is_written_beside_the_folder_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "inner" / "evil.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("../../outside")
        member.size = 4
        archive.addfile(member, BytesIO(b"evil"))
    assert json.loads(unpacked(str(path))) == []
    assert not (tmp_path / "outside").exists()


def test_what_is_no_archive_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "broken.tar.gz"
    path.write_bytes(b"\x1f\x8b no")
    assert unpacked(str(path)) == "[]"
    assert unpacked(str(tmp_path / "some.log")) == "[]"


def test_the_history_of_one_partition(node: Path) -> None:
    told = run_tool("history", str(node), "alerts-16-0")
    assert "alerts-16-0: leader 101" in told
    assert "alerts-16-1:" not in told
    assert "there is no topic orders" in run_tool("history", str(node), "orders-3")


def test_doctor_looks_at_all_nodes_in_a_directory(node: Path) -> None:
    told = run_tool("doctor", str(node.parent))
    assert told.startswith("1 node read")
    assert "\x1b" not in told
    assert run_tool("doctor", str(node / "__cluster_metadata-0" / "quorum-state")).startswith("1 node read")


def test_the_page_shows_the_hint_of_a_failure(node: Path) -> None:
    assert f"Did you mean {node}?" in run_tool("history", str(node.parent))
