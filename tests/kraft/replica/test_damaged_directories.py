"""Every documented damage: the findings of `kraft dump`, a start of our node, and the recorded start of Kafka 4.3.1.

`cases.json` of the archive `damaged` holds what a real controller made of each directory, as the only voter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import Struct

from kraft.cli.files.dump import dump_command
from kraft.process.hosting import host_controller
from loaded_replica import PARTITION, loaded_disk
from metadata_log.disk import OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.file_kinds import FileKind, files_in, kind_of
from metadata_log.reading.verify import verify_file
from metadata_log.reading.verify_directory import verify_directory
from support.kraft.replica_net import DIRECTORY, Net
from support.real_data import archive, unpack

CASES = {case["case"]: case for case in json.loads(archive("damaged")["cases.json"])}
LAST = "00000000000000004847.log"
SNAPSHOT = "00000000000000005210-0000000008.checkpoint"


class Found(Struct, frozen=True):
    """A finding: part of its words, then file, byte and offset."""

    words: str
    file: str = LAST
    position: int | None = None
    offset: int | None = None


FINDINGS: dict[str, list[Found]] = {
    "truncated-last-batch": [Found("a batch of 72 bytes ends after 52", LAST, 36123, 5316)],
    "truncated-last-header": [Found("a batch of 72 bytes ends after 30", LAST, 36123, 5316)],
    "bitflip-last-batch": [Found("0x435e073d is stored", LAST, 36123, 5316)],
    "bitflip-middle-batch": [Found("0xd1a784a2 is stored", LAST, 32167, 5271)],
    "bitflip-old-segment": [Found("0xa5ff96bd is stored", "00000000000000000000.log", 10166, 119)],
    "zero-tail": [Found("no batch has a length of 0; 4096 bytes", LAST, 36195, 5317)],
    "torn-write": [Found("0x435e073d is stored", LAST, 36123, 5316)],
    "wrong-magic-0": [Found("the old format 0", LAST, 36123, 5316)],
    "wrong-magic-1": [Found("the old format 1", LAST, 36123, 5316)],
    "wrong-magic-3": [Found("unknown batch format 3", LAST, 36123, 5316)],
    "negative-length": [Found("no batch has a length of -1", LAST, 36123, 5316)],
    "huge-length": [Found("a batch of 2147483659 bytes ends after 72", LAST, 36123, 5316)],
    "offset-gap": [Found("offset 5272 where 5271 comes next", LAST, 32167, 5272)],
    "offset-overlap": [Found("offset 5271 where 5272 comes next", LAST, 32239, 5271)],
    "segment-missing": [
        Found("the segment of this index is not there", "00000000000000002908.index"),
        Found("the segment of this index is not there", "00000000000000002908.timeindex"),
        Found("begins at offset 4072 where 2908 comes next", "00000000000000004072.log", 0, 2908),
    ],
    "epoch-backwards": [Found("epoch 1 follows one of epoch 13", LAST, 36123, 5316)],
    "bad-frame-version": [Found("record frame version 2", LAST, 36262, 5317)],
    "record-trailing-garbage": [Found("trailing bytes behind NoOpRecord", LAST, 36266, 5317)],
    "snapshot-footer-missing": [Found("ends without its footer", SNAPSHOT, 89217)],
    "snapshot-truncated": [Found("a batch of 89134 bytes ends after 59445", SNAPSHOT, 83, 1)],
    "snapshot-bitflip": [Found("0xe782a0f0 is stored", SNAPSHOT, 83, 1)],
    "snapshot-empty": [Found("the snapshot is empty", SNAPSHOT, 0)],
    "snapshot-header-missing": [Found("does not begin with its header", SNAPSHOT, 0)],
    "snapshot-all-missing-log-starts-late": [
        Found("the log begins at offset 4072, and no snapshot", "00000000000000004072.log", 0, 4072)
    ],
    "log-missing-snapshot-present": [Found("there is no segment of the log", "00000000000000000000.log", None, 0)],
    "snapshot-part-leftover": [Found("a batch of 89134 bytes ends after 917", f"{SNAPSHOT}.part", 83, 1)],
    "quorum-state-empty": [Found("the file is empty", "quorum-state")],
    "quorum-state-unknown-version": [Found("data_version is 2", "quorum-state")],
    "quorum-state-missing": [Found("quorum-state is missing", "quorum-state")],
    "quorum-state-garbage": [Found("this is not JSON", "quorum-state")],
    "quorum-state-truncated": [Found("this is not JSON", "quorum-state")],
    "quorum-state-epoch-behind-log": [Found("quorum-state has epoch 1, and the log 13", "quorum-state")],
    "leader-epoch-checkpoint-garbage": [Found("'x y' is not an epoch and an offset", "leader-epoch-checkpoint")],
    "leader-epoch-checkpoint-version-1": [Found("unknown version '1'", "leader-epoch-checkpoint")],
    "partition-metadata-other-topic": [Found("is not that of the metadata log", "partition.metadata")],
    "meta-properties-missing": [Found("meta.properties is missing", "meta.properties")],
    "meta-properties-version-2": [Found("unknown meta.properties version", "meta.properties")],
}
"""What the reader finds. All other cases give nothing, for nothing is wrong that a file could show."""

STRICTER = "we do not serve a log or snapshot that has lost something"
LOST = "what a flipped bit has lost may have been acknowledged: no torn write has sound batches or segments behind it"
FORGOTTEN = "a node that has lost its vote may vote twice in one epoch"
REBUILT = "we build the epoch history anew from the log, and read no damaged one"

DIFFERENT = {
    "bitflip-middle-batch": LOST,
    "bitflip-old-segment": LOST,
    "quorum-state-missing": FORGOTTEN,
    "quorum-state-epoch-behind-log": FORGOTTEN,
    "offset-gap": STRICTER,
    "offset-overlap": STRICTER,
    "segment-missing": STRICTER,
    "epoch-backwards": STRICTER,
    "snapshot-footer-missing": STRICTER,
    "leader-epoch-checkpoint-garbage": REBUILT,
    "leader-epoch-checkpoint-version-1": REBUILT,
}
"""Where a start of ours ends in another way than Kafka's did, and why."""


def unpacked(case: str, target: Path) -> Path:
    unpack("static3", "nodes/c1", target)
    unpack("damaged", f"cases/{case}", target)
    for name in CASES[case]["removed_files"]:
        (target / name).unlink()
    return target


def dump(*arguments: object) -> Result:
    result = CliRunner().invoke(dump_command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def damages(result: Result) -> list[dict[str, Any]]:
    return [facts for facts in map(json.loads, result.stdout.splitlines()) if "damage" in facts]


def findings(case: str, directory: Path) -> list[Damage]:
    """The damage that `--verify` finds in a directory, apart from logs and snapshots that the case has not touched."""
    disk, found = OsDisk(), list[Any]()
    touched = {str(directory / name) for name in CASES[case]["changed_files"]}
    for path in files_in(disk, str(directory)):
        kind = kind_of(disk, path)
        if path in touched or kind not in {FileKind.SEGMENT, FileKind.SNAPSHOT}:
            found += verify_file(disk, path, kind).damages
    return [*found, *verify_directory(disk, str(directory))]


@pytest.mark.parametrize("case", CASES)
def test_the_reader_reports_each_damage_once(case: str, tmp_path: Path) -> None:
    """Each damage is named once, with file, byte, offset and what was expected, and nothing that is sound."""
    # Entries of an index that point to damaged batches are wrong, too.
    found = [one for one in findings(case, unpacked(case, tmp_path)) if not one.what.startswith("entry ")]
    for damage, one in zip(found, FINDINGS.get(case, []), strict=True):
        assert one.words in damage.what
        assert (Path(damage.where).name, damage.position, damage.offset) == (one.file, one.position, one.offset)
        assert damage.expected


@pytest.mark.parametrize("case", ["control", "torn-write", "segment-missing"])
def test_dump_verify_reports_all_damage(case: str, tmp_path: Path) -> None:
    """The command reports all that the reader finds in a directory, and its exit code."""
    result = dump("--verify", "--json", unpacked(case, tmp_path))
    shown = [(facts["damage"], facts["file"], facts["expected"]) for facts in damages(result)]
    assert shown == [(one.what, one.where, one.expected) for one in findings(case, tmp_path)]
    assert result.exit_code == (1 if shown else 0)


def test_a_damaged_index_is_found(tmp_path: Path) -> None:
    """Each entry is named with its byte."""
    found = findings("index-garbage", unpacked("index-garbage", tmp_path))
    assert found
    assert [damage.position for damage in found] == list(range(0, 8 * len(found), 8))
    assert all("no batch ends at offset 4846 and begins at byte -1" in damage.what for damage in found)


def damaged_disk(case: str) -> MemoryDisk:
    disk = loaded_disk("static3", "nodes/c1")
    prefix = f"cases/{case}/"
    for path, content in archive("damaged").items():
        if path.startswith(prefix):
            file = disk.open(f"{DIRECTORY}/{path.removeprefix(prefix)}", create=True)
            file.truncate(0)
            file.append(content)
            file.fsync()
            file.close()
    for name in CASES[case]["removed_files"]:
        disk.remove(f"{DIRECTORY}/{name}")
    for directory in ("", DIRECTORY, PARTITION):
        disk.fsync_dir(directory)
    return disk


def cut_at(case: str) -> int | None:
    """The offset at which Kafka cut the log, by its own words."""
    said = [line for line in CASES[case]["observed"]["messages"] if "truncating to offset" in line]
    return int(said[0].rpartition(" ")[2]) if said else None


@pytest.mark.parametrize("case", CASES)
def test_our_start_accepts_or_refuses_damage_as_kafkas(case: str) -> None:
    """The only voter becomes active, or refuses with a named error, where Kafka's controller did; or we say why."""
    theirs = bool(CASES[case]["observed"]["became_active"])
    try:
        net = Net(1, application=host_controller, disks={1: damaged_disk(case)}, cluster_id=None)
        net.elect()
        net.settle()
    except MetadataLogError:
        ours = False
    else:
        core = net.processes[1].replica.core
        ours = core.is_leader
        appended = 1  # the leader-change record of the new epoch
        cut = cut_at(case)
        if cut is not None:
            assert core.log.end_offset == cut + appended
    assert ours == (theirs if case not in DIFFERENT else not theirs), DIFFERENT.get(case)


@pytest.mark.parametrize("case", [case for case, found in FINDINGS.items() if found[0].file == LAST])
def test_modes(case: str, tmp_path: Path) -> None:
    """`stop-at-damage` shows what `skip-damage` shows before the first damage; `strict` ends with it as an error."""
    segment = unpacked(case, tmp_path) / "__cluster_metadata-0" / LAST
    options = ("--json", "--records", "--noop", segment)
    skipped, stopped, strict = (
        dump("--on-damage", mode, *options) for mode in ("skip-damage", "stop-at-damage", "strict")
    )
    lines = skipped.stdout.splitlines()
    [first] = [number for number, line in enumerate(lines) if '"damage"' in line]
    assert stopped.stdout.splitlines() == lines[: first + 1]
    assert [facts["damage"] for facts in damages(strict)] == [facts["damage"] for facts in damages(skipped)]
    # A node may be writing the last batch: only then is it no error to any of them.
    exit_code = 0 if damages(skipped)[0]["unfinished"] else 1
    assert [each.exit_code for each in (skipped, stopped, strict)] == [exit_code] * 3


def test_strict_refuses_what_kafka_would_not_replay(tmp_path: Path) -> None:
    """A record of an unknown type ends a controller's start; one of a newer version does not."""
    newer = unpacked("unknown-record-version", tmp_path / "newer") / "__cluster_metadata-0" / LAST
    assert dump("--records", "--on-damage", "strict", newer).exit_code == 0
    unknown = unpacked("unknown-record-type", tmp_path / "unknown") / "__cluster_metadata-0" / LAST
    assert dump("--records", unknown).exit_code == 0
    refused = dump("--records", "--on-damage", "strict", unknown)
    assert refused.exit_code == 1
    assert "record type 99 in version 0 is not known" in refused.stderr
    assert f"({unknown}, byte 36262, offset 5317)" in refused.stderr
