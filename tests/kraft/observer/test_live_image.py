"""The image of a live cluster, from a leader that follows a script: other epochs, snapshots in pieces, nothing."""

from __future__ import annotations

import pytest
import trio.testing

from kraft.admin import AdminError
from kraft.observer import read_image
from metadata_log.errors import UnsupportedVersion
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import FeatureLevelRecord
from support.kraft.scripted_leader import EPOCH, UNTIL, answer, following, piece, topics
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages import fetch


async def test_a_live_image_holds_only_committed_records(autojump_clock: trio.testing.MockClock) -> None:
    log = topics(0, "a", "b") + topics(2, "c", "d") + topics(4, "e")
    seen: list[tuple[int, int]] = []
    async with following(answer(records=log[:-3]), high_watermark=-1) as (_, admin):
        image = await read_image(admin, lambda offset, end: seen.append((offset, end)))
    assert list(image.topics) == ["a", "b", "c", "d"]
    assert (image.end.offset, image.end.epoch, seen) == (UNTIL, EPOCH, [(UNTIL, UNTIL)])


async def test_a_live_image_follows_a_new_leader_epoch(autojump_clock: trio.testing.MockClock) -> None:
    script = (answer(error_code=Error.FENCED_LEADER_EPOCH), answer(records=topics(0, "a", "b", "c", "d")))
    async with following(*script) as (leader, admin):
        image = await read_image(admin)
        assert len(image.topics) == 4
        assert len(leader.asked) == 2


async def test_a_snapshot_is_fetched_in_pieces(autojump_clock: trio.testing.MockClock) -> None:
    snapshot = topics(0, "a", "b", "c")
    script = (
        answer(snapshot_id=fetch.SnapshotId(end_offset=3, epoch=EPOCH)),
        piece(0, snapshot[:50], len(snapshot)),
        piece(50, b"", len(snapshot), Error.FENCED_LEADER_EPOCH),
        piece(0, snapshot[:40], len(snapshot)),
        piece(40, snapshot[40:], len(snapshot)),
        answer(records=topics(3, "d")),
    )
    async with following(*script) as (leader, admin):
        image = await read_image(admin)
        assert list(image.topics) == ["a", "b", "c", "d"]
        last = leader.asked[-1]
        assert isinstance(last, m.FetchRequest)
        assert last.topics[0].partitions[0].fetch_offset == 3


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ((answer(records=b""),), "no whole batch from offset 0 on, and 4 are committed"),
        ((answer(records=topics(0, "a"), error_code=0), answer(records=b"")), "no whole batch from offset 1 on"),
        ((answer(diverging_epoch=fetch.EpochEndOffset(epoch=1, end_offset=0)),), "was truncated"),
        ((answer(snapshot_id=fetch.SnapshotId(end_offset=3, epoch=1)), piece(0, b"", 9)), "ends after 0 of 9 bytes"),
        ((answer(error_code=Error.CLUSTER_AUTHORIZATION_FAILED),), "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
async def test_unreadable_responses_are_errors(
    autojump_clock: trio.testing.MockClock, script: tuple[m.FetchResponse | m.FetchSnapshotResponse, ...], what: str
) -> None:
    async with following(*script) as (_, admin):
        with pytest.raises(AdminError, match=what):
            await read_image(admin)


async def test_a_record_of_an_unknown_type_ends_the_reading(autojump_clock: trio.testing.MockClock) -> None:
    value = bytearray(encode_record(FeatureLevelRecord(name="f", feature_level=1), 0))
    value[1] = 99
    async with following(answer(records=build_batch(0, EPOCH, 0, [bytes(value)]))) as (_, admin):
        with pytest.raises(UnsupportedVersion, match=r"a record of type 99 in version 0 is not known.*offset 0"):
            await read_image(admin)
