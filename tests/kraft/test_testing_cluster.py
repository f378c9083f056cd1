"""The in-process harness, and through it the whole node over memory transport and virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kraft.invariants.disks import Ledger
from kraft.invariants.violation import InvariantViolated
from kraft.node.errors import OutcomeUnknown
from kraft.process.hosting import host_raw_log
from kraft.testing import Cluster
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.records.batch_builder import build_batch


async def test_a_leader_is_elected_and_becomes_active(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=7) as cluster:
        leader = await cluster.leader()
        assert cluster.node(leader).is_active
        cluster.check()
    # Kafka's bounds: a timer of one to two seconds, then two rounds of votes.
    assert trio.current_time() < 5


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
