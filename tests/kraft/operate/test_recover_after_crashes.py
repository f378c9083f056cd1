"""Quorums crash at random moments: the best copy of a majority has all commits, and a recovery contradicts no copy."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
import trio
from trio.testing import MockClock

from kraft.admin import AdminError, ConfigChange, ResourceType
from kraft.operate.recover.copies import read_copy
from kraft.operate.recover.differences import common_end
from kraft.operate.recover.inventory import read_inventory
from kraft.operate.recover.plan import make_plan
from kraft.operate.recover.recovery import Address, Choices, make_recovery
from kraft.operate.recover.verify import check_recovered, read_recovered
from kraft.operate.recover.writing import write_recovery
from kraft.testing import Cluster
from metadata_log.memory_disk import MemoryDisk

STEPS = 6
PATIENCE_SECONDS = 15
"""In virtual time: how long a client waits for an answer that a partitioned leader never gives."""


async def disks_after_crashes(rng: Random, seed: int) -> tuple[dict[int, MemoryDisk], list[str]]:
    """The disks of three controllers after kills, partitions and a power failure; the names of acknowledged changes."""
    acknowledged: list[str] = []
    async with Cluster(controllers=3, seed=seed) as cluster, cluster.admin() as admin:
        for number in range(STEPS):
            leader = await cluster.leader()
            strike = rng.randrange(3) if len(cluster.running) == 3 else None
            if strike == 0:
                await cluster.kill(rng.choice(cluster.running))
            elif strike == 1:
                cluster.network.partition({leader}, cluster.others(leader))
            name = f"change-{number}"
            change = ConfigChange(
                resource_type=ResourceType.CLIENT_METRICS, resource_name=name, key="interval.ms", value="1000"
            )
            with trio.move_on_after(PATIENCE_SECONDS):
                try:
                    await admin.alter_configs([change])
                    acknowledged.append(name)
                except AdminError:
                    pass
            cluster.network.heal()
            if rng.random() < 0.5:
                for node in sorted({1, 2, 3} - set(cluster.running)):
                    await cluster.restart(node)
        for node in cluster.running:
            await cluster.kill(node)
        return dict(cluster.disks), acknowledged


def collected(disks: dict[int, MemoryDisk]) -> MemoryDisk:
    """One disk with the directory of each node under its number."""
    one = MemoryDisk()
    for node, disk in disks.items():
        for path in disk.files():
            target = f"/c{node}{path.removeprefix('/kraft')}"
            one.mkdir(target.rpartition("/")[0])
            file = one.open(target, create=True)
            file.append(disk.peek(path))
            file.fsync()
            file.close()
    return one


@pytest.mark.parametrize("seed", range(8))
async def test_a_recovery_after_random_crashes_keeps_all_commits_and_contradicts_no_copy(
    autojump_clock: MockClock, seed: int
) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    disks, acknowledged = await disks_after_crashes(rng, seed)
    assert acknowledged
    disk = collected(disks)
    highest = max(read_copy(disk, f"/c{node}/__cluster_metadata-0").highest_epoch for node in disks)
    for two in combinations(sorted(disks), 2):
        plan = make_plan(disk, read_inventory(disk, [f"/c{node}" for node in two], []))
        known = {name for (_, name), _ in plan.image.configs.by_resource.items()}
        assert set(acknowledged) <= known, f"a majority holds every acknowledged change: {two}"
    survivor = rng.choice(sorted(disks))
    plan = make_plan(disk, read_inventory(disk, [f"/c{survivor}"], []))
    choices = Choices(
        voters=tuple(Address(node, f"c{node}", 9093) for node in (1, 2, 3)), kraft_version=rng.randrange(2)
    )
    recovery = make_recovery(plan, choices, rng=rng, now_ms=1_800_000_000_000)
    write_recovery(disk, "/new", recovery)
    found = check_recovered(disk, read_recovered(disk, "/new"))
    assert [check for check in found if not check.is_passed] == []
    whole = make_plan(disk, read_inventory(disk, [f"/c{node}" for node in sorted(disks)], []))
    assert whole.first_safe_epoch == highest + 1
    for node in disks:
        old = read_copy(disk, f"/c{node}/__cluster_metadata-0")
        new = read_copy(disk, "/new/node-1/__cluster_metadata-0")
        common_end(new, old, ("the recovered log", f"c{node}"))
