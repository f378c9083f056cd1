"""The benches that start controllers do run, at sizes that say nothing of speed."""

from __future__ import annotations

import itertools
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
    "failover.py": ([*OURS, "--rounds=1"], ["killed", "stopped gracefully"]),
    "metrics/scrape.py": (["--rounds=1", "--seconds=0.5", "--every=0.3", "--clients=4"], ["median"]),
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


def test_the_check_of_walks_finds_a_module_that_is_not_on_the_way() -> None:
    assert "A vote: election_rpc.py" not in off_the_way(
        {line: ["replica/rpc/election_rpc.py"] for line in WALKED.values()}
    )
    assert "A vote: replica/rpc/election_rpc.py" in off_the_way({line: [] for line in WALKED.values()})


def test_a_figure_above_its_ceiling_fails(tmp_path: Path) -> None:
    """And says which, by how much."""
    ceilings = tmp_path / "ceilings.json"
    ceilings.write_text(json.dumps(CEILINGS | {"vote, voter, 1": {"calls": [100], "syncs": [2], "objects": [900]}}))
    command = [sys.executable, str(BENCH / "guard.py"), "--only=vote", "--check", f"--ceilings={ceilings}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    # On a busy machine the nodes say that a turn was long.
    said = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("long-turn "))
    assert re.fullmatch(r"vote, voter, 1: calls 1\d\d > 100\nvote, voter, 1: bytecode \d,\d\d\d has no ceiling\n", said)


def test_each_raised_ceiling_has_a_line_in_the_changelog() -> None:
    """A list has all ceilings so far. To raise one takes a line that says so, beside the reason."""
    pages = [BENCH.parent / "CHANGELOG.md", *sorted((BENCH.parent / "changelog.d").glob("+*.md"))]
    changes = re.sub(r"\s+", " ", " ".join(page.read_text(encoding="utf-8") for page in pages))
    for name, figures in CEILINGS.items():
        for figure, history in figures.items():
            for before, after in itertools.pairwise(history):
                assert before < after, f"{name}: {figure} {before:,g} to {after:,g}: write the lower ceiling alone"
                wanted = f"`{name}`: {figure} {before:,g} to {after:,g}"
                assert wanted in changes, f"the changelog does not say why there is now {wanted}"


def test_ours_is_measured_where_no_peer_is_installed(tmp_path: Path) -> None:
    """Without programs on PATH the driver names each peer as missing, and loads ours alone beside a busy loop."""
    small = ["--clients=1,3", "--turns=2", "--seconds=0.2", "--heat=0.2", "--busy=1", "--json"]
    command = [sys.executable, str(BENCH / "peers.py"), *small, f"--dir={tmp_path}"]
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=bare)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["peers"]) == {"ours"}
    assert set(found["missing"]) == {"etcd", "zookeeper", "kafka0", "kafka"}
    assert [(one["turn"], one["row"]["clients"]) for one in found["rows"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    assert all(one["row"]["commits"] > 0 for one in found["rows"]), found["rows"]
    for line in found["lines"]:
        assert line["per_second"]["least"] <= line["per_second"]["median"] <= line["per_second"]["most"]
        assert line["ratio_of_rates"] == {"median": 1.0, "least": 1.0, "most": 1.0}
    assert list(tmp_path.iterdir()) == []


def test_a_commit_that_is_not_in_the_clone_is_skipped_with_the_reason(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "ab.py"), "0" * 40, f"--dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"skipped: {'0' * 40} is not here: this"), done.stdout


def number(printed: str) -> float:
    return float(printed.replace(",", ""))


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


def test_digests_of_runs_survive_another_process_and_show_a_changed_part(tmp_path: Path) -> None:
    """Sets in another order change nothing, and one byte on a disk, or in a message, is seen there and only there."""
    stored = tmp_path / "digests.json"

    def ask(*options: str, seed: str = "1") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(BENCH / "digests.py"), *options]
        env = os.environ | {"PYTHONHASHSEED": seed}
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=env)

    few = ("--seeds=1", "--only=core", "--only=data-cluster")
    assert ask(*few, f"--out={stored}").returncode == 0
    again = ask(f"--against={stored}", seed="2")
    assert (again.returncode, again.stdout) == (0, "2 of 2 runs are equal\n"), again.stderr
    runs = json.loads(stored.read_bytes())
    assert runs["core"]["0"]["result"].split()[0] == "641", "it runs what `kraft sim run` runs"
    runs["core"]["0"]["messages"] = runs["core"]["0"]["disk"]
    stored.write_text(json.dumps(runs), encoding="utf-8")
    changed = ask(f"--against={stored}", "--only=core")
    assert (changed.returncode, changed.stdout) == (1, "core, seed 0: messages differ\n0 of 1 runs are equal\n")


def test_the_bench_of_seeds_goes_on_where_it_ended_and_repeats_what_it_stored(tmp_path: Path) -> None:
    """A planted difference of a stored digest is seen, and the page counts the seeds of each profile."""
    results, written = tmp_path / "results.jsonl", tmp_path / "page.md"
    kinds = ["--only=core", "--only=replica"]

    def ask(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(BENCH / "seeds.py"), "--jobs=1", f"--results={results}", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)

    first = ask("--seeds=20", *kinds)
    assert (first.returncode, first.stdout) == (0, "0 seeds are done, 18 are left\n"), first.stderr
    more = ask("--seeds=30", *kinds)
    assert more.stdout.startswith("18 seeds are done, 9 are left"), more.stderr
    assert ask("--check=2").stdout.splitlines()[0].startswith("core: 2 of 2 digests are equal")
    assert ask(f"--report={written}").returncode == 0
    page = written.read_text(encoding="utf-8")
    assert "| `core` | slow-disk |" in page
    assert "| all |  | 27 |" in page
    assert page.endswith("Undecided histories: 0. Violations: 0.\n")
    with results.open("a") as file:
        file.write('{"kind":"core","seed":1000000,"code":"planted","violation":"two leaders"}\n')
    assert ask(f"--report={written}").returncode == 0
    assert "- `core`, seed 1000000 of `planted`: two leaders\n" in written.read_text(encoding="utf-8")
    assert ask("--again").stdout.startswith("26 seeds are done, 1 are left")
    assert ask(f"--report={written}").returncode == 0
    page = written.read_text(encoding="utf-8")
    assert "Violations: 0.\n\nViolations that were examined and mended" in page
    assert re.search(r"- `core`, seed 1000000 of `planted`, passes with `\w+\+?`: two leaders\n$", page)
    results.write_text(results.read_text(encoding="utf-8").replace('"digest":"', '"digest":"0'), encoding="utf-8")
    changed = ask("--check=2")
    assert changed.returncode == 1
    assert changed.stdout.startswith("core: 0 of 2 digests are equal")


def test_the_bench_of_embedded_dictionaries_loses_nothing_of_ours(tmp_path: Path) -> None:
    """Of what ours acknowledges nothing is lost, not even without power."""
    small = ["--clients=1,2", "--reps=1", "--rounds=1", "--seconds=0.2", "--targets=ours", "--only=load,failover,loss"]
    told = bench("embed.py", *small, f"--dir={tmp_path}")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()]
    ours = [row[1:] for row in rows if row[0] == "trio-kraft"]
    first, second, program, failover, lost = ours
    assert [first[0], second[0]] == ["1", "2"]
    assert all(number(cell.split()[0]) > 0 for cell in (*first, *second, *program, *failover))
    assert all(re.fullmatch(r"0 of [1-9][\d,]*", cell) for cell in lost), lost
