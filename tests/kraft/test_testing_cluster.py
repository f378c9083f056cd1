"""The in-process harness, and through it the whole node over memory transport and virtual time."""

from __future__ import annotations

from random import Random

import pytest
import trio
from trio.testing import MockClock

from kraft.admin import AdminClient, ConfigChange, ResourceType
from kraft.invariants.disks import Ledger
from kraft.invariants.violation import InvariantViolated
from kraft.node.errors import NotLeader, OutcomeUnknown
from kraft.process.hosting import host_raw_log
from kraft.testing import Cluster
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import build_batch
from transport.faults import Faults


async def set_interval(admin: AdminClient, name: str, interval_ms: int) -> None:
    change = ConfigChange(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=name, key="interval.ms", value=str(interval_ms)
    )
    await admin.alter_configs([change])


async def test_a_leader_is_elected_and_becomes_active(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=7) as cluster:
        leader = await cluster.leader()
        assert cluster.node(leader).is_active
        cluster.check()
    # Kafka's bounds: a timer of one to two seconds, then two rounds of votes.
    assert trio.current_time() < 5


@pytest.mark.parametrize("controllers", [1, 5])
async def test_clusters_of_other_sizes_elect_and_commit(autojump_clock: MockClock, controllers: int) -> None:
    async with Cluster(controllers=controllers, seed=2, application=host_raw_log) as cluster:
        offset = await cluster.append([b"value"])
        await cluster.wait_for_offset(offset + 1)
        cluster.check()


async def test_a_partitioned_leader_is_replaced_and_rejoins(autojump_clock: MockClock) -> None:
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


async def test_an_append_at_a_partitioned_leader_has_an_unknown_outcome(autojump_clock: MockClock) -> None:
    """An append at a deposed leader must not be reported as failed: a later leader might hold the record."""
    async with Cluster(controllers=3, seed=4, application=host_raw_log) as cluster:
        old = await cluster.leader()
        kept = await cluster.append([b"kept"])
        cluster.network.partition({old}, cluster.others(old))
        with pytest.raises(OutcomeUnknown):
            await cluster.node(old).append([b"alone"])
        new = await cluster.leader(among=cluster.others(old))
        offset = await cluster.node(new).append([b"other"])
        cluster.network.heal()
        await cluster.wait_for_offset(offset + 1)
        values: list[bytes] = []
        async for batch in cluster.node(old).committed():
            values.extend(batch.values)
            if batch.next_offset > offset:
                break
        assert values == [b"kept", b"other"]
        assert kept < offset
        cluster.check()


async def test_no_acknowledged_record_is_lost_when_every_node_loses_power(autojump_clock: MockClock) -> None:
    seed = 11
    print("seed", seed)
    rng = Random(seed)
    async with Cluster(controllers=3, seed=seed, application=host_raw_log) as cluster:
        for round_number in range(8):
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(cluster.append, [b"%d-%d" % (round_number, number)])
            victims = rng.sample(cluster.ids, rng.choice((1, 2, 3)))
            for node_id in victims:
                await cluster.kill(node_id)
            cluster.check()
            for node_id in victims:
                await cluster.restart(node_id)
            end = cluster.node(await cluster.leader()).status().log_end_offset
            await cluster.wait_for_offset(end)
            cluster.check()


async def test_a_graceful_shutdown_hands_over_before_any_timeout(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=5) as cluster:
        old = await cluster.leader()
        began = trio.current_time()
        await cluster.stop(old)
        assert old not in cluster.running
        await cluster.leader()
        # The fetch timeout, after which the others would have noticed by themselves, is 2 s.
        assert trio.current_time() - began < 1.0
        await cluster.restart(old)
        await cluster.leader()
        cluster.check()


async def test_admin_writes_survive_a_failover(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=6) as cluster, cluster.admin() as admin:
        await set_interval(admin, "before", 1000)
        old = await cluster.leader()
        await cluster.kill(old)
        await set_interval(admin, "after", 2000)
        new = await cluster.leader()
        assert new != old
        await cluster.restart(old)
        await cluster.wait_for_offset(cluster.node(new).status().log_end_offset)
        cluster.check()


@pytest.mark.parametrize("seed", range(5))
async def test_a_lossy_network_delays_commits_and_loses_none(autojump_clock: MockClock, seed: int) -> None:
    print("seed", seed)
    faults = Faults(drop=0.03, duplicate=0.02, delay_ms=(0, 30), slow=0.05, slow_ms=(100, 400))
    async with Cluster(controllers=3, seed=seed, faults=faults, application=host_raw_log) as cluster:
        committed = 0
        while committed < 30:
            try:
                await cluster.append([b"value"])
            except (NotLeader, OutcomeUnknown):
                continue
            committed += 1
            if committed % 10 == 0:
                cluster.check()
        cluster.network.plan.faults = Faults()
        end = cluster.node(await cluster.leader()).status().log_end_offset
        await cluster.wait_for_offset(end)
        cluster.check()


async def test_a_cancelled_append_leaves_the_node_usable(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=8, application=host_raw_log) as cluster:
        leader = cluster.node(await cluster.leader())
        with trio.move_on_after(0):
            await leader.append([b"cancelled"])
        assert await cluster.append([b"next"]) > 0
        cluster.check()


@pytest.mark.parametrize("controllers", [1, 3])
async def test_the_error_that_stopped_a_node_reaches_the_caller(autojump_clock: MockClock, controllers: int) -> None:
    """A failed fsync must end the node with an error that names the file, and is not tried again: not after a deadline
    of its own, and not when it happens to a follower in the midst of what the transport delivers.
    """
    failing: list[str] = []

    def fail(operation: str, path: str) -> None:
        if operation == "fsync" and path.endswith(".log"):
            failing.append(path)
            raise OSError(5, "Input/output error", path)

    async def run() -> None:
        async with Cluster(controllers=controllers, seed=9) as cluster:
            leader = await cluster.leader()
            failing_node = next((node for node in cluster.disks if node != leader), 1)
            cluster.disks[failing_node].on_operation = fail
            await trio.sleep_forever()

    with pytest.raises(OSError, match=r"00000000000000000000\.log"):
        await run()
    assert len(failing) == 1


async def test_invalid_calls_raise_value_errors(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=1) as cluster:
        with pytest.raises(ValueError, match="node 1 is running"):
            await cluster.restart(1)
        await cluster.kill(1)
        with pytest.raises(ValueError, match="node 1 is not running"):
            await cluster.kill(1)


# The ledger must be able to fail.


def log_of(*batches: tuple[int, bytes]) -> list[RecordBatch]:
    """Batches of one value each, given with their epochs."""
    data = b"".join(build_batch(offset, epoch, 0, [value]) for offset, (epoch, value) in enumerate(batches))
    return list(scan(data))


def test_two_leaders_in_an_epoch_are_a_violation() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_leader(1, 4, 1)
    with pytest.raises(InvariantViolated, match="epoch 4 has two leaders"):
        ledger.note_leader(2, 4, 2)


def test_a_second_vote_and_a_decreasing_epoch_are_violations() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_vote(1, 4, 2)
    with pytest.raises(InvariantViolated, match="voted twice in epoch 4"):
        ledger.note_vote(1, 4, 3)
    with pytest.raises(InvariantViolated, match="fell from 4 to 3"):
        ledger.note_vote(1, 3, -1)


def test_a_changed_committed_record_is_a_violation() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_log(1, log_of((1, b"a"), (1, b"b")), 2)
    with pytest.raises(InvariantViolated, match="other records committed at offset 1"):
        ledger.note_log(2, log_of((1, b"a"), (2, b"c")), 2)


def test_two_batches_at_one_offset_of_an_epoch_are_a_violation() -> None:
    ledger = Ledger((1, 2, 3))
    ledger.note_log(1, log_of((1, b"a")), -1)
    with pytest.raises(InvariantViolated, match="another batch at offset 0 of epoch 1"):
        ledger.note_log(2, log_of((1, b"b")), -1)


def test_a_commit_without_a_majority_and_a_lost_record_are_violations() -> None:
    ledger = Ledger((1, 2, 3))
    log = log_of((1, b"a"))
    ledger.note_log(1, log, 1)
    ledger.check_durable({1: log, 2: log, 3: []})
    with pytest.raises(InvariantViolated, match=r"only on the disks of \[1\]"):
        ledger.check_durable({1: log, 2: [], 3: []})
    ledger.note_acknowledged(1, [b"b"])
    with pytest.raises(InvariantViolated, match=r"b'b', acknowledged at offset 1, is only on the disks of \[\]"):
        ledger.check_durable({1: log, 2: log, 3: log})
