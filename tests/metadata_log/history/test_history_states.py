"""Histories against other sources: the image at any offset, Kafka's checkpoint, and what Kafka's tools printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history_stories import (
    CLUSTERS,
    STATES,
    Log,
    Row,
    named,
    real_disk,
    real_story,
    tell,
    valid_at,
    write,
)
from metadata_log import history, replay
from metadata_log.history import STATE_VIEWS, VIEWS
from metadata_log.history.state import state_rows
from metadata_log.history.values import voter_values
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.reading.damage import Damage
from metadata_log.reading.timeline import At, Base, TimelineBatch, read_timeline
from metadata_log.records.control import Endpoint, VotersRecordVoter
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from support.random_metadata import RandomCluster
from support.real_data import archive

FROM_IMAGE = {view: state for view, state in STATES.items() if view != "voter_history"}
"""Voters stand in control records, of which an image knows nothing."""
WHOLE = {"topic_history"}
"""A topic has all its partitions at once, while the image counts them record by record within the batch."""


def comparable(row: Sequence[Any]) -> str:
    return json.dumps(row, default=list, sort_keys=True)


def from_history(story: dict[str, list[Row]], view: str, offset: int) -> list[str]:
    """The rows of a history at one offset, in the columns of the state."""
    state = VIEWS[STATES[view]]
    columns = [name for name in state.names if name not in ("cluster", "as_of_offset", "as_of")]
    rows = [[row[name] for name in columns] for row in valid_at(story[view], offset)]
    return sorted(comparable(row) for row in rows if row[0] != "kraft.version")


def from_image(image: MetadataImage, view: str, *, show_secrets: bool = False) -> list[str]:
    return sorted(map(comparable, state_rows(image, STATES[view], show_secrets=show_secrets)))


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_valid_rows_at_fifty_offsets_equal_the_image(cluster: str) -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    name, path = CLUSTERS[cluster]
    story = real_story(cluster)
    last = max(row["as_of_offset"] for row in story["brokers_state"])
    offsets = sorted(Random(seed).sample(range(last + 1), 50))
    items = read_timeline(real_disk(name), path)
    ends = {item.end_offset - 1 for item in items if isinstance(item, TimelineBatch)}
    for offset in offsets:
        image = replay(path, offset, real_disk(name))
        for view in FROM_IMAGE if offset in ends else FROM_IMAGE.keys() - WHOLE:
            expected = from_image(image, view, show_secrets=True)
            assert from_history(story, view, offset) == expected, (view, offset)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 120), st.booleans())
def test_valid_rows_of_random_logs_equal_the_image(seed: int, steps: int, in_batches: bool) -> None:
    rng = Random(seed)
    cluster = RandomCluster(rng)
    images = [cluster.image] * len(cluster.log)
    for _ in range(steps):
        before = len(cluster.log)
        cluster.step()
        images += [cluster.image] * (len(cluster.log) - before)
    log = Log()
    rest = list(cluster.log)
    ends = set()
    while rest:
        size = rng.randint(1, 10) if in_batches else 1
        log.batch(*rest[:size])
        ends.add(log.offset - 1)
        del rest[:size]
    story = log.tell(*FROM_IMAGE)
    for offset in range(2, len(cluster.log)):
        image = images[offset].stable
        for view in FROM_IMAGE if offset in ends else FROM_IMAGE.keys() - WHOLE:
            assert from_history(story, view, offset) == from_image(image, view), (view, offset)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_state_views_are_the_image_at_any_point(cluster: str) -> None:
    name, path = CLUSTERS[cluster]
    last = real_story(cluster)["brokers_state"][0]["as_of_offset"]
    for offset in (last // 3, last // 2, last):
        states = tell(real_disk(name), path, tuple(STATE_VIEWS), At(offset=offset))
        image = replay(path, offset, real_disk(name))
        for view in STATE_VIEWS.keys() - {"voters_state"}:
            columns = [each for each in VIEWS[view].names if each not in ("cluster", "as_of_offset", "as_of")]
            rows = [[row[each] for each in columns] for row in states[view]]
            ours = [comparable(row) for row in rows if row[0] != "kraft.version"]
            assert ours == [comparable(row) for row in state_rows(image, view)], (view, offset)
            assert {row["as_of_offset"] for row in states[view]} <= {offset}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_shorter_history_is_a_prefix_of_a_longer_one(cluster: str) -> None:
    """Up to `at`, rows are the same; those that end later have not ended."""
    name, path = CLUSTERS[cluster]
    story = real_story(cluster)
    last = story["brokers_state"][0]["as_of_offset"]
    items = read_timeline(real_disk(name), path, until=At(offset=last // 2))
    middle = max(item.batch.base_offset for item in items if isinstance(item, TimelineBatch)) - 1
    shown = history.Options(show_secrets=True)
    early = tell(real_disk(name), path, tuple(STATES), At(offset=middle), shown)
    ends = ("valid_to_offset", "valid_to", "end_cause")
    for view in STATES:
        wanted = [row for row in story[view] if row["valid_from_offset"] <= middle]
        cut = [
            row
            if row["valid_to_offset"] is not None and row["valid_to_offset"] <= middle
            else {**row, **dict.fromkeys(ends)}
            for row in wanted
        ]
        assert sorted(map(str, cut)) == sorted(map(str, early[view])), view


def test_history_at_kafkas_checkpoint_equals_the_checkpoint() -> None:
    """At the offset of a snapshot that Kafka wrote, the history holds what it holds."""
    disk = MemoryDisk()
    disk.mkdir("/big")
    checkpoint = "00000000000000374900-0000000001.checkpoint"
    for path, content in archive("big").items():
        if path.endswith(".log") or path == checkpoint:
            write(disk, f"/big/{path}", content)
    [base] = read_timeline(disk, f"/big/{checkpoint}")
    assert isinstance(base, Base)
    at = At(offset=base.end.offset - 1)
    theirs = still_true([base])
    ours = still_true(read_timeline(disk, "/big", until=at))
    for view in ("partition_history", "topic_history"):
        assert from_history(ours, view, base.end.offset - 1) == from_history(theirs, view, base.end.offset - 1)
    assert len(theirs["partition_history"]) == 24_000
    assert {row["cause"] for row in theirs["partition_history"]} == {"snapshot"}
    assert {row["cause_record"] for row in theirs["partition_history"]} == {None}


def still_true(items: Iterable[Base | TimelineBatch | Damage]) -> dict[str, list[Row]]:
    """The rows of partitions and topics that hold at the end."""
    views = ("partition_history", "topic_history")
    end = {view: VIEWS[view].names.index("valid_to_offset") for view in views}
    return named(found for found in history.rows(items, views, cluster="c") if found[1][end[found[0]]] is None)


# What Kafka's own tools said of the clusters at the end


@pytest.fixture(params=CLUSTERS)
def end(request: pytest.FixtureRequest) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    name, path = CLUSTERS[request.param]
    described = json.loads(archive("history")[f"{request.param}/state.json"])
    at = At(offset=described["as_of"]["high_watermark_after"] - 1)
    return tell(real_disk(name), path, tuple(STATE_VIEWS), at), described


# Transactions


def test_a_transaction_is_visible_at_its_commit_and_never_when_aborted() -> None:
    rng = Random(7)
    cluster = RandomCluster(rng)
    for _ in range(40):
        cluster.step()
    rest = [one for one in cluster.log if not isinstance(one, _MARKS)]
    log = Log()
    begin = log.batch(BeginTransactionRecord(name="made up"), *rest, AbortTransactionRecord())
    aborted = log.tell(*FROM_IMAGE, "retention")
    assert [view for view in FROM_IMAGE if aborted[view]] == []
    [row] = [row for row in aborted["retention"] if row["kind"] == "aborted-transaction"]
    assert (row["from_offset"], row["to_offset"], row["records"]) == (begin, log.offset, len(rest))

    log.batch(BeginTransactionRecord(), *rest[: len(rest) // 2])
    opened = log.tell(*FROM_IMAGE, "retention")
    assert [view for view in FROM_IMAGE if opened[view]] == []
    assert [row["kind"] for row in opened["retention"]] == ["aborted-transaction", "open-transaction", "log"]

    last = log.batch(*rest[len(rest) // 2 :], NoOpRecord(), EndTransactionRecord()) + len(rest[len(rest) // 2 :]) + 1
    ended = log.tell(*FROM_IMAGE)
    assert {row["valid_from_offset"] for view in FROM_IMAGE for row in ended[view]} == {last}
    for view in FROM_IMAGE:
        assert from_history(ended, view, last) == from_image(cluster.image, view), view


_MARKS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


@pytest.mark.parametrize(
    ("host", "text"), [("::1", "C://[::1]:9093"), ("10.0.0.1", "C://10.0.0.1:9093"), ("h", "C://h:9093")]
)
def test_an_ipv6_host_is_shown_in_brackets(host: str, text: str) -> None:
    """Otherwise the port could not be told from the address."""
    voter = VotersRecordVoter(voter_id=1, endpoints=(Endpoint(name="C", host=host, port=9093),))
    assert voter_values(voter)[2] == (text,)
