"""Checks a recovered quorum that runs: its leader, its voters, its commits, the brokers and their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio
from msgspec import Struct

from kraft.admin.client import AdminClient
from kraft.admin.descriptions import ClusterDescription, QuorumDescription
from kraft.observer import read_image
from kraft.operate.recover.description import Description
from kraft.operate.recover.verify import Check
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import NO_LEADER
from metadata_log.log.log_dir import META_PROPERTIES, read_meta_properties
from metadata_log.log.partition_names import STRAY, parse_partition_name
from metadata_log.types import Uuid

_LOOK_SECONDS: Final = 0.2
_MOST_NAMED: Final = 5


class LiveQuorum(Struct, frozen=True, kw_only=True):
    """The report of a running quorum. `committed` is the number of records that it has committed meanwhile."""

    cluster: ClusterDescription
    quorum: QuorumDescription
    committed: int
    image: MetadataImage


class StrayDirectory(Struct, frozen=True):
    """A directory that a broker has renamed to `-stray`; `name` is the former name."""

    broker: int
    name: str


async def read_live_quorum(admin: AdminClient, *, seconds: float) -> LiveQuorum:
    """Ask a quorum, and watch for some seconds whether its high watermark moves. A leader writes a record twice a
    second.
    """
    cluster = await admin.describe_cluster()
    quorum = latest = await admin.describe_quorum()
    with trio.move_on_after(seconds):
        while latest.high_watermark <= quorum.high_watermark:
            await trio.sleep(_LOOK_SECONDS)
            latest = await admin.describe_quorum()
    return LiveQuorum(
        cluster=cluster,
        quorum=latest,
        committed=latest.high_watermark - quorum.high_watermark,
        image=await read_image(admin),
    )


def read_strays(disk: Disk, directories: Sequence[str]) -> list[StrayDirectory]:
    """The renamed directories in the log directories of brokers, which may run. `DirectoryError` without a readable
    meta.properties.
    """
    strays = []
    for directory in directories:
        meta = read_meta_properties(disk, directory)
        if meta is None:
            raise DirectoryError(
                f"this is no log directory of a broker: it has no {META_PROPERTIES}",
                where=directory,
                hint="Name log directories, as in log.dirs.",
            )
        for name in disk.list(directory):
            partition = parse_partition_name(name)
            if partition is not None and partition.suffix == STRAY:
                strays.append(StrayDirectory(meta.node_id, str(partition)))
    return strays


def check_live(facts: Description, live: LiveQuorum, strays: Sequence[StrayDirectory] | None = None) -> list[Check]:
    """Hold a running quorum against the recovery (recovery.json) that it was started from. `strays` are the renamed
    directories of the brokers, if any were given. Returns every check, passed or not.
    """
    quorum, image = live.quorum, live.image
    leader = f"node {quorum.leader_id}"
    end, expected = facts.log_end, facts.epoch + 1
    return [
        _check("cluster", live.cluster.cluster_id, live.cluster.cluster_id != facts.cluster_id, "another cluster"),
        _check(
            "leader epoch",
            leader,
            quorum.leader_epoch < expected,
            f"the leader has epoch {quorum.leader_epoch}, and the recovery needs {expected} or more: this quorum was "
            "not started from the recovered directories",
        ),
        _check(
            "log end",
            leader,
            quorum.high_watermark < end,
            f"committed up to offset {quorum.high_watermark}, and the recovered log ends at {end}",
        ),
        _check(
            "commits",
            leader,
            live.committed <= 0,
            f"the high watermark stays at {quorum.high_watermark}: a majority of the voters does not follow",
        ),
        _voters(facts, quorum),
        _brokers(facts, image),
        _leaders(image),
        *([] if strays is None else [_strays(facts, strays)]),
    ]


def _check(name: str, subject: str, is_wrong: bool, problem: str) -> Check:
    return Check(name=name, subject=subject, problem=problem if is_wrong else None)


def _voters(facts: Description, quorum: QuorumDescription) -> Check:
    """Voters that were added since are no problem."""
    there = {voter.id: voter.directory_id for voter in quorum.voters}
    wrong = []
    for voter in facts.voters:
        directory = there.get(voter.id)
        if directory is None:
            wrong.append(f"node {voter.id} is no voter")
        elif directory != Uuid.ZERO and str(directory) != voter.directory_id:
            wrong.append(f"voter {voter.id} has directory {directory}, not {voter.directory_id}")
    return _check("voters", ", ".join(map(str, sorted(there))), bool(wrong), "; ".join(wrong))


def _brokers(facts: Description, image: MetadataImage) -> Check:
    """Every broker but those that were given up has registered again, and is unfenced."""
    old, fenced, there = [], [], []
    for broker_id, broker in in_key_order(image.brokers.by_id):
        if broker_id in facts.brokers_gone:
            continue
        there.append(broker_id)
        if broker.epoch < facts.append_at:
            old.append(broker_id)
        elif broker.fenced:
            fenced.append(broker_id)
    wrong = []
    if old:
        wrong.append(f"{_ids(old)} not registered since the recovery")
    if fenced:
        wrong.append(f"{_ids(fenced)} registered and fenced")
    problem = f"{'; '.join(wrong)}. A broker may need some 10 s: the image believes that its former process lives"
    return _check("brokers", ", ".join(map(str, there)) or "none", bool(wrong), problem)


def _ids(ids: Sequence[int]) -> str:
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {', '.join(map(str, ids))} are"


def _leaders(image: MetadataImage) -> Check:
    leaderless = [
        f"{name}-{number}"
        for name in image.topics
        for number, partition in enumerate(image.topics[name].partitions)
        if partition.leader == NO_LEADER
    ]
    return _check(
        "partition leaders", f"{len(image.topics)} topics", bool(leaderless), f"{_named(leaderless)} without a leader"
    )


def _strays(facts: Description, strays: Sequence[StrayDirectory]) -> Check:
    accepted = {(one.broker, one.dir) for one in facts.accepted_strays}
    new = [f"{one.name} on {one.broker}" for one in strays if (one.broker, one.name) not in accepted]
    problem = f"{_named(new)} renamed to -stray, which the plan did not name"
    return _check("strays", "brokers", bool(new), problem)


def _named(found: Sequence[str]) -> str:
    what = "1 partition is" if len(found) == 1 else f"{len(found):,} partitions are"
    more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    return f"{what} ({', '.join(found[:_MOST_NAMED])}{more})"
