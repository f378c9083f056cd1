"""Checks whether a correct quorum could have left these directories: the invariants of consensus over files (Kafka:
those of `RaftEventSimulationTest`; KIP-595, KIP-630, KIP-853), and the invariants of the metadata.

Files contain less than a running node reports: they hold no high watermark. However, a snapshot proves that everything
below its offset was committed, and a LeaderChange record names the elected leader and its voters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise

from msgspec import Struct
from msgspec.structs import replace

from kraft.history_checker.node_files import BatchId, NodeFiles, read_node
from kraft.invariants.partitions import PartitionLedger
from kraft.invariants.violation import InvariantViolated
from kraft.quorum.voters import majority
from metadata_log.disk import Disk, OsDisk
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.configs import ConfigsImage, ResourceType
from metadata_log.image.persistent_map import in_key_order, without_key
from metadata_log.log.snapshot import read_snapshot
from metadata_log.reading.damage import Damage
from metadata_log.records.batch import RecordBatch
from metadata_log.records.frame import decode_record
from metadata_log.records.record import records
from metadata_log.types import BOOTSTRAP_SNAPSHOT, NO_NODE, OffsetAndEpoch, Uuid


class Finding(Struct, frozen=True, kw_only=True):
    """A violated invariant: the rule, the node or file that shows it, and the contradiction."""

    rule: str
    where: str
    what: str
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.what} ({self.where})"


class History(Struct, frozen=True, kw_only=True):
    """The result of a check.

    `leaders` are the leader ids by epoch. A snapshot proves that everything below offset `proven_end` was committed.
    `compared` is the number of batches found in more than one log, `changes` the number of partition changes.
    `unfinished` are the ends of logs that a crash or a running node has left in the midst of a batch: they are no
    damage, and were not checked.
    """

    directories: tuple[str, ...]
    findings: tuple[Finding, ...]
    leaders: dict[int, int]
    proven_end: int
    compared: int
    changes: int
    unfinished: tuple[Damage, ...] = ()

    @property
    def is_legal(self) -> bool:
        """Whether no invariant is violated."""
        return not self.findings


def check_history(
    *directories: str, disk: Disk | None = None, advance: Callable[[int], None] = lambda batches: None
) -> History:
    """Check the log directories of all or some nodes of a quorum. The nodes may be running.

    Args:
        directories: Paths of log directories, as in log.dirs.
        disk: The file system to read from; by default that of the operating system.
        advance: Called with the number of further batches read or replayed.

    Returns:
        The findings, and what the check has covered.

    Raises:
        MetadataLogError: A directory has no metadata log, or a small file cannot be read.
    """
    disk = OsDisk() if disk is None else disk
    nodes = [read_node(disk, path, advance) for path in directories]
    check = _Check(nodes)
    for rule in RULES:
        rule(check)
    changes = _check_metadata(check, disk, advance) if nodes else 0
    return History(
        directories=directories,
        findings=tuple(check.findings),
        leaders=dict(sorted(check.leaders.items())),
        proven_end=check.proven.offset,
        compared=check.compared,
        changes=changes,
        unfinished=tuple(damage for node in nodes for damage in node.unfinished),
    )


class _Check:
    """The nodes, and what was found so far."""

    def __init__(self, nodes: Sequence[NodeFiles]) -> None:
        self.nodes = nodes
        self.findings: list[Finding] = []
        self.leaders: dict[int, int] = {}
        self.compared = 0
        proven = [snapshot for node in nodes for snapshot in node.snapshots]
        self.proven = max(proven, key=lambda one: one.offset, default=OffsetAndEpoch(epoch=0, offset=0))

    def found(self, rule: str, node: NodeFiles | str, what: str, offset: int | None = None) -> None:
        where = node if isinstance(node, str) else node.name
        self.findings.append(Finding(rule=rule, where=where, what=what, offset=offset))


# Each node by itself


def _one_cluster(check: _Check) -> None:
    """All directories belong to one cluster and to different replicas."""
    clusters = {node.meta.cluster_id: node for node in check.nodes if node.meta is not None}
    for (one, _), (other, node) in pairwise(sorted(clusters.items(), key=lambda item: str(item[0]))):
        check.found("OneCluster", node, f"cluster {other}, beside cluster {one}")
    owners: dict[tuple[int, Uuid | None], NodeFiles] = {}
    for node in check.nodes:
        if node.meta is None:
            continue
        key = (node.meta.node_id, node.meta.directory_id)
        if key in owners:
            check.found("OneCluster", node, f"the same replica as {owners[key].path}")
        owners[key] = node


def _sound(check: _Check) -> None:
    """CRCs are right, offsets are contiguous, epochs never decrease, and snapshots have a header and a footer."""
    for node in check.nodes:
        for damage in node.damages:
            check.found("Sound", damage.where, f"{damage.what}; expected {damage.expected}", damage.offset)


def _start_is_covered(check: _Check) -> None:
    """A log that does not begin at offset 0 has a snapshot at or after its start (SnapshotAtLogStart). Retention
    deletes whole segments, so the first segment may begin below the oldest snapshot.
    """
    for node in check.nodes:
        start, end = node.start_offset, node.end_offset
        if start > 0 and not any(start <= snapshot.offset for snapshot in node.snapshots):
            check.found(
                "SnapshotAtLogStart", node, f"the log begins at {start}, and no snapshot covers what was before"
            )
        for snapshot in node.snapshots:
            if start < snapshot.offset <= end and node.epoch_at(snapshot.offset - 1) != snapshot.epoch:
                check.found(
                    "SnapshotAtLogStart",
                    node,
                    f"snapshot {snapshot.offset}-{snapshot.epoch} ends in epoch {node.epoch_at(snapshot.offset - 1)} of"
                    " its own node's log",
                    snapshot.offset,
                )


def _epochs_agree(check: _Check) -> None:
    """leader-epoch-checkpoint agrees with the epochs in the log, and quorum-state is not behind the log."""
    for node in check.nodes:
        begins = [
            (one.epoch, one.base_offset)
            for before, one in pairwise([None, *node.batches])
            if one is not None and (before is None or before.epoch != one.epoch)
        ]
        stored = {entry.epoch: entry.offset for entry in node.epochs.entries} if node.epochs is not None else {}
        for epoch, offset in begins[1:]:
            # The offset of the first entry is the log start offset of the last truncation from the start.
            if stored.get(epoch, offset) != offset and epoch != min(stored):
                what = f"leader-epoch-checkpoint lets epoch {epoch} begin at {stored[epoch]}, the log at {offset}"
                check.found("EpochsAgree", node, what, offset)
        if node.election is not None and begins and node.election.leader_epoch < begins[-1][0]:
            check.found(
                "MonotonicEpoch",
                node,
                f"quorum-state is in epoch {node.election.leader_epoch}, and the log has records of {begins[-1][0]}",
            )


def _leaders_begin_their_epochs(check: _Check) -> None:
    """The first batch of an epoch is a LeaderChange record, which names a majority of its voters as granting voters."""
    for node in check.nodes:
        changes = {one.offset: one for one in node.elections}
        for before, batch in pairwise(node.batches):
            if before.epoch != batch.epoch and batch.base_offset not in changes:
                what = f"epoch {batch.epoch} begins at {batch.base_offset} without a LeaderChange record"
                check.found("LeaderChangeFirst", node, what, batch.base_offset)
        for one in node.elections:
            voters = {voter.voter_id for voter in one.change.voters}
            granted = {voter.voter_id for voter in one.change.granting_voters}
            if not granted <= voters or len(granted) < majority(len(voters)):
                what = (
                    f"leader {one.change.leader_id} of epoch {one.epoch} was elected by {sorted(granted)}"
                    f" of the voters {sorted(voters)}"
                )
                check.found("ElectedByMajority", node, what, one.offset)


def _voters_change_one_by_one(check: _Check) -> None:
    """Successive voter sets differ by at most one added or removed voter (KIP-853)."""
    for node in check.nodes:
        ordered = sorted(node.voters, key=lambda one: one.offset)
        for before, behind in pairwise(ordered):
            old = {(voter.voter_id, voter.voter_directory_id) for voter in before.record.voters}
            new = {(voter.voter_id, voter.voter_directory_id) for voter in behind.record.voters}
            is_named = all(directory != Uuid.ZERO for _, directory in old)
            if is_named and len(old ^ new) > 1:
                what = f"the voters change from {_ids(old)} to {_ids(new)} at once, at {behind.offset}"
                check.found("OneVoterAtATime", node, what, behind.offset)


# Comparison of the nodes


def _one_leader_per_epoch(check: _Check) -> None:
    """All LeaderChange records and quorum-state files name the same leader of an epoch (SingleLeader)."""
    for node in check.nodes:
        known = [(one.epoch, one.change.leader_id) for one in node.elections]
        if node.election is not None and node.election.leader_id != NO_NODE:
            known.append((node.election.leader_epoch, node.election.leader_id))
        for epoch, leader_id in known:
            leader = check.leaders.setdefault(epoch, leader_id)
            if leader != leader_id:
                check.found("SingleLeader", node, f"epoch {epoch} has two leaders, {leader} and {leader_id}")


def _a_leader_writes_an_offset_once(check: _Check) -> None:
    """Epoch and offset name the same batch in every log, for ever."""
    written: dict[tuple[int, int], tuple[BatchId, NodeFiles]] = {}
    for node in check.nodes:
        for batch in node.batches:
            first, owner = written.setdefault((batch.epoch, batch.base_offset), (batch, node))
            check.compared += owner is not node
            if first != batch:
                what = f"another batch at offset {batch.base_offset} of epoch {batch.epoch} than {owner.name} has"
                check.found("NoLogDivergence", node, what, batch.base_offset)


def _logs_match(check: _Check) -> None:
    """Two logs that agree on one batch agree on all before it."""
    for one, other in combinations(check.nodes, 2):
        theirs = {batch.base_offset: batch for batch in other.batches}
        start, end = max(one.start_offset, other.start_offset), min(one.end_offset, other.end_offset)
        differs: BatchId | None = None
        for batch in one.batches:
            if not start <= batch.base_offset < end:
                continue
            if theirs.get(batch.base_offset) != batch:
                differs = differs or batch
            elif differs is not None:
                what = (
                    f"the log is that of {other.name} at offset {batch.base_offset}, but not at {differs.base_offset}"
                )
                check.found("NoLogDivergence", one, what, differs.base_offset)
                break


def _committed_is_on_a_majority(check: _Check) -> None:
    """If the directories of all voters are present, a majority has what a snapshot proves to be committed, in logs or
    snapshots.
    """
    voters = _last_voters(check.nodes)
    present = {node.meta.node_id: node for node in check.nodes if node.meta is not None}
    if not voters or not voters <= present.keys():
        return
    proven = check.proven
    holders = [voter for voter in sorted(voters) if _holds(present[voter], proven)]
    if len(holders) < majority(len(voters)):
        what = (
            f"snapshot {proven.offset}-{proven.epoch} proves that all before it was committed, and of the voters"
            f" {sorted(voters)} only {holders} have it"
        )
        check.found("MajorityReachedHighWatermark", "all", what, proven.offset)


def _holds(node: NodeFiles, proven: OffsetAndEpoch) -> bool:
    in_log = proven.offset <= node.start_offset or node.epoch_at(proven.offset - 1) == proven.epoch
    return in_log or any(snapshot.offset >= proven.offset for snapshot in node.snapshots)


def _last_voters(nodes: Iterable[NodeFiles]) -> set[int]:
    """The voters in the latest LeaderChange or Voters record."""
    newest: tuple[int, set[int]] = (-1, set())
    for node in nodes:
        for change in node.elections:
            if change.offset > newest[0]:
                newest = (change.offset, {voter.voter_id for voter in change.change.voters})
        for voters in node.voters:
            if voters.offset > newest[0]:
                newest = (voters.offset, {voter.voter_id for voter in voters.record.voters})
    return newest[1]


def _ids(voters: set[tuple[int, Uuid]]) -> list[int]:
    return sorted(voter_id for voter_id, _ in voters)


RULES: tuple[Callable[[_Check], None], ...] = (
    _one_cluster,
    _sound,
    _start_is_covered,
    _epochs_agree,
    _leaders_begin_their_epochs,
    _voters_change_one_by_one,
    _one_leader_per_epoch,
    _a_leader_writes_an_offset_once,
    _logs_match,
    _committed_is_on_a_majority,
)


# The metadata


def _check_metadata(check: _Check, disk: Disk, advance: Callable[[int], None]) -> int:
    """Replay the longest log: every partition change must be legal, and every snapshot must equal the replayed log.

    Returns the number of partition changes checked.
    """
    node = min(check.nodes, key=lambda one: (one.start_offset, -one.end_offset))
    ledger = PartitionLedger(knows_requests=False)
    try:
        base = min((one for one in node.snapshots if one.offset >= node.start_offset), default=None, key=_offset)
        if base is not None and node.start_offset > 0:
            ledger.begin(_image_of(disk, node.snapshots[base], base))
        _replay(node, disk, ledger, advance)
        ledger.concluded()
        replayed_end = node.end_offset
    except InvariantViolated as broken:
        check.found("Metadata", node, str(broken))
        replayed_end = ledger.image.end.offset
    except MetadataLogError as bad:
        replayed_end = ledger.image.end.offset
        where = bad.where or f"from offset {replayed_end} on"
        what = f"{bad.what}; no change from here on is checked"
        is_path = "/" in where
        check.found("Metadata", where if is_path else f"{node.name}, {where}", what, replayed_end)
    _compare_snapshots(check, disk, ledger, replayed_end)
    return ledger.changes


def _replay(node: NodeFiles, disk: Disk, ledger: PartitionLedger, advance: Callable[[int], None]) -> None:
    begin = ledger.image.end.offset
    for batch in node.log(disk):
        advance(1)
        if batch.is_control or batch.base_offset < begin:
            continue
        values = tuple(record.value or b"" for record in records(batch))
        ledger.committed(values, batch.base_offset, OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset))


def _compare_snapshots(check: _Check, disk: Disk, ledger: PartitionLedger, end_offset: int) -> None:
    """Snapshots at one offset are equal, and equal the replayed log at that offset (ConsistentCommittedData)."""
    replayed = list(ledger.images)
    known: dict[int, MetadataImage] = {}
    for node in check.nodes:
        for snapshot, path in node.snapshots.items():
            if snapshot == BOOTSTRAP_SNAPSHOT:
                continue
            try:
                image = _image_of(disk, path, snapshot)
            except MetadataLogError as bad:
                check.found("Metadata", bad.where or path, bad.what)
                continue
            if snapshot.offset not in known and replayed[0] <= snapshot.offset <= end_offset:
                place = bisect_right(replayed, snapshot.offset) - 1
                known[snapshot.offset] = ledger.images[replayed[place]].stable
            image = _without_orphans(image)
            expected = known.setdefault(snapshot.offset, image)
            same = replace(image, end=expected.end, features_offset=expected.features_offset)
            families = [name for name in same.__struct_fields__ if getattr(same, name) != getattr(expected, name)]
            if families:
                what = f"the snapshot is not what the log came to at {snapshot.offset}: {', '.join(families)} differ"
                check.found("ConsistentCommittedData", path, what, snapshot.offset)


def _image_of(disk: Disk, path: str, snapshot: OffsetAndEpoch) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for batch in read_snapshot(disk, path):
        for offset, value in _values(batch):
            record = decode_record(value, where=path).record
            if record is not None:
                delta.replay(record, offset)
    return delta.apply(snapshot)


def _without_orphans(image: MetadataImage) -> MetadataImage:
    """Kafka 4.3.1 keeps the configuration of a topic that was created and deleted before the first published image."""
    by_resource = image.configs.by_resource
    for (kind, name), _ in in_key_order(by_resource):
        if kind == ResourceType.TOPIC and name not in image.topics:
            by_resource = without_key(by_resource, (kind, name))
    return replace(image, configs=ConfigsImage(by_resource))


def _values(batch: RecordBatch) -> Iterator[tuple[int, bytes]]:
    if not batch.is_control:
        for record in records(batch):
            yield record.offset, record.value or b""


def _offset(snapshot: OffsetAndEpoch) -> int:
    return snapshot.offset
