"""Bundles: collected on one host and read on another, without secrets."""

from __future__ import annotations

import gzip
import json
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from doctor_cases import CASES, configs_of
from kraft.cli.doctor.command import doctor_command
from kraft.config.errors import CommandFailed, ConfigError
from kraft.operate.doctor.bundle import is_bundle, read_bundle
from metadata_log import replay
from support.real_data import unpack

PASSWORD = "not-a-secret"
"""The password in the configuration of the case `file-modes`."""


def run(*words: str) -> Result:
    return CliRunner().invoke(doctor_command, list(words))


def collect(into: Path, *words: str) -> str:
    done = run("collect", *words, "--into", str(into))
    assert done.exit_code == 0, (done.output, done.exception)
    return str(into)


def findings(*words: str) -> dict[str, Any]:
    done = run("--offline", "--json", *words)
    assert done.exit_code in {0, 1, 2}, done.output
    return {one["id"]: one for one in json.loads(done.stdout)["findings"]}


def on_this_host(finding: str) -> bool:
    """Whether a finding depends on this machine's free space."""
    return finding == "disk-headroom"


@pytest.mark.parametrize("name", CASES)
def test_bundles_with_records_give_the_findings_of_the_directories(name: str, tmp_path: Path) -> None:
    configs = configs_of(name, tmp_path / "nodes")
    bundles = [
        collect(tmp_path / f"{number}.tar.gz", "-c", config, "--records") for number, config in enumerate(configs)
    ]
    direct = findings(*[word for config in configs for word in ("-c", config)])
    read = findings(*bundles)
    assert {one for one in read if not on_this_host(one)} == {one for one in direct if not on_this_host(one)}
    for one in direct.keys() - {"disk-headroom"}:
        assert read[one]["severity"] == direct[one]["severity"]
        assert read[one]["subjects"] == direct[one]["subjects"]


def test_a_bundle_without_records_skips_the_checks_of_the_metadata(tmp_path: Path) -> None:
    (config,) = configs_of("min-isr-over-rf", tmp_path / "nodes")
    bundle = collect(tmp_path / "one.tar.gz", "-c", config)
    with tarfile.open(bundle) as tar:
        assert tar.getnames() == ["bundle.json"]
        content = tar.extractfile("bundle.json")
        assert content is not None
        assert b"alpha" not in content.read()
    report = json.loads(run("--offline", "--json", bundle).stdout)
    assert "min-isr-over-rf" not in {one["id"] for one in report["findings"]}
    assert {"id": "min-isr-over-rf", "needs": "a readable metadata log"} in report["skipped"]


def test_a_bundle_has_no_password_of_the_configuration(tmp_path: Path) -> None:
    (config,) = configs_of("file-modes", tmp_path / "nodes")
    bundle = collect(tmp_path / "one.tar.gz", "-c", config, "--records")
    assert PASSWORD in Path(config).read_text()
    with tarfile.open(bundle) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            assert PASSWORD.encode() not in content.read()
    assert "file-modes" in findings(bundle)


def test_a_bundle_has_no_credential_and_no_token_of_the_metadata(tmp_path: Path) -> None:
    """The log of static3 holds SCRAM credentials and delegation tokens."""
    node = unpack("static3", "nodes/c1", tmp_path / "c1")
    image = replay(str(node))
    keys = [one.stored_key for user in image.scram.by_user.values() for one in user.values()]
    keys += [one.salt for user in image.scram.by_user.values() for one in user.values()]
    tokens = [token.encode() for token in image.tokens.by_id]
    assert keys
    assert tokens
    bundle = collect(tmp_path / "c1.tar.gz", str(node), "--records")
    with tarfile.open(bundle) as tar:
        assert len(tar.getnames()) == 2
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            text = content.read()
            assert not [secret for secret in (*keys, *tokens) if secret in text]
    (found,) = read_bundle(bundle).images.values()
    assert set(found.image.scram.by_user) == set(image.scram.by_user)
    assert set(found.image.topics) == set(image.topics)
    assert found.image.end == image.end


def test_a_bundle_is_readable_by_its_owner_only_and_replaces_no_file(tmp_path: Path) -> None:
    (config,) = configs_of("healthy-dynamic-one", tmp_path / "nodes")
    bundle = Path(collect(tmp_path / "one.tar.gz", "-c", config))
    assert bundle.stat().st_mode & 0o777 == 0o600
    again = run("collect", "-c", config, "--into", str(bundle))
    assert isinstance(again.exception, FileExistsError)


def test_an_archive_that_is_no_bundle_is_refused_with_its_name(tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        tar.add(__file__, arcname="test.py")
    done = run("--offline", str(other))
    assert isinstance(done.exception, CommandFailed)
    assert done.exception.exit_code == 3
    assert f"{other}: the archive has no bundle.json" in str(done.exception.what)


# Archives that somebody else has made


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of a member that claims a size."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


CLAIMS = {
    "a pax header": header("PaxHeader", 400 << 20, tarfile.XHDTYPE),
    "a global pax header": header("PaxHeader", 400 << 20, tarfile.XGLTYPE),
    "a long name": header("././@LongLink", 400 << 20, tarfile.GNUTYPE_LONGNAME),
    "a long link": header("././@LongLink", 400 << 20, tarfile.GNUTYPE_LONGLINK),
    "a manifest": header("bundle.json", 400 << 20),
    "a size beyond all disks": header("x", 1 << 62),
    "a negative size": header("x", -5),
}


@pytest.mark.parametrize("claim", sorted(CLAIMS))
def test_no_header_of_an_archive_takes_memory_by_its_claim(claim: str, tmp_path: Path) -> None:
    """400 MB of nothing are 400 KB of gzip."""
    path = tmp_path / "bundle.tar.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(CLAIMS[claim])
        for _ in range(400):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        assert is_bundle(str(path))
        with pytest.raises(ConfigError):
            read_bundle(str(path))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_a_bundle_may_be_packed_again_by_other_tools(suffix: str, tmp_path: Path) -> None:
    (config,) = configs_of("min-isr-over-rf", tmp_path / "nodes")
    made = collect(tmp_path / "bundle.tar.gz", "-c", config, "--records")
    again = tmp_path / f"again.{suffix}"
    mode: Any = {"tar": "w", "tar.gz": "w:gz"}[suffix]
    with tarfile.open(made) as old, tarfile.open(again, mode, format=tarfile.PAX_FORMAT) as new:
        for member in reversed(old.getmembers()):
            member.pax_headers = {"comment": "x" * 1000, "mtime": "1.5"}
            new.addfile(member, old.extractfile(member))
    assert is_bundle(str(again))
    assert read_bundle(str(again)).manifest == read_bundle(made).manifest
    assert len(read_bundle(str(again)).images) == len(read_bundle(made).images) == 1


@pytest.mark.parametrize("content", [b"", b"x", bytes(512), b"\x1f\x8bno gzip", b"x" * 600])
def test_what_is_no_archive_is_no_bundle(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert not is_bundle(str(path))
    with pytest.raises(ConfigError):
        read_bundle(str(path))
