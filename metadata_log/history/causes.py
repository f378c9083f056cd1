"""The cause of a partition change: its event, and the election rule (Kafka: `PartitionChangeBuilder`, KIP-966).

A PartitionChangeRecord states the new values and never the cause. The cause follows from the neighbouring records: the
controller writes the records of one decision together, in a fixed order (`metadata_log.history.events` finds those of
brokers). Also, only a few decisions can cause a given change. `docs/history-causes.md` lists every code and its rule.
Where the log leaves several decisions possible, the code is the wider one, and the text states the alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from metadata_log.image.topics import NO_LEADER, NO_LEADER_CHANGE, Partition
from metadata_log.records.metadata import PartitionChangeRecord

UNKNOWN: Final = "unknown"
SNAPSHOT: Final = "snapshot"
LOST_SIGHT: Final = "unknown-history"
RECOVERING: Final = 1

CauseRow = tuple[str, str | None, int | None, int | None, str]
"""The columns `cause`, `cause_record`, `cause_offset`, `cause_broker`, `cause_text`."""


class Trigger(Struct, frozen=True):
    """The event of a broker that made the controller change partitions, as a code and the beginning of a sentence."""

    code: str
    broker: int
    text: str


class Reason(Struct, frozen=True, eq=False):
    """The cause of a partition change; `election` is the rule that chose the leader, or None without an election.

    Reasons compare by identity: many rows share one, and are put together by it.
    """

    code: str
    broker: int | None
    election: str | None
    text: str


def explain(
    old: Partition,
    new: Partition,
    record: PartitionChangeRecord,
    trigger: Trigger | None,
    *,
    unclean_allowed: bool = False,
) -> Reason:
    """The cause of the change by `record`; `unclean_allowed` is the topic's unclean.leader.election.enable."""
    election = election_rule(old, new, record, trigger is not None)
    step = reassignment_step(old, new)
    if trigger is not None:
        outcome = _election_text(election, old, new) or _isr_text(old, new)
        also = f"; the reassignment is {step} by this change" if step in ("completed", "cancelled") else ""
        return Reason(trigger.code, trigger.broker, election, f"{trigger.text}; {outcome}{also}")
    if step is not None:
        text = _election_text(election, old, new)
        return Reason(
            f"reassignment-{step}", None, election, _reassignment_text(step, old, new) + (text and f"; {text}")
        )
    if election == "same" and old.isr == new.isr:
        return Reason(UNKNOWN, new.leader, election, f"the leader epoch grew and {new.leader} stays: no rule is known")
    if election not in (None, "same"):
        return _election_without_trigger(election, old, new, unclean_allowed)
    return _leaders_request(old, new, record, election)


def election_rule(old: Partition, new: Partition, record: PartitionChangeRecord, triggered: bool) -> str | None:
    """The rule of `PartitionChangeBuilder` that explains the leader after `record`."""
    leader = record.leader
    if leader == NO_LEADER_CHANGE:
        return None
    if leader == old.leader:
        return "same"
    if leader == NO_LEADER:
        return "none"
    known = leader in old.isr or leader in old.elr
    without_isr = old.leader == NO_LEADER and not known and new.isr == (leader,)
    if (record.leader_recovery_state == RECOVERING and not known) or (
        without_isr and reassignment_step(old, new) is None
    ):
        return "last-known-leader" if not old.isr and old.last_known_elr == (leader,) else "unclean"
    if leader not in old.isr and leader in old.elr:
        return "elr"
    if not triggered and old.leader != NO_LEADER and leader == new.replicas[0] and set(old.isr) == set(new.isr):
        return "preferred"
    return "isr"


def reassignment_step(old: Partition, new: Partition) -> str | None:
    """started, changed, completed, cancelled, or None for a change outside of a reassignment (KIP-455)."""
    was = bool(old.adding_replicas or old.removing_replicas)
    now = bool(new.adding_replicas or new.removing_replicas)
    if not was:
        if now:
            return "started"
        return "completed" if new.replicas != old.replicas else None
    if now:
        same = (old.adding_replicas, old.removing_replicas, old.replicas)
        return None if same == (new.adding_replicas, new.removing_replicas, new.replicas) else "changed"
    if set(new.replicas) == set(without(old.replicas, old.removing_replicas)) and _are_in(old.adding_replicas, new.isr):
        return "completed"
    if new.replicas == without(old.replicas, old.adding_replicas):
        return "cancelled"
    # A new target that needed no step: all its members were in sync.
    return "completed"


def without(replicas: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    """The replicas that are not among `gone`, in order."""
    if not gone:
        return tuple(replicas)
    return tuple([one for one in replicas if one not in gone])


def _are_in(some: Sequence[int], isr: Sequence[int]) -> bool:
    return all(one in isr for one in some)


def listed(replicas: Sequence[int]) -> str:
    """Replica ids as text."""
    return ", ".join(map(str, replicas)) or "none"


def _election_text(election: str | None, old: Partition, new: Partition) -> str:
    leader = new.leader
    match election:
        case "isr":
            return f"{leader} leads: the first live in-sync replica in the order of the replicas"
        case "preferred":
            return f"{leader} leads: the first of the replicas, and in sync"
        case "elr":
            return f"{leader} leads: the first live eligible leader replica, as no in-sync replica is left"
        case "last-known-leader":
            return f"{leader} leads again: the last known leader, as ISR and ELR are empty; records may be lost"
        case "unclean":
            return f"{leader} leads although it was not in sync: records may be lost"
        case "none":
            return f"no replica can lead: {old.leader} was the last"
        case "same":
            return f"{leader} stays leader, in a new leader epoch"
        case _:
            return ""


def _isr_text(old: Partition, new: Partition) -> str:
    left, joined = without(old.isr, new.isr), without(new.isr, old.isr)
    if left or joined:
        parts = [f"{listed(left)} left the ISR"] if left else []
        parts += [f"{listed(joined)} joined the ISR"] if joined else []
        return " and ".join(parts)
    gone = without(old.elr, new.elr)
    if gone:
        return f"{listed(gone)} is no longer eligible to lead"
    return "its directories changed" if old.directories != new.directories else "its state changed"


def _reassignment_text(step: str, old: Partition, new: Partition) -> str:
    match step:
        case "started":
            target = without(new.replicas, new.removing_replicas)
            return f"a reassignment was requested: from {listed(old.replicas)} to {listed(target)}"
        case "changed":
            target = without(new.replicas, new.removing_replicas)
            return f"another target replaced that of the reassignment: now {listed(target)}"
        case "cancelled":
            return f"the reassignment was cancelled: the replicas are {listed(new.replicas)}"
        case _:
            return f"the reassignment is complete: from {listed(old.replicas)} to {listed(new.replicas)}"


def _election_without_trigger(election: str, old: Partition, new: Partition, unclean_allowed: bool) -> Reason:
    text = _election_text(election, old, new)
    if election == "preferred":
        how = "a preferred election, asked for or by the periodic balancing of leaders"
        return Reason("preferred-election", None, election, f"{how}; {text}")
    if election == "unclean":
        how = (
            "an unclean election: requested, or by the periodic task as unclean.leader.election.enable is true"
            if unclean_allowed
            else "an unclean election was requested"
        )
        return Reason("unclean-election", None, election, f"{how}; {text}")
    if election == "last-known-leader":
        return Reason("unclean-election", None, election, f"an election was requested; {text}")
    if old.leader == NO_LEADER:
        return Reason("clean-election", None, election, f"an election was requested while there was no leader; {text}")
    return Reason(UNKNOWN, None, election, f"{text}; the log does not show the event that caused this")


def _leaders_request(old: Partition, new: Partition, record: PartitionChangeRecord, election: str | None) -> Reason:
    """The cause of a change that only a leader (AlterPartition) or a broker with several directories requests."""
    leader = new.leader
    changed = _isr_text(old, new)
    if old.leader_recovery_state == RECOVERING and new.leader_recovery_state != RECOVERING:
        also = f"; {changed}" if old.isr != new.isr else ""
        return Reason("leader-recovered", leader, election, f"the leader {leader} has recovered{also}")
    left, joined = without(old.isr, new.isr), without(new.isr, old.isr)
    if left and joined:
        return Reason("isr-change", leader, election, f"the leader {leader} reported: {changed}")
    if left:
        why = "did not keep up, or left"
        return Reason("isr-shrink", leader, election, f"the leader {leader} reported: {changed}, as it {why}")
    if joined:
        return Reason("isr-expand", leader, election, f"the leader {leader} reported: {changed}, having caught up")
    if record.directories is not None and old.directories != new.directories:
        moved = [
            broker
            for broker, before, after in zip(new.replicas, old.directories, new.directories, strict=False)
            if before != after
        ]
        broker = moved[0] if len(moved) == 1 else None
        return Reason(
            "directory-assigned", broker, election, f"broker {listed(moved)} reported the log directory it uses"
        )
    if old.elr != new.elr or old.last_known_elr != new.last_known_elr:
        return Reason("elr-change", None, election, "the eligible leader replicas changed as the partition was visited")
    if set(old.isr) == set(new.isr) and old.isr != new.isr:
        return Reason("isr-change", leader, election, f"the leader {leader} reported the same ISR in another order")
    return Reason(UNKNOWN, None, election, "the record changes nothing that a rule explains")
