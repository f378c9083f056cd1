"""The benches that start controllers do run, at sizes that say nothing of speed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
SECONDS = 300
CEILINGS: dict[str, dict[str, list[float]]] = json.loads((BENCH / "ceilings.json").read_bytes())


def bench(name: str, *options: str) -> str:
    """What a bench prints."""
    command = [sys.executable, str(BENCH / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


OURS = ["--targets=ours", "--heat=0.1"]
SMALL: dict[str, tuple[list[str], list[str]]] = {
    "floor.py": (["--bursts=2", "--computing=1,1,1,1"], ["ours", "bare", "computing"]),
    "controller.py": (
        [
            *(*OURS, "--what=decide,beat,load", "--topics=2", "--partitions=20", "--reps=1"),
            *("--brokers=3", "--seconds=0.1", "--load=200", "--load-reps=1"),
        ],
        [
            "fence one of 40 ISRs, ms",
            "heartbeats of 3 brokers, a second",
            "start with a snapshot of 200 partitions, ms",
        ],
    ),
    "controller.py turns": (
        ["--what=turns", "--load=2000", "--partitions=20"],
        ["become active", "make a snapshot", "apply 9,362 records as a standby"],
    ),
    "commit.py": (
        [*OURS, "--clients=1,2", "--reps=2", "--seconds=0.2"],
        ["median (least-most) of 2"],
    ),
    "produce.py": (
        [
            *(*OURS, "--brokers=1", "--client=confluent", "--reps=1", "--session=4"),
            *("--megabytes=1", "--requests=40", "--partitions=4"),
        ],
        ["produce, MiB/s", "acks=all p99, ms", "fetch 64 KiB of a long log, CPU us"],
    ),
    "fleet.py scale": (["--only=records", "--powers=4", "--views=records", "--rounds=1"], ["CPU µs/record"]),
}
"""For each bench the options of a small run, and what it then prints beside other figures.
`.ci/run` runs `ab.py` itself."""


@pytest.mark.parametrize("name", SMALL)
def test_a_bench_measures_at_a_small_size(name: str, tmp_path: Path) -> None:
    """Each checks by itself that its work is done: that each write is committed, each record consumed."""
    script, *words = name.removesuffix(" turns").split()
    options, expected = SMALL[name]
    told = bench(script, *words, *options, f"--dir={tmp_path}")
    assert [line for line in expected if line not in told] == [], told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another release of Python has other instructions")
def test_no_request_costs_more_than_its_ceiling() -> None:
    """Each line has its figures; a commit is one sync at each node, a vote two, and no way gets longer."""
    told = bench("guard.py", "--json", "--check")
    walks = json.loads(told)
    assert walks.keys() == CEILINGS.keys()
    assert all(walk["bytecode"] > walk["calls"] > 0 < walk["objects"] for walk in walks.values()), walks
    syncs = {
        name: walk["syncs"]
        for name, walk in walks.items()
        if not name.startswith(("produce", "fetch", "offset", "heartbeat", "transaction"))
    }
    assert syncs.pop("vote, voter, 1") == 2
    assert set(syncs.values()) == {1, round(1 / 128, 3)}, syncs
    assert off_the_way({name: walk["way"] for name, walk in walks.items()}) == []


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another release of Python has other instructions")
def test_no_request_costs_more_at_a_broker_that_has_much() -> None:
    """A tenth more at most, with hundreds of partitions, groups and ids, and ten segments of a gibibyte."""
    told = json.loads(bench("full_broker.py", "--json", "--many=300", "--segments=10"))
    empty, full = told["empty"]["walks"], told["full"]["walks"]
    assert empty.keys() == full.keys()
    assert len(empty) == 5
    for figure in ("calls", "bytecode"):
        ratios = {name: full[name][figure] / empty[name][figure] for name in empty}
        assert max(ratios.values()) <= 1.1, (figure, ratios)


WALKED = {
    "A commit on the leader": "commit, leader, 1",
    "A commit on a follower": "commit, follower, 1",
    "A vote": "vote, voter, 1",
    "A Produce on the leader": "produce acks=all, leader, 1",
    "A Produce on a follower": "produce acks=all, follower, 1",
    "A Fetch of a consumer": "fetch of a consumer, leader, 1",
    "A Fetch of a follower": "fetch of a follower, leader, 1",
}
"""The walks of the page, and the line that counts each."""


def off_the_way(ways: dict[str, list[str]]) -> list[str]:
    """The modules that a walk of the page names, and its request does not come to."""
    page = (BENCH.parent / "docs" / "walks.md").read_text(encoding="utf-8")
    found = []
    for walk, line in WALKED.items():
        _, begun, rest = page.partition(f"\n**{walk}**")
        assert begun, walk
        text = re.split(r"\n\n\*\*|\n## ", rest, maxsplit=1)[0]
        named = re.findall(r"`([\w/]+\.py)`", text)
        assert named, walk
        found += [f"{walk}: {name}" for name in named if not any(f"/{one}".endswith(f"/{name}") for one in ways[line])]
    return found


def test_the_calls_of_an_event_are_counted() -> None:
    """The order of sets does not change the count, and an event gets no longer."""
    command = [sys.executable, str(BENCH / "sim.py"), "--calls", "--seeds=2", "--only=core", "--only=replica", "--json"]
    found = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=env)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    per_event = {one["kind"]: one["per_event"] for one in found[0]}
    assert set(per_event) == {"core", "replica"}
    assert 0 < per_event["core"] < 67, per_event
    assert 0 < per_event["replica"] < 107, per_event
