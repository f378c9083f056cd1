"""The steps of brokers with data, in the words of `docs/protocol/Partition.tla`: an observer of a simulated run tells
the steps of each partition from what the controllers have committed and from what each replica has after a step.

A trace ends where the run leaves the specification: with a reassignment, another `min.insync.replicas`, an offline log,
or a follower that begins anew where the leader's log begins.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.invariants.cluster_model import NO_LEADER, ClusterModel, PartitionKey, PartitionModel
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas import HostedPartition
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.world.actions import Action, RoundTrip
from kraft.sim.world.world import World
from metadata_log.records.frame import decode_record
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.serde import Message

ELR: Final = "eligible.leader.replicas.version"
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
MOST_STEPS: Final = 4_000
"""The bound on the steps of one partition; its trace ends there."""
NO_RECORDS: Final = -1
UNKNOWN: Final = -2
"""In place of the epoch of a last record."""
Epochs = tuple[tuple[int, int], ...]
"""The epochs of the records of a log, each with its first offset."""
_BACK: Final = -1
"""The field `fenced` of a record that unfences a broker."""
_OF_BROKERS: Final = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
)


class Decision(Struct, frozen=True):
    """All that the controllers have committed about a partition and its brokers, after one decision."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    fenced: tuple[int, ...]
    """The brokers among the replicas that are not in service."""
    brokers: tuple[int, ...]
    """How often each of the replicas was registered."""
    epoch: int
    version: int


class ReplicaState(Struct, frozen=True):
    """The state of a replica after a step."""

    leads: bool
    epoch: int
    version: int
    end: int
    last_epoch: int
    high_watermark: int


class PartitionStep(Struct):
    """One step of a broker, or of the controllers. Of the steps of one turn the last has the state after it."""

    what: str
    """The name of the action in the specification."""
    broker: int = NO_LEADER
    end: int = 0
    mark: int = 0
    """The watermark that a process begins with, after a crash."""
    to: int = 0
    """How many decisions a broker has replayed."""
    isr: tuple[int, ...] = ()
    lives: tuple[int, ...] = ()
    """The processes that a proposal means, in the order of its members."""
    decision: Decision | None = None
    state: ReplicaState | None = None


class Proposal(Struct, frozen=True):
    """The ISR that a leader has asked for, with the processes that it means."""

    epoch: int
    version: int
    isr: tuple[int, ...]
    lives: tuple[int, ...]

    def may_be(self, other: Proposal) -> bool:
        """Whether this is another one, as far as it says which processes it means."""
        same = (self.epoch, self.version, self.isr) == (other.epoch, other.version, other.isr)
        return same and all(life in (-1, now) for life, now in zip(self.lives, other.lives, strict=True))


class _Process(Struct):
    """The state of one partition at a broker, as far as the trace has told."""

    seen: int = 1
    life: int = 0
    """The number of the registration with which the running process counts; 0 before it."""
    log: PartitionLog | None = None
    state: ReplicaState | None = None
    epochs: Epochs = ()
    proposed: tuple[int, ...] | None = None
    said: tuple[int, int, int] | None = None
    """The last Fetch: the leader epoch, the end of the log and its last epoch."""
    end: int = 0
    flushed: int = 0
    ends: list[PartitionStep] = []
    """The ends of processes since the log was last seen: what they have left is seen when it is loaded again."""
    last_end: PartitionStep | None = None
    had_proposed: bool = False
    """Whether the process that has ended last had an open proposal, as far as the trace has told."""


class PartitionTrace(Struct):
    """The steps of one partition, from its creation on."""

    key: PartitionKey
    name: str
    replicas: tuple[int, ...]
    first: Decision
    lives: tuple[int, ...]
    min_isr: int
    controller_min_isr: int
    """The controllers limit the setting by the replicas of the topic's first partition, a leader by its own."""
    has_elr: bool
    may_be_unclean: bool
    steps: list[PartitionStep] = []
    is_over: bool = False
    why_over: str = ""
    decided_at: list[int] = []
    """The offset behind each decision in the metadata log."""
    decisions: list[Decision] = []
    processes: dict[int, _Process] = {}
    proposals: list[Proposal] = []
    """The proposals that were seen."""


class PartitionRecorder:
    """Observes a run (`Simulator.on_performed`)."""

    def __init__(self) -> None:
        self.traces: dict[PartitionKey, PartitionTrace] = {}
        self._model = ClusterModel()
        self._place = 0
        self._epochs: dict[int, list[int]] = {}
        """The epochs of the registrations of each broker."""
        self._lives: dict[int, tuple[int, bool]] = {}
        """The life of each host that was last seen, and whether it was running."""
        self._is_in_transaction = False

    def __call__(self, world: World, action: Action) -> None:
        """An action was performed."""
        self._follow_commits(world)
        ids = (action.peer, action.node) if isinstance(action, RoundTrip) else (action.node,)
        for node_id in (*ids, *(one for one in world.hosts if one not in ids)):
            host = world.hosts.get(node_id)
            if host is None or not isinstance(host.member, DataBroker):
                continue
            life = (host.life, host.is_running)
            before = self._lives.get(node_id)
            if before != life:
                self._lives[node_id] = life
                if before is not None and before[1] and (not host.is_running or before[0] != host.life):
                    self._ended(node_id)
                if host.is_running:
                    self._began(node_id, host.member)
            if host.is_running:
                self._look(host.member)

    # The controllers

    def _follow_commits(self, world: World) -> None:
        commits = world.invariants.commits
        while self._place < len(commits.batches):
            batch, values = commits.batches[self._place], commits.values[self._place]
            self._place += 1
            pending: dict[PartitionKey, tuple[Decision, bool]] = {}
            known = {key: len(trace.decisions) for key, trace in self.traces.items()}
            for offset, value in enumerate(values, batch.base_offset):
                record = decode_record(value, where=f"offset {offset}").record
                assert record is not None, offset
                self._replay(record, offset + 1, pending)
            for key in pending:
                trace = self.traces[key]
                for before, decision in pairwise(trace.decisions[known.get(key, 1) - 1 :]):
                    self._propose_unseen(trace, before, decision)

    def _replay(self, record: Message, end: int, joined: dict[PartitionKey, tuple[Decision, bool]]) -> None:
        """Replay a record. Two neighbours are one decision if one is about a broker and the other follows from it."""
        if isinstance(record, RegisterBrokerRecord):
            known = self._epochs.setdefault(record.broker_id, [])
            if not known or known[-1] != record.broker_epoch:
                known.append(record.broker_epoch)
        self._model.replay(record)
        back = record.broker_id if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == _BACK else 0
        if back and self._model.brokers[back].in_controlled_shutdown:
            for trace in self.traces.values():
                if back in trace.replicas and not trace.is_over:
                    self._end(trace, "a broker that shuts down is brought back by a late heartbeat")
        is_of_broker = isinstance(record, _OF_BROKERS)
        cleared = record.topic_name if isinstance(record, ClearElrRecord) else None
        if isinstance(record, PartitionRecord):
            self._begin((record.topic_id, record.partition_id), end)
        for key, trace in self.traces.items():
            if trace.is_over:
                continue
            if not self._model.has(key):
                self._end(trace, "the topic is deleted")
                continue
            partition = self._model.partition(key)
            why = self._outside(trace, partition)
            if cleared is not None and cleared in ("", trace.name.rpartition("-")[0]):
                why = f"{MIN_ISR} is set again"
            if why:
                self._end(trace, why)
                continue
            decision = self._decision(partition)
            if decision == trace.decisions[-1]:
                continue
            last = joined.get(key)
            if (
                last is not None
                and last[1] != is_of_broker
                and _belong(trace.replicas, last[0], trace.decisions[-1], decision)
            ):
                del joined[key]
                told = trace.steps.pop()
                trace.decisions.pop()
                trace.decided_at.pop()
                self._prepare(trace, last[0], decision)
                trace.decisions.append(decision)
                trace.decided_at.append(end)
                told.decision = decision
                trace.steps.append(told)
                continue
            joined[key] = trace.decisions[-1], is_of_broker
            self._prepare(trace, trace.decisions[-1], decision)
            trace.decisions.append(decision)
            trace.decided_at.append(end)
            self._add(trace, PartitionStep("Decide", decision=decision))

    def _prepare(self, trace: PartitionTrace, before: Decision, decision: Decision) -> None:
        """A process that is registered while the one before still counts: that one has ended."""
        for at, broker in enumerate(trace.replicas):
            process = trace.processes[broker]
            if decision.brokers[at] not in (before.brokers[at], process.life):
                if process.life:
                    self._crash(trace, broker, process)
                process.life = decision.brokers[at]
                process.seen = len(trace.decisions) + 1

    def _propose_unseen(self, trace: PartitionTrace, before: Decision, decision: Decision) -> None:
        """An ISR changes alone: if nobody has seen its proposal, then the leader has ended in the turn that sent it."""
        isr, process = decision.isr, trace.processes.get(before.leader)
        if decision != replace(before, isr=isr, elr=decision.elr, version=decision.version) or isr == before.isr:
            return
        lives = tuple(before.brokers[trace.replicas.index(one)] for one in isr)
        seen = [
            one.lives
            for one in trace.proposals
            if (one.epoch, one.version, one.isr) == (before.epoch, before.version, isr)
        ]
        if any(all(life in (-1, now) for life, now in zip(one, lives, strict=True)) for one in seen):
            return
        if process is None or process.last_end is None:
            return
        at = next(number for number, one in enumerate(trace.steps) if one is process.last_end)
        unseen = [PartitionStep("Propose", before.leader, isr=isr, lives=lives)]
        if process.had_proposed:
            unseen.insert(0, PartitionStep("Refuse", before.leader))
        trace.steps[at:at] = unseen

    def _begin(self, key: PartitionKey, end: int) -> None:
        partition = self._model.partition(key)
        decision = self._decision(partition)
        name = next(name for one, name, _ in self._model.partitions() if one == key)
        setting = self._model.setting(key, UNCLEAN)
        trace = PartitionTrace(
            key=key,
            name=name,
            replicas=partition.replicas,
            first=decision,
            lives=decision.brokers,
            min_isr=self._min_isr(key, partition),
            controller_min_isr=self._min_isr(key, self._model.partition((key[0], 0))),
            has_elr=self._model.level(ELR) > 0,
            may_be_unclean=setting == "true",
        )
        trace.decisions.append(decision)
        trace.decided_at.append(end)
        trace.processes = {
            one: _Process(life=life) for one, life in zip(partition.replicas, decision.brokers, strict=True)
        }
        self.traces[key] = trace

    def _min_isr(self, key: PartitionKey, partition: PartitionModel) -> int:
        return min(int(self._model.setting(key, MIN_ISR) or 1), len(partition.replicas))

    def _decision(self, partition: PartitionModel) -> Decision:
        brokers = self._model.brokers
        return Decision(
            leader=partition.leader,
            isr=tuple(sorted(partition.isr)),
            elr=tuple(sorted(partition.elr)),
            fenced=tuple(one for one in partition.replicas if one not in brokers or not brokers[one].is_active),
            brokers=tuple(len(self._epochs.get(one, ())) for one in partition.replicas),
            epoch=partition.leader_epoch,
            version=partition.partition_epoch,
        )

    def _outside(self, trace: PartitionTrace, partition: PartitionModel) -> str:
        if partition.replicas != trace.replicas or partition.is_reassigning:
            return "the replicas change"
        if self._min_isr(trace.key, partition) != trace.min_isr:
            return f"{MIN_ISR} changes"
        if self._min_isr(trace.key, self._model.partition((trace.key[0], 0))) != trace.controller_min_isr:
            return "the replicas of the first partition change"
        if (self._model.setting(trace.key, UNCLEAN) == "true") != trace.may_be_unclean:
            return f"{UNCLEAN} changes"
        if (self._model.level(ELR) > 0) != trace.has_elr:
            return f"{ELR} changes"
        return ""

    def _end(self, trace: PartitionTrace, why: str) -> None:
        trace.is_over, trace.why_over = True, why

    def _add(self, trace: PartitionTrace, step: PartitionStep) -> None:
        trace.steps.append(step)
        if len(trace.steps) >= MOST_STEPS:
            self._end(trace, "there are too many steps")

    # Ends and beginnings of processes

    def _ended(self, node_id: int) -> None:
        for trace in self.traces.values():
            process = trace.processes.get(node_id)
            if process is not None and not trace.is_over and process.life:
                self._crash(trace, node_id, process)

    def _crash(self, trace: PartitionTrace, broker: int, process: _Process) -> None:
        step = PartitionStep("Crash", broker, end=process.end)
        process.had_proposed = process.proposed is not None
        process.life, process.log, process.proposed, process.said = 0, None, None, None
        process.ends.append(step)
        process.last_end = step
        self._add(trace, step)

    def _began(self, node_id: int, member: DataBroker) -> None:
        agent = member.agent
        is_clean = agent is not None and agent.settings.options.previous_epoch >= 0
        for trace in self.traces.values():
            process = trace.processes.get(node_id)
            if process is not None and not trace.is_over and process.ends and is_clean:
                process.ends[-1].what = "Stop"

    # Replicas

    def _look(self, member: DataBroker) -> None:
        manager = member.manager
        if manager is None or not manager.is_loaded:
            return
        for key, part in manager.partitions.items():
            trace = self.traces.get(key)
            if trace is None or trace.is_over:
                continue
            process = trace.processes.get(member.node_id)
            if process is None:
                continue
            if part.is_offline:
                self._end(trace, "a log is offline")
                continue
            if process.log is None:
                self._load(trace, process, part)
            image_end = manager.hosting.image.end.offset
            self._compare(trace, member.node_id, process, part, image_end)

    def _load(self, trace: PartitionTrace, process: _Process, part: HostedPartition) -> None:
        """A log is seen first, or again after the ends of processes."""
        process.log = part.log
        epochs, end = epochs_of(part.log), part.log.end_offset
        if process.ends:
            at = next(number for number, one in enumerate(trace.steps) if one is process.ends[0])
            kept = common_end(process.epochs, process.end, epochs, end)
            added: list[PartitionStep] = []
            broker = process.ends[0].broker
            if end > kept:
                # It ended within a turn, whose effects on the log nobody has seen.
                if kept < process.end:
                    added.append(PartitionStep("Truncate", broker, end=kept))
                what = "Write" if process.state is not None and process.state.leads else "Take"
                added.append(PartitionStep(what, broker, end=end))
            trace.steps[at:at] = added
            mark = min(part.log.high_watermark, end)
            for step in process.ends:
                step.end, step.mark = end, mark
            process.ends, process.flushed = [], end
        process.epochs, process.end = epochs, end
        known = process.state
        if known is not None:
            last = last_epoch(epochs, end)
            process.state = ReplicaState(False, known.epoch, known.version, end, last, part.log.high_watermark)

    def _compare(
        self, trace: PartitionTrace, broker: int, process: _Process, part: HostedPartition, image_end: int
    ) -> None:
        if part.leader_epoch < 0 or not process.life:
            return
        log, leading = part.log, part.leading
        version = part.partition_epoch if leading is None else max(part.partition_epoch, leading.partition_epoch)
        epochs, end = epochs_of(log), log.end_offset
        state = ReplicaState(
            leading is not None, part.leader_epoch, version, end, last_epoch(epochs, end), log.high_watermark
        )
        seen = self._seen(trace, process, version, image_end)
        before = process.state
        steps: list[PartitionStep] = []
        seen_before = process.seen
        if seen > process.seen:
            process.seen = seen
            steps.append(PartitionStep("Replay", broker, to=seen))
        if log.start_offset > process.end and process.end:
            self._end(trace, "a log begins anew")
            return
        kept = process.end
        if process.log is not log or epochs != process.epochs or end < process.end:
            kept = common_end(process.epochs, process.end, epochs, end)
        if kept < process.end:
            steps.append(PartitionStep("Truncate", broker, end=kept))
            process.flushed = min(process.flushed, kept)
        if end > kept:
            steps.append(PartitionStep("Write" if state.leads else "Take", broker, end=end))
        if min(log.recovery_point, end) > process.flushed:
            process.flushed = min(log.recovery_point, end)
            steps.append(PartitionStep("Flush", broker, end=process.flushed))
        mark = 0 if before is None else before.high_watermark
        if log.high_watermark > min(mark, kept):
            steps.append(PartitionStep("Commit" if state.leads else "Hear", broker, end=log.high_watermark))
        proposed = None if leading is None else leading.proposed
        if leading is not None and proposed is not None and proposed != process.proposed:
            lives = tuple(self._life_of(one, broker, part, process) for one in proposed)
            steps.append(PartitionStep("Propose", broker, isr=proposed, lives=lives))
            trace.proposals.append(Proposal(leading.leader_epoch, leading.partition_epoch, proposed, lives))
        if leading is not None and proposed is None and process.proposed is not None and seen_before == process.seen:
            steps.append(PartitionStep("Refuse", broker))
        process.proposed = proposed
        process.epochs, process.end, process.log = epochs, end, log
        if not steps and state != before:
            steps.append(PartitionStep("Nothing", broker))
        process.state = state
        if steps:
            steps[-1].state = state
        said = (state.epoch, state.end, state.last_epoch)
        if not state.leads and part.leader_id not in (NO_LEADER, broker) and said != process.said:
            process.said = said
            steps.append(PartitionStep("Fetch", broker, end=end))
        for step in steps:
            self._add(trace, step)

    def _seen(self, trace: PartitionTrace, process: _Process, version: int, image_end: int) -> int:
        """How many decisions a broker acts by: of those in its metadata the last one that the replica has taken over.
        An answer of the controller may be ahead of the metadata.
        """
        count = sum(one <= image_end for one in trace.decided_at)
        while count and trace.decisions[count - 1].version > version:
            count -= 1
        if not count or trace.decisions[count - 1].version < version:
            count = next((at for at, one in enumerate(trace.decisions, 1) if one.version == version), count)
        return max(count, process.seen)

    def _life_of(self, one: int, broker: int, part: HostedPartition, process: _Process) -> int:
        """The number of the registration that a leader means with a member of a proposal; -1 for any."""
        if one == broker:
            return process.life
        assert part.leading is not None
        fetched = part.leading.remotes[one].broker_epoch
        known = self._epochs.get(one, [])
        return known.index(fetched) + 1 if fetched in known else -1


def _belong(replicas: tuple[int, ...], first: Decision, second: Decision, third: Decision) -> bool:
    """Whether three states are before, within and after one decision: a broker goes, or comes, and others follow."""
    if second in (first, third):
        return False
    gone = set(third.fenced) - set(first.fenced)
    gone |= {one for at, one in enumerate(replicas) if first.brokers[at] != third.brokers[at]}
    left = set(first.isr) - set(third.isr) | set(first.elr) - set(third.elr) - set(third.isr)
    if gone:
        return left <= gone and bool(left or third.leader != first.leader or first.elr != third.elr)
    came = set(first.fenced) - set(third.fenced)
    return first.leader == NO_LEADER and third.leader in came


def epochs_of(log: PartitionLog) -> Epochs:
    """The epochs of the records of a log. An epoch without records is none here."""
    end = log.end_offset
    return tuple((one.epoch, one.offset) for one in log.epochs.entries if one.offset < end)


def last_epoch(epochs: Epochs, end: int) -> int:
    """The epoch of the last record; `NO_RECORDS` without one, `UNKNOWN` if all of them are deleted."""
    if not end:
        return NO_RECORDS
    return epochs[-1][0] if epochs else UNKNOWN


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int) -> int:
    """Up to where two logs have the same records, as far as their epochs tell. One of them may have lost its begin."""
    if not ours or not theirs:
        return min(our_end, their_end)
    first = max(ours[0][0], theirs[0][0])
    mine = [one for one in _spans(ours, our_end) if one[0] >= first]
    other = [one for one in _spans(theirs, their_end) if one[0] >= first]
    kept = 0 if not mine else mine[0][1]
    for (epoch, _, end), (their_epoch, _, their) in zip(mine, other, strict=False):
        if epoch != their_epoch:
            break
        kept = min(end, their)
        if end != their:
            break
    return kept


def _spans(epochs: Epochs, end: int) -> list[tuple[int, int, int]]:
    ends = [first for _, first in epochs[1:]] + [end]
    return [(epoch, first, last) for (epoch, first), last in zip(epochs, ends, strict=True)]
