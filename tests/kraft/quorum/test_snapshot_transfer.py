"""Snapshots between replicas: which ones a leader sends, and which ones and which pieces a follower takes (KIP-630)."""

from __future__ import annotations

import pytest

from kraft.quorum.core import CoreStart
from kraft.quorum.effects import AbandonDownload, AppendDownload, BeginDownload, SendReply, SendRequest, SendSnapshot
from kraft.quorum.events import Received
from kraft.quorum.messages import Fetch, FetchSnapshot, FetchSnapshotReply
from kraft.quorum.values import ElectionState, ReplicaKey
from metadata_log.log.epochs import EpochHistory
from metadata_log.types import OffsetAndEpoch
from support.kraft.one_core import OneCore, at, records_of_the_leader
from transport.protocol.errors import Error

SNAPSHOT = at(200, 5)


def follower_that_downloads() -> OneCore:
    """A follower with 100 records, which the leader has sent to its snapshot."""
    one = OneCore()
    one.answer(records_of_the_leader(snapshot=SNAPSHOT))
    assert one.all(BeginDownload) == [BeginDownload(SNAPSHOT)]
    return one


def piece(position: int, data: bytes, snapshot: OffsetAndEpoch = SNAPSHOT) -> FetchSnapshotReply:
    return FetchSnapshotReply(epoch=5, leader_id=1, snapshot=snapshot, size=10, position=position, data=data)


def test_a_snapshot_that_ends_before_the_committed_records_replaces_no_log() -> None:
    """A follower with 100 committed records would lose some of them by a shorter snapshot."""
    one = OneCore()
    one.answer(records_of_the_leader())
    assert one.core.log.high_watermark == 100
    one.answer(records_of_the_leader(snapshot=at(50, 5)))
    assert one.all(BeginDownload) == []
    assert "it sends us to snapshot" in one.suspicions[-1]
    assert one.core.log.end_offset == 100


def test_pieces_follow_one_another() -> None:
    one = follower_that_downloads()
    for position, data in ((0, b"abcd"), (4, b"ef")):
        message = one.asked().message
        assert isinstance(message, FetchSnapshot)
        assert (message.snapshot, message.position) == (SNAPSHOT, position)
        one.answer(piece(position, data))
    assert one.all(AppendDownload) == [AppendDownload(SNAPSHOT, b"abcd"), AppendDownload(SNAPSHOT, b"ef")]
    assert one.suspicions == []


@pytest.mark.parametrize(
    "wrong",
    [piece(2, b"cd"), piece(5, b"f"), piece(4, b""), piece(4, b"efghijk"), piece(4, b"ef", at(200, 4))],
    ids=["an earlier position", "a later position", "no bytes", "bytes beyond the size", "another snapshot"],
)
def test_a_piece_other_than_the_requested_one_ends_the_download(wrong: FetchSnapshotReply) -> None:
    """The follower discards what it has. The reply to its next Fetch names a snapshot again."""
    one = follower_that_downloads()
    one.answer(piece(0, b"abcd"))
    asked = len(one.all(SendRequest))
    one.answer(wrong)
    assert [request.peer_id for request in one.all(SendRequest)[asked:] if request.peer_id == 1] == []
    assert one.all(AppendDownload) == [AppendDownload(SNAPSHOT, b"abcd")]
    assert len(one.all(AbandonDownload)) == 1
    assert "those from 4 of" in one.suspicions[-1]


@pytest.mark.parametrize(
    ("snapshot", "position", "error"),
    [
        (at(0, 0), 0, Error.SNAPSHOT_NOT_FOUND),
        (at(1, 5), 0, Error.NONE),
        (at(60, 5), 0, Error.NONE),
        (at(60, 5), 7, Error.NONE),
        (at(60, 5), -1, Error.POSITION_OUT_OF_RANGE),
        (at(60, 4), 0, Error.SNAPSHOT_NOT_FOUND),
    ],
    ids=[
        "of the formatted directory",
        "of one record",
        "the beginning",
        "the middle",
        "before the beginning",
        "of another epoch",
    ],
)
def test_a_leader_sends_only_snapshots_of_records(snapshot: OffsetAndEpoch, position: int, error: Error) -> None:
    """A formatted directory has a snapshot 0-0, which Kafka never sends."""
    history = EpochHistory((at(0, 5),))
    known = (at(0, 0), at(1, 5), at(60, 5))
    start = CoreStart(
        election=ElectionState(epoch=5), log_start_offset=0, log_end_offset=100, epochs=history, snapshots=known
    )
    one = OneCore(start=start)
    one.elect(1)
    request = FetchSnapshot(epoch=one.core.epoch, replica=ReplicaKey(1), snapshot=snapshot, position=position)
    one.step(Received(7, request))
    refusals = [effect.message for effect in one.all(SendReply) if effect.request_id == 7]
    sent = [(effect.snapshot, effect.position) for effect in one.all(SendSnapshot)]
    if error is Error.NONE:
        assert (refusals, sent) == ([], [(snapshot, position)])
    else:
        (refusal,) = refusals
        assert isinstance(refusal, FetchSnapshotReply)
        assert (refusal.error, sent) == (error, [])


@pytest.mark.parametrize("error", [Error.POSITION_OUT_OF_RANGE, Error.UNKNOWN_SERVER_ERROR, Error.SNAPSHOT_NOT_FOUND])
def test_an_error_in_place_of_a_piece_ends_the_download(error: Error) -> None:
    """A snapshot that is gone is no fault: the follower fetches at once. After another error the follower backs off."""
    one = follower_that_downloads()
    asked = len(one.all(SendRequest))
    one.answer(FetchSnapshotReply(epoch=5, leader_id=1, snapshot=SNAPSHOT, error=error))
    assert len(one.all(AbandonDownload)) == 1
    again = [type(request.message) for request in one.all(SendRequest)[asked:] if request.peer_id == 1]
    assert again == ([Fetch] if error is Error.SNAPSHOT_NOT_FOUND else [])
