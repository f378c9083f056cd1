"""Checks of the host: access rights, free space, names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft.operate.doctor.checks.check import Check, bytes_text, listed
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts

SMALLEST_FREE_BYTES: Final = 1 << 30
SMALLEST_INODE_SHARE: Final = 0.05


def holds_secrets(facts: Facts) -> str:
    """The secrets in the metadata, as a text; empty if there are none."""
    if facts.image is None:
        return ""
    image = facts.image.image
    users, tokens = len(image.scram.by_user), len(image.tokens.by_id)
    parts = [f"credentials of {users} SCRAM users" if users else "", f"{tokens} delegation tokens" if tokens else ""]
    return " and ".join(part for part in parts if part)


def file_modes(facts: Facts) -> Iterator[Finding]:
    """Files with secrets that every user reads, directories that their owner cannot write, mixed owners."""
    secrets = holds_secrets(facts)
    for node in facts.nodes:
        for file in node.files:
            yield Finding(
                id="file-modes",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(file.path,),
                read=(f"{file.path}: mode {file.mode:04o}",),
                evidence=f"{file.path} has mode {file.mode:04o}: every user of the host may read the file, which "
                + (file.what if file.what.startswith("holds") else f"is {file.what}"),
                remedy=f"chmod 600 {file.path}",
            )
        for directory in node.directories:
            host = directory.host
            if host is None:
                continue
            if not host.is_writable:
                yield Finding(
                    id="file-modes",
                    severity=Severity.FATAL,
                    nodes=(node.name,),
                    subjects=(directory.path,),
                    read=(f"{directory.path}: mode",),
                    evidence=f"the owner of {directory.path} may not write the directory",
                    consequence="The node ends at its first write.",
                    remedy=f"chmod 700 {directory.path}",
                )
            if len(host.owners) > 1:
                yield Finding(
                    id="file-modes",
                    severity=Severity.WARN,
                    nodes=(node.name,),
                    subjects=(directory.path,),
                    read=(f"{directory.path}: owners",),
                    evidence=f"the files in {directory.path} belong to the users {listed(host.owners)}",
                    consequence="The node fails where another user owns a file that the node has to write.",
                    remedy=f"chown -R USER {directory.path}",
                )
            if secrets and host.readable_by_others:
                files = host.readable_by_others
                yield Finding(
                    id="file-modes",
                    severity=Severity.WARN,
                    nodes=(node.name,),
                    subjects=tuple(one.path for one in files),
                    read=tuple(f"{one.path}: mode {one.mode:04o}" for one in files[:3]),
                    evidence=f"every user of the host may read {len(files)} files of the metadata log, which holds "
                    f"{secrets}",
                    remedy=f"chmod 600 {directory.path}/__cluster_metadata-0/*; chmod 700 {directory.path}",
                )


def disk_headroom(facts: Facts) -> Iterator[Finding]:
    """A nearly full disk below the metadata log."""
    for node in facts.nodes:
        directory = node.metadata_directory
        if directory is None or directory.host is None:
            continue
        host, log = directory.host, directory.log
        wanted = max(SMALLEST_FREE_BYTES, 0 if log is None else 2 * (log.log_bytes + log.snapshot_bytes))
        told = []
        if host.free_bytes < wanted:
            told.append(f"{bytes_text(host.free_bytes)} are free, and {bytes_text(wanted)} should be")
        if host.total_inodes and (host.free_inodes or 0) < SMALLEST_INODE_SHARE * host.total_inodes:
            told.append(f"{host.free_inodes} of {host.total_inodes} inodes are free")
        if told:
            yield Finding(
                id="disk-headroom",
                severity=Severity.ERROR,
                nodes=(node.name,),
                subjects=(directory.path,),
                read=(f"{directory.path}: free space",),
                evidence="; ".join(told),
            )


def voter_endpoint_unresolvable(facts: Facts) -> Iterator[Finding]:
    """Hosts of voters and of bootstrap servers without an address, and voters at one address."""
    if facts.names is None:
        return
    voters = {one.id: (host, port) for one in facts.quorum.voters for _, host, port in one.endpoints[:1]}
    lost = sorted(voter for voter, (host, _) in voters.items() if facts.names.get(host) == ())
    severity = Severity.FATAL if lost and len(voters) - len(lost) < facts.quorum.majority else Severity.ERROR
    for voter in lost:
        yield Finding(
            id="voter-endpoint-unresolvable",
            severity=severity,
            subjects=(voters[voter][0],),
            read=(facts.quorum.where,),
            evidence=f"The host of voter {voter}, {voters[voter][0]}, has no address",
            remedy=f"Correct DNS or /etc/hosts: getent hosts {voters[voter][0]}",
        )
    for node in facts.nodes:
        if node.settings is None:
            continue
        for host, _ in node.settings.bootstrap_servers:
            if facts.names.get(host) == () and host not in {name for name, _ in voters.values()}:
                yield Finding(
                    id="voter-endpoint-unresolvable",
                    severity=Severity.ERROR,
                    nodes=(node.name,),
                    subjects=(host,),
                    read=(node.settings.where("controller.quorum.bootstrap.servers"),),
                    evidence=f"A bootstrap server, {host}, has no address",
                    remedy=f"Correct the name in {node.settings.source}, or DNS or /etc/hosts: getent hosts {host}",
                )
    places: dict[tuple[str, int], list[int]] = {}
    for voter, (host, port) in sorted(voters.items()):
        for address in facts.names.get(host, ()):
            places.setdefault((address, port), []).append(voter)
    shared = sorted({tuple(there) for there in places.values() if len(there) > 1})
    for ids in shared:
        yield Finding(
            id="voter-endpoint-unresolvable",
            severity=Severity.ERROR,
            subjects=tuple(voters[voter][0] for voter in ids),
            read=(facts.quorum.where,),
            evidence=f"voters {listed(ids)} have the same address and port",
        )


CHECKS: Final = (
    Check("file-modes", file_modes, (Need.HOST,)),
    Check("disk-headroom", disk_headroom, (Need.HOST, Need.DIRECTORY)),
    Check("voter-endpoint-unresolvable", voter_endpoint_unresolvable, (Need.NAMES,)),
)
