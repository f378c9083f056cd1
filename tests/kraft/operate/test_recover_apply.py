"""`kraft recover apply` and `verify`: the written files, the records in them, the refusals, crashes of the writing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kraft.operate.isolated_start import IsolatedNode, start_kafka
from kraft.operate.recover.copies import read_copy
from kraft.operate.recover.description import RECOVERY_FILE
from kraft.operate.recover.inventory import read_inventory
from kraft.operate.recover.plan import PlanOptions, make_plan
from kraft.operate.recover.recovery import Address, Choices, make_recovery
from kraft.operate.recover.verify import check_recovered, read_recovered
from kraft.operate.recover.writing import files_below, write_recovery
from metadata_log.disk import OsDisk
from metadata_log.errors import DirectoryError
from metadata_log.log.quorum_state_file import read_quorum_state
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.replay_log import replay
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from metadata_log.types import Uuid
from support.kraft.command_line import run
from support.kraft.recovery_data import paths, plan_of, unpack_cluster, write_description

NOW_MS = 1_800_000_000_000
PARTITION = "__cluster_metadata-0"
LOG = f"{PARTITION}/00000000000000000000.log"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Recovered:
    """A recovery from real directories through the command line."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path, controllers: str, brokers: str) -> None:
        self.capsys = capsys
        self.folder = folder
        self.brokers = paths(folder, *brokers.split())
        self.plan_file = folder / "plan.json"
        self.into = folder / "new"
        self._controllers = paths(folder, *controllers.split())

    def plan(self, *words: str) -> dict[str, Any]:
        done = run(self.capsys, "recover", "plan", "--json", *self._controllers, *words, "--brokers", *self.brokers)
        assert done.code == 0, done.err
        self.plan_file.write_text(done.out)
        found: dict[str, Any] = json.loads(done.out)
        return found

    def apply(self, *words: str) -> str:
        done = run(self.capsys, "recover", "apply", str(self.plan_file), "--into", str(self.into), *words)
        assert done.code == 0, done.err
        return done.out

    def verify(self, *words: str) -> dict[str, Any]:
        done = run(self.capsys, "recover", "verify", "--json", str(self.into), *words, "--brokers", *self.brokers)
        found: dict[str, Any] = json.loads(done.out or "{}")
        assert (done.code == 0) == found.get("passed"), (done, found)
        return found


# ------------------------------------------------------------------------------------------------- whole recoveries


@pytest.mark.parametrize("cluster", ["dynamic", "old39"])
def test_a_dynamic_quorum_comes_back_from_its_best_survivor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cluster: str
) -> None:
    folder = unpack_cluster(cluster, tmp_path)
    survivor = "c2" if cluster == "dynamic" else "c1"
    recovered = Recovered(capsys, folder, survivor, "b101 b102" if cluster == "dynamic" else "b101")
    before = content(folder)
    plan = recovered.plan()
    recovered.apply("--execute")
    node = folder / "new" / f"node-{survivor[1]}"
    old, new = (folder / survivor / LOG).read_bytes(), (node / LOG).read_bytes()
    assert new.startswith(old)
    copy = read_copy(OsDisk(), str(node / PARTITION))
    assert copy.end.offset == plan["appendAt"] + 1
    assert copy.end.epoch == plan["firstSafeEpoch"]
    assert copy.quorum.voters is not None
    assert copy.quorum.voters.offset == plan["appendAt"]
    (voter,) = copy.quorum.voters.record.voters
    assert voter.voter_id == int(survivor[1])
    assert str(voter.voter_directory_id) == plan["directories"][survivor]["directoryId"]
    state = read_quorum_state(OsDisk(), str(node / PARTITION))
    assert state is not None
    assert (state.leader_epoch, state.leader_id, state.voted_id, state.data_version) == (
        plan["firstSafeEpoch"],
        -1,
        -1,
        1,
    )
    found = recovered.verify()
    assert found["passed"], found
    assert found["started"]
    assert {path: now for path, now in content(folder).items() if path in before} == before, "originals never change"


def test_a_static_quorum_comes_back_without_a_changed_byte_of_its_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = unpack_cluster("static", tmp_path)
    recovered = Recovered(capsys, folder, "c1", "b101 b102")
    recovered.plan()
    text = recovered.apply("--voters", "1=c1.example:9093", "--execute")
    assert "Set on every controller and broker: controller.quorum.voters=1@c1.example:9093" in text
    assert (folder / "new/node-1" / LOG).read_bytes() == (folder / "c1" / LOG).read_bytes()
    state = read_quorum_state(OsDisk(), str(folder / "new/node-1" / PARTITION))
    assert state is not None
    assert (state.leader_epoch, state.current_voters, state.data_version) == (3, (1,), 0)
    assert recovered.verify()["passed"]


@pytest.mark.parametrize(("cluster", "version"), [("static", 0), ("dynamic", 1)])
def test_a_brokers_copy_becomes_three_new_controllers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cluster: str, version: int
) -> None:
    folder = unpack_cluster(cluster, tmp_path)
    recovered = Recovered(capsys, folder, "", "b101 b102")
    recovered.plan()
    recovered.apply("--voters", "7=c7:9093,8=c8:9093,9=c9:9093", "--execute")
    inventory = read_inventory(OsDisk(), paths(folder / "new", "node-7", "node-8", "node-9"), [])
    ids = [one.meta.directory_id for one in inventory.dirs]
    assert len({str(one) for one in ids}) == 3
    assert str(ids[0]) not in (folder / "b101/meta.properties").read_text()
    for _, copy in inventory.copies:
        assert copy.quorum.kraft_version == version
        if version:
            assert copy.quorum.voters is not None
            assert [one.voter_directory_id for one in copy.quorum.voters.record.voters] == ids
    found = recovered.verify()
    assert found["passed"], found
    assert found["started"]


def test_a_survivor_that_is_behind_gets_its_newer_topics_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "lag3", "b101 b102")
    plan = recovered.plan("--observers", "no")
    assert len(plan["strayPartitions"]) == 44
    text = recovered.apply("--rescue-topics", "late", "--execute")
    assert "40 partition directories will become stray" in text
    image = replay(str(folder / "new/node-3"))
    topic = image.topics["late"]
    assert str(topic.id) in (folder / "b101/late-0/partition.metadata").read_text()
    for partition in topic.partitions:
        assert sorted(partition.replicas) == [101, 102]
        assert set(partition.isr) <= {101, 102}
        assert partition.leader in partition.isr
        assert partition.leader_epoch >= 1
        assert partition.directories == tuple(
            next(
                one.meta.directory_id
                for one in read_inventory(OsDisk(), [], recovered.brokers).dirs
                if one.meta.node_id == broker
            )
            for broker in partition.replicas
        )
    assert image.producer_ids.next_producer_id >= 1_000_000
    found = recovered.verify()
    assert found["passed"], found


def test_all_topics_are_rescued_by_one_word(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    recovered = Recovered(capsys, folder, "lag3", "b101 b102")
    recovered.plan("--observers", "no")
    told = json.loads(recovered.apply("--rescue-topics", "all", "--voters", "3=c3:9093", "--execute", "--json"))
    assert told["acceptedStrays"] == []
    assert told["appended"]["TopicRecord"] == 2
    assert told["appended"]["ProducerIdsRecord"] == 1
    image = replay(str(folder / "new/node-3"))
    assert len(image.topics["ghost"].partitions) == 40
    assert image.producer_ids.next_producer_id == 1_001_001
    assert recovered.verify()["passed"]


def test_a_static_quorum_becomes_dynamic_on_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    recovered = Recovered(capsys, folder, "c1", "b101 b102")
    recovered.plan()
    recovered.apply("--kraft-version", "1", "--voters", "1=c1:9093", "--execute")
    copy = read_copy(OsDisk(), str(folder / "new/node-1" / PARTITION))
    assert copy.quorum.kraft_version == 1
    assert copy.quorum.voters is not None
    assert copy.quorum.voters.record.voters[0].endpoints[0].name == "CONTROLLER"
    assert copy.end.offset == 106
    assert recovered.verify()["passed"]


def test_an_image_alone_is_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan()
    recovered.apply("--from-image", "--execute")
    partition = folder / "new/node-2" / PARTITION
    assert sorted(path.name for path in partition.iterdir()) == [
        "00000000000000000103-0000000003.checkpoint",
        "partition.metadata",
        "quorum-state",
    ]
    image = read_copy(OsDisk(), str(partition)).image
    assert image is not None
    assert image.topics == plan_of(folder, "c2").image.topics
    assert recovered.verify()["passed"]


def test_voters_with_new_addresses_keep_their_directory_ids(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c1 c2 c3", "b101 b102")
    plan = recovered.plan()
    recovered.apply("--endpoint", "1=new1:1", "--endpoint", "2=new2:2", "--endpoint", "3=new3:3", "--execute")
    copy = read_copy(OsDisk(), str(folder / "new/node-3" / PARTITION))
    assert copy.quorum.voters is not None
    for voter in copy.quorum.voters.record.voters:
        assert str(voter.voter_directory_id) == plan["directories"][f"c{voter.voter_id}"]["directoryId"]
        assert [(one.name, one.host, one.port) for one in voter.endpoints] == [
            ("CONTROLLER", f"new{voter.voter_id}", voter.voter_id)
        ]
    assert recovered.verify()["passed"]


def test_a_rejected_tail_is_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c1", "")
    recovered.brokers = []
    done = run(capsys, "recover", "plan", "--json", str(folder / "c1"), "--truncate-to", "59")
    recovered.plan_file.write_text(done.out)
    recovered.apply("--execute")
    assert "ghost" not in replay(str(folder / "new/node-1")).topics
    copy = read_copy(OsDisk(), str(folder / "new/node-1" / PARTITION))
    assert [(one.epoch, one.offset) for one in copy.epochs.entries] == [(1, 0), (1 + 1000, 59)]


def test_new_voters_without_the_seeds_node_come_with_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan()
    assert "Controller 2, the node of the seed, is no voter any more" in recovered.apply("--voters", "7=c7:1")
    assert "is no voter any more" not in recovered.apply("--voters", "2=c2:1,7=c7:1")


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan()
    before = content(folder)
    text = recovered.apply()
    assert text.splitlines()[-1] == "Nothing was written: add --execute."
    assert f"Would write: {folder}/new/node-2" in text
    assert content(folder) == before
    assert not recovered.into.exists()


# --------------------------------------------------------------------------------------------------- repaired records


def test_higher_leader_epochs_of_brokers_are_raised_in_the_image(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    (folder / "b101" / "alpha-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n6 10\n")
    plan = plan_of(folder, "c2", "b101 b102")
    recovery = make_recovery(plan, Choices(), rng=Random(1), now_ms=NOW_MS)
    (record,) = [record for record, _ in recovery.records]
    assert isinstance(record, PartitionRecord)
    old = plan.image.topics["alpha"].partitions[0]
    assert (record.leader_epoch, record.partition_epoch) == (7, old.partition_epoch + 1000)
    assert (record.isr, record.leader, record.replicas) == (old.isr, old.leader, old.replicas)
    assert recovery.image.topics["alpha"].partitions[0].leader_epoch == 7


def test_a_seed_that_is_behind_keeps_only_the_longest_replicas_in_sync(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "lag3", "b101 b102", PlanOptions(observers=False))
    topic = plan.image.topics["alpha"]
    number = next(n for n, one in enumerate(topic.partitions) if sorted(one.isr) == [101, 102])
    log = folder / "b102" / f"alpha-{number}" / "00000000000000000000.log"
    log.write_bytes(b"")
    plan = plan_of(folder, "lag3", "b101 b102", PlanOptions(observers=False))
    recovery = make_recovery(plan, Choices(), rng=Random(1), now_ms=NOW_MS)
    after = recovery.image.topics["alpha"].partitions[number]
    assert (after.isr, after.leader) == ((101,), 101)
    assert after.replicas == topic.partitions[number].replicas


def test_the_isr_stays_if_a_replica_was_not_given(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "lag3", "b101", PlanOptions(observers=False))
    assert plan.is_behind
    recovery = make_recovery(plan, Choices(), rng=Random(1), now_ms=NOW_MS)
    raised = [record for record, _ in recovery.records if isinstance(record, PartitionRecord)]
    assert raised
    for record in raised:
        topic = plan.image.topics.by_id[record.topic_id]
        old = topic.partitions[record.partition_id]
        if 102 in old.replicas:
            assert (record.isr, record.leader) == (old.isr, old.leader)


def test_brokers_that_are_gone_are_fenced_and_lead_nothing(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "c2", "b101", PlanOptions(gone=(102,)))
    recovery = make_recovery(plan, Choices(), rng=Random(1), now_ms=NOW_MS)
    assert recovery.image.brokers.by_id[102].fenced
    led = {partition.leader for topic in recovery.image.topics.by_id.values() for partition in topic.partitions}
    assert 102 not in led
    assert -1 in led, "a partition with one replica on the lost broker has no leader"
    for topic in recovery.image.topics.by_id.values():
        for partition in topic.partitions:
            assert 102 not in partition.isr or partition.leader == -1


def test_an_open_metadata_transaction_is_aborted_first(tmp_path: Path) -> None:
    """A survivor stopped between the first and the last record of a transaction."""
    folder = unpack_cluster("dynamic", tmp_path)
    began = [BeginTransactionRecord(name="half"), TopicRecord(name="half", topic_id=Uuid(b"t" * 16))]
    with (folder / "c2" / LOG).open("ab") as log:
        log.write(build_batch(103, 2, NOW_MS, [encode_record(record, 0) for record in began]))
    plan = plan_of(folder, "c2", "b101 b102")
    assert plan.has_open_transaction
    recovery = make_recovery(plan, Choices(), rng=Random(1), now_ms=NOW_MS)
    assert isinstance(recovery.records[0][0], AbortTransactionRecord)
    write_recovery(OsDisk(), str(folder / "new"), recovery)
    image = replay(str(folder / "new/node-2"))
    assert image.transaction is None
    assert "half" not in image.topics
    assert image.end.offset == recovery.log_end


def test_the_same_input_gives_the_same_files(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    plan = plan_of(folder, "", "b101 b102")
    choices = Choices(voters=(Address(7, "c7", 1), Address(8, "c8", 2)))
    one, two = (make_recovery(plan, choices, rng=Random(5), now_ms=NOW_MS) for _ in range(2))
    assert one.nodes == two.nodes


# ---------------------------------------------------------------------------------------------------------- refusals


def refused(
    capsys: pytest.CaptureFixture[str], folder: Path, controllers: str, brokers: str, *words: str
) -> tuple[int, str]:
    given = ["recover", "plan", "--json", *paths(folder, *controllers.split())]
    done = run(capsys, *given, *(["--brokers", *paths(folder, *brokers.split())] if brokers else []))
    assert done.code == 0, done.err
    (folder / "plan.json").write_text(done.out)
    done = run(capsys, "recover", "apply", str(folder / "plan.json"), "--into", str(folder / "new"), *words)
    assert not (folder / "new").exists()
    assert "hint: " in done.err
    return done.code, done.err.splitlines()[0]


@pytest.mark.parametrize(
    ("cluster", "controllers", "brokers", "words", "error"),
    [
        ("dynamic", "c2 c3", "b101 b102", [], "a majority of the voters survives, so there is nothing to recover"),
        ("dynamic", "", "b101", [], "the seed b101 is a broker's copy, so the new controller needs an id"),
        ("dynamic", "", "b101", ["--voters", "101=c:1"], "101 is the id of a broker"),
        ("dynamic", "c2", "b101", ["--voters", "1=c:1,1=d:2"], "voter 1 appears twice"),
        ("dynamic", "c2", "b101", ["--voters", "c:1"], "'c:1' is not ID=HOST:PORT"),
        ("dynamic", "c2", "b101", ["--voters", "1=c"], "'c' is not host:port"),
        ("dynamic", "c2", "b101", ["--kraft-version", "0"], "kraft.version is 1 in the log of c2, and never falls"),
        ("dynamic", "c2", "b101", ["--endpoint", "2=c:1"], "the directory of voter 1 was not given"),
        ("static", "c1", "b101", ["--endpoint", "1=c:1"], "a static quorum has its addresses in controller.quorum."),
        ("dynamic", "c2", "b101", ["--rescue-topics", "x"], "topic x cannot be rescued: no given broker has a part"),
        ("dynamic", "c2", "b101", ["--rescue-topics", "alpha"], "topic alpha cannot be rescued: the image has another"),
        ("dynamic", "c2", "b101", ["--voters", "2=c:1", "--endpoint", "2=c:1"], "only one of --voters and --endpoint"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    cluster: str,
    controllers: str,
    brokers: str,
    words: list[str],
    error: str,
) -> None:
    folder = unpack_cluster(cluster, tmp_path)
    code, told = refused(capsys, folder, controllers, brokers, *words, "--execute")
    assert code in (1, 2)
    assert error in told


def test_a_directory_that_changed_since_the_plan_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan()
    log = folder / "c2" / LOG
    log.write_bytes(log.read_bytes()[:-1])
    done = run(capsys, "recover", "apply", str(recovered.plan_file), "--into", str(recovered.into), "--execute")
    assert done.code == 1
    assert f"{folder}/c2 has changed since the plan was made: logEnd was 103 and is 102" in done.err
    assert not recovered.into.exists()


def test_a_directory_with_files_is_never_written_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan()
    before = content(folder)
    done = run(capsys, "recover", "apply", str(recovered.plan_file), "--into", str(folder / "c3"), "--execute")
    assert done.code == 1
    assert "the directory holds files already" in done.err
    assert content(folder) == before


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"directories": 1}'])
def test_a_file_that_is_no_plan_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    done = run(capsys, "recover", "apply", str(tmp_path / "plan.json"), "--into", str(tmp_path / "new"))
    assert done.code == 2
    assert "this is no plan of kraft recover" in done.err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"brokersGone": [[]]}, "Expected `int`, got `array` - at `$.brokersGone[0]`"),
        ({"truncateTo": "end"}, "Expected `int | null`, got `str` - at `$.truncateTo`"),
        ({"observersMaySeed": "no"}, "Expected `bool`, got `str` - at `$.observersMaySeed`"),
        ({"directories": {"c2": {"path": 7}}}, "the directory 'c2' has no path - at `$.directories`"),
        ({"given": {"controllers": ["c9"], "brokers": []}}, "the directory 'c9' has no path - at `$.directories`"),
    ],
)
def test_a_plan_with_a_wrong_field_is_refused_with_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan_file.write_text(json.dumps(recovered.plan() | change))
    done = run(capsys, "recover", "apply", str(recovered.plan_file), "--into", str(recovered.into), "--execute")
    assert done.code == 2
    assert f"this is no plan of kraft recover: {told} ({recovered.plan_file})" in done.err
    assert "kraft recover plan --json" in done.err
    assert not recovered.into.exists()


def test_a_partition_that_no_broker_has_prevents_the_rescue(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    for broker in ("b101", "b102"):
        shutil.rmtree(folder / broker / "late-0")
    plan = plan_of(folder, "lag3", "b101 b102", PlanOptions(observers=False))
    with pytest.raises(DirectoryError, match="topic late cannot be rescued: no given broker has partition 0"):
        make_recovery(plan, Choices(rescue=("late",)), rng=Random(1), now_ms=NOW_MS)


# ------------------------------------------------------------------------------------------------------------ verify


def broken(folder: Path, what: Callable[[Path], None], brokers: list[str]) -> list[str]:
    """The names of the failed checks after a change of a finished recovery."""
    disk = OsDisk()
    plan = plan_of(folder, "c2", "b101 b102")
    write_recovery(disk, str(folder / "new"), make_recovery(plan, Choices(), rng=Random(1), now_ms=NOW_MS))
    recovered = read_recovered(disk, str(folder / "new"))
    assert all(check.is_passed for check in check_recovered(disk, recovered, brokers))
    what(folder / "new/node-2")
    return [
        check.name
        for check in check_recovered(disk, read_recovered(disk, str(folder / "new")), brokers)
        if not check.is_passed
    ]


def _vote(node: Path) -> None:
    state = node / PARTITION / "quorum-state"
    state.write_text(state.read_text().replace('"votedId":-1', '"votedId":2'))


def _torn(node: Path) -> None:
    log = node / LOG
    log.write_bytes(log.read_bytes()[:-1])


def _new_stray(node: Path) -> None:
    path = node.parent.parent / "b101/newer-0"
    path.mkdir()
    (path / "partition.metadata").write_text("version: 0\ntopic_id: XgewecKrQMCawBCxnhx6Pw")


def _newer_epoch(node: Path) -> None:
    state = node.parent.parent / "b101" / PARTITION / "quorum-state"
    state.write_text(state.read_text().replace('"leaderEpoch":2', '"leaderEpoch":3'))


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (_vote, ["quorum-state"]),
        (_torn, ["replay", "log end", "voters"]),
        (_new_stray, ["strays"]),
        (_newer_epoch, ["epoch"]),
    ],
)
def test_a_changed_recovery_fails_its_check(tmp_path: Path, what: Callable[[Path], None], names: list[str]) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    assert broken(folder, what, paths(folder, "b101", "b102")) == names


def test_an_unfinished_recovery_is_no_result(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    done = run(capsys, "recover", "verify", str(folder / "c2"))
    assert done.code == 1
    assert "this is no finished recovery: it has no recovery.json" in done.err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epoch": None}, "Expected `int`, got `null` - at `$.epoch`"),
        ({"epoch": 2**31}, "Expected `int` <= 2147483647 - at `$.epoch`"),
        ({"logEnd": "7"}, "Expected `int`, got `str` - at `$.logEnd`"),
        ({"voters": []}, "Expected `array` of length >= 1 - at `$.voters`"),
        ({"acceptedStrays": [{}]}, "Object missing required field `broker` - at `$.acceptedStrays[0]`"),
        ({"brokersGone": [[]]}, "Expected `int`, got `array` - at `$.brokersGone[0]`"),
    ],
)
def test_a_description_with_a_wrong_field_is_refused_with_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    write_description(tmp_path / "new")
    file = tmp_path / "new" / RECOVERY_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    done = run(capsys, "recover", "verify", str(tmp_path / "new"))
    assert done.code == 1
    assert f"this is no description of a recovery: {told} ({file})" in done.err
    assert "kraft recover apply" in done.err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", -1),
        ("id", "1"),
        ("directoryId", []),
        ("endpoint", 9093),
        ("endpoint", "CONTROLLER:9093"),
        ("dir", {}),
        ("dir", "../c2"),
    ],
)
def test_a_voter_with_a_wrong_field_is_no_description(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str, value: object
) -> None:
    write_description(tmp_path / "new")
    file = tmp_path / "new" / RECOVERY_FILE
    facts = json.loads(file.read_text())
    facts["voters"][0][key] = value
    file.write_text(json.dumps(facts))
    done = run(capsys, "recover", "verify", str(tmp_path / "new"))
    assert done.code == 1
    assert f"- at `$.voters[0].{key}`" in done.err


# ----------------------------------------------------------------------------------------------------- crashes


class PowerFailure(BaseException):
    """The end of the machine: no cleanup runs."""


def on_memory(folder: Path) -> MemoryDisk:
    """A disk with the same directories, all durable."""
    disk = MemoryDisk()
    for path in sorted(folder.rglob("*")):
        name = f"/old/{path.relative_to(folder)}"
        if path.is_file():
            disk.mkdir(name.rpartition("/")[0])
            file = disk.open(name, create=True)
            file.append(path.read_bytes())
            file.fsync()
            file.close()
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            disk.fsync_dir(f"/old/{path.relative_to(folder)}")
    disk.fsync_dir("/old")
    disk.fsync_dir("/")
    return disk


def test_a_power_failure_at_any_moment_leaves_nothing_or_all(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    for name in ("c1", "c3", "lag3", "b102"):
        shutil.rmtree(folder / name)
    start = on_memory(folder)
    plan = make_plan(start, read_inventory(start, ["/old/c2"], ["/old/b101"]))
    choices = Choices(voters=(Address(2, "c2", 1), Address(7, "c7", 2)))
    recovery = make_recovery(plan, choices, rng=Random(3), now_ms=NOW_MS)
    originals = {path: start.peek(path) for path in start.files()}
    operations: list[str] = []
    whole = start.fork()
    whole.on_operation = lambda operation, path: operations.append(operation)
    write_recovery(whole, "/new", recovery)
    whole.crash()
    finished = {path: whole.peek(path) for path in whole.files() if path.lstrip("/").startswith("new/")}
    assert len(finished) == 2 * 7 + 1, sorted(finished)
    seen = set()
    for moment in range(len(operations)):
        disk = start.fork()
        left = moment

        def strike(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerFailure

        disk.on_operation = strike
        disk_after = disk
        try:
            write_recovery(disk, "/new", recovery)
        except PowerFailure:
            disk.on_operation = None
        disk_after.crash(Random(moment))
        found = {path: disk_after.peek(path) for path in disk_after.files()}
        assert {path: data for path, data in found.items() if path in originals} == originals
        new = {path: data for path, data in found.items() if path not in originals}
        for node in ("new/node-2", "new/node-7"):
            marker = next((path for path in new if path.lstrip("/") == f"{node}/meta.properties"), None)
            if marker is not None and new[marker] == finished[marker]:
                own = {path for path in finished if path.lstrip("/").startswith(f"{node}/")}
                assert {path: new.get(path) for path in own} == {path: finished[path] for path in own}, moment
                seen.add(node)
        assert not any(path.endswith(RECOVERY_FILE) and data == finished[path] for path, data in new.items()) or (
            new == finished
        )
    assert seen == {"new/node-2", "new/node-7"}


def test_a_failed_write_removes_the_new_files_again(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    for name in ("c1", "c3", "lag3", "b101", "b102"):
        shutil.rmtree(folder / name)
    disk = on_memory(folder)
    plan = make_plan(disk, read_inventory(disk, ["/old/c2"], []))
    recovery = make_recovery(plan, Choices(), rng=Random(3), now_ms=NOW_MS)
    disk.free_bytes = 3000
    with pytest.raises(OSError, match="no space left on device"):
        write_recovery(disk, "/new", recovery)
    assert list(files_below(disk, "/new")) == []
    disk.free_bytes = None
    write_recovery(disk, "/new", recovery)
    assert all(check.is_passed for check in check_recovered(disk, read_recovered(disk, "/new")))


def test_appended_records_have_the_recoverys_epoch_alone(tmp_path: Path) -> None:
    folder = unpack_cluster("static", tmp_path)
    plan = plan_of(folder, "lag3", "b101 b102", PlanOptions(observers=False))
    choices = Choices(voters=(Address(3, "c3", 1),), kraft_version=1, rescue=("all",))
    recovery = make_recovery(plan, choices, rng=Random(3), now_ms=NOW_MS)
    write_recovery(OsDisk(), str(folder / "new"), recovery)
    copy = read_copy(OsDisk(), str(folder / "new/node-3" / PARTITION))
    added = copy.batches_from(plan.append_at)
    assert added[0].base_offset == plan.append_at
    assert {batch.epoch for batch in added} == {plan.recovery_epoch}
    assert [type(record) for record, _ in recovery.records][:1] == [ProducerIdsRecord]
    assert any(isinstance(record, TopicRecord) for record, _ in recovery.records)


@pytest.mark.parametrize(
    ("voters", "kafka", "error"),
    [
        ("7=c7:1", "c2", "there are no jars of Apache Kafka in"),
        ("7=c7:1,8=c8:1", "c2", "--kafka starts a result with one voter, and this one has 2"),
    ],
)
def test_a_start_on_kafka_that_is_not_possible_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, voters: str, kafka: str, error: str
) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    recovered = Recovered(capsys, folder, "c2", "b101 b102")
    recovered.plan()
    recovered.apply("--voters", voters, "--execute")
    done = run(capsys, "recover", "verify", str(recovered.into), "--kafka", str(folder / kafka))
    assert done.code == 2
    assert error in done.err


def test_a_java_that_is_no_java_ends_the_start_with_its_last_lines(tmp_path: Path) -> None:
    folder = unpack_cluster("dynamic", tmp_path)
    node = IsolatedNode(id=2, directory=str(folder / "c2"), listener="CONTROLLER", host="c2", port=1)
    with pytest.raises(DirectoryError, match="controller 2 did not lead within 60 s; its last lines: -Xmx512m"):
        start_kafka("/bin/echo", str(folder), node, dynamic=True, log_end=103, seconds=60)
