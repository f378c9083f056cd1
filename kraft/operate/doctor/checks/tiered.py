"""Topics with tiered storage: the part on brokers' disks, and the part in the remote store alone (KIP-405)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraft.operate.doctor.checks.check import Check, bytes_text, listed
from kraft.operate.doctor.checks.replicas import broker_directories, partition_of
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts, RemoteSpan, Replica
from metadata_log.image.configs import ResourceType
from metadata_log.log.partition_names import parse_partition_name
from metadata_log.types import REMOTE_TOPIC, Uuid

ENABLED: Final = "remote.storage.enable"
Spans = dict[tuple[Uuid, int], list[RemoteSpan]]


def tiered_storage(facts: Facts) -> Iterator[Finding]:
    """The local and the remote part, for each broker; and offsets that are in neither."""
    remote, read = _remote(facts)
    for node, directory, image_facts in broker_directories(facts):
        tiered: list[tuple[Replica, list[RemoteSpan]]] = []
        for replica in directory.replicas:
            topic = replica.name.rpartition("-")[0]
            text = image_facts.image.configs.of((ResourceType.TOPIC, topic)).get(ENABLED, "")
            if replica.suffix or text.lower() != "true" or partition_of(image_facts, replica) is None:
                continue
            of = image_facts.image.topics.by_name[topic], replica.number
            tiered.append((replica, remote.get(of, [])))
        lost = [(one, lacking) for one, spans in tiered if (lacking := _lacking(one, spans))]
        if tiered:
            known = f"{listed(read)} say" if read else f"no partition of {REMOTE_TOPIC} is here to say"
            yield Finding(
                id="tiered-storage",
                severity=Severity.INFO,
                nodes=(node.name,),
                subjects=tuple(one.name for one, _ in tiered),
                read=(directory.path, image_facts.where),
                evidence=f"{listed(_told(one, spans) for one, spans in tiered)}; {known} what is remote",
            )
        if lost:
            yield Finding(
                id="tiered-storage",
                severity=Severity.ERROR,
                nodes=(node.name,),
                subjects=tuple(one.name for one, _ in lost),
                read=(directory.path, *read),
                evidence="no known remote segment has "
                + listed(f"the offsets {first} to {last} of {one.name}" for one, (first, last) in lost),
                consequence="Consumers of these offsets get errors.",
                remedy=f"Look into a newer copy of {REMOTE_TOPIC}: kraft dump --records. If that lacks them, too, let "
                "consumers begin later: kraft groups reset GROUP",
            )


def _remote(facts: Facts) -> tuple[Spans, list[str]]:
    """The remote part of each partition, by the longest copy of each partition that says so; and these partitions."""
    longest: dict[str, Replica] = {}
    for node in facts.nodes:
        for directory in node.directories:
            for one in directory.replicas:
                name = parse_partition_name(one.name)
                if name is not None and name.topic == REMOTE_TOPIC and not one.suffix:
                    other = longest.get(one.name)
                    longest[one.name] = one if other is None or one.size_bytes > other.size_bytes else other
    spans: Spans = {}
    for one in longest.values():
        for span in one.remote:
            spans.setdefault((span.topic_id, span.partition), []).append(span)
    return spans, [longest[name].path for name in sorted(longest)]


def _told(replica: Replica, spans: Sequence[RemoteSpan]) -> str:
    """`orders-0: local from 500 (1.2 MiB), remote 0 to 499 (3 segments, 30.0 MiB)`."""
    size = bytes_text(replica.size_bytes)
    start = "" if replica.log_start is None else f", log start {replica.log_start}"
    local = f"local from {replica.local_start or 0} ({size}{start})"
    if not spans:
        return f"{replica.name}: {local}, nothing known to be remote"
    where = " and ".join(f"{one.first} to {one.last}" for one in spans)
    segments, remote_bytes = sum(one.segments for one in spans), sum(one.size_bytes for one in spans)
    count = f"{segments:,} {'segment' if segments == 1 else 'segments'}"
    return f"{replica.name}: {local}, remote {where} ({count}, {bytes_text(remote_bytes)})"


def _lacking(replica: Replica, spans: Sequence[RemoteSpan]) -> tuple[int, int] | None:
    """The first offsets between the log start and the local start that no known segment has; None where nothing is
    known of the partition.
    """
    local = replica.local_start
    if not spans or local is None:
        return None
    following = spans[0].first if replica.log_start is None else replica.log_start
    for span in spans:
        if span.first > following:
            break
        following = max(following, span.last + 1)
    if following >= local:
        return None
    later = min((one.first for one in spans if one.first > following), default=local)
    return following, min(later, local) - 1


CHECKS: Final = (Check("tiered-storage", tiered_storage, (Need.IMAGE, Need.DIRECTORY)),)
