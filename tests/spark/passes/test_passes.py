"""A history that is cut at saved passes gives the rows of one replay, for every view and wherever the cuts are."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNull, LessThanOrEqual

from metadata_log.disk import OsDisk
from metadata_log.history.engine import HistoryPass, Options, rows
from metadata_log.history.saved_pass import part_steps, restore_pass, save_pass
from metadata_log.history.views import HISTORY_VIEWS, VIEWS
from metadata_log.log.segment import file_name, scan_headers
from metadata_log.reading.damage import Damage
from metadata_log.reading.place import Place
from metadata_log.reading.timeline import continue_timeline, place_of, read_timeline
from metadata_log.spark.passes import save_passes
from metadata_log.spark.scan import FilteringReader
from metadata_log.spark.tasks import HistoryTask, flat
from support.real_data import unpack
from support.spark.fleets import PARTITION, random_log, write_meta
from support.spark.in_process import read, reader, table

LOGS = {"static3": "nodes/c1", "clusters": "failover/nodes/b101"}


def seeded() -> Random:
    seed = int(os.environ.get("SCAN_SEED", Random().randrange(1 << 32)))
    print(f"SCAN_SEED={seed}")
    return Random(seed)


def real_log(tmp_path: Path, name: str) -> str:
    log = unpack(name, LOGS[name], tmp_path / name)
    return f"{log}/{PARTITION}"


def drawn_log(tmp_path: Path, rng: Random) -> str:
    partition = tmp_path / f"drawn-{rng.randrange(1 << 30)}" / PARTITION
    partition.mkdir(parents=True)
    (partition / file_name(0)).write_bytes(random_log(rng, 120))
    return str(partition)


Cut = tuple[Place | None, bytes]


def cuts_of(directory: str, numbers: set[int], options: Options) -> list[Cut]:
    """The passes after the items of these numbers, with every view."""
    story = HistoryPass("c", frozenset(VIEWS), options)
    found: list[Cut] = []
    for number, item in enumerate(read_timeline(OsDisk(), directory)):
        assert not isinstance(item, Damage)
        story.tell(item, None)
        story.sink.take()
        if number in numbers:
            found.append((place_of(item), save_pass(story, cluster="c", views=VIEWS, options=options)))
    return found


def in_parts(directory: str, view: str, cuts: list[Cut], options: Options) -> list[object]:
    """The rows of a view in parts between these cuts."""
    disk, begin, saved = OsDisk(), None, b""
    found: list[object] = []
    for place, data in [*cuts, (None, b"")]:
        if begin is None:
            part = HistoryPass("c", frozenset({view}), options)
            behind = read_timeline(disk, directory)
        else:
            part = restore_pass(saved, cluster="c", views={view}, options=options, of=VIEWS)
            behind = continue_timeline(disk, directory, begin)
        for _ in part_steps(part, behind, until=place):
            found += [row for _, row in part.sink.take()]
        begin, saved = place, data
    return found


def check_cuts(log: str, tmp_path: Path, most: int) -> None:
    """Cut at random for each view; the seed is printed."""
    rng = seeded()
    directory = drawn_log(tmp_path, rng) if log == "drawn" else real_log(tmp_path, log)
    options = Options(session_timeout_ms=rng.choice([None, 9_000]))
    count = sum(1 for _ in read_timeline(OsDisk(), directory))
    cuts = cuts_of(directory, set(rng.sample(range(count), most)), options)
    for view in VIEWS:
        whole = [row for _, row in rows(read_timeline(OsDisk(), directory), {view}, cluster="c", options=options)]
        chosen = [cuts[at] for at in sorted(rng.sample(range(most), rng.randint(1, most)))]
        assert in_parts(directory, view, chosen, options) == whole, (view, [place for place, _ in chosen])


@pytest.mark.parametrize(("log", "most"), [("drawn", 3), ("clusters", 2)])
def test_parts_at_random_cuts_give_the_rows_of_one_replay(log: str, most: int, tmp_path: Path) -> None:
    check_cuts(log, tmp_path, most)


@pytest.mark.soak
@pytest.mark.parametrize("log", ["static3", "clusters", "drawn"])
def test_many_cuts_give_the_rows_of_one_replay(log: str, tmp_path: Path) -> None:
    for number in range(20):
        check_cuts(log, tmp_path / str(number), 8)


def test_a_query_is_cut_at_the_saved_passes(tmp_path: Path) -> None:
    """Every view, also as of an earlier moment; the tasks of one log read different parts."""
    rng = seeded()
    unpack("static3", "nodes/c1", tmp_path / "fleet" / "a")
    drawn = drawn_log(tmp_path, rng)
    os.rename(Path(drawn).parent, tmp_path / "fleet" / "b")
    write_meta(tmp_path / "fleet" / "b", "drawn")
    path, root = f"{tmp_path}/fleet/*", f"{tmp_path}/passes"
    saved = save_passes([path], root, every_bytes=rng.randint(3_000, 7_000))
    assert all(one.added >= 2 and one.problem is None for one in saved), saved
    again = save_passes([path], root, every_bytes=3_000_000)
    assert [(one.added, one.passes, one.until) for one in again] == [(0, one.passes, one.until) for one in saved]
    parts = flat(task.value for task in reader(path, view="partition_history", passes=root).partitions())
    assert len([one for one in parts if isinstance(one, HistoryTask)]) == sum(one.passes + 1 for one in saved)
    for view in ("partition_history", "topics_state", "churn", "retention", *rng.sample(sorted(VIEWS), 3)):
        assert read(path, view=view, passes=root) == read(path, view=view), view
    for offset in rng.sample(range(min(one.until for one in saved)), 2):
        of = {"view": "leader_history", "asOfOffset": str(offset)}
        assert read(path, None, passes=root, **of) == read(path, None, **of), offset
    whole = read(path, view="topic_history", cluster="drawn")
    for time in rng.sample(sorted({row["valid_from"] for row in whole}), 2):
        of = {"view": "partition_history", "asOfTimestamp": time.isoformat(), "cluster": "drawn"}
        assert read(path, None, passes=root, **of) == read(path, None, **of), time


def test_passes_that_do_not_fit_the_log_are_not_used(tmp_path: Path) -> None:
    """A rewritten tail, and a log that has lost its beginning: the rows are those of the present log."""
    rng = seeded()
    partition = Path(drawn_log(tmp_path, rng))
    path, root = str(partition.parent), f"{tmp_path}/passes"
    (before,) = save_passes([path], root, every_bytes=2_000)
    segment = partition / file_name(0)
    with segment.open("rb"):
        ends = [batch.end_position for batch in scan_headers(OsDisk().open(str(segment), writable=False))]
    content = bytearray(segment.read_bytes())
    # The second half in a later epoch, which no CRC covers.
    for start, end in pairwise(ends):
        if end > len(content) // 2:
            content[start + 12 : start + 16] = (100).to_bytes(4, "big")
    segment.write_bytes(content)
    for view in ("partition_history", "config_history"):
        assert read(path, view=view, passes=root) == read(path, view=view)
    parts = flat(task.value for task in reader(path, view="topic_history", passes=root).partitions())
    assert 1 < len(parts) < before.passes + 1
    (after,) = save_passes([path], root, every_bytes=2_000)
    assert after.passes == before.passes
    assert read(path, view="partition_history", passes=root) == read(path, view="partition_history")
    # With other options the passes do not fit: one task.
    other = reader(path, view="topic_history", passes=root, sessionTimeoutMs="9000").partitions()
    assert len(flat(task.value for task in other)) == 1


def test_filters_on_topic_partition_and_validity_leave_out_rows_and_parts(tmp_path: Path) -> None:
    """With and without pushing the rows are those that satisfy the filters; open rows need the last part alone."""
    rng = seeded()
    partition = Path(drawn_log(tmp_path, rng))
    path, root = str(partition.parent), f"{tmp_path}/passes"
    save_passes([path], root, every_bytes=2_000)
    whole = [row for row in read(path, view="partition_history") if row["valid_to"] is not None]
    one = rng.choice(whole)
    cases: list[tuple[list[Filter], Callable[[dict[str, Any]], bool]]] = [
        ([EqualTo(("topic",), one["topic"])], lambda row: row["topic"] == one["topic"]),
        ([In(("partition",), (0, 2))], lambda row: row["partition"] in (0, 2)),
        ([IsNull(("valid_to",))], lambda row: row["valid_to"] is None),
        (
            [LessThanOrEqual(("valid_from",), one["valid_to"]), GreaterThan(("valid_to",), one["valid_to"])],
            lambda row: row["valid_to"] is not None and row["valid_from"] <= one["valid_to"] < row["valid_to"],
        ),
    ]
    for view in ("partition_history", "leader_history", "isr_history"):
        for filters, satisfies in cases:
            wanted = [row for row in read(path, view=view) if satisfies(row)]
            for options in ({}, {"passes": root}):
                source = reader(path, None, view=view, pushFilters="true", **options)
                assert isinstance(source, FilteringReader)
                assert list(source.pushFilters(filters)) == filters
                found = [row for row in table(source).to_pylist() if satisfies(row)]
                assert found == wanted, (view, filters)
                assert table(source).num_rows == len(wanted)
    source = reader(path, view="topic_history", pushFilters="true", passes=root)
    assert isinstance(source, FilteringReader)
    list(source.pushFilters([IsNull(("valid_to",))]))
    assert len(flat(task.value for task in source.partitions())) == 1


def test_only_the_last_part_of_a_history_has_open_rows(tmp_path: Path) -> None:
    rng = seeded()
    directory = drawn_log(tmp_path, rng)
    for view in HISTORY_VIEWS:
        at = VIEWS[view].names.index("valid_to")
        story = HistoryPass("c", frozenset({view}), Options())
        for item in read_timeline(OsDisk(), directory):
            story.tell(item, None)
        assert all(row[at] is not None for _, row in story.sink.take()), view
