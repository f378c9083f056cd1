"""Rows of views for the tests of the reports: made up, drawn from a seed, and of real nodes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS
from metadata_log.history.engine import rows as history_rows
from metadata_log.reading.log_end import find_log_end
from metadata_log.reading.timeline import At, read_timeline
from metadata_log.report import FLEET_VIEWS
from metadata_log.report.report_data import ReportData
from support.real_data import unpack

NOON: Final = 1_795_262_400_000
HOSTILE: Final = "</script><script>document.title='taken over'</script><b>&amp;"

Rows = Iterator[tuple[str, tuple[Any, ...]]]


def row(view: str, **values: Any) -> tuple[str, tuple[Any, ...]]:
    """A row of a view; what is not said is empty."""
    empty = {
        "int32[]": (),
        "int64[]": (),
        "string[]": (),
        "uuid[]": (),
        "string": "",
        "bool": False,
        "map<string,string>": {},
    }
    defaults = {column.name: None if column.nullable else empty.get(column.type, 0) for column in VIEWS[view].columns}
    assert values.keys() <= defaults.keys(), values.keys() - defaults.keys()
    return view, tuple((defaults | {"cluster": "c1"} | values).values())


def outage(begin: int, end: int | None, **values: Any) -> tuple[str, tuple[Any, ...]]:
    """A row of the view `unavailability`, with times in milliseconds after noon."""
    defaults = {"topic": "orders", "kind": "leaderless", "cause": "session-timeout", "cause_broker": 102}
    until = None if end is None else NOON + end
    seconds = 0.0 if end is None else (end - begin) / 1000
    times = {"valid_from": NOON + begin, "valid_to": until, "seconds": seconds}
    return row("unavailability", **(defaults | times | values))


def fencing(broker: int, begin: int, end: int | None, **values: Any) -> tuple[str, tuple[Any, ...]]:
    """A row of the view `fencing`, with times in milliseconds after noon."""
    until = None if end is None else NOON + end
    defaults = {"broker": broker, "valid_from": NOON + begin, "valid_to": until, "cause": "session-timeout"}
    return row("fencing", **(defaults | values))


def report_of(rows: Iterable[tuple[str, tuple[Any, ...]]]) -> ReportData:
    """The collected data of these rows."""
    report = ReportData()
    report.take_all(rows)
    return report


def real_rows(cluster: str, node: str, views: tuple[str, ...], folder: Path) -> Rows:
    """The rows of a real node's directory."""
    name, prefix = ("static3", "nodes") if cluster == "static3" else ("clusters", f"{cluster}/nodes")
    path = unpack(name, f"{prefix}/{node}", folder / cluster)
    return history_rows(read_timeline(OsDisk(), str(path)), views, cluster=cluster)


RECORDED: Final = (("static3", "c1"), ("failover", "c3"), ("dynamic3", "c3"), ("old39", "c3"))


def cluster_id(number: int) -> str:
    """An id of 22 characters, as Kafka draws them."""
    return b64encode(Random(number).randbytes(16), b"-_")[:22].decode()


def recorded_fleet(clusters: int, folder: Path, views: tuple[str, ...] = FLEET_VIEWS) -> Rows:
    """Many clusters, each a recorded log that ends at another offset: some while partitions have no leader."""
    rng = Random(clusters)
    paths = []
    for name, node in RECORDED:
        archive, prefix = ("static3", "nodes") if name == "static3" else ("clusters", f"{name}/nodes")
        path = unpack(archive, f"{prefix}/{node}", folder / name)
        paths.append((path, find_log_end(OsDisk(), str(path)).offset))
    for number in range(clusters):
        path, end = paths[number % len(paths) if clusters <= len(paths) else rng.choice((0, 1, 1, 2, 2, 2, 3, 3))]
        last = end if clusters <= len(paths) else rng.randrange(end // 3, end)
        items = read_timeline(OsDisk(), str(path))
        yield from history_rows(items, views, cluster=cluster_id(number), at=At(offset=last))


def fleet_rows(clusters: int, events: int) -> Rows:
    """Many clusters with long names and many events, and texts that would break out of the page."""
    rng = Random(7)
    causes = ("session-timeout", "controlled-shutdown", "preferred-election", "unclean-election", "broker-unfenced")
    for number in range(clusters):
        cluster = f"production-region-{number:03d}-of-a-company-with-a-long-name"
        at = NOON
        for count in range(events):
            at += rng.randrange(1, 60_000)
            topic, cause = f"team-{rng.randrange(50)}.very-long-topic-name.v{rng.randrange(9)}", rng.choice(causes)
            yield row("leadership_changes", cluster=cluster, topic=topic, partition=count % 7, to_leader=2,
                      timestamp=at, cause=cause, cause_text=f"because of {cause} {HOSTILE}")  # fmt: skip
            yield row("unavailability", cluster=cluster, topic=topic, kind=rng.choice(("leaderless", "below-min-isr")),
                      valid_from=at, valid_to=at + 4000, seconds=4.0, cause="session-timeout", cause_broker=count % 3,
                      cause_text="no replica can lead")  # fmt: skip
            yield row("churn", cluster=cluster, kind="topic", name=topic, hour=at, partition_changes=3)
            yield row("churn", cluster=cluster, kind="broker", name=str(count % 5), hour=at, partition_changes=1)
        yield row("quorum_epochs", cluster=cluster, leader_id=1, valid_from=NOON, valid_to=NOON + 90_000)
        yield row("quorum_epochs", cluster=cluster, leader_id=2, valid_from=NOON + 90_000)
        yield row("controller_gaps", cluster=cluster, kind="election", seconds=6.5, valid_from=NOON + 83_500,
                  valid_to=NOON + 90_000)  # fmt: skip
        yield row("fencing", cluster=cluster, broker=number, valid_from=NOON, valid_to=NOON + 9000, seconds=9.0)
        yield row("acl_audit", cluster=cluster, principal="User:*", operation="ALL", permission="ALLOW", effective=True,
                  valid_from=NOON, resource_name=HOSTILE)  # fmt: skip


def large_rows(events: int, topics: int = 500, brokers: int = 90) -> Rows:
    """A directory with many changes of every kind of a page with the most content."""
    why = "broker 17 was fenced: its session timed out; 23 leads: the first live in-sync replica of the replicas"
    for number in range(events):
        at, topic, broker = NOON + 50 * number, f"a-topic-name-of-usual-length-{number % topics}", number % brokers
        times = {"valid_from": at, "valid_to": at + 400}
        yield row("leader_history", topic=topic, partition=number % 7, leader=broker, **times)
        yield row("broker_history", broker=broker, fenced=bool(number // brokers % 2), **times)
        yield row("isr_history", topic=topic, isr=(1,), replicas=(1, 2), **times)
        yield row("fencing", broker=broker, cause="session-timeout", cause_text=why, **times)
        yield row("leadership_changes", topic=topic, timestamp=at, cause="session-timeout", cause_text=why)
        yield row("unavailability", topic=topic, partition=number % 7, kind="leaderless", seconds=0.4,
                  cause="session-timeout", cause_broker=broker, cause_text=why, **times)  # fmt: skip
        yield row("unclean_elections", topic=topic, cause_text=why, **times)
        yield row("reassignments", topic=topic, outcome="completed", cause_text=why, **times)
        yield row("config_history", resource_name=topic, key="retention.ms", value="86400000", **times)
        yield row("quorum_epochs", leader_id=number % 5, quorum_epoch=number, **times)
        yield row("controller_gaps", seconds=0.1, valid_from=at + 300, valid_to=at + 400, cause_text=why)
