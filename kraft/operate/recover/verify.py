"""Checks a finished recovery without starting a node: its own replay, the epochs, the voters, the brokers' files."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kraft.operate.recover.copies import MetadataCopy
from kraft.operate.recover.description import DescribedVoter, Description, read_description
from kraft.operate.recover.differences import common_end
from kraft.operate.recover.hazards import Hazards, find_hazards
from kraft.operate.recover.inventory import Inventory, LogDir, read_inventory
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.types import NO_NODE


class Check(Struct, frozen=True, kw_only=True):
    """One thing that a recovered directory must show. `problem` is None if it does."""

    name: str
    subject: str
    problem: str | None = None

    @property
    def is_passed(self) -> bool:
        """Whether the check found no problem."""
        return self.problem is None


class Recovered(Struct, frozen=True, kw_only=True):
    """A finished recovery: its description, and its directories as they are now."""

    path: str
    facts: Description
    inventory: Inventory


def read_recovered(disk: Disk, path: str) -> Recovered:
    """Read the directory that `apply` has written. `DirectoryError` if it is no finished recovery, or a node runs in
    it.
    """
    path = path.rstrip("/") or "/"
    facts = read_description(disk, path)
    dirs = [f"{path}/{voter.dir}" for voter in facts.voters]
    return Recovered(path=path, facts=facts, inventory=read_inventory(disk, dirs, []))


def check_recovered(disk: Disk, recovered: Recovered, brokers: Sequence[str] = ()) -> list[Check]:
    """Check the directories, and the brokers' log directories, if any are given, against their image. Returns every
    check, passed or not. `MetadataLogError` if a file of a broker is unreadable, or belongs to another cluster.
    """
    checks: list[Check] = []
    by_id = {one.meta.node_id: one for one in recovered.inventory.dirs}
    for voter in recovered.facts.voters:
        one = by_id.get(voter.id)
        if one is None or one.copy is None:
            checks.append(Check(name="identity", subject=voter.dir, problem=f"there is no log of node {voter.id}"))
            continue
        checks += _check_node(recovered.facts, voter, one, one.copy)
    checks += _check_together(recovered)
    if brokers:
        checks += _check_brokers(disk, recovered, brokers)
    return checks


def _check(name: str, subject: str, is_wrong: bool, problem: str) -> Check:
    return Check(name=name, subject=subject, problem=problem if is_wrong else None)


def _check_node(facts: Description, voter: DescribedVoter, one: LogDir, copy: MetadataCopy) -> list[Check]:
    def check(name: str, is_wrong: bool, problem: str) -> Check:
        return _check(name, one.name, is_wrong, problem)

    epoch, state = facts.epoch, copy.quorum_state
    told = copy.unusable or "; ".join(map(str, copy.damages[:3]))
    checks = [
        check(
            "identity",
            (str(one.meta.directory_id), one.meta.cluster_id) != (voter.directory_id, facts.cluster_id),
            f"meta.properties has directory {one.meta.directory_id} of cluster {one.meta.cluster_id}",
        ),
        check("replay", copy.image is None or bool(copy.damages), told or "there is no image"),
        check("log end", copy.end.offset != facts.log_end, f"the log ends at {copy.end.offset}, not {facts.log_end}"),
        check("epoch", copy.end.epoch > epoch, f"the log has epoch {copy.end.epoch}, above {epoch} of the recovery"),
        check(
            "quorum-state",
            state is None or (state.leader_epoch, state.leader_id, state.voted_id) != (epoch, NO_NODE, NO_NODE),
            copy.quorum_state_problem or f"quorum-state is not epoch {epoch} without a vote and a leader: {state}",
        ),
        check(
            "kraft.version",
            copy.quorum.kraft_version != facts.kraft_version,
            f"kraft.version is {copy.quorum.kraft_version}, not {facts.kraft_version}",
        ),
    ]
    if facts.kraft_version > 0:
        planned = [(each.id, each.directory_id, each.endpoint) for each in facts.voters]
        last = copy.quorum.voters
        there = [
            (each.voter_id, str(each.voter_directory_id), f"{end.name}://{end.host}:{end.port}")
            for each in (() if last is None else last.record.voters)
            for end in each.endpoints[:1]
        ]
        checks.append(check("voters", there != planned, f"the last voter set of the log is {there}, not {planned}"))
    return checks


def _check_together(recovered: Recovered) -> list[Check]:
    dirs = recovered.inventory.dirs
    ids = [one.meta.directory_id for one in dirs]
    double = next((one for one in ids if ids.count(one) > 1), None)
    checks = [_check("directory ids", "all", double is not None, f"two directories have the id {double}")]
    copies = recovered.inventory.copies
    for one, copy in copies[1:]:
        first = copies[0]
        try:
            end = common_end(first[1], copy, (first[0].name, one.name))
            problem = f"the logs differ from offset {end} on"
            checks.append(_check("equal logs", one.name, end != first[1].end.offset, problem))
        except MetadataLogError as bad:
            checks.append(Check(name="equal logs", subject=one.name, problem=str(bad)))
    return checks


def _check_brokers(disk: Disk, recovered: Recovered, brokers: Sequence[str]) -> list[Check]:
    image = next((copy.image for _, copy in recovered.inventory.copies if copy.image is not None), None)
    if image is None:
        return []
    inventory = read_inventory(disk, [], brokers)
    if inventory.cluster_id != recovered.facts.cluster_id:
        raise DirectoryError(
            f"the brokers belong to cluster {inventory.cluster_id}, not to {recovered.facts.cluster_id}",
            where=brokers[0],
            hint="Give the brokers of the recovered cluster.",
        )
    hazards = find_hazards(inventory, image)
    accepted = {(one.broker, one.dir) for one in recovered.facts.accepted_strays}
    return [_strays(hazards, accepted), *_data(hazards), _observers(inventory, recovered.facts.epoch)]


def _strays(hazards: Hazards, accepted: set[tuple[int, str]]) -> Check:
    new = [one for one in hazards.strays if (one.broker, one.files.name) not in accepted]
    named = ", ".join(f"{one.files.name} on {one.broker}" for one in new[:5])
    problem = f"{len(new)} partition directories would become stray that the plan did not name: {named}"
    return _check("strays", "brokers", bool(new), problem)


def _data(hazards: Hazards) -> list[Check]:
    behind, ids = hazards.epochs_behind, hazards.producer_ids
    first = f"{behind[0].name} on {behind[0].broker}" if behind else ""
    return [
        _check("partition epochs", "brokers", bool(behind), f"{len(behind)} replicas are ahead of the image: {first}"),
        _check(
            "producer ids",
            "brokers",
            ids.must_be_raised,
            f"the image continues with {ids.next_id}, and a log holds {ids.highest_seen}",
        ),
    ]


def _observers(inventory: Inventory, epoch: int) -> Check:
    """A broker that knows an epoch as high as the recovery's, with another leader, ends with a fatal error."""
    high = [one.name for one, copy in inventory.copies if copy.highest_epoch >= epoch]
    return _check("epoch", "brokers", bool(high), f"epoch {epoch} is not above that of {', '.join(high)}")
