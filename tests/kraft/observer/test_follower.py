"""A live log followed as an observer: a leader that follows a script, and three that elect in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kraft.admin import RequestRefused, open_admin
from kraft.admin.errors import AdminError
from kraft.cli.cluster.quorum_why import NoLeaderReport
from kraft.observer import Committed, Follower, HistoryLost, Jumped
from kraft.testing import Cluster
from metadata_log.errors import CorruptBatch
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from metadata_log.types import OffsetAndEpoch
from scripted_leader import CLUSTER_ID, EPOCH, answer, following, piece, topics
from transport.memory import MemoryTransport
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages import fetch

PARTITION = "/kraft/__cluster_metadata-0"
AT_TWO = OffsetAndEpoch(epoch=EPOCH, offset=2)


def sent_to(asked: list[Any], index: int) -> fetch.FetchPartition:
    request = asked[index]
    assert isinstance(request, m.FetchRequest)
    return request.topics[0].partitions[0]


async def test_a_follower_yields_only_committed_batches(autojump_clock: trio.testing.MockClock) -> None:
    """The follower keeps the rest, does not fetch it again, and waits for a higher high watermark of the leader."""
    first, second = topics(0, "a", "b"), topics(2, "c")
    script = (answer(records=first + second, high_watermark=2), answer(high_watermark=3))
    async with following(*script, high_watermark=2) as (leader, admin):
        follower = Follower(admin, CLUSTER_ID)
        await follower.begin()
        assert [batch.data for batch in _batches(await follower.take())] == [first]
        assert [batch.data for batch in _batches(await follower.take())] == [second]
        asked = sent_to(leader.asked, 1)
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.high_watermark) == (3, EPOCH, 2)
        begun: Any = leader.asked[0]
        assert begun.cluster_id == CLUSTER_ID
        assert (begun.replica_id, begun.replica_state.replica_id) == (-1, -1)


async def test_uncommitted_batches_may_be_overwritten(autojump_clock: trio.testing.MockClock) -> None:
    first, lost, instead = topics(0, "a", "b"), topics(2, "c", epoch=3), topics(2, "d")
    script = (
        answer(records=topics(0, "a", "b", epoch=3) + lost, high_watermark=2),
        answer(diverging_epoch=fetch.EpochEndOffset(epoch=3, end_offset=2)),
        answer(records=instead, high_watermark=3),
    )
    async with following(*script, high_watermark=2) as (leader, admin):
        follower = Follower(admin, CLUSTER_ID)
        await follower.begin()
        assert len(_batches(await follower.take())) == 1
        assert [batch.data for batch in _batches(await follower.take())] == [instead]
        assert sent_to(leader.asked, 2).fetch_offset == 2
    assert first != instead


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (
            answer(diverging_epoch=fetch.EpochEndOffset(epoch=3, end_offset=1)),
            "has no record of epoch 5 before offset 2",
        ),
        (answer(snapshot_id=fetch.SnapshotId(end_offset=9, epoch=5), log_start_offset=7), "offsets 2 to 6 are gone"),
        (answer(snapshot_id=fetch.SnapshotId(end_offset=2, epoch=4), log_start_offset=2), "has another record than"),
        (answer(records=topics(3, "c")), "sent offsets 3 to 3 of epoch 5 where offset 2 of epoch 5"),
        (answer(records=topics(2, "c", epoch=4)), "sent offsets 2 to 2 of epoch 4 where offset 2 of epoch 5"),
        (answer(records=topics(2, "c", epoch=6)), "sent offsets 2 to 2 of epoch 6"),
        (answer(records=topics(2, "c")[:-1]), "sends no whole batch from offset 2 on"),
        (m.FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID), "INCONSISTENT_CLUSTER_ID"),
    ],
)
async def test_invalid_fetch_responses_are_refused(
    autojump_clock: trio.testing.MockClock, said: m.FetchResponse, what: str
) -> None:
    async with following(said) as (_, admin):
        follower = Follower(admin, CLUSTER_ID, after=AT_TWO)
        await follower.begin()
        with pytest.raises(AdminError, match=what) as refused:
            await follower.take()
        assert isinstance(refused.value, HistoryLost | RequestRefused) or "sen" in what


async def test_a_damaged_batch_in_a_response_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    data = bytearray(topics(2, "c"))
    data[-3] ^= 1
    async with following(answer(records=bytes(data))) as (_, admin):
        follower = Follower(admin, CLUSTER_ID, after=AT_TWO)
        with pytest.raises(CorruptBatch):
            await follower.take()


async def test_a_start_offset_beyond_the_high_watermark_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with following() as (_, admin):
        with pytest.raises(AdminError, match="offset 5 is not there yet: only 4 are committed"):
            await Follower(admin, CLUSTER_ID, from_offset=5).begin()


async def test_an_allowed_gap_ends_at_the_first_snapshot(autojump_clock: trio.testing.MockClock) -> None:
    """The leader tells of its latest snapshot, at 9; its log rests on one of epoch 3 at 7, which is found."""
    latest = fetch.SnapshotId(end_offset=9, epoch=5)
    redirect = answer(snapshot_id=latest, log_start_offset=7, high_watermark=11)
    diverging = answer(diverging_epoch=fetch.EpochEndOffset(epoch=3, end_offset=8))
    script = (
        *(redirect, redirect, diverging, diverging),
        piece(0, b"snapshot", 8),
        answer(records=topics(7, "h"), high_watermark=8),
    )
    async with following(*script) as (leader, admin):
        follower = Follower(admin, CLUSTER_ID, after=AT_TWO, allow_gap=True)
        await follower.begin()
        jumped = await follower.take()
        assert jumped == Jumped(OffsetAndEpoch(epoch=3, offset=7), b"snapshot", 7, 2)
        assert _batches(await follower.take())[0].base_offset == 7
        assert [sent_to(leader.asked, each).last_fetched_epoch for each in (1, 2, 3)] == [2, 4, 3]


async def test_a_log_from_offset_1_is_read_behind_the_bootstrap_snapshot(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Leaders redirect a reader that begins at 0 to their snapshot, and serve the log from 1 on all the same."""
    script = (
        answer(snapshot_id=fetch.SnapshotId(end_offset=3, epoch=5), log_start_offset=0),
        piece(0, b"snapshot", 8),
        answer(records=topics(1, "b", "c", "d")),
    )
    async with following(*script) as (leader, admin):
        follower = Follower(admin, CLUSTER_ID)
        await follower.begin()
        assert await follower.take() == Jumped(OffsetAndEpoch(epoch=5, offset=3), b"snapshot", 1, None)
        assert _batches(await follower.take())[0].base_offset == 1
        assert (sent_to(leader.asked, 2).fetch_offset, sent_to(leader.asked, 2).last_fetched_epoch) == (1, EPOCH)


async def test_a_reader_may_begin_within_a_batch(autojump_clock: trio.testing.MockClock) -> None:
    """A leader of an epoch without a record yet names the one before."""
    script = (
        answer(diverging_epoch=fetch.EpochEndOffset(epoch=4, end_offset=4)),
        answer(records=topics(0, "a", "b", "c", "d", epoch=4)),
    )
    async with following(*script) as (leader, admin):
        follower = Follower(admin, CLUSTER_ID, from_offset=2)
        await follower.begin()
        assert _batches(await follower.take())[0].base_offset == 0
        assert [sent_to(leader.asked, each).last_fetched_epoch for each in (0, 1)] == [5, 4]


def _batches(taken: Committed | Jumped) -> tuple[RecordBatch, ...]:
    assert isinstance(taken, Committed)
    return taken.batches


@pytest.mark.parametrize("seed", range(3))
async def test_elections_do_not_interrupt_following(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    """Leaders are killed, stopped and cut off while topics are made; every committed byte comes once."""
    taken: list[bytes] = []
    notices: list[str] = []
    async with Cluster(controllers=3, brokers=1, seed=seed) as cluster, cluster.admin("watcher") as admin:
        await cluster.leader()
        follower = Follower(admin, (await admin.describe_cluster()).cluster_id, on_notice=notices.append)
        await follower.begin()

        async def follow() -> None:
            while True:
                taken.extend(batch.data for batch in _batches(await follower.take()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for round_ in range(4):
                await cluster.create_topic(f"t{round_}", partitions=2, replication_factor=1)
                leader = await cluster.leader()
                if round_ % 2:
                    await cluster.stop(leader)
                else:
                    await cluster.kill(leader)
                await cluster.leader(among=cluster.others(leader))
                await cluster.restart(leader)
            nursery.cancel_scope.cancel()
        leader = await cluster.leader()
        end = cluster.node(leader).status().high_watermark
        with trio.fail_after(60):
            while follower.end.offset < end:
                taken.extend(batch.data for batch in _batches(await follower.take()))
        logged = [
            batch.data
            for batch in read_log(cluster.disks[leader], PARTITION)
            if isinstance(batch, RecordBatch) and batch.next_offset <= follower.end.offset
        ]
        cluster.check()
    assert taken == logged
    assert sum("leads in epoch" in notice for notice in notices) >= 4


async def test_silence_of_the_leader_is_reported_and_following_continues(
    autojump_clock: trio.testing.MockClock,
) -> None:
    notices: list[str] = []
    async with Cluster(controllers=1, seed=1) as cluster, cluster.admin("watcher") as admin:
        await cluster.leader()
        follower = Follower(admin, (await admin.describe_cluster()).cluster_id, on_notice=notices.append)
        await follower.begin()
        await follower.take()
        end = follower.end.offset
        await cluster.kill(1)
        with trio.move_on_after(100):
            while True:
                await follower.take()
        await cluster.restart(1)
        with trio.fail_after(60):
            while follower.end.offset < end + 10:
                await follower.take()
    silences = [notice for notice in notices if "no active controller answered within 30 s" in notice]
    assert len(silences) == 1, notices  # three time-outs have passed
    assert len([notice for notice in notices if "leads in epoch" in notice]) == 1, notices


async def test_a_command_reports_a_lost_leader_once_and_its_return_once(
    autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    notices: list[str] = []
    async with Cluster(controllers=3, seed=1) as cluster:
        await cluster.leader()
        async with cluster.admin() as admin:
            addresses = [endpoint for _, endpoint in (await admin.describe_cluster()).controllers]
        transport = MemoryTransport(cluster.network, host="watcher")
        report = NoLeaderReport(repeats=False)
        async with open_admin(addresses, transport=transport, timeout_ms=5_000, delays=report) as admin:
            follower = Follower(admin, (await admin.describe_cluster()).cluster_id, on_notice=notices.append)
            await follower.begin()
            await follower.take()
            for _ in range(2):
                end = follower.end.offset
                for node_id in (1, 2):
                    await cluster.kill(node_id)  # the third one stands for election again and again: its state changes
                with trio.move_on_after(100):
                    while True:
                        await follower.take()
                for node_id in (1, 2):
                    await cluster.restart(node_id)
                with trio.fail_after(60):
                    while follower.end.offset < end + 10:
                        await follower.take()
    told = capsys.readouterr().err
    assert "no active controller has answered for 1 s; still trying" in told
    assert told.count(" answer; ") == 2, told  # one report for each of the two losses
    assert len([notice for notice in notices if "leads in epoch" in notice]) == 2, notices
    assert not any("trying again" in notice for notice in notices)
