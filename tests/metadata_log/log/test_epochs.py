"""The epoch history: its rules as tables, and against a log that simply remembers the epoch of every record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.errors import DecodeError
from metadata_log.log.epochs import EpochHistory, format_epochs, parse_epochs, write_epochs
from metadata_log.memory_disk import MemoryDisk
from metadata_log.types import OffsetAndEpoch
from support.real_data import archive


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(tuple(OffsetAndEpoch(epoch=epoch, offset=offset) for epoch, offset in entries))


@pytest.mark.parametrize(
    ("before", "assigned", "after"),
    [
        ([], (1, 0), [(1, 0)]),
        ([(1, 0)], (1, 5), [(1, 0)]),
        ([(1, 5)], (1, 3), [(1, 3)]),
        ([(1, 0)], (4, 9), [(1, 0), (4, 9)]),
        ([(1, 0), (2, 9)], (3, 9), [(1, 0), (3, 9)]),
        ([(1, 0), (2, 9), (3, 20)], (2, 7), [(1, 0), (2, 7)]),
        ([(5, 10)], (2, 30), [(2, 30)]),
    ],
)
def test_assign(before: list[tuple[int, int]], assigned: tuple[int, int], after: list[tuple[int, int]]) -> None:
    assert history(*before).assign(*assigned) == history(*after)


@pytest.mark.parametrize(("end", "after"), [(0, []), (1, [(1, 0)]), (9, [(1, 0)]), (10, [(1, 0), (2, 9)]), (99, None)])
def test_truncate_end(end: int, after: list[tuple[int, int]] | None) -> None:
    before = history((1, 0), (2, 9), (4, 20))
    assert before.truncate_end(end) == (before if after is None else history(*after))


@pytest.mark.parametrize(
    ("start", "after"),
    [(0, [(1, 2), (2, 9)]), (2, [(1, 2), (2, 9)]), (5, [(1, 5), (2, 9)]), (9, [(2, 9)]), (12, [(2, 12)])],
)
def test_truncate_start(start: int, after: list[tuple[int, int]]) -> None:
    assert history((1, 2), (2, 9)).truncate_start(start) == history(*after)


@pytest.mark.parametrize(
    ("asked", "offset", "epoch"),
    [(0, 2, 0), (1, 9, 1), (2, 9, 1), (3, 20, 3), (4, 20, 3), (5, 33, 5), (6, 33, 5), (99, 33, 5)],
)
def test_end_offset_for(asked: int, offset: int, epoch: int) -> None:
    """The table of `endOffsetForEpoch`: before the first epoch, within, in a gap, the last, and the future."""
    found = history((1, 2), (3, 9), (5, 20)).end_offset_for(asked, 33)
    assert found == OffsetAndEpoch(epoch=epoch, offset=offset)


def test_empty_history() -> None:
    assert EpochHistory().last_epoch is None
    assert EpochHistory().epoch_at(0) is None
    assert EpochHistory().end_offset_for(7, 5) == OffsetAndEpoch(epoch=0, offset=5)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_epoch_history_agrees_with_a_list_of_epochs(steps: list[int], data: st.DataObject) -> None:
    """Built record by record, cut anywhere, the history says of every offset what a list of epochs says."""
    epochs: list[int] = []
    built = EpochHistory()
    for step in steps:
        epoch = (epochs[-1] if epochs else 0) + step
        built = built.assign(epoch, len(epochs))
        epochs.append(epoch)
    cut = data.draw(st.integers(0, len(epochs)))
    built, epochs = built.truncate_end(cut), epochs[:cut]
    assert [built.epoch_at(offset) for offset in range(len(epochs))] == epochs
    assert built.last_epoch == (epochs[-1] if epochs else None)
    for asked in range(epochs[-1] + 2 if epochs else 0):
        older = [epoch for epoch in epochs if epoch <= asked]
        found = built.end_offset_for(asked, len(epochs))
        assert found == OffsetAndEpoch(epoch=older[-1] if older else asked, offset=len(older))


def test_real_file() -> None:
    text = archive("static3")["nodes/c1/__cluster_metadata-0/leader-epoch-checkpoint"]
    found = parse_epochs(text)
    assert len(found.entries) == 13
    assert found.entries[1] == OffsetAndEpoch(epoch=2, offset=1544)
    assert format_epochs(found) == text
    disk = MemoryDisk()
    disk.mkdir("d")
    write_epochs(disk, "d", found)
    assert disk.read("d/leader-epoch-checkpoint") == text


@pytest.mark.parametrize("text", [b"0\r\n1\r\n4 7\r\n", b"0\n1\n4 \t7 \n", b"0\n1\n4 7", b"0\n1\n4\x0c\x0b7\n"])
def test_epoch_checkpoint_accepts_javas_line_ends_and_blanks(text: bytes) -> None:
    assert parse_epochs(text).entries == (OffsetAndEpoch(epoch=4, offset=7),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"1\n1\n0 0\n", 1),
        (b"0\n", 2),
        (b"0\nmany\n", 2),
        (b"0\n2\n0 0\n", 2),
        (b"0\n1\n0 x\n", 3),
        (b"0\n1\n0 -5\n", 3),
        (b"0\n1\n0\n", 3),
        (b"0\n2\n3 0\n2 5\n", 4),
        (b"0\n2\n2 5\n3 5\n", 4),
        (b"0\n1\n\xff \xfe\n", 3),
        (b" 0\n1\n0 0\n", 1),
        (b"0\n\x1f1\n0 0\n", 2),
        (b"0\n1\n0\x1f0\n", 3),
        (b"0\n1\n 0 0\n", 3),
        (b"0\n1\n0 0\n\n", 4),
        (b"0\n1\n2147483648 0\n", 3),
        (b"0\n1\n0 9223372036854775808\n", 3),
        pytest.param(b"0\n1\n0 " + b"1" * 5000 + b"\n", 3, id="thousands of digits"),
    ],
)
def test_damaged_files(text: bytes, line: int) -> None:
    with pytest.raises(DecodeError, match=f"line {line}") as caught:
        parse_epochs(text, where="dir/leader-epoch-checkpoint")
    assert "dir/leader-epoch-checkpoint" in str(caught.value)
    assert caught.value.hint


def test_a_node_that_has_seen_no_epoch_leaves_an_empty_file() -> None:
    """As does the broker 104 of the static cluster of 4.4.0, which never found a controller."""
    path = "static3/nodes/b104/__cluster_metadata-0/leader-epoch-checkpoint"
    assert parse_epochs(archive("release44")[path]).entries == ()
