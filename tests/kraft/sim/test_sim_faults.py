"""Each fault of the simulation happens on request, has the documented effect, and a quorum keeps its promises."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from kraft.quorum.values import QuorumConfig
from kraft.sim import InvariantViolated, Scenario, Simulator, replica_member, run
from kraft.sim.faults.nemesis import FAULTS, MESSAGE_FAULTS, STRIKES
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.actions import Crash, DamageDisk, FailDisk, LimitDisk, SetClock, Start
from kraft.sim.world.disk_damage import Damage, damage_file
from kraft.sim.world.host import START_MS
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World
from metadata_log.disk import File, replace_file
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records.batch_builder import build_batch

DISK_FAULTS = ("disk-error", "disk-full", "disk-rot", "disk-swapped", "disk-wiped", "slow-disk", "crash", "crash-all")


# Strikes


@pytest.mark.parametrize("name", STRIKES)
def test_each_requested_fault_happens_and_is_survived(name: str) -> None:
    """No other fault happens then; the calm phase brings every node back."""
    result = run(3, 3, faults=(name,), keep_trace=True)
    struck = {line.split()[2] for line in result.trace.splitlines() if line.split()[1] == "0"}
    assert struck == {name, "calm"}


def test_a_run_without_faults_has_one_leader() -> None:
    result = run(1, 3, faults=(), keep_trace=True)
    assert len(result.leaders) == 1
    assert "crashed" not in result.trace


def test_the_documentation_names_every_fault() -> None:
    text = (Path(__file__).parents[3] / "docs" / "simulated-faults.md").read_text()
    assert set(FAULTS) <= set(re.findall(r"`([a-z-]+)`", text))


def test_failing_and_corrupt_disks_never_serve_unwritten_records() -> None:
    """The node stops or refuses to start with a named error, or serves the right records; lost records are fetched."""
    said: Counter[str] = Counter()
    refused = 0
    for seed in range(1, 21):
        trace = run(seed, 3 + seed % 2 * 2, faults=DISK_FAULTS, keep_trace=True).trace
        refused += trace.count("a segment is on the disk before the next one begins")
        said.update(word for line in trace.splitlines() for word in line.split()[2:4])
    assert said["OSError"] > 5
    assert said["DirectoryError"] + said["CorruptBatch"] > 2
    assert refused > 0, "a segment that was on the disk is refused, and no rule of operators keeps the node down"
    checked = set(Damage) - {Damage.ELECTION, Damage.EPOCHS}
    assert min(said[f"{what}:"] for what in checked) > 0, said


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("first", range(20_000, 24_000, 200))
def test_disk_faults_in_eight_thousand_runs(first: int, nodes: int) -> None:
    print(f"seeds {first} to {first + 199}, {nodes} nodes")
    for seed in range(first, first + 200):
        run(seed, nodes, make_member=replica_member, faults=(*DISK_FAULTS, *MESSAGE_FAULTS, "crash-within-a-step"))


# What a world does with them


def settled_simulator(nodes: int = 3, *, seed: int = 1, records: int = 10) -> Simulator:
    """A quorum of replicas with a leader and some records, to which nothing bad happens by itself."""
    simulator = Simulator(Scenario.drawn("replica", nodes, seed, config=QuorumConfig()), faults=())
    simulator.begin()
    simulator.run_until(20_000, lambda: simulator.world.has_settled(records))
    assert simulator.world.has_settled(records)
    return simulator


def test_a_node_with_a_lost_disk_waits_until_the_others_are_caught_up() -> None:
    """Otherwise the node would vote again in epochs that it has forgotten, and acknowledge other records."""
    simulator = settled_simulator()
    world = simulator.world
    victim, other = (node_id for node_id in world.node_ids if node_id not in simulator.leaders())
    now_ms = simulator.now_ms
    assert not world.perform(DamageDisk(now_ms, victim, Damage.WIPED, 1)), "a disk cannot be wiped under a node"
    assert world.perform(Crash(now_ms, victim, 1))
    assert world.perform(DamageDisk(now_ms, victim, Damage.WIPED, 1))
    assert not world.perform(DamageDisk(now_ms, other, Damage.ROT, 1)), "that would be more than a minority"
    assert world.perform(Crash(now_ms, other, 1))
    assert not world.perform(Start(now_ms, victim, 1)), "one of three is not enough to learn everything from"
    assert world.perform(Start(now_ms, other, 1))
    assert world.perform(Start(now_ms, victim, 1)), "what the other had on its disk it has"
    assert world.hosts[victim].member.read(0) == []
    simulator.run_until(simulator.now_ms + 10_000, lambda: world.has_settled(30))
    assert world.has_settled(30)


def test_a_node_with_a_damaged_old_segment_refuses_to_start() -> None:
    """The node may be started while nothing is known of the others; a new directory may not."""
    simulator, victim, other = quorum_with_rot()
    world = simulator.world
    assert world.perform(Crash(simulator.now_ms, other, 1))
    assert world.perform(Start(simulator.now_ms, victim, 1))
    assert victim not in world.running()
    assert "no torn write" in world.trace.text
    assert world.perform(DamageDisk(simulator.now_ms, victim, Damage.WIPED, 1))
    assert not world.perform(Start(simulator.now_ms, victim, 1)), "an empty disk of a static voter proves nothing"


def test_a_start_that_ignores_a_damaged_old_segment_violates_an_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's would, and ours did: the segments after the damage are gone then."""
    simulator, victim, _ = quorum_with_rot()

    def cut(file: File, damage: object, end: object, later: list[int], snapshots: object) -> None:
        for base in later:
            files_of(simulator.world, victim).remove(f"{file.path.rpartition('/')[0]}/{base:020d}.log")

    monkeypatch.setattr("metadata_log.log.recovery.refuse_damage", cut)
    with pytest.raises(InvariantViolated, match=f"node {victim} has started, though its disk is damaged"):
        simulator.world.perform(Start(simulator.now_ms, victim, 1))


def files_of(world: World, node_id: int) -> MemoryDisk:
    """The files of a replica."""
    member = world.hosts[node_id].member
    assert isinstance(member, ReplicaMember)
    return member.disk.files


def quorum_with_rot() -> tuple[Simulator, int, int]:
    """A settled quorum, a follower that is down with a flipped bit in the first of several segments, and the other."""
    simulator = settled_simulator(seed=6, records=60)
    world = simulator.world
    followers = [node_id for node_id in world.node_ids if node_id not in simulator.leaders()]

    def segments(node_id: int) -> list[str]:
        return [path for path in files_of(world, node_id).files() if path.endswith(".log")]

    victim = next(node_id for node_id in followers if len(segments(node_id)) > 1)
    assert world.perform(Crash(simulator.now_ms, victim, 1))
    disk, path = files_of(world, victim), segments(victim)[0]
    # The damage is drawn: of all seeds one that hits the place.
    seed = next(seed for seed in range(1000) if damage_file(disk.fork(), Damage.ROT, Random(seed)).startswith(path))
    assert world.perform(DamageDisk(simulator.now_ms, victim, Damage.ROT, seed))
    return simulator, victim, next(node_id for node_id in followers if node_id != victim)


def test_a_failing_disk_stops_its_node() -> None:
    simulator = settled_simulator()
    world, leader = simulator.world, simulator.leaders()[0]
    assert world.perform(FailDisk(simulator.now_ms, leader, 1, 7))
    simulator.run_until(simulator.now_ms + 3000, lambda: leader not in world.running())
    assert leader not in world.running()
    assert "OSError" in world.trace.text


def test_a_full_disk_keeps_its_node_down_until_there_is_room() -> None:
    simulator = settled_simulator()
    world, leader = simulator.world, simulator.leaders()[0]
    assert world.perform(LimitDisk(simulator.now_ms, leader, 7, 0))
    simulator.run_until(simulator.now_ms + 5000)
    assert leader not in world.running()
    assert "no space left on device" in world.trace.text
    assert world.perform(LimitDisk(simulator.now_ms, leader, 7))
    simulator.run_until(simulator.now_ms + 5000)
    assert leader in world.running()


def test_a_broken_connection_fails_only_its_own_requests() -> None:
    simulator = settled_simulator()
    world, leader = simulator.world, simulator.leaders()[0]
    before = world.under_way(leader)
    assert {exchange.target for exchange in before} == {leader}, "followers' fetches wait at the leader"
    simulator.reset_connections(leader)
    assert all(exchange.is_settled for exchange in before)
    assert world.trace.text.count(f"failed {leader} reset") == len(before)


def test_clocks_jump_ahead_never_back_and_drift() -> None:
    world = Scenario.drawn("core", 1, 0).make_world(Trace())
    assert world.perform(Start(0, 1, 7, clock_offset_ms=500))
    assert world.perform(SetClock(100, 1, -4000))
    assert world.clock_offset_ms(1) == 500
    assert world.perform(SetClock(100, 1, 2500, drift=100))
    world.now_ms = 1100
    assert world.clock_offset_ms(1) == 2600
    deadline_ms = world.deadline_ms(1)
    for at_ms, is_due in ((deadline_ms - 1, False), (deadline_ms, True)):
        world.now_ms = at_ms
        clock_ms = START_MS + at_ms + world.clock_offset_ms(1)
        assert (clock_ms >= world.hosts[1].member.deadline_ms()) == is_due


class Drawn(Random):
    """Draws the given values."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self._numbers = list(numbers)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self._numbers.pop(0)

    def randint(self, *_bounds: int) -> int:
        return self._numbers.pop(0)


def test_injected_damage_never_gives_another_valid_log() -> None:
    """Offset and epoch of a batch have no checksum: what follows them may be that of another batch. Found in a run."""
    batches = [build_batch(offset, 1, 5, [value]) for offset, value in enumerate((b"one", b"two"))]
    size = len(batches[0])
    disk = MemoryDisk()
    replace_file(disk, "/", "a.log", b"".join(batches))
    moves = (size + 16, size - 16, False), (size + 8, 2 * size, False), (size + 16, size - 20, True), (size, size, True)
    for start, length, is_damaged in moves:
        drawn = Drawn(start - size, start, length)
        assert bool(damage_file(disk.fork(), Damage.ASTRAY, drawn)) == is_damaged, (start, length)


# Invariants
