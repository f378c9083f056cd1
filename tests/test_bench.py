"""The benches that start controllers do run, at sizes that say nothing of speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent.parent / "bench"
SECONDS = 300


def test_a_commit_costs_more_than_its_system_calls(tmp_path: Path) -> None:
    """The bench itself checks every record, and that each write of ours is committed."""
    command = [sys.executable, str(BENCH / "floor.py"), "--bursts=2", "--computing=1,1,1,1", f"--dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["ours", "bare", "computing"]


def test_controllers_bench_reports_each_figure(tmp_path: Path) -> None:
    """Ours alone: the bench itself checks that every request succeeds and that a fenced broker is in no ISR."""
    decide = ["--topics=2", "--partitions=20", "--reps=1"]
    what = "--what=decide,beat,load"
    small = [what, *decide, "--brokers=3", "--seconds=0.1", "--load=200", "--load-reps=1"]
    command = [sys.executable, str(BENCH / "controller.py"), "--targets=ours", *small, f"--dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    for line in (
        "create a topic of 20 partitions, ms",
        "fence the leader of 21, ms",
        "fence one of 40 ISRs, ms",
        "40 ISRs grow, 5,000 a request, ms",
        "heartbeats of 3 brokers, a second",
        "start with a log of 200 partitions, ms",
        "start with a snapshot of 200 partitions, ms",
    ):
        assert line in done.stdout


def test_turns_bench_reports_each_phase(tmp_path: Path) -> None:
    """Each phase has its line; the bench itself checks that it does its work."""
    small = ["--what=turns", "--load=2000", "--partitions=20"]
    command = [sys.executable, str(BENCH / "controller.py"), *small, f"--dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    for line in (
        "longest turn with 2,000 partitions",
        "become active",
        "fence a broker that is in 300 ISRs",
        "balance: no leadership can return",
        "elect the preferred leaders of all partitions",
        "unregister the broker",
        "create a topic of 20 partitions",
        "delete a topic of 200 partitions",
        "delete 18 topics of 100 partitions",
        "make a snapshot",
        "load the snapshot in place of the former state",
        "apply 9,362 records as a standby",
    ):
        assert line in done.stdout


def test_the_calls_of_a_commit_and_of_a_vote_are_bounded() -> None:
    """Each line has its figures; a commit is one sync at each node, a vote two, and no way gets longer."""
    command = [sys.executable, str(BENCH / "path.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    walks = {walk.pop("name"): walk for walk in json.loads(done.stdout)}
    assert set(walks) == {"commit, leader", "commit, follower", "write, leader", "write, follower", "vote, voter"}
    assert all(walk["bytecode"] > walk["calls"] > walk["modules"] > 0 for walk in walks.values()), walks
    most = {"commit, leader": 230, "commit, follower": 160, "vote, voter": 150}
    assert all(walks[name]["calls"] <= calls for name, calls in most.items()), walks
    assert walks.pop("vote, voter")["syncs"] == 2, walks
    assert {walk["syncs"] for walk in walks.values()} == {1}, walks
