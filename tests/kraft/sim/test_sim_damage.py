"""Faults that damage of a disk excuses in the simulation, and for how long."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from kraft.invariants.violation import InvariantViolated
from kraft.sim import Scenario, Simulator
from kraft.sim.nodes.node_disk import DIRECTORY, PARTITION
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.actions import Crash, Start
from kraft.sim.world.disk_damage import Damage
from kraft.sim.world.simulated_quorum import DAMAGE_SHOWS_MS
from metadata_log.disk import replace_file
from metadata_log.errors import CorruptBatch
from metadata_log.memory_disk import MemoryDisk

SEGMENT = f"{PARTITION}/00000000000000000000.log"
VICTIM = 3


def _member(simulator: Simulator, node_id: int) -> ReplicaMember:
    member = simulator.world.hosts[node_id].member
    assert isinstance(member, ReplicaMember)
    return member


def _with_a_repaired_disk() -> Simulator:
    """A quorum in which the operator has formatted a disk anew, and the node has fetched everything."""
    simulator = Simulator(Scenario.drawn("replica", 3, 1), faults=())
    simulator.begin()
    simulator.run_until(3_000)
    assert simulator.leaders()
    simulator.damage_disk(VICTIM, Damage.WIPED, 1)
    assert simulator.world.invariants.nodes.was_damaged(VICTIM)
    simulator.run_until(8_000)
    assert simulator.world.hosts[VICTIM].is_running
    return simulator


def test_damage_that_is_repaired_excuses_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = _with_a_repaired_disk()

    def fail(event: object, now_ms: int) -> NoReturn:
        raise CorruptBatch("the CRC is wrong", where=SEGMENT)

    monkeypatch.setattr(_member(simulator, VICTIM), "step", fail)
    with pytest.raises(CorruptBatch, match="CRC"):
        simulator.run_until(simulator.now_ms + 5_000)


def test_damage_that_is_there_excuses_only_a_failure_that_names_it() -> None:
    simulator = _with_a_repaired_disk()
    world, files = simulator.world, _member(simulator, VICTIM).disk.files
    failure, other = OSError(errno.EIO, "no read", SEGMENT), OSError(errno.EIO, "no read", "/log/meta.properties")
    assert not world.is_explained(VICTIM, failure)
    files.overwrite(SEGMENT, 30, bytes([files.peek(SEGMENT)[30] ^ 1]))
    world.invariants.nodes.damaged(VICTIM)
    assert world.is_explained(VICTIM, failure)
    assert not world.is_explained(VICTIM, other)
    assert not world.is_explained(1, failure)


def test_a_report_on_a_sound_node_is_a_violation_though_a_third_disk_is_damaged() -> None:
    simulator = _with_a_repaired_disk()
    world = simulator.world
    with pytest.raises(InvariantViolated, match="node 1 reports a fault of node 2, which has none"):
        world._suspected(1, 2, "nonsense")


def test_reports_on_a_repaired_node_are_excused_for_a_while() -> None:
    """A message that the node sent before the repair may arrive late."""
    simulator = _with_a_repaired_disk()
    world = simulator.world
    world._suspected(1, VICTIM, "nonsense")
    world._suspected(VICTIM, 2, "nonsense")
    simulator.run_until(simulator.now_ms + DAMAGE_SHOWS_MS)
    with pytest.raises(InvariantViolated, match="node 1 reports a fault of node 3, which has none"):
        world._suspected(1, VICTIM, "nonsense")


def test_a_truncation_removes_damage() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    file = disk.open("/d/f", create=True)
    file.append(b"0123456789")
    disk.overwrite("/d/f", 4, b"45")
    assert disk.damaged_files() == ()
    disk.overwrite("/d/f", 4, b"xx")
    assert disk.damaged_files() == disk.fork().damaged_files() == ("/d/f",)
    file.truncate(5)
    assert disk.damaged_files() == ("/d/f",)
    file.truncate(4)
    assert disk.damaged_files() == ()
    disk.spoil("/d/f", 0)
    assert disk.damaged_files() == ("/d/f",)
    disk.remove("/d/f")
    assert disk.damaged_files() == ()


def test_a_changed_directory_id_makes_another_voter_that_counts_for_no_majority() -> None:
    """Nothing checks meta.properties: such a node starts, and its vote is not that of the voter (`dynamic` 1000756)."""
    simulator = Simulator(Scenario.drawn("dynamic", 3, 4), faults=())
    world, losses = simulator.world, simulator.world.disk_losses
    simulator.begin()
    simulator.run_until(20_000, lambda: world.has_settled(5))
    voters = world.invariants.voter_sets()[-1]
    changed, other, third = voters.ids
    assert losses.may_stop(other, world.running(), world.invariants)
    assert world.perform(Crash(simulator.now_ms, changed, 1))
    member = _member(simulator, changed)
    before, files = member.key, member.disk.files
    content = files.read(f"{DIRECTORY}/meta.properties")
    at = content.index(b"directory.id=") + len(b"directory.id=")
    letter = b"A" if content[at : at + 1] != b"A" else b"B"
    replace_file(files, DIRECTORY, "meta.properties", content[:at] + letter + content[at + 1 :])
    assert world.perform(Start(simulator.now_ms, changed, 3, 0))
    assert member.key.directory_id != before.directory_id
    assert set(world.running()) >= {changed, other, third}
    assert not losses.may_stop(other, world.running(), world.invariants)
