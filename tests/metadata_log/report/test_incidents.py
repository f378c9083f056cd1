"""Outages are listed once, grouped into incidents, and the first sentence names the worst one with its cause."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from metadata_log.report import HISTORY_VIEWS
from metadata_log.report.headline import headline
from metadata_log.report.incidents import Incident, incidents_of, intervals_of
from metadata_log.report.report_data import ReportData
from support.metadata_log.report_rows import NOON, fencing, outage, report_of, row

Row = tuple[str, tuple[Any, ...]]


def told(rows: list[Row]) -> list[str]:
    """The headline of these rows."""
    report = report_of(rows)
    return headline(report, incidents(report), HISTORY_VIEWS)


def incidents(report: ReportData) -> list[Incident]:
    return incidents_of(report, intervals_of(report))


def test_a_leaderless_partition_below_min_isr_is_one_interval() -> None:
    report = report_of(
        [
            outage(1000, 6000, cause_text="no replica can lead"),
            outage(500, 9000, kind="below-min-isr", cause="isr-shrink"),
            outage(9500, 9600),
        ]
    )
    first, second = intervals_of(report)
    assert (first.begin - NOON, first.end, first.leaderless, first.below_min_isr) == (500, NOON + 9000, 5.0, 8.5)
    assert (second.begin - NOON, second.leaderless, second.below_min_isr) == (9500, 0.1, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_intervals_hold_every_outage_once(seed: int) -> None:
    """No second of either kind is lost, and the intervals of a partition do not overlap."""
    rng = Random(seed)
    print("seed", seed)
    rows = []
    for partition in range(6):
        for kind in ("leaderless", "below-min-isr"):
            at = 0
            for _ in range(rng.randrange(8)):
                at += rng.randrange(1, 3000)
                begin, at = at, at + rng.randrange(1, 5000)
                rows.append(outage(begin, at, kind=kind, partition=partition))
    rng.shuffle(rows)
    report = report_of(rows)
    intervals = intervals_of(report)
    for kind, total in (
        ("leaderless", sum(each.leaderless for each in intervals)),
        ("below-min-isr", sum(each.below_min_isr for each in intervals)),
    ):
        assert total == pytest.approx(report.total(f"{kind} partition seconds"))
    for each in intervals:
        for other in intervals:
            is_same = other is each or other.partition != each.partition
            assert is_same or each.end is None or other.begin > each.end or other.end is None or each.begin > other.end
    grouped = [interval for incident in incidents(report) for interval in incident.intervals]
    assert sorted(each.begin for each in grouped) == [each.begin for each in intervals]


def test_the_first_sentence_names_partitions_duration_and_brokers() -> None:
    """Broker 102 was the last of two to die; both are the cause."""
    rows = [
        fencing(103, 1000, 60_000),
        fencing(102, 5000, 17_000),
        fencing(104, 0, 2000, cause="controlled-shutdown"),
        *(outage(5000, 17_000, partition=partition) for partition in range(26)),
        *(outage(5000, 17_000, partition=partition, kind="below-min-isr") for partition in range(26)),
    ]
    assert told(rows) == [
        "26 partitions had no leader for 12.0 s after the sessions of brokers 102 and 103 timed out "
        "(2026-11-21 12:00:05.000 UTC)."
    ]


def test_the_worst_incident_is_the_first_sentence_and_the_others_are_counted() -> None:
    rows = [
        outage(0, 1000),
        *(outage(50_000, 59_000, partition=partition, cause_broker=7) for partition in range(3)),
        outage(90_000, 99_000, kind="below-min-isr"),
    ]
    first, second = told(rows)
    assert first.startswith("3 partitions had no leader for 9.0 s after the session of broker 7 timed out")
    assert second == ("There were 2 more incidents: 1 with leaderless partitions, 1 only below min.insync.replicas.")


def test_clusters_have_incidents_of_their_own() -> None:
    rows = [outage(0, 4000, cluster="a"), outage(0, 5000, cluster="b"), fencing(9, 0, 9000, cluster="a")]
    report = report_of(rows)
    assert [(each.cluster, each.after) for each in incidents(report)] == [
        ("b", "the session of broker 102 timed out"),
        ("a", "the sessions of brokers 9 and 102 timed out"),
    ]
    first, second = told(rows)
    assert " in cluster b after " in first
    assert "1 more incident; all incidents were in 2 clusters" in second


def test_a_history_without_outages_is_called_sound_as_far_as_it_is_known() -> None:
    quiet = row("topic_history", topic="t", valid_from=NOON)
    sentence = "very partition had a leader and enough in-sync replicas all the time."
    assert told([quiet]) == [f"E{sentence}"]
    known, more = told([quiet, row("retention", kind="damage", known=False, from_time=NOON)])
    assert known == f"In the known part of this history, e{sentence}"
    assert more == "1 range of the log is unknown: more may have happened there."
    assert told([]) == ["The log holds no event of the requested kind."]
    report = report_of([quiet])
    assert "all the time" not in " ".join(headline(report, [], ("topic_history",)))
