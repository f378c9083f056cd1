"""Checks of brokers' partition directories against the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraft.operate.doctor.checks.check import Check, bytes_text, listed
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import Directory, Facts, Node, Replica
from metadata_log.image.topics import Partition
from metadata_log.log.partition_names import STRAY


def broker_directories(facts: Facts) -> Iterator[tuple[Node, Directory, ImageFacts]]:
    """The directories of brokers that the metadata can be compared with: those of the same cluster."""
    if facts.image is None or facts.best is None:
        return
    best = facts.best.meta
    for node in facts.nodes:
        for directory in node.directories:
            if best is not None and directory.meta is not None and directory.meta.cluster_id != best.cluster_id:
                continue
            if directory.has_broker_files and node.id is not None:
                yield node, directory, facts.image


def partition_of(found: ImageFacts, replica: Replica) -> Partition | None:
    """The partition of a directory: by its topic id, or by its name if the id is not known."""
    topics = found.image.topics
    topic_name = replica.name.rpartition("-")[0]
    if replica.topic_id is not None:
        topic = topics.by_id.get(replica.topic_id)
    else:
        known = topics.by_name.get(topic_name)
        topic = None if known is None else topics.by_id[known]
    if topic is None or topic.name != topic_name or replica.number >= len(topic.partitions):
        return None
    return topic.partitions[replica.number]


def _finding(
    check: str,
    severity: Severity,
    node: Node,
    replicas: Sequence[Replica],
    evidence: str,
    read: tuple[str, ...] | None = None,
    file: str = "",
) -> Finding:
    """A finding about replicas of a node; it was read in the first directories, or in a file there, unless said."""
    return Finding(
        id=check,
        severity=severity,
        nodes=(node.name,),
        subjects=tuple(one.name for one in replicas),
        read=tuple(f"{one.path}{file}" for one in replicas[:3]) if read is None else read,
        evidence=evidence,
    )


def stray_dirs(facts: Facts) -> Iterator[Finding]:
    """Directories that the metadata does not give to their broker, and those that were renamed already."""
    for node, directory, image_facts in broker_directories(facts):
        strays: list[tuple[Replica, str]] = []
        for replica in directory.replicas:
            if replica.suffix or replica.lacks_metadata or _other_name(image_facts, replica):
                continue
            partition = partition_of(image_facts, replica)
            if partition is None:
                known = replica.name.rpartition("-")[0] in image_facts.image.topics
                strays.append((replica, "another topic id or no such partition" if known else "no such topic"))
            elif node.id not in partition.replicas:
                strays.append((replica, f"the replicas are {listed(partition.replicas)}"))
        if strays:
            size = sum(replica.size_bytes for replica, _ in strays)
            yield _finding(
                "stray-dirs",
                Severity.FATAL,
                node,
                [replica for replica, _ in strays],
                f"{len(strays)} of {len(directory.replicas)} partition directories ({bytes_text(size)}) are "
                f"not in the metadata of {image_facts.where}: " + listed(f"{one.name} ({why})" for one, why in strays),
                (directory.path, f"{image_facts.where}: end offset {image_facts.image.end.offset}"),
            )
        renamed = [replica for replica in directory.replicas if replica.suffix == STRAY]
        if renamed:
            yield Finding(
                id="stray-dirs",
                severity=Severity.INFO,
                nodes=(node.name,),
                subjects=tuple(replica.name for replica in renamed),
                read=(directory.path,),
                evidence=f"{len(renamed)} directories end in -stray: {listed(one.name for one in renamed)}",
                consequence="A former start renamed them. Kafka does not delete them, and nothing brings them back.",
                remedy="Keep them until the metadata is known to be right; kraft recover plan DIR… --brokers DIR… "
                "names their topics",
            )


def _other_name(found: ImageFacts, replica: Replica) -> str:
    """The name of the topic with the topic id of a directory, if that is not the name of the directory; else empty."""
    topic = None if replica.topic_id is None else found.image.topics.by_id.get(replica.topic_id)
    return topic.name if topic is not None and topic.name != replica.name.rpartition("-")[0] else ""


def misplaced_dirs(facts: Facts) -> Iterator[Finding]:
    """Directories with the topic id of another topic than that of their name: swapped, renamed, or a wrong copy."""
    for node, directory, image_facts in broker_directories(facts):
        wrong = [
            (one, name) for one in directory.replicas if not one.suffix and (name := _other_name(image_facts, one))
        ]
        if wrong:
            evidence = listed(f"{replica.name} has the topic id of {name}" for replica, name in wrong)
            found = [replica for replica, _ in wrong]
            yield _finding("misplaced-dirs", Severity.FATAL, node, found, evidence, file="/partition.metadata")


def _in_use(facts: Facts) -> Iterator[tuple[Node, Directory, list[Replica]]]:
    for node in facts.nodes:
        for directory in node.directories:
            yield node, directory, [replica for replica in directory.replicas if not replica.suffix]


def partition_metadata_missing(facts: Facts) -> Iterator[Finding]:
    """Partition directories that the next start makes stray."""
    for node, directory, replicas in _in_use(facts):
        lacking = [replica for replica in replicas if replica.lacks_metadata]
        if lacking:
            evidence = f"{len(lacking)} of {len(replicas)} partition directories have no partition.metadata: " + listed(
                f"{one.name} ({bytes_text(one.size_bytes)})" for one in lacking
            )
            yield _finding("partition-metadata-missing", Severity.FATAL, node, lacking, evidence, (directory.path,))


def partition_files_damaged(facts: Facts) -> Iterator[Finding]:
    """Small files of partitions that no broker can use."""
    for node, _, replicas in _in_use(facts):
        damaged = [replica for replica in replicas if replica.damage]
        if damaged:
            evidence = listed(f"{replica.name}: {'; '.join(replica.damage)}" for replica in damaged)
            yield _finding("partition-files-damaged", Severity.FATAL, node, damaged, evidence)


def groups_lack_tombstones(facts: Facts) -> Iterator[Finding]:
    """Logs of groups from which cleaning has removed what other records follow on."""
    for node, _, replicas in _in_use(facts):
        lacking = [replica for replica in replicas if replica.lacking]
        if lacking:
            evidence = listed(
                f"{one.name}: {one.lacking[0]}" + (f" and {more:,} more" if (more := len(one.lacking) - 1) else "")
                for one in lacking
            )
            yield _finding("groups-lack-tombstones", Severity.WARN, node, lacking, evidence)


def foreign_dirs(facts: Facts) -> Iterator[Finding]:
    """Directories of other programs among the partitions."""
    for node in facts.nodes:
        for directory in node.directories:
            if directory.foreign:
                yield Finding(
                    id="foreign-dirs",
                    severity=Severity.ERROR,
                    nodes=(node.name,),
                    subjects=directory.foreign,
                    read=(directory.path,),
                    evidence=f"In {directory.path}, {listed(directory.foreign)} "
                    + ("is no partition" if len(directory.foreign) == 1 else "are no partitions"),
                )


def missing_dirs(facts: Facts) -> Iterator[Finding]:
    """Replicas that the metadata expects in a directory that does not have them."""
    for node, directory, image_facts in broker_directories(facts):
        assert node.id is not None
        if node.id not in image_facts.image.brokers.by_id:
            continue
        own = None if directory.meta is None else directory.meta.directory_id
        there = {replica.name for other in node.directories for replica in other.replicas if not replica.suffix}
        missing: list[str] = []
        alone: list[str] = []
        for name in image_facts.image.topics:
            for number, partition in enumerate(image_facts.image.topics[name].partitions):
                if node.id not in partition.replicas or f"{name}-{number}" in there:
                    continue
                assigned = partition.directories[partition.replicas.index(node.id)]
                if assigned == own or (assigned.is_reserved and len(node.directories) == 1):
                    missing.append(f"{name}-{number}")
                    if partition.isr == (node.id,):
                        alone.append(f"{name}-{number}")
        if missing:
            only = f"; {len(alone)} have no other replica in sync: {listed(alone)}" if alone else ""
            yield Finding(
                id="missing-dirs",
                severity=Severity.ERROR,
                nodes=(node.name,),
                subjects=tuple(missing),
                read=(directory.path, image_facts.where),
                evidence=f"{len(missing)} replicas of broker {node.id} are not in {directory.path}: "
                f"{listed(missing)}{only}",
            )


def partition_epoch_behind(facts: Facts) -> Iterator[Finding]:
    """Data of later leader epochs than the metadata knows."""
    for node, directory, image_facts in broker_directories(facts):
        behind = [
            (replica, partition.leader_epoch)
            for replica in directory.replicas
            if not replica.suffix
            and replica.last_epoch is not None
            and (partition := partition_of(image_facts, replica)) is not None
            and replica.last_epoch > partition.leader_epoch
        ]
        if behind:
            evidence = listed(
                f"{replica.name} has data of leader epoch {replica.last_epoch}, and the metadata has {epoch}"
                for replica, epoch in behind
            )
            found = [replica for replica, _ in behind]
            yield _finding(
                "partition-epoch-behind", Severity.FATAL, node, found, evidence, file="/leader-epoch-checkpoint"
            )


def producer_id_regress(facts: Facts) -> Iterator[Finding]:
    """Producer ids in data that the metadata will give out again."""
    for node, directory, image_facts in broker_directories(facts):
        following = max(image_facts.image.producer_ids.next_producer_id, 0)
        used = [
            replica
            for replica in directory.replicas
            if replica.max_producer_id is not None and replica.max_producer_id >= following
        ]
        if used:
            last = max(used, key=lambda one: one.max_producer_id or 0)
            yield _finding(
                "producer-id-regress",
                Severity.FATAL,
                node,
                used,
                f"{last.name} has records of producer id {last.max_producer_id}, and the metadata continues "
                f"with {following}",
                (last.path, f"{image_facts.where}: ProducerIdsRecord"),
            )


CHECKS: Final = (
    Check("stray-dirs", stray_dirs, (Need.IMAGE, Need.DIRECTORY)),
    Check("misplaced-dirs", misplaced_dirs, (Need.IMAGE, Need.DIRECTORY)),
    Check("partition-metadata-missing", partition_metadata_missing, (Need.DIRECTORY,)),
    Check("partition-files-damaged", partition_files_damaged, (Need.DIRECTORY,)),
    Check("groups-lack-tombstones", groups_lack_tombstones, (Need.DIRECTORY,)),
    Check("foreign-dirs", foreign_dirs, (Need.DIRECTORY,)),
    Check("missing-dirs", missing_dirs, (Need.IMAGE, Need.DIRECTORY)),
    Check("partition-epoch-behind", partition_epoch_behind, (Need.IMAGE, Need.DIRECTORY)),
    Check("producer-id-regress", producer_id_regress, (Need.IMAGE, Need.DIRECTORY)),
)
