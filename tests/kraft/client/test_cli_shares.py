"""`kraft consume --share`: records are accepted, released or rejected, and the command ends as it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kraft.command_line import Done, run
from support.kraft.data_cluster import DataCluster, data_cluster

SETTINGS: dict[str, Any] = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "group_share_assignment_interval_ms": "0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    with data_cluster(tmp_path_factory.mktemp("brokers"), **SETTINGS) as cluster:
        yield cluster


class Command:
    def __init__(self, cluster: DataCluster, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._server = f"--bootstrap-server={cluster.bootstrap}"
        self._capsys = capsys
        self._file = folder / "lines.txt"

    def __call__(self, *words: str) -> Done:
        return run(self._capsys, *words, self._server)

    def fill(self, topic: str, *lines: str) -> None:
        """Write lines to a topic, and let the share group of the same name begin with them."""
        self._file.write_text("\n".join(lines) + "\n")
        for words in (
            ("topics", "create", topic),
            ("configs", "set", "group", topic, "share.auto.offset.reset=earliest"),
            ("produce", topic, str(self._file)),
        ):
            assert self(*words).code == 0, words

    def counts(self, topic: str, *words: str) -> list[tuple[str, int]]:
        """The values of the records, and how often each was delivered."""
        done = self("consume", topic, f"--share={topic}", "--json", *words)
        assert (done.code, done.err) == (0, "")
        return [(one["value"], one["deliveryCount"]) for one in map(json.loads, done.out.splitlines())]


@pytest.fixture
def kraft(cluster: DataCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(cluster, capsys, tmp_path)


def test_each_record_is_printed_once_and_a_released_one_again(kraft: Command) -> None:
    kraft.fill("jobs", "wash", "peel", "bake", "eat")
    assert kraft("consume", "jobs", "--share=jobs", "--max-messages=1") == Done(0, "wash\n", "")
    released = kraft.counts("jobs", "--acknowledge=release", "--max-messages=2")
    assert released == [("peel", 1), ("bake", 1)]
    assert kraft.counts("jobs", "--acknowledge=reject", "--max-messages=1") == [("peel", 2)]
    assert kraft.counts("jobs", "--max-messages=2") == [("bake", 2), ("eat", 1)]
    assert kraft("consume", "jobs", "--share=jobs", "--idle=1.5") == Done(0, "", "")
    described = json.loads(kraft("groups", "describe", "jobs", "--json").out)
    assert [one["lag"] for one in described["groups"][0]["offsets"]] == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--acknowledge=release"], "only the records of a share group are acknowledged"),
        (["--share="], "a group has a name"),
        (["--share=g", "--group=g"], "a member is one of a group or of a share group"),
        (["--share=g", "--partition=0"], "the group divides the partitions"),
        (["--share=g", "--from=end"], "a share group begins where its settings say"),
        (["--share=g", "--isolation=read_committed"], "all members of a share group read the same"),
    ],
)
def test_a_member_of_a_share_group_has_no_say_in_some_things(kraft: Command, words: list[str], said: str) -> None:
    done = kraft("consume", "jobs", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_group_of_another_type_is_refused(kraft: Command) -> None:
    kraft.fill("taken", "one")
    assert kraft("consume", "taken", "--group=classic").code == 0
    done = kraft("consume", "taken", "--share=classic", "--idle=30")
    assert done.code == 1
    assert "share group classic: GROUP_ID_NOT_FOUND" in done.err
