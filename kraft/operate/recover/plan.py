"""The plan of a recovery: which copy becomes the seed, what would be lost, and which hazards wait (KIP-595, KIP-853).

A plan is computed from an inventory alone. Copies rank by the last epoch in the log and then by the log end offset, as
votes do. The length alone does not decide: a killed leader's log can be longest and hold records that no majority had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from kraft.operate.recover.copies import MetadataCopy, image_at
from kraft.operate.recover.differences import Difference, Records, common_end, compare, records_from
from kraft.operate.recover.hazards import GoneBroker, Hazards, find_hazards, partitions_without
from kraft.operate.recover.inventory import BROKER, CONTROLLER, Inventory, LogDir
from metadata_log.disk import Disk
from metadata_log.errors import DirectoryError
from metadata_log.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import read_entries
from metadata_log.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionRecord,
)
from metadata_log.types import Uuid

UNSEEN_EPOCHS: Final = 1000
"""The distance to the highest known epoch if a broker's quorum-state is not given: the broker may know a higher one."""
SECURITY_TYPES: Final = (
    *("AccessControlEntryRecord", "RemoveAccessControlEntryRecord"),
    *("UserScramCredentialRecord", "RemoveUserScramCredentialRecord"),
    *("DelegationTokenRecord", "RemoveDelegationTokenRecord"),
)


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The operator's choices.

    Args:
        observers: Whether the brokers' copies of the metadata log may become the seed.
        voter_ids: The ids in `controller.quorum.voters`; None if no configuration was given.
        gone: The brokers that will not come back.
        truncate_to: The offset where the seed's log is cut; None for its end.
    """

    observers: bool = True
    voter_ids: tuple[int, ...] | None = None
    gone: tuple[int, ...] = ()
    truncate_to: int | None = None


class Voters(Struct, frozen=True, kw_only=True):
    """The voters before the recovery, and the source of this knowledge; `ids` is None if they are unknown."""

    ids: tuple[int, ...] | None
    source: str
    directory_ids: tuple[Uuid, ...] = ()


class UnknownLoss(Struct, frozen=True, kw_only=True):
    """A bound on the age of the seed: the times of its last record and of the newest record elsewhere, in ms."""

    seed_ms: int
    newest_ms: int
    newest_in: str


class SecurityChange(Struct, frozen=True, kw_only=True):
    """The newest record of one type about access in the seed's log."""

    type: str
    offset: int
    timestamp_ms: int


class Plan(Struct, frozen=True, kw_only=True):
    """A recovery as it would be done.

    Args:
        inventory: The surviving directories.
        options: The operator's choices.
        best: The directory of the seed.
        ties: The directories with the same last epoch and end as the best, the best included.
        longest: The directory with the longest log.
        voters: The voters before the recovery.
        is_quorum_possible: Whether the given controllers are a majority of the voters; None if the voters are unknown.
        others: Each other candidate, held against the best one.
        ahead: The copies of brokers that rank above the seed and may not become the seed.
        committed_end: Records of the seed below this offset are proven to be committed.
        uncommitted: The records of the seed after it, which become committed by the recovery.
        unknown_loss: How much longer the cluster lived than the seed knows; None if nothing newer was seen.
        first_safe_epoch: 1 above every epoch in any given file.
        recovery_epoch: The epoch that the recovery writes.
        append_at: The offset of the first appended record.
        image: The image of the seed at `append_at`.
        hazards: What the brokers' files say against the image.
        gone: The partitions that change because brokers will not come back.
        not_given: The unfenced brokers of the image without a given directory.
        stale_controllers: The registered controllers that were not given.
        security: The newest records about access in the seed's log.
    """

    inventory: Inventory
    options: PlanOptions
    best: LogDir
    ties: tuple[LogDir, ...]
    longest: LogDir
    voters: Voters
    is_quorum_possible: bool | None
    others: tuple[Difference, ...]
    ahead: tuple[Difference, ...]
    committed_end: int
    uncommitted: Records | None
    unknown_loss: UnknownLoss | None
    first_safe_epoch: int
    recovery_epoch: int
    append_at: int
    image: MetadataImage
    hazards: Hazards
    gone: tuple[GoneBroker, ...]
    not_given: tuple[int, ...]
    stale_controllers: tuple[int, ...]
    security: tuple[SecurityChange, ...]
    has_open_transaction: bool
    """Whether the seed ends within a metadata transaction, which the recovery aborts (KIP-866)."""

    @property
    def seed(self) -> MetadataCopy:
        """The best copy."""
        assert self.best.copy is not None
        return self.best.copy

    @property
    def is_behind(self) -> bool:
        """Whether another given copy ranks above the seed, or records of the seed are cut off."""
        return bool(self.ahead) or self.append_at < self.seed.end.offset

    @property
    def partial_ids(self) -> bool:
        """Whether brokers' files are missing, so that epochs and producer ids may be higher than anything given."""
        return bool(self.not_given)


def make_plan(disk: Disk, inventory: Inventory, options: PlanOptions | None = None) -> Plan:
    """Compute the plan for an inventory; reads records again, and writes nothing. `DirectoryError` if no copy can
    become the seed, or two copies contradict each other.
    """
    options = options or PlanOptions()
    candidates = [
        (one, copy)
        for one, copy in inventory.copies
        if copy.unusable is None and (options.observers or one.role == CONTROLLER)
    ]
    if not candidates:
        raise _no_candidate(inventory, options)
    best, seed = min(candidates, key=_rank)
    others = tuple(
        compare(disk, seed, copy, (best.name, one.name)) for one, copy in candidates if one.name != best.name
    )
    append_at = _append_at(seed, options.truncate_to)
    scanned = _scan(disk, inventory, seed, append_at)
    image = seed.image if append_at == seed.end.offset else image_at(disk, seed, append_at)
    assert image is not None
    voters = _voters(seed, inventory, options)
    committed = max(_committed_end(seed, inventory, voters), scanned.acted_end)
    not_given, stale = _absent(image, inventory, options.gone)
    highest = inventory.highest_epoch
    is_unseen = bool(not_given) or any(copy.quorum_state is None for _, copy in inventory.copies)
    return Plan(
        inventory=inventory,
        options=options,
        best=best,
        ties=tuple(one for one, copy in candidates if copy.end == seed.end),
        longest=min(candidates, key=lambda candidate: (-candidate[1].end.offset, _rank(candidate)))[0],
        voters=voters,
        is_quorum_possible=_is_majority(inventory, voters),
        others=others,
        ahead=_ahead(disk, inventory, best, seed, options),
        committed_end=min(committed, append_at),
        uncommitted=records_from(disk, seed, committed, append_at) if committed < append_at else None,
        unknown_loss=_unknown_loss(inventory, best, seed),
        first_safe_epoch=highest + 1,
        recovery_epoch=highest + (UNSEEN_EPOCHS if is_unseen else 1),
        append_at=append_at,
        image=image,
        hazards=find_hazards(inventory, image),
        gone=partitions_without(image, options.gone),
        not_given=not_given,
        stale_controllers=stale,
        security=scanned.security,
        has_open_transaction=scanned.has_open_transaction,
    )


def _rank(candidate: tuple[LogDir, MetadataCopy]) -> tuple[int, int, bool, int, str]:
    one, copy = candidate
    return -copy.end.epoch, -copy.end.offset, one.role == BROKER, one.meta.node_id, one.name


def _no_candidate(inventory: Inventory, options: PlanOptions) -> DirectoryError:
    reasons = []
    for one in inventory.dirs:
        if one.copy is None:
            reasons.append(f"{one.name} has no metadata log")
        elif one.copy.unusable is not None:
            reasons.append(f"{one.name}: {one.copy.unusable}")
        elif not options.observers and one.role == BROKER:
            reasons.append(f"{one.name} is a broker's copy, which --observers no leaves out")
    return DirectoryError(
        f"no copy of the metadata log can become the seed: {'; '.join(reasons)}",
        hint="Give more directories: a broker's copy is as good as a controller's, and a backup is worth a try.",
    )


def _append_at(seed: MetadataCopy, truncate_to: int | None) -> int:
    if truncate_to is None:
        return seed.end.offset
    at = next((batch for batch in seed.batches if batch.base_offset <= truncate_to < batch.next_offset), None)
    lowest = max([seed.log_start, *(one.offset for one in seed.snapshots)])
    if truncate_to == seed.end.offset:
        return truncate_to
    if at is None or at.base_offset != truncate_to or truncate_to < lowest or truncate_to == 0:
        near = "" if at is None else f"; a batch covers offsets {at.base_offset} to {at.next_offset - 1}"
        raise DirectoryError(
            f"the log cannot be cut at offset {truncate_to}{near}",
            where=seed.partition,
            hint=f"Choose the first offset of a batch, above the newest snapshot: between {max(lowest, 1)} and "
            f"{seed.end.offset}. `kraft dump` lists the batches.",
        )
    return truncate_to


def _voters(seed: MetadataCopy, inventory: Inventory, options: PlanOptions) -> Voters:
    """A dynamic quorum has its voters in the log; a static one has them in the configuration, and copies elsewhere."""
    if seed.quorum.voters is not None and seed.quorum.kraft_version > 0:
        voters = seed.quorum.voters.record.voters
        return Voters(
            ids=tuple(sorted(voter.voter_id for voter in voters)),
            source=f"the voter set at offset {seed.quorum.voters.offset} of the log",
            directory_ids=tuple(voter.voter_directory_id for voter in voters),
        )
    if options.voter_ids is not None:
        return Voters(ids=options.voter_ids, source="controller.quorum.voters")
    if seed.quorum.last_election is not None:
        ids = tuple(sorted(voter.voter_id for voter in seed.quorum.last_election.voters))
        return Voters(ids=ids, source=f"the election at offset {seed.quorum.last_election_offset} of the log")
    for one, copy in inventory.copies:
        if copy.quorum_state is not None and copy.quorum_state.current_voters:
            ids = tuple(sorted(copy.quorum_state.current_voters))
            return Voters(ids=ids, source=f"quorum-state of {one.name}")
    return Voters(ids=None, source="nothing that was given")


def _is_majority(inventory: Inventory, voters: Voters) -> bool | None:
    """Whether the given controllers with a sound copy are a majority of the voters. An empty disk does not count."""
    if voters.ids is None:
        return None
    there = []
    for one, copy in inventory.copies:
        is_sound = copy.unusable is None and copy.is_log_whole
        is_voter = one.meta.node_id in voters.ids and (
            not voters.directory_ids or one.meta.directory_id in voters.directory_ids
        )
        if is_sound and is_voter and one.meta.node_id not in there:
            there.append(one.meta.node_id)
    return 2 * len(there) > len(voters.ids)


def _ahead(
    disk: Disk, inventory: Inventory, best: LogDir, seed: MetadataCopy, options: PlanOptions
) -> tuple[Difference, ...]:
    if options.observers:
        return ()
    return tuple(
        compare(disk, seed, copy, (best.name, one.name))
        for one, copy in inventory.copies
        if one.role == BROKER and copy.unusable is None and copy.end > seed.end
    )


def _committed_end(seed: MetadataCopy, inventory: Inventory, voters: Voters) -> int:
    """The highest offset below which every record of the seed is proven to be committed.

    A snapshot holds committed records only. A record is committed, too, if a majority of the voters hold it and the
    last common epoch is the highest that any given file has: then no other leader can have overruled it.
    """
    proven = max((one.offset for one in seed.snapshots), default=0)
    if voters.ids is not None:
        held: dict[int, int] = {}
        for one, copy in inventory.copies:
            if one.meta.node_id in voters.ids and copy.unusable is None:
                end = seed.end.offset if copy is seed else common_end(seed, copy, ("the seed", one.name))
                held[one.meta.node_id] = max(end, held.get(one.meta.node_id, 0))
        ends = sorted([*held.values(), *[0] * (len(voters.ids) - len(held))], reverse=True)
        by_majority = ends[len(voters.ids) // 2] if ends else 0
        if by_majority > 0 and seed.epochs.epoch_at(by_majority - 1) == inventory.highest_epoch:
            proven = max(proven, by_majority)
    return proven


def _unknown_loss(inventory: Inventory, best: LogDir, seed: MetadataCopy) -> UnknownLoss | None:
    newest, where = -1, ""
    for one in inventory.dirs:
        times = [(files.max_timestamp, f"{one.name}/{files.name}") for files in one.partitions]
        if one.copy is not None and one is not best:
            times.append((one.copy.last_timestamp, one.name))
        for time, place in times:
            if time > newest:
                newest, where = time, place
    if seed.last_timestamp < 0 or newest <= seed.last_timestamp:
        return None
    return UnknownLoss(seed_ms=seed.last_timestamp, newest_ms=newest, newest_in=where)


def _absent(image: MetadataImage, inventory: Inventory, gone: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The unfenced brokers that were not given and may come back; the registered controllers that were not given."""
    given = [one.meta.node_id for one in inventory.dirs]
    brokers = tuple(
        broker_id
        for broker_id, broker in in_key_order(image.brokers.by_id)
        if not broker.fenced and broker_id not in given and broker_id not in gone
    )
    controllers = tuple(one for one, _ in in_key_order(image.controllers.by_id) if one not in given)
    return brokers, controllers


class _Found(Struct, frozen=True, kw_only=True):
    """The findings of one pass over the seed's log.

    A broker makes the directory of a partition only when the partition's record is committed. So the records below
    `acted_end` are committed.
    """

    security: tuple[SecurityChange, ...]
    has_open_transaction: bool
    acted_end: int


def _scan(disk: Disk, inventory: Inventory, seed: MetadataCopy, end: int) -> _Found:
    made = {(files.topic_id, files.number) for one in inventory.dirs for files in one.partitions}
    acted_end = 0
    newest: dict[str, SecurityChange] = {}
    is_open = False
    for batch, path in seed.read_from(disk, seed.log_start):
        if batch.is_control or batch.base_offset >= end:
            continue
        for entry in read_entries(batch, path):
            if isinstance(entry, Damage):
                continue
            match entry.record:
                case BeginTransactionRecord():
                    is_open = True
                case EndTransactionRecord() | AbortTransactionRecord():
                    is_open = False
                case PartitionRecord(topic_id=topic_id, partition_id=number) if (topic_id, number) in made:
                    made.discard((topic_id, number))
                    acted_end = entry.offset + 1
            if entry.name in SECURITY_TYPES:
                newest[entry.name] = SecurityChange(type=entry.name, offset=entry.offset, timestamp_ms=entry.timestamp)
    return _Found(
        security=tuple(newest[name] for name in SECURITY_TYPES if name in newest),
        has_open_transaction=is_open,
        acted_end=acted_end,
    )
