"""The in-process harness, and through it the whole node over memory transport and virtual time."""

from __future__ import annotations

import time

from trio.testing import MockClock

from kraft.testing import Cluster


async def test_a_leader_is_elected_and_becomes_active(autojump_clock: MockClock) -> None:
    began = time.perf_counter()
    async with Cluster(controllers=3, seed=7) as cluster:
        leader = await cluster.leader()
        print("wall seconds until a leader:", time.perf_counter() - began)
        assert leader in cluster.ids
        assert cluster.node(leader).is_active
        cluster.check()


async def test_a_leader_cut_off_is_replaced_and_rejoins(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=3) as cluster:
        old = await cluster.leader()
        epoch = cluster.node(old).status().leader.epoch
        cluster.network.partition({old}, cluster.others(old))
        new = await cluster.leader(among=cluster.others(old))
        assert cluster.node(new).status().leader.epoch > epoch
        cluster.check()
        cluster.network.heal()
        await cluster.wait_for_offset(cluster.node(new).status().log_end_offset)
        assert cluster.node(old).status().leader.leader_id == new
        cluster.check()
