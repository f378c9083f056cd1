"""Checks of meta.properties: node, cluster and directory ids, and voters without a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kraft.config.node_settings import ROLES, ZOOKEEPER, is_of_zookeeper
from kraft.operate.doctor.checks.check import Check, listed
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Directory, Facts, Node
from metadata_log.types import Uuid


def _directories(facts: Facts) -> Iterator[tuple[Node, Directory]]:
    for node in facts.nodes:
        for directory in node.directories:
            yield node, directory


def zookeeper_mode(facts: Facts) -> Iterator[Finding]:
    """A node in ZooKeeper mode, by `zookeeper.connect` without roles, or by meta.properties."""
    for node in facts.nodes:
        if not node.in_zookeeper_mode:
            continue
        settings = node.settings
        metas = [one.meta for one in node.directories if one.meta is not None and one.meta.is_of_zookeeper]
        told = [f"{one.path} is of version 0, with a broker.id" for one in metas]
        places = [f"{one.path}: version" for one in metas]
        if settings is not None and is_of_zookeeper(settings.values):
            told = [f"{ZOOKEEPER} is set, and {ROLES} is not", *told]
            places = [settings.where(ZOOKEEPER), *places]
        yield Finding(
            id="zookeeper-mode",
            severity=Severity.FATAL,
            nodes=(node.name,),
            subjects=tuple(one.path for one in node.directories),
            read=tuple(places),
            evidence="; ".join(told),
        )


def meta_missing(facts: Facts) -> Iterator[Finding]:
    """A directory without meta.properties. A broker formats further directories itself, if one is formatted."""
    for node, directory in _directories(facts):
        if directory.meta is not None or directory.may_lack_meta:
            continue
        is_needed = directory.is_metadata or all(one.meta is None for one in node.directories)
        path = f"{directory.path}/meta.properties"
        what = f"{directory.path} does not exist" if not directory.exists else f"{path} is missing"
        if directory.log is not None and not directory.log.is_empty:
            what += f", and the directory holds a metadata log up to offset {directory.log.end_offset}"
        yield Finding(
            id="meta-missing",
            severity=Severity.FATAL if is_needed else Severity.WARN,
            nodes=(node.name,),
            subjects=(directory.path,),
            read=(path,),
            evidence=what,
            consequence="" if is_needed else "Kafka formats the directory at the start; replicas in it are not found.",
        )


def meta_version(facts: Facts) -> Iterator[Finding]:
    """A version other than 1, or an unreadable file."""
    for node, directory in _directories(facts):
        meta = directory.meta
        if meta is None or (meta.version == 1 and not meta.problem):
            continue
        shown = meta.problem or f"version={meta.text.get('version', '(missing)')}"
        yield Finding(
            id="meta-version",
            severity=Severity.WARN if meta.is_of_zookeeper else Severity.FATAL,
            nodes=(node.name,),
            subjects=(directory.path,),
            read=(f"{meta.path}: version",),
            evidence=shown,
        )


def node_id_mismatch(facts: Facts) -> Iterator[Finding]:
    """The configuration and meta.properties name different nodes."""
    for node in facts.nodes:
        settings = node.settings
        if settings is None or settings.node_id is None:
            continue
        for directory in node.directories:
            meta = directory.meta
            if meta is None or meta.node_id is None or meta.node_id == settings.node_id:
                continue
            yield Finding(
                id="node-id-mismatch",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(directory.path,),
                read=(settings.where("node.id"), f"{meta.path}: node.id"),
                evidence=f"node.id is {settings.node_id} in {settings.source} and {meta.node_id} in {meta.path}",
            )


def cluster_id_mismatch(facts: Facts) -> Iterator[Finding]:
    """More than one cluster id."""
    owners: dict[str, list[tuple[Node, Directory]]] = defaultdict(list)
    for node, directory in _directories(facts):
        if directory.meta is not None and directory.meta.cluster_id:
            owners[directory.meta.cluster_id].append((node, directory))
    if len(owners) < 2:
        return
    ordered = sorted(owners.items(), key=lambda item: (len(item[1]), item[0]))
    table = "; ".join(f"{cluster}: {listed(node.name for node, _ in holders)}" for cluster, holders in ordered)
    yield Finding(
        id="cluster-id-mismatch",
        severity=Severity.FATAL,
        nodes=tuple(dict.fromkeys(node.name for _, holders in ordered[:-1] for node, _ in holders)),
        subjects=tuple(directory.path for _, holders in ordered[:-1] for _, directory in holders),
        read=tuple(
            f"{directory.path}/meta.properties: cluster.id" for _, holders in ordered for _, directory in holders
        ),
        evidence=f"there are {len(owners)} cluster ids: {table}",
    )


def cluster_id_garbage(facts: Facts) -> Iterator[Finding]:
    """A cluster id that is no Kafka uuid."""
    for node, directory in _directories(facts):
        if directory.meta is None or directory.meta.problem:
            continue
        try:
            Uuid.parse(directory.meta.cluster_id)
        except ValueError:
            yield Finding(
                id="cluster-id-garbage",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(directory.path,),
                read=(f"{directory.meta.path}: cluster.id",),
                evidence=f"cluster.id is {directory.meta.cluster_id!r}",
            )


def directory_id_missing(facts: Facts) -> Iterator[Finding]:
    """A directory without a usable id."""
    for node, directory in _directories(facts):
        meta = directory.meta
        if meta is None or meta.problem or meta.version == 0 or meta.directory_id is not None:
            continue
        log = directory.log
        version = facts.quorum.kraft_version if log is None or log.kraft_version is None else log.kraft_version
        is_voter = directory.is_metadata and facts.is_controller(node) and version == 1
        voter = facts.quorum.find(node.id)
        known = None if voter is None else voter.directory_id
        text = meta.text.get("directory.id")
        yield Finding(
            id="directory-id-missing",
            severity=Severity.FATAL if is_voter else Severity.WARN,
            nodes=(node.name,),
            subjects=(directory.path,),
            read=(f"{meta.path}: directory.id",),
            evidence="directory.id is missing" if text is None else f"directory.id is {text!r}",
            consequence="" if is_voter else "The node makes a new random id at its start, which is harmless here.",
            remedy=f"echo directory.id={known} >> {meta.path}" if is_voter and known else "",
        )


def directory_id_not_voter(facts: Facts) -> Iterator[Finding]:
    """The voter set names the node with another directory."""
    quorum = facts.quorum
    if quorum.kraft_version != 1:
        return
    at_home = {node.id for node in facts.controllers if _is_home(facts, node)}
    others = [node for node in facts.controllers if node.directory_id is not None and node.id not in at_home]
    away = {node.id for node in others if quorum.find(node.id) is not None}
    for node in others:
        voter = quorum.find(node.id)
        if voter is None or voter.directory_id is None or node.meta is None:
            continue
        is_needed = len(quorum.voters) - len(away) < quorum.majority
        yield Finding(
            id="directory-id-not-voter",
            severity=Severity.FATAL if is_needed else Severity.ERROR,
            nodes=(node.name,),
            subjects=(node.meta.path,),
            read=(f"{node.meta.path}: directory.id", quorum.where),
            evidence=f"the directory id is {node.directory_id}, and voter {node.id} has {voter.directory_id}",
            remedy=f"If this is the voter's own log, restore directory.id={voter.directory_id}. Otherwise, while a "
            f"leader is there: kraft quorum remove {node.id} --directory-id {voter.directory_id}, then "
            f"kraft quorum add {node.id}",
        )


def _is_home(facts: Facts, node: Node) -> bool:
    voter = facts.quorum.find(node.id)
    return voter is not None and voter.directory_id == node.directory_id


def directory_id_duplicate(facts: Facts) -> Iterator[Finding]:
    """One directory id in two places."""
    owners: dict[Uuid, list[tuple[Node, Directory]]] = defaultdict(list)
    for node, directory in _directories(facts):
        if directory.meta is not None and directory.meta.directory_id is not None:
            owners[directory.meta.directory_id].append((node, directory))
    for directory_id, holders in owners.items():
        if len(holders) > 1:
            yield Finding(
                id="directory-id-duplicate",
                severity=Severity.FATAL,
                nodes=tuple(node.name for node, _ in holders),
                subjects=tuple(directory.path for _, directory in holders),
                read=tuple(f"{directory.path}/meta.properties: directory.id" for _, directory in holders),
                evidence=f"The directory id {directory_id} is in {listed(directory.path for _, directory in holders)}",
            )


def node_id_duplicate(facts: Facts) -> Iterator[Finding]:
    """Two nodes with one id in one cluster, and different directories."""
    owners: dict[int, list[Node]] = defaultdict(list)
    for node in facts.nodes:
        if node.id is not None:
            owners[node.id].append(node)
    for node_id, holders in owners.items():
        if len({node.directory_id for node in holders}) < 2:
            continue
        ends = "; ".join(
            f"{node.directories[0].path if node.directories else node.name} ends at "
            + ("no log" if node.log is None else f"{node.log.end_offset} in epoch {node.log.last_epoch}")
            for node in holders
        )
        yield Finding(
            id="node-id-duplicate",
            severity=Severity.ERROR,
            nodes=tuple(node.name for node in holders),
            subjects=tuple(directory.path for node in holders for directory in node.directories),
            read=tuple(f"{one.path}/meta.properties: node.id" for node in holders for one in node.directories),
            evidence=f"{len(holders)} nodes have the id {node_id}: {ends}",
        )


def log_dir_missing_metadata(facts: Facts) -> Iterator[Finding]:
    """The log is in another directory than the settings say."""
    for node in facts.nodes:
        meant = node.metadata_directory
        if node.settings is None or meant is None or meant.log is not None:
            continue
        for other in node.directories:
            if other.log is None or other is meant:
                continue
            key = "metadata.log.dir" if node.settings.text("metadata.log.dir") else "log.dirs"
            yield Finding(
                id="log-dir-missing-metadata",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(meant.path,),
                read=(node.settings.where(key), f"{other.path}/__cluster_metadata-0"),
                evidence=f"the metadata log is to be in {meant.path}, and is in {other.path} up to offset "
                f"{other.log.end_offset}",
                remedy=f"Set metadata.log.dir={other.path}, or restore the order of log.dirs",
            )


def empty_voters(facts: Facts) -> tuple[list[Node], bool]:
    """The given voters without a log while another node has one, and whether a majority of voters may have a log.

    Voters that were not given count as voters with a log.
    """
    quorum = facts.quorum
    if facts.best is None:
        return [], True
    ids = quorum.ids
    with_log = {node.id for node in facts.nodes if node.log is not None and not node.log.is_empty}
    empty = [
        node
        for node in facts.controllers
        if node.id in ids
        and node.id not in with_log
        and (node.meta is not None or node.settings is not None)
        and (node.metadata_directory is not None and node.metadata_directory.exists)
    ]
    left = len(ids) - len({node.id for node in empty})
    return empty, left >= quorum.majority


def empty_voter(facts: Facts) -> Iterator[Finding]:
    """Formatted voters without a log."""
    empty, has_majority = empty_voters(facts)
    ids = sorted({node.id for node in empty if node.id is not None})
    for node in empty:
        directory = node.metadata_directory
        if node.meta is None or directory is None:
            continue
        yield Finding(
            id="empty-voter",
            severity=Severity.WARN if has_majority else Severity.FATAL,
            nodes=(node.name,),
            subjects=(directory.path,),
            read=(f"{directory.path}/__cluster_metadata-0", facts.quorum.where),
            evidence=f"voters {listed(ids)} of {listed(facts.quorum.ids)} are formatted and have no record",
        )


CHECKS: Final = (
    Check("zookeeper-mode", zookeeper_mode),
    Check("meta-missing", meta_missing, (Need.DIRECTORY,)),
    Check("meta-version", meta_version, (Need.DIRECTORY,)),
    Check("node-id-mismatch", node_id_mismatch, (Need.SETTINGS, Need.DIRECTORY)),
    Check("cluster-id-mismatch", cluster_id_mismatch, (Need.DIRECTORY,)),
    Check("cluster-id-garbage", cluster_id_garbage, (Need.DIRECTORY,)),
    Check("directory-id-missing", directory_id_missing, (Need.DIRECTORY,)),
    Check("directory-id-not-voter", directory_id_not_voter, (Need.DIRECTORY,)),
    Check("directory-id-duplicate", directory_id_duplicate, (Need.DIRECTORY,)),
    Check("node-id-duplicate", node_id_duplicate, (Need.SEVERAL,)),
    Check("log-dir-missing-metadata", log_dir_missing_metadata, (Need.SETTINGS, Need.DIRECTORY)),
    Check("empty-voter", empty_voter, (Need.SEVERAL,)),
)
