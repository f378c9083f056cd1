"""Headers alone say where a log begins and ends, and where two logs part."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from metadata_log.disk import OsDisk
from metadata_log.log.segment import file_name
from metadata_log.reading.reader import read_log
from metadata_log.records.batch import RecordBatch
from metadata_log.spark.log_index import common_end, first_difference, index_log
from support.real_data import unpack
from support.spark.fleets import log_bytes, write_log


def test_log_index_agrees_with_the_log_reader_on_real_directories(tmp_path: Path) -> None:
    for partition in sorted(unpack("clusters", "failover/nodes", tmp_path).rglob("__cluster_metadata-0")):
        index = index_log(OsDisk(), str(partition))
        read = [batch for batch in read_log(OsDisk(), str(partition)) if isinstance(batch, RecordBatch)]
        assert [(one.base_offset, one.epoch, one.crc) for one in index.batches] == [
            (batch.base_offset, batch.epoch, batch.crc) for batch in read
        ]
        assert index.damages == ()
        assert (index.end_offset, index.last_epoch) == (read[-1].next_offset, read[-1].epoch)


def test_log_index_rereads_only_new_and_truncated_parts(tmp_path: Path) -> None:
    """A stream looks at its logs every few seconds, and a truncated tail must not hide behind what it remembers."""
    partition = write_log(tmp_path, [1, 1, 2])
    segment = partition / file_name(0)
    first = index_log(OsDisk(), str(partition))
    whole = segment.read_bytes()
    segment.write_bytes(bytes(first.batches[1].position) + whole[first.batches[1].position :] + log_bytes([2], base=6))
    grown = index_log(OsDisk(), str(partition), first)
    assert (grown.end_offset, grown.batches[:3]) == (8, first.batches)
    segment.write_bytes(log_bytes([1, 1, 3, 3, 3]))
    rewritten = index_log(OsDisk(), str(partition), grown)
    assert rewritten.epochs == ((1, 0), (3, 4))
    segment.write_bytes(log_bytes([1]))
    assert index_log(OsDisk(), str(partition), rewritten).end_offset == 2


def test_log_index_ignores_an_unfinished_batch_and_reports_damage(tmp_path: Path) -> None:
    partition = write_log(tmp_path, [1, 1, 2])
    segment = partition / file_name(0)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-5])
    torn = index_log(OsDisk(), str(partition))
    assert (torn.end_offset, torn.damages) == (4, ())
    position = torn.batches[1].position
    segment.write_bytes(whole[: position + 8] + bytes(4) + whole[position + 12 :])
    damaged = index_log(OsDisk(), str(partition))
    assert [batch.base_offset for batch in damaged.batches] == [0, 4]
    assert [damage.position for damage in damaged.damages] == [position]


logs = st.lists(st.integers(0, 3), min_size=0, max_size=12)


@given(shared=logs, longer=st.integers(0, 3), ours=logs, theirs=logs)
def test_the_common_end_is_the_offset_of_divergence(
    shared: list[int], longer: int, ours: list[int], theirs: list[int]
) -> None:
    """Raft lets an epoch have one writer: after two logs part, they have no epoch in common."""
    before = sorted(shared)
    base = 10
    one = [*before, *before[-1:] * longer, *(base + 2 * epoch for epoch in sorted(ours))]
    other = [*before, *(base + 2 * epoch + 1 for epoch in sorted(theirs))]
    found = common_end(starts(one), len(one), starts(other), len(other))
    assert found == (len(before) if before else -1)


def starts(epochs: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple((epoch, at) for at, epoch in enumerate(epochs) if at == 0 or epochs[at - 1] != epoch)


def test_one_log_may_continue_another_and_begin_later(tmp_path: Path) -> None:
    short = index_log(OsDisk(), str(write_log(tmp_path / "a", [1, 1, 1])))
    late = index_log(OsDisk(), str(write_log(tmp_path / "b", [1, 1, 1, 2], base=2)))
    (tmp_path / "a" / "__cluster_metadata-0" / file_name(0)).write_bytes(log_bytes([1, 1, 1], marks=100))
    other = index_log(OsDisk(), str(tmp_path / "a" / "__cluster_metadata-0"))
    assert first_difference(short, late) is None
    assert first_difference(late, short) is None
    assert first_difference(other, late) == 2
