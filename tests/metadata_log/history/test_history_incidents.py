"""`incidents` groups the rows of `unavailability` as a comparison of every pair of them does."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import pytest

from history_stories import CLUSTERS, Row, real_story
from metadata_log.history.incidents import Groups, Outage
from metadata_log.history.open_rows import When

Interval = tuple[str, str, int, float]
"""Partition, cause, beginning and end in milliseconds."""


def together(intervals: list[Interval]) -> list[list[Interval]]:
    """The intervals that belong together, by a comparison of every pair."""
    parent = list(range(len(intervals)))

    def root(at: int) -> int:
        while parent[at] != at:
            at = parent[at]
        return at

    for one, other in combinations(range(len(intervals)), 2):
        a, b = intervals[one], intervals[other]
        if max(a[2], b[2]) <= min(a[3], b[3]) and (a[0] == b[0] or a[1] == b[1]):
            parent[root(one)] = root(other)
    found: dict[int, list[Interval]] = {}
    for at, interval in enumerate(intervals):
        found.setdefault(root(at), []).append(interval)
    return sorted(sorted(group) for group in found.values())


def interval_of(row: Row) -> Interval:
    end = float("inf") if row["valid_to"] is None else row["valid_to"]
    return f"{row['topic']}-{row['partition']}", row["cause"], row["valid_from"], end


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_incidents_of_real_clusters_are_those_of_all_pairs_of_outages(name: str) -> None:
    rows = real_story(name)
    outages = rows["unavailability"]
    wanted = together([interval_of(row) for row in outages])
    by_kind: dict[str, set[tuple[str, int]]] = {"leaderless": set(), "below-min-isr": set()}
    for row in rows["incidents"]:
        for kind in by_kind:
            by_kind[kind] |= {(name, row["valid_from"]) for name in row[f"{kind.replace('-', '_')}_partitions"]}
    begins = {min(each[2] for each in group) for group in wanted}
    assert len(rows["incidents"]) == len(wanted)
    assert {row["valid_from"] for row in rows["incidents"]} == begins
    for kind, names in by_kind.items():
        assert {name for name, _ in names} == {
            f"{row['topic']}-{row['partition']}" for row in outages if row["kind"] == kind
        }
        lost = sum(row[f"{kind.replace('-', '_')}_partition_seconds"] for row in rows["incidents"])
        assert lost == pytest.approx(sum(row["seconds"] for row in outages if row["kind"] == kind), abs=1e-6)
    assert {row["incident"] for row in rows["incidents"]} == {
        f"{row['valid_from_offset']}/{row['incident'].partition('/')[2]}" for row in rows["incidents"]
    }


def test_a_real_failover_is_one_incident_with_its_partitions_inside() -> None:
    (row,) = real_story("failover")["incidents"]
    assert (row["causes"], row["brokers"], row["end_cause"]) == (("session-timeout",), (102,), "isr-expand")
    assert (len(row["leaderless_partitions"]), len(row["below_min_isr_partitions"])) == (31, 111)
    assert row["cause_text"] == "broker 102 was fenced: its session timed out; no replica can lead: 102 was the last"
    assert set(row["leaderless_partitions"]) <= set(row["below_min_isr_partitions"])


@pytest.mark.parametrize("seed", range(40))
def test_grouping_beginnings_and_ends_in_order_is_grouping_all_pairs(seed: int) -> None:
    rng = Random(seed)
    events: list[tuple[int, int, str, Any]] = []
    intervals: list[Interval] = []
    free = {f"p{number}": 0 for number in range(12)}
    for number in range(60):
        name = rng.choice(sorted(free))
        begin = free[name] + rng.randrange(1, 60)
        end = begin + rng.randrange(0, 40)
        free[name] = end + 1
        cause = rng.choice(("session-timeout", "isr-shrink", "controlled-shutdown"))
        lasts = rng.random() < 0.02
        intervals.append((name, cause, begin, float("inf") if lasts else end))
        events.append((begin, 2 * number, name, cause))
        if lasts:
            del free[name]
        else:
            events.append((end, 2 * number + 1, name, None))
    groups, found = Groups(), []
    for at, number, name, cause in sorted(events):
        when = When(number, at, 1)
        if cause is None:
            groups.end((name, number // 2), when, "end")
        else:
            told = (cause, None, number, None, cause)
            found += groups.begin((name, number // 2), Outage(name, 0, "leaderless", when, told))
    found += groups.take_all()
    told_groups = sorted(
        sorted(
            (one.topic, one.cause[0], one.since.timestamp, float("inf") if one.until is None else one.until.timestamp)
            for one in group.outages
        )
        for group in found
    )
    assert told_groups == together(intervals), f"seed {seed}"
