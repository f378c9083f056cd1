"""`kraft recover plan` on real directories: every case of the corpus, refusals, damage, and the text for people."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kraft.operate.recover.copies import image_at, read_copy
from kraft.operate.recover.inventory import read_inventory
from kraft.operate.recover.plan import UNSEEN_EPOCHS, PlanOptions, make_plan
from kraft.operate.recover.steps import steps_of
from metadata_log.disk import OsDisk
from metadata_log.errors import DirectoryError
from metadata_log.image.records import records
from metadata_log.log.log_dir import LOCK_FILE
from metadata_log.log.producer_snapshot import read_producer_snapshot
from metadata_log.log.snapshot_writer import SnapshotWriter
from metadata_log.records.batch import HEADER_BYTES
from metadata_log.records.batch_builder import build_batch, with_checksum
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import AccessControlEntryRecord
from metadata_log.types import OffsetAndEpoch, Uuid
from support.kraft.command_line import run
from support.kraft.recovery_data import CASES, paths, plan_of, unpack_cluster

LOG = "__cluster_metadata-0/00000000000000000000.log"
STATE = "__cluster_metadata-0/quorum-state"


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_each_case_gets_its_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path, case: dict[str, Any]) -> None:
    folder = unpack_cluster(case["case"].partition("/")[0], tmp_path)
    given = case["given"]
    observers = "yes" if case["observersMaySeed"] else "no"
    done = run(
        capsys,
        *("recover", "plan", "--json", *paths(folder, *given["controllers"]), "--observers", observers),
        *("--brokers", *paths(folder, *given["brokers"])),
    )
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert {key: plan[key] for key in case["expect"]} == case["expect"]
    assert plan["kraftVersion"] == case["kraftVersion"]
    for name, facts in case["directories"].items():
        assert {key: plan["directories"][name][key] for key in facts} == facts


def test_the_plan_does_not_change_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    before = _content(folder)
    assert run(capsys, "recover", "plan", *paths(folder, "lag3"), "--brokers", *paths(folder, "b101")).code == 0
    assert _content(folder) == before


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_surviving_majority_is_told_to_start_instead(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    done = run(capsys, "recover", "plan", *paths(folder, "c2", "c3"))
    assert done.out.startswith("No recovery is needed: the given controllers are a majority")
    assert "DuplicateVoterException" in done.out
    assert "kraft recover apply" not in done.out
    done = run(capsys, "recover", "plan", *paths(folder, "c1", "c2", "c3"))
    assert "kraft recover apply PLAN.json --into NEW --endpoint ID=HOST:PORT for each one" in done.out


def test_the_voters_of_a_configuration_decide_for_a_static_quorum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = unpack_cluster("static", tmp_path)
    config = tmp_path / "node.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:9\n"
        "controller.quorum.voters=1@127.0.0.1:9,2@127.0.0.1:8,3@127.0.0.1:7,4@127.0.0.1:6,5@127.0.0.1:5\n"
        f"log.dirs={tmp_path}\n"
    )
    done = run(capsys, "recover", "plan", "--json", "-c", str(config), *paths(folder, "c1", "c3"))
    plan = json.loads(done.out)
    assert plan["voterIds"] == [1, 2, 3, 4, 5]
    assert plan["voterIdsFrom"] == "controller.quorum.voters"
    assert plan["quorumPossibleWithoutRecovery"] is False


def test_an_empty_disk_is_no_part_of_a_majority(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    for path in (folder / "c3" / "__cluster_metadata-0").iterdir():
        path.unlink()
    plan = plan_of(folder, "c2 c3")
    assert plan.is_quorum_possible is False
    assert plan.inventory.dirs[1].copy is not None
    assert plan.inventory.dirs[1].copy.unusable == "the metadata log is empty"


def test_a_voter_with_another_directory_id_is_no_part_of_a_majority(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    meta = folder / "c3" / "meta.properties"
    assert "QDnZFrLGTPWVPwCpQ8P0JA" in meta.read_text()
    meta.write_text(meta.read_text().replace("QDnZFrLGTPWVPwCpQ8P0JA", "QDnZFrLGTPWVPwCpQ8P0Jw"))
    assert plan_of(folder, "c2 c3").is_quorum_possible is False
    assert plan_of(unpack_cluster("dynamic", tmp_path / "same"), "c2 c3").is_quorum_possible is True


def test_a_controller_that_is_given_as_a_broker_counts_as_a_controller(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "b101", "c2")
    assert [(one.name, one.role) for one in plan.inventory.dirs] == [("c2", "controller"), ("b101", "broker")]
    assert plan.best.name == "c2"


# ------------------------------------------------------------------------------------------------------- the epoch


def test_the_epoch_is_far_above_all_if_a_broker_was_not_given(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "c2", "b101")
    assert plan.not_given == (102,)
    assert plan.first_safe_epoch == 3
    assert plan.recovery_epoch == 2 + UNSEEN_EPOCHS
    assert plan_of(folder, "c2", "b101 b102").recovery_epoch == 3
    gone = plan_of(folder, "c2", "b101", PlanOptions(gone=(102,)))
    assert (gone.not_given, gone.recovery_epoch) == ((), 3)


def test_the_epoch_is_above_each_quorum_state(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    state = folder / "b102" / STATE
    state.write_text(state.read_text().replace('"leaderEpoch":2', '"leaderEpoch":77'))
    plan = plan_of(folder, "c1", "b101 b102")
    assert (plan.first_safe_epoch, plan.recovery_epoch) == (78, 78)


@pytest.mark.parametrize("content", [b"", b"{", None], ids=["empty", "no JSON", "missing"])
def test_an_unreadable_quorum_state_is_told_and_makes_the_epoch_far_higher(
    tmp_path: Path, content: bytes | None
) -> None:
    folder = unpack_cluster("static", tmp_path)
    state = folder / "c1" / STATE
    state.unlink() if content is None else state.write_bytes(content)
    plan = plan_of(folder, "c1", "b101 b102")
    assert plan.best.name == "c1"
    assert STATE in (plan.seed.quorum_state_problem or "")
    assert plan.recovery_epoch == 2 + UNSEEN_EPOCHS


# ---------------------------------------------------------------------------------------------------------- refusals


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    one, two = unpack_cluster("static", tmp_path), unpack_cluster("dynamic", tmp_path)
    with pytest.raises(DirectoryError, match=r"belong to 2 clusters: c1 of bXJ.*, b101 of Uqk"):
        read_inventory(OsDisk(), paths(one, "c1"), paths(two, "b101"))


def test_a_directory_of_a_running_node_is_refused_unless_live(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    with _running(folder / "c1"):
        with pytest.raises(DirectoryError, match="a running node uses the directory"):
            read_inventory(OsDisk(), paths(folder, "c1"), [])
        assert read_inventory(OsDisk(), paths(folder, "c1"), [], live=True).dirs[0].name == "c1"
    assert read_inventory(OsDisk(), paths(folder, "c1"), []).dirs[0].name == "c1"


@contextmanager
def _running(directory: Path) -> Iterator[None]:
    held = OsDisk().lock(str(directory / LOCK_FILE))
    try:
        yield
    finally:
        held.release()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["{0}/nothing"], "there is no such directory"),
        (["{0}"], "this is no log directory: it has no meta.properties"),
        (["{0}/c1", "{0}/c1/"], "the directory was given twice"),
        (["{0}/c1", "--brokers-gone", "x"], "'x' is no node id"),
        (["{0}/c1", "--truncate-to", "105"], "the log cannot be cut at offset 105"),
        (
            ["--observers", "no", "--brokers", "{0}/b101"],
            "no copy of the metadata log can become the seed: b101 is a br",
        ),
        ([], "give the surviving directories"),
    ],
)
def test_a_wrong_argument_is_one_error_with_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], error: str
) -> None:
    folder = unpack_cluster("static", tmp_path)
    done = run(capsys, "recover", "plan", *[word.format(folder) for word in words])
    assert done.code in (1, 2)
    assert error in done.err.splitlines()[0]
    assert "hint: " in done.err


def test_copies_with_different_bytes_at_one_offset_and_epoch_are_refused(tmp_path: Path) -> None:
    """The copy of controller 3 ends with a batch as no leader wrote it, with a good checksum."""
    folder = unpack_cluster("static", tmp_path)
    log = folder / "c3" / LOG
    content = log.read_bytes()
    seed = plan_of(folder, "c1 c3").seed
    batch = seed.batches[-1]
    assert batch.size_bytes > HEADER_BYTES
    edited = bytearray(content[batch.position :])
    edited[30] ^= 1  # within the timestamp
    log.write_bytes(content[: batch.position] + with_checksum(bytes(edited)))
    with pytest.raises(
        DirectoryError, match=r"c1 and c3 have different bytes at offset 103 of epoch 2 \(diverged-log\)"
    ):
        plan_of(folder, "c1 c3")


# ------------------------------------------------------------------------------------------------------------ damage


def test_a_damaged_copy_counts_up_to_its_first_damage(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    batches = plan_of(folder, "c1").seed.batches
    broken = batches[-3]
    log = folder / "c1" / LOG
    content = bytearray(log.read_bytes())
    content[broken.position + HEADER_BYTES] ^= 0xFF
    log.write_bytes(content)
    plan = plan_of(folder, "c1 c3")
    assert plan.best.name == "c3"
    assert [(one.name, one.common_end, one.only_here) for one in plan.others] == [("c1", broken.base_offset, None)]
    alone = plan_of(folder, "c1")
    assert alone.append_at == broken.base_offset
    assert alone.seed.is_log_whole
    assert any("checksum" in str(damage) or "CRC" in str(damage) for damage in alone.seed.damages), alone.seed.damages


def test_a_torn_end_is_left_out(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    log = folder / "c1" / LOG
    last = plan_of(folder, "c1").seed.batches[-1]
    log.write_bytes(log.read_bytes()[:-1])
    plan = plan_of(folder, "c1")
    assert plan.append_at == last.base_offset
    assert plan.seed.is_log_whole


def test_damage_below_a_sound_snapshot_leaves_the_end_but_not_the_log(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    before = plan_of(folder, "c1")
    end = OffsetAndEpoch(epoch=2, offset=before.seed.batches[-2].base_offset)
    image = image_at(OsDisk(), before.seed, end.offset)
    writer = SnapshotWriter(
        OsDisk(), before.seed.partition, end, timestamp_ms=1, last_contained_log_timestamp=1, kraft_version=0
    )
    writer.append([encode_record(record, version) for record, version in records(image)], 1)
    writer.freeze(1)
    log = folder / "c1" / LOG
    content = bytearray(log.read_bytes())
    content[before.seed.batches[2].position + HEADER_BYTES] ^= 0xFF
    log.write_bytes(content)
    plan = plan_of(folder, "c1")
    assert plan.append_at == before.append_at
    assert not plan.seed.is_log_whole
    assert plan.image.topics == before.image.topics
    assert plan.committed_end == end.offset


def test_a_log_that_begins_late_without_a_snapshot_is_no_seed(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    log = folder / "c1" / LOG
    batch = plan_of(folder, "c1").seed.batches[5]
    content = log.read_bytes()
    log.unlink()
    log.with_name(f"{batch.base_offset:020d}.log").write_bytes(content[batch.position :])
    with pytest.raises(DirectoryError, match="no copy of the metadata log can become the seed: c1: the log begins at"):
        plan_of(folder, "c1")


# ----------------------------------------------------------------------------------------------------------- hazards


def test_a_higher_leader_epoch_in_a_brokers_file_is_found(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    (folder / "b101" / "alpha-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n6 10\n")
    plan = plan_of(folder, "c2", "b101 b102")
    assert [(one.broker, one.name, one.last_epoch) for one in plan.hazards.epochs_behind] == [(101, "alpha-0", 6)]


def test_a_replica_that_was_renamed_is_missing(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    here = sorted((folder / "b101").glob("alpha-*"))[0]
    renamed = f"{here.name}.0123456789abcdef0123456789abcdef-stray"
    assert plan_of(folder, "c2", "b101 b102").hazards.missing == ()
    here.rename(here.with_name(renamed))
    plan = plan_of(folder, "c2", "b101 b102")
    assert [(one.broker, one.name, one.directory) for one in plan.hazards.missing] == [(101, here.name, "b101")]
    assert plan.inventory.dirs[1].strays == (renamed,)


def test_a_partition_of_another_broker_is_stray(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    alone = next(
        path for path in sorted((folder / "b101").glob("beta-*")) if not (folder / "b102" / path.name).exists()
    )
    shutil.copytree(alone, folder / "b102" / alone.name)
    plan = plan_of(folder, "c2", "b101 b102")
    assert [(one.broker, one.files.name, one.why) for one in plan.hazards.strays] == [
        (102, alone.name, "not assigned to this broker")
    ]


def test_brokers_that_will_not_return_leave_their_leaderships(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "c2", "b101", PlanOptions(gone=(102,)))
    assert plan.gone
    for one in plan.gone:
        assert 102 not in one.isr
        assert one.leader in (*one.isr, -1)
        assert (one.leader == -1) == (not one.isr)


def test_a_producer_snapshot_gives_the_highest_id() -> None:
    entry = pack(">qhiqiqiq", 4711, 0, 5, 99, 5, 0, -1, -1)
    assert read_producer_snapshot(pack(">hII", 1, 0, 2) + pack(">qhiqiqiq", 7, 0, 5, 9, 5, 0, -1, -1) + entry, "f") == (
        *(4711, None),
    )
    assert read_producer_snapshot(pack(">hII", 1, 0, 0), "f") == (-1, None)
    assert read_producer_snapshot(b"\0", "f") == (-1, "the producer snapshot has only 1 bytes (f)")
    assert read_producer_snapshot(pack(">hII", 1, 0, 9), "f")[1] is not None


def test_the_directories_of_brokers_prove_that_their_partitions_are_committed(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    alone, with_brokers = plan_of(folder, "c2"), plan_of(folder, "c2", "b101 b102")
    assert alone.committed_end == 0
    assert alone.uncommitted is not None
    assert alone.uncommitted.count == 103
    assert 59 < with_brokers.committed_end <= 103
    assert with_brokers.uncommitted is None or "TopicRecord" not in with_brokers.uncommitted.by_type
    of_loser = plan_of(folder, "c1", "b101 b102", PlanOptions(observers=False))
    assert of_loser.committed_end <= 59, "no broker has acted on the records that only the killed leader holds"
    assert of_loser.uncommitted is not None
    (ghost,) = of_loser.uncommitted.named
    assert ghost == "topic ghost, id 8a6g8XyIRUuDrFXtHZ_qbw"


def test_a_majority_proves_that_its_common_records_are_committed(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    assert plan_of(folder, "c2 c3").committed_end == 103
    assert plan_of(folder, "c2 lag3").committed_end == 0, "the last common epoch is not the newest one"


def test_cutting_the_seed_makes_it_a_copy_that_is_behind(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "c1", "", PlanOptions(truncate_to=59))
    assert plan.append_at == 59
    assert plan.is_behind
    assert "ghost" not in plan.image.topics
    assert "ghost" in plan_of(folder, "c1").image.topics


def test_the_disk_of_the_plan_is_the_one_that_was_handed_in(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    disk = OsDisk()
    plan = make_plan(disk, read_inventory(disk, paths(folder, "c1"), []))
    assert plan.best.path == str(folder / "c1")


def test_the_plan_lists_the_newest_changes_of_access(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Access that was revoked after the end of the seed comes back, so the operator must know that end."""
    folder = unpack_cluster("dynamic", tmp_path)
    rule = AccessControlEntryRecord(
        id=Uuid(b"a" * 16),
        resource_type=2,
        resource_name="alpha",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    with (folder / "c2" / LOG).open("ab") as log:
        log.write(build_batch(103, 2, 1_800_000_000_000, [encode_record(rule, 0)]))
    done = run(capsys, "recover", "plan", "--json", *paths(folder, "c2"), "--brokers", *paths(folder, "b101", "b102"))
    plan = json.loads(done.out)
    assert plan["securityChanges"] == [
        {"type": "AccessControlEntryRecord", "offset": 103, "timestampMs": 1_800_000_000_000}
    ]
    assert any(
        "rotate them where they were revoked later: AccessControlEntryRecord at offset 103" in step
        for step in plan["steps"]
    )


def test_running_brokers_that_are_ahead_of_the_seed_are_told_to_stop(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    behind = plan_of(folder, "lag3", "b101 b102", PlanOptions(observers=False))
    assert [one.name for one in behind.ahead] == ["b101", "b102"]
    assert any(step.startswith("Stop every broker") for step in steps_of(behind))
    assert not any(step.startswith("Stop every broker") for step in steps_of(plan_of(folder, "c2", "b101 b102")))


def test_a_directory_of_the_plan_must_never_start_again(tmp_path: Path) -> None:
    """Two old voters that meet elect a leader of their own beside the recovered quorum."""
    folder = unpack_cluster("dynamic", tmp_path)
    steps = list(steps_of(plan_of(folder, "c1", "b101 b102")))
    assert steps[-1] == f"Never start a controller on {folder}/c1 again: its voters are those from before the recovery."


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_copy_with_a_record_of_a_later_release_is_no_seed(tmp_path: Path, is_damaged: bool) -> None:
    """Nobody here knows what the record changes: also not where damage comes after it, at which the copy ends."""
    partition = unpack_cluster("static", tmp_path) / "c1" / "__cluster_metadata-0"
    sound = read_copy(OsDisk(), str(partition))
    assert sound.unusable is None
    batch = build_batch(sound.end.offset, sound.end.epoch, sound.last_timestamp, [b"\x01\x63\x00later"])
    with (partition / "00000000000000000000.log").open("ab") as log:
        log.write(batch + (b"\x01" * HEADER_BYTES if is_damaged else b""))
    copy = read_copy(OsDisk(), str(partition))
    assert (copy.end.offset, bool(copy.damages)) == (sound.end.offset + 1, is_damaged)
    assert copy.image is None
    assert "type 99 in version 0" in str(copy.unusable)
