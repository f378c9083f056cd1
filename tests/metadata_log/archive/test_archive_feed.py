"""An archive fed by a live cluster in virtual time that makes snapshots and forgets what is older."""

from __future__ import annotations

import msgspec
import pytest
import trio.testing

from kraft.admin import AdminClient
from kraft.observer import Committed, Follower, HistoryLost
from kraft.testing import Cluster
from metadata_log.archive import ArchiveError, Feed, GapFacts, open_archive, read_manifest, verify_archive
from metadata_log.archive.manifest import write_manifest
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch

PARTITION = "/kraft/__cluster_metadata-0"
TO = "kept"
LONG_SECONDS = 600
"""Virtual: enough to forget the beginning."""
FORGETFUL = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "internal.metadata.log.segment.bytes": "4000",
    "metadata.max.retention.bytes": "9000",
}


async def keep(admin: AdminClient, disk: MemoryDisk, *, allow_gap: bool = False) -> None:
    """Take all that is committed now, in segments of a few batches."""
    archive = open_archive(disk, TO)
    try:
        cluster_id = (await admin.describe_cluster()).cluster_id
        feed = Feed(archive, cluster_id, segment_bytes=2000)
        follower = Follower(admin, cluster_id, after=feed.position(), allow_gap=allow_gap)
        until = await follower.begin()
        while feed.end_offset < until:
            taken = await follower.take()
            if isinstance(taken, Committed):
                feed.append(taken.batches)
            else:
                feed.begin_with(taken.snapshot, taken.data, taken.offset, taken.missing_from)
                until = max(until, taken.snapshot.offset)
        assert feed.publish()
        assert not feed.publish()
    finally:
        archive.close()


def by_offset(disk: MemoryDisk, directory: str) -> dict[int, bytes]:
    return {item.base_offset: item.data for item in read_log(disk, directory) if isinstance(item, RecordBatch)}


async def start_offset(cluster: Cluster) -> int:
    return min(by_offset(cluster.disks[await cluster.leader()], PARTITION))


async def test_a_gap_is_refused_unless_it_is_allowed(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk()
    async with Cluster(controllers=3, seed=3, settings=FORGETFUL) as cluster, cluster.admin("archiver") as admin:
        await cluster.leader()
        await keep(admin, disk)
        before = read_manifest(disk, TO)
        assert before is not None
        assert (before.start_offset, before.gaps) == (0, ())
        end = before.end_offset or 0
        await trio.sleep(LONG_SECONDS)
        assert await start_offset(cluster) > end
        with pytest.raises(HistoryLost, match=f"offsets {end} to [0-9]+ are gone"):
            await keep(admin, disk)
        assert read_manifest(disk, TO) == before
        await keep(admin, disk, allow_gap=True)
        await trio.sleep(20)
        await keep(admin, disk)
        found = verify_archive(disk, TO)
        [gap] = found.gaps
        assert (found.damages, gap.base_offset, found.checkpoints) == ((), end, 1)
        logged = by_offset(cluster.disks[await cluster.leader()], PARTITION)
        manifest = read_manifest(disk, TO)
        assert manifest is not None
        kept = by_offset(disk, TO)
        assert all(logged[offset] == kept[offset] for offset in kept if offset >= gap.end_offset)
        assert manifest.checkpoints[0].end_offset == gap.end_offset
        write_manifest(disk, TO, msgspec.structs.replace(manifest, gaps=(GapFacts(base_offset=0, end_offset=1),)))
        assert any(each.what.startswith(f"offsets {end} to") for each in verify_archive(disk, TO).damages)


async def test_a_log_without_its_beginning_is_kept_from_its_first_snapshot_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Kept from its first snapshot on, although the leader has later ones, too."""
    disk = MemoryDisk()
    async with Cluster(controllers=1, seed=4, settings=FORGETFUL) as cluster, cluster.admin("archiver") as admin:
        await trio.sleep(LONG_SECONDS)
        start = await start_offset(cluster)
        assert start > 0
        await keep(admin, disk)
        found = verify_archive(disk, TO)
        assert (found.damages, found.gaps, found.checkpoints) == ((), (), 1)
        assert found.start_offset >= start
        logged, kept = by_offset(cluster.disks[1], PARTITION), by_offset(disk, TO)
        assert kept == {offset: data for offset, data in logged.items() if offset in kept}
        assert min(kept) == found.start_offset
        with pytest.raises(ArchiveError, match="the archive is of cluster"):
            Feed(open_archive(disk, TO), "AAAAAAAAAAAAAAAAAAAAAA")


async def test_an_archive_from_offset_0_passes_the_bootstrap_snapshot(autojump_clock: trio.testing.MockClock) -> None:
    """An archive that begins at 0 is sent to the snapshot; the archive keeps the log from 1 on all the same."""
    disk = MemoryDisk()
    settings = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    async with Cluster(controllers=1, seed=5, settings=settings) as cluster, cluster.admin("archiver") as admin:
        await cluster.leader()
        await trio.sleep(20)
        await keep(admin, disk)
        found = verify_archive(disk, TO)
        assert (found.damages, found.start_offset, found.checkpoints) == ((), 1, 1)
        logged, kept = by_offset(cluster.disks[1], PARTITION), by_offset(disk, TO)
        assert kept == {offset: logged[offset] for offset in range(1, found.end_offset) if offset in logged}
