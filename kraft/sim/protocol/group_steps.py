"""The steps of consumer groups in the words of `docs/protocol/Group.tla`, from what is committed in
`__consumer_offsets` and from what members have asked.

A trace ends where the run leaves the specification: with a member of the classic protocol, a static member that leaves
for a while or comes back as another one, or a group that is forgotten.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.groups import AWAY, committer
from kraft.invariants.stored_batches import StoredBatch
from kraft.sim.workloads.coordinator_watch import OFFSETS, CoordinatorWatch
from kraft.sim.world.actions import Action
from kraft.sim.world.world import World
from metadata_log.records.batch import scan
from metadata_log.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import CONSUMER_OFFSETS, decode_pair
from metadata_log.records.record import records
from metadata_log.serde import Message
from transport.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MOST_ASKS: Final = 30
"""How many of the last different heartbeats of a member are known."""
MOST_STEPS: Final = 4_000
"""The bound on the steps of one group; its trace ends there."""


class Holding(Struct, frozen=True):
    """The partitions of a member, as the coordinator has committed them."""

    epoch: int
    previous: int
    assigned: frozenset[int] = frozenset()
    revoking: frozenset[int] = frozenset()


class Heartbeat(Struct, frozen=True):
    """A heartbeat that was sent: the member epoch, and what the member owns."""

    epoch: int
    owned: frozenset[int]


class GroupStep(Struct, frozen=True):
    """One step of the coordinator of a group."""

    what: str
    """`Change` (of the members, or of what they want), `Assign`, `Reconcile` or `Commit`."""
    epoch: int
    member: str = ""
    joined: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    targets: dict[str, frozenset[int]] = {}
    holding: Holding | None = None
    heartbeats: tuple[Heartbeat, ...] = ()
    """The heartbeats by which the coordinator may have judged."""
    partition: int = 0


class GroupTrace(Struct):
    """The steps of one group, from its first member on."""

    group: str
    steps: list[GroupStep] = []
    why_over: str = ""
    """Why the trace ends before the run does; empty if it does not."""
    members: dict[str, Holding] = {}
    instances: dict[str, str] = {}
    """The member of each static instance."""
    targets: dict[str, frozenset[int]] = {}
    target_epoch: int = 0
    joined: list[str] = []
    gone: list[str] = []
    """The members that have come and gone since the last group epoch."""


class GroupRecorder:
    """Observes a run (`Simulator.on_performed`)."""

    def __init__(self) -> None:
        self.traces: dict[str, GroupTrace] = {}
        self._heartbeats: dict[str, list[Heartbeat]] = {}
        self._is_listening = False

    def __call__(self, world: World, action: Action) -> None:
        """An action was performed: from the first one on the recorder is told of commits and requests."""
        if not self._is_listening:
            watch = world.watch
            assert isinstance(watch, CoordinatorWatch), watch
            watch.on_committed.append(self._committed)
            watch.on_asked.append(self._asked)
            self._is_listening = True

    def _asked(self, request: Message) -> None:
        if not isinstance(request, ConsumerGroupHeartbeatRequest) or request.topic_partitions is None:
            return
        owned = frozenset(number for one in request.topic_partitions for number in one.partitions)
        known = self._heartbeats.setdefault(request.member_id, [])
        asked = Heartbeat(request.member_epoch, owned)
        if asked not in known:
            known.append(asked)
            del known[:-MOST_ASKS]

    def _committed(self, topic: str, key: PartitionKey, batch: StoredBatch) -> None:
        if topic != OFFSETS or batch.is_control or batch.is_transactional:
            return
        touched: dict[str, GroupTrace] = {}
        for raw in scan(batch.content, verify=False):
            for record in records(raw):
                pair = decode_pair(CONSUMER_OFFSETS, record.key or b"", record.value)
                if pair is not None:
                    self._replay(pair.key, pair.value, touched)
        for trace in touched.values():
            if trace.joined or trace.gone:
                # Nobody comes or goes without a new epoch.
                _change(trace, trace.steps[-1].epoch if trace.steps else 0)

    def _replay(self, key: Message, value: Message | None, touched: dict[str, GroupTrace]) -> None:
        group = str(getattr(key, "group_id", "") or getattr(key, "group", ""))
        trace = self.traces.get(group)
        if trace is None:
            if not isinstance(key, ConsumerGroupMemberMetadataKey):
                return
            trace = self.traces[group] = GroupTrace(group)
        if trace.why_over:
            return
        touched[group] = trace
        match key, value:
            case ConsumerGroupMemberMetadataKey(member_id=member), ConsumerGroupMemberMetadataValue():
                _member(trace, member, value)
            case ConsumerGroupMemberMetadataKey(member_id=member), None:
                if member in trace.members:
                    trace.gone.append(member)
                    trace.targets.pop(member, None)
                    del trace.members[member]
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue(epoch=epoch):
                _change(trace, epoch)
            case ConsumerGroupMetadataKey(), None:
                trace.why_over = "the group is forgotten"
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member), ConsumerGroupTargetAssignmentMemberValue():
                trace.targets[member] = frozenset(n for one in value.topic_partitions for n in one.partitions)
            case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
                if trace.joined or trace.gone:
                    # A new group has an epoch before it is written: a regular expression raises it when it is resolved.
                    _change(trace, value.assignment_epoch)
                trace.target_epoch = value.assignment_epoch
                _add(trace, GroupStep("Assign", value.assignment_epoch, targets=dict(trace.targets)))
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member), ConsumerGroupCurrentMemberAssignmentValue():
                self._reconciled(trace, member, value)
            case OffsetCommitKey(partition=number), OffsetCommitValue():
                who = committer(value.metadata)
                if who is not None:
                    _add(trace, GroupStep("Commit", who[1], member=who[0], partition=number))

    def _reconciled(self, trace: GroupTrace, member: str, value: ConsumerGroupCurrentMemberAssignmentValue) -> None:
        if value.member_epoch == AWAY:
            trace.why_over = "a static member leaves for a while"
            return
        before = trace.members.get(member, Holding(0, 0))
        holding = Holding(
            value.member_epoch,
            value.previous_member_epoch,
            frozenset(n for one in value.assigned_partitions for n in one.partitions),
            frozenset(n for one in value.partitions_pending_revocation for n in one.partitions),
        )
        known = self._heartbeats.get(member, ())
        # A member that has missed the answers joins again and again, and owns nothing.
        joins = not (before.assigned or before.revoking) or not any(one.epoch for one in known)
        sent = [one for one in known if one.epoch in (before.epoch, before.previous) or (joins and not one.epoch)]
        trace.members[member] = holding
        _add(
            trace,
            GroupStep("Reconcile", holding.epoch, member=member, holding=holding, heartbeats=tuple(sent)),
        )


def _member(trace: GroupTrace, member: str, value: ConsumerGroupMemberMetadataValue) -> None:
    if value.classic_member_metadata is not None:
        trace.why_over = "there is a member of the classic protocol"
        return
    instance = value.instance_id
    if instance is not None:
        known = trace.instances.setdefault(instance, member)
        if known != member and (known in trace.members or known in trace.gone):
            trace.why_over = "a static member is another one"
            return
        trace.instances[instance] = member
    if member not in trace.members:
        trace.joined.append(member)
        trace.members[member] = Holding(trace.target_epoch, trace.target_epoch)


def _change(trace: GroupTrace, epoch: int) -> None:
    _add(trace, GroupStep("Change", epoch, joined=tuple(trace.joined), gone=tuple(trace.gone)))
    trace.joined, trace.gone = [], []


def _add(trace: GroupTrace, step: GroupStep) -> None:
    trace.steps.append(step)
    if len(trace.steps) >= MOST_STEPS:
        trace.why_over = "there are too many steps"
