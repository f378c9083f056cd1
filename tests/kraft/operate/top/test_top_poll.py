"""The polls of `kraft top` on a cluster of real nodes in virtual time: cheap, and never ended by a lost leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from kraft.admin import AdminClient, open_admin
from kraft.operate.top.model import Model, Sort, View
from kraft.operate.top.poll import LIVE_TIMEOUT_MS, Poller
from kraft.operate.top.samples import Sample, Trouble
from kraft.testing import Cluster
from transport.memory import MemoryTransport

PATIENCE_SECONDS = 120
"""Virtual seconds."""


def clock_ms() -> int:
    return int(trio.current_time() * 1000)


@asynccontextmanager
async def client(cluster: Cluster) -> AsyncIterator[AdminClient]:
    """A client with the time-outs of the live view."""
    async with cluster.admin() as other:
        addresses = other.addresses
    transport = MemoryTransport(cluster.network, host="top")
    async with open_admin(addresses, transport=transport, timeout_ms=LIVE_TIMEOUT_MS) as admin:
        yield admin


class Seen:
    """The views after each sample."""

    def __init__(self) -> None:
        self.model = Model()
        self.views: list[View] = []
        self._changed = trio.Event()

    def take(self, sample: Sample) -> None:
        self.model.take(sample)
        view = self.model.view()
        assert view is not None
        self.views.append(view)
        self._changed.set()

    async def until(self, holds: Callable[[View], bool]) -> View:
        with trio.fail_after(PATIENCE_SECONDS):
            while not (self.views and holds(self.views[-1])):
                self._changed = trio.Event()
                await self._changed.wait()
        return self.views[-1]


async def test_one_sample_has_the_quorum_the_brokers_and_the_partitions(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, brokers=3, seed=7) as cluster, client(cluster) as admin:
        await cluster.create_topic("orders", partitions=6, replication_factor=3)
        leader = await cluster.leader()
        seen = Seen()
        await Poller(admin, seen.take, clock_ms=clock_ms).once()
        view = seen.views[-1]
        assert (view.leader_id, view.voters, view.without_leader_ms) == (leader, 3, None)
        assert [(one.id, one.role) for one in view.replicas] == [
            (each, "leader" if each == leader else "follower") for each in cluster.ids
        ]
        assert {one.epoch for one in view.replicas} == {view.epoch}
        assert [(one.broker.id, one.broker.state, one.broker.replicas) for one in view.brokers] == [
            (each, "active", 6) for each in cluster.brokers
        ]
        assert sum(one.broker.leads for one in view.brokers) == 6
        assert all(one.lag is not None for one in view.brokers), "brokers are observers of the quorum"
        assert view.metadata is not None
        assert (view.metadata.partitions, view.metadata.troubled) == (6, ())


async def test_a_refresh_costs_two_requests_and_goes_on_across_the_death_of_a_leader(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, brokers=3, seed=7) as cluster, client(cluster) as admin:
        await cluster.create_topic("orders", partitions=4, replication_factor=3, configs={"min.insync.replicas": "3"})
        first = await cluster.leader()
        seen = Seen()
        poller = Poller(admin, seen.take, clock_ms=clock_ms)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, 1.0)
            await seen.until(lambda view: view.metadata is not None and len(seen.views) > 5)
            assert {view.requests for view in seen.views[2:]} == {2}

            cluster.brokers[101].pause()
            view = await seen.until(lambda view: view.metadata is not None and view.metadata.below_min_isr == 4)
            assert view.metadata is not None
            assert {(one.trouble, one.min_isr, one.isr) for one in view.metadata.troubled} == {
                (Trouble.BELOW_MIN_ISR, 3, one.isr) for one in view.metadata.troubled
            }
            assert all(101 not in one.isr for one in view.metadata.troubled)
            assert [one.broker.state for one in view.brokers] == ["fenced", "active", "active"]
            assert view.elections == ()

            left, other = cluster.others(first)
            await cluster.kill(other)
            await cluster.kill(first)
            lost = await seen.until(lambda view: view.leader_id is None and bool(view.answers))
            assert (lost.last_leader_id, lost.voters) == (first, 3)
            assert [one.id for one in lost.answers if one.problem is None] == [left]
            assert [one.broker.id for one in lost.brokers] == [101, 102, 103], "the last known brokers stay"
            await cluster.restart(other)
            second = await cluster.leader(among=(left, other))
            view = await seen.until(lambda view: view.leader_id == second and bool(view.elections))
            assert [one.leader_id for one in view.elections][-1] == second
            view = await seen.until(lambda view: bool(view.elections) and view.elections[-1].offset is not None)
            dead = next(one for one in view.replicas if one.id == first)
            assert (dead.epoch, dead.end_offset, dead.fetched_ms) == (None, None, None)
            await cluster.restart(first)
            view = await seen.until(lambda view: all(one.lag == 0 for one in view.replicas))
            assert view.epoch == view.elections[-1].epoch
            nursery.cancel_scope.cancel()


async def test_a_silent_leader_does_not_hold_up_the_view_of_its_successor(autojump_clock: MockClock) -> None:
    """The leader keeps its connections and answers nothing, as a process that has been stopped."""
    async with Cluster(controllers=3, seed=11) as cluster, client(cluster) as admin:
        first = await cluster.leader()
        seen = Seen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Poller(admin, seen.take, clock_ms=clock_ms).run, 1.0)
            await seen.until(lambda view: view.leader_id == first)
            cluster.network.partition({first}, {*cluster.others(first), "top"})
            silent_since = trio.current_time()
            await cluster.leader(among=cluster.others(first))
            view = await seen.until(lambda view: view.leader_id in cluster.others(first))
            assert view.elections[-1].leader_id == view.leader_id
            assert trio.current_time() - silent_since < 30
            nursery.cancel_scope.cancel()


async def test_a_pause_sends_nothing_and_a_refresh_is_taken_at_once(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, seed=3) as cluster, client(cluster) as admin:
        await cluster.leader()
        seen = Seen()
        poller = Poller(admin, seen.take, clock_ms=clock_ms)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, 1.0)
            await seen.until(lambda view: view.metadata is not None)
            poller.control.pause(True)
            sent, count = admin.requests_sent, len(seen.views)
            await trio.sleep(60)
            assert (admin.requests_sent, len(seen.views)) == (sent, count)
            poller.control.refresh()
            await seen.until(lambda view: len(seen.views) == count + 1)
            poller.control.pause(False)
            await seen.until(lambda view: len(seen.views) > count + 3)
            nursery.cancel_scope.cancel()


async def test_a_sample_without_any_controller_names_each_failure(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=5) as cluster, client(cluster) as admin:
        for each in cluster.ids:
            await cluster.kill(each)
        seen = Seen()
        await Poller(admin, seen.take, clock_ms=clock_ms).once()
        view = seen.views[-1]
        assert (view.leader_id, view.epoch, view.metadata, view.voters) == (None, None, None, None)
        assert view.problem is not None
        assert "no active controller answered within 2 s" in view.problem
        assert len(view.answers) == 3
        assert all(one.problem for one in view.answers)
        assert seen.model.view(Sort.LAG) == view
