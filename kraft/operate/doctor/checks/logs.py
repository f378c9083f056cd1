"""Checks of the copies of the metadata log: quorum-state, gaps, snapshots, divergence, times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from kraft.operate.doctor.checks.check import Check, at, listed, minutes, pairs
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.log_facts import Batch, LogFacts
from kraft.operate.doctor.facts.node import Facts, Node
from metadata_log.log.segment import file_name
from metadata_log.reading.damage import Damage

FAR_AHEAD_EPOCHS: Final = 100
STALE_RECORDS: Final = 10_000
STALE_MS: Final = 600_000
ELECTION_MS: Final = 5_000
"""Longer than an election takes: voters that were stopped one after the other end within this time."""
GAP_MS: Final = 5_000
SKEW_MS: Final = 1_000
MANY_ELECTIONS: Final = 5
WINDOW_MS: Final = 600_000
RECENT_MS: Final = 3_600_000
_MOST_GAPS: Final = 3


def _logs(facts: Facts) -> Iterator[tuple[Node, LogFacts]]:
    for node in facts.nodes:
        if node.log is not None:
            yield node, node.log


def _state_path(log: LogFacts) -> str:
    return f"{log.path}/quorum-state"


def quorum_state_unreadable(facts: Facts) -> Iterator[Finding]:
    """A quorum-state file that no node reads."""
    for node, log in _logs(facts):
        if log.quorum_state_problem:
            yield Finding(
                id="quorum-state-unreadable",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(_state_path(log),),
                read=(_state_path(log),),
                evidence=log.quorum_state_problem,
            )


def quorum_state_missing(facts: Facts) -> Iterator[Finding]:
    """A log with records and without a vote."""
    for node, log in _logs(facts):
        if log.quorum_state is None and not log.quorum_state_problem and not log.is_empty:
            yield Finding(
                id="quorum-state-missing",
                severity=Severity.ERROR,
                nodes=(node.name,),
                subjects=(_state_path(log),),
                read=(_state_path(log), f"{log.path}: end offset {log.end_offset}"),
                evidence=f"the log ends at offset {log.end_offset} in epoch {log.last_epoch}, and quorum-state is "
                "missing",
            )


def quorum_state_behind_log(facts: Facts) -> Iterator[Finding]:
    """An epoch below that of the log."""
    for node, log in _logs(facts):
        state = log.quorum_state
        if state is not None and state.leader_epoch < log.last_epoch:
            yield Finding(
                id="quorum-state-behind-log",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(_state_path(log),),
                read=(f"{_state_path(log)}: leaderEpoch", f"{log.path}: last epoch"),
                evidence=f"quorum-state has epoch {state.leader_epoch}, and the log ends in epoch {log.last_epoch}",
            )


def quorum_state_far_ahead(facts: Facts) -> Iterator[Finding]:
    """An epoch far above that of all others; of a node alone, far above that of its own log."""
    for node, log in _logs(facts):
        if log.quorum_state is None:
            continue
        others = [
            epoch
            for other, theirs in _logs(facts)
            if other is not node
            for epoch in (theirs.last_epoch, 0 if theirs.quorum_state is None else theirs.quorum_state.leader_epoch)
        ]
        highest = max(others) if others else log.last_epoch
        if log.quorum_state.leader_epoch > highest + FAR_AHEAD_EPOCHS:
            what = "any other node" if others else "its own log"
            yield Finding(
                id="quorum-state-far-ahead",
                severity=Severity.INFO,
                nodes=(node.name,),
                subjects=(_state_path(log),),
                read=(f"{_state_path(log)}: leaderEpoch",),
                evidence=f"quorum-state has epoch {log.quorum_state.leader_epoch}; the highest of {what} is {highest}",
            )


def _place(damage: Damage) -> str:
    at_byte = "" if damage.position is None else f", byte {damage.position}"
    at_offset = "" if damage.offset is None else f", offset {damage.offset}"
    return f"{damage.where}{at_byte}{at_offset}"


def log_gap(facts: Facts) -> Iterator[Finding]:
    """Offsets that do not continue."""
    for node, log in _logs(facts):
        if log.gaps:
            more = f" (and {len(log.gaps) - _MOST_GAPS:,} more)" if len(log.gaps) > _MOST_GAPS else ""
            yield Finding(
                id="log-gap",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=tuple(dict.fromkeys(one.where for one in log.gaps)),
                read=tuple(_place(one) for one in log.gaps[:_MOST_GAPS]),
                evidence="; ".join(one.what for one in log.gaps[:_MOST_GAPS]) + more,
            )


def log_start_uncovered(facts: Facts) -> Iterator[Finding]:
    """A log that begins above 0 without a snapshot."""
    for node, log in _logs(facts):
        start = log.start_offset
        if log.segments and start > 0 and not any(one.offset >= start for one in log.snapshots):
            newest = max((one.offset for one in log.snapshots), default=None)
            known = "there is no snapshot" if newest is None else f"the newest snapshot ends at {newest}"
            yield Finding(
                id="log-start-uncovered",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(f"{log.path}/{file_name(start)}",),
                read=(f"{log.path}/{file_name(start)}",),
                evidence=f"the log begins at offset {start}, and {known}",
            )


def log_missing(facts: Facts) -> Iterator[Finding]:
    """Snapshots without a segment."""
    for node, log in _logs(facts):
        newest = max((one.offset for one in log.snapshots), default=0)
        if newest > 0 and not log.segments:
            yield Finding(
                id="log-missing",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(log.path,),
                read=(log.path,),
                evidence=f"the newest snapshot ends at offset {newest}, and there is no segment",
            )


def snapshot_damaged(facts: Facts) -> Iterator[Finding]:
    """A newest snapshot that no node loads."""
    for node, log in _logs(facts):
        if log.snapshot_damage is not None:
            yield Finding(
                id="snapshot-damaged",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(log.snapshot_damage.where,),
                read=(_place(log.snapshot_damage),),
                evidence=log.snapshot_damage.what,
            )


def log_torn_tail(facts: Facts) -> Iterator[Finding]:
    """Bytes after the last good batch."""
    for node, log in _logs(facts):
        if log.torn is not None:
            yield Finding(
                id="log-torn-tail",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(log.torn.where,),
                read=(_place(log.torn),),
                evidence=f"{log.torn.what}; the last good batch ends at offset {log.end_offset}",
            )


def unknown_record(facts: Facts) -> Iterator[Finding]:
    """Records of newer software."""
    for node, log in _logs(facts):
        for is_type in (True, False):
            some = [one for one in log.unknown if one.is_type is is_type]
            if some:
                yield Finding(
                    id="unknown-record",
                    severity=Severity.FATAL if is_type else Severity.WARN,
                    nodes=(node.name,),
                    subjects=tuple(dict.fromkeys(one.where for one in some)),
                    read=tuple(f"{one.where}, offset {one.offset}" for one in some[:_MOST_GAPS]),
                    evidence="; ".join(
                        f"{what} (offset {listed((str(one.offset) for one in some if one.what == what), _MOST_GAPS)})"
                        for what in dict.fromkeys(one.what for one in some)
                    ),
                )


# ---------------------------------------------------------------------------------------------- copies side by side


def first_difference(one: LogFacts, other: LogFacts) -> tuple[Batch, Batch] | None:
    """The first batches of two copies with one offset and epoch and different bytes, or below a common batch."""
    theirs = {batch.base_offset: batch for batch in other.batches}
    differs: tuple[Batch, Batch] | None = None
    for batch in one.batches:
        match = theirs.get(batch.base_offset)
        if match is None:
            continue
        if match.epoch == batch.epoch:
            if match.content != batch.content:
                return batch, match
            if differs is not None:
                return differs
        elif differs is None:
            differs = (batch, match)
    return None


def is_two_quorums(one: Node, other: Node) -> bool:
    """Whether two controllers belong to dynamic quorums that have no voter in common and both elected leaders."""
    mine, theirs = one.log, other.log
    if mine is None or theirs is None or mine.kraft_version != 1 or theirs.kraft_version != 1:
        return False
    if one.meta is None or other.meta is None or one.meta.cluster_id != other.meta.cluster_id:
        return False
    left, right = mine.voter_change, theirs.voter_change
    if left is None or right is None or not mine.elections or not theirs.elections:
        return False
    voters = {voter.directory_id for voter in left.voters}
    if voters & {voter.directory_id for voter in right.voters}:
        return False
    begin, end = max(mine.start_offset, theirs.start_offset), min(mine.end_offset, theirs.end_offset)
    known = {batch.base_offset: batch for batch in theirs.batches}
    return any(
        (match := known.get(batch.base_offset)) is not None and match.content != batch.content
        for batch in mine.batches
        if begin <= batch.base_offset < end
    )


def diverged_log(facts: Facts) -> Iterator[Finding]:
    """Different bytes at one offset and epoch."""
    for one, other in pairs([node for node, _ in _logs(facts)]):
        assert one.log is not None
        assert other.log is not None
        if _cluster(one) != _cluster(other) or is_two_quorums(one, other):
            continue
        difference = first_difference(one.log, other.log)
        if difference is None:
            continue
        mine, theirs = difference
        epochs = f"epoch {mine.epoch}" if mine.epoch == theirs.epoch else f"epochs {mine.epoch} and {theirs.epoch}"
        yield Finding(
            id="diverged-log",
            severity=Severity.FATAL,
            nodes=(one.name, other.name),
            subjects=(f"offset {mine.base_offset}",),
            read=(f"{one.log.path}, offset {mine.base_offset}", f"{other.log.path}, offset {theirs.base_offset}"),
            evidence=f"the batches at offset {mine.base_offset} of {epochs} differ: {mine.size_bytes} bytes with CRC "
            f"{mine.crc:08x}, and {theirs.size_bytes} bytes with CRC {theirs.crc:08x}",
        )


def _cluster(node: Node) -> str:
    return "" if node.meta is None else node.meta.cluster_id


def stale_copy(facts: Facts) -> Iterator[Finding]:
    """A voter's copy that ends long before the best one: by offsets, by time, or without the last election.

    Of a copy that missed an election, even few records are more than a pause: its voter did not take part.
    """
    best = max((log for _, log in _logs(facts)), key=lambda log: log.position, default=None)
    if best is None:
        return
    ids = facts.quorum.ids
    for node in facts.controllers:
        log = node.log
        if log is None or log.is_empty or (ids and node.id not in ids):
            continue
        behind = best.end_offset - log.end_offset
        behind_ms = best.end_ms - log.end_ms if min(best.end_ms, log.end_ms) >= 0 else 0
        if log.position < best.position and (behind > STALE_RECORDS or behind_ms > ELECTION_MS):
            is_far = behind > STALE_RECORDS or behind_ms > STALE_MS or log.last_epoch < best.last_epoch
            yield Finding(
                id="stale-copy",
                severity=Severity.WARN if is_far else Severity.INFO,
                nodes=(node.name,),
                subjects=(log.path,),
                read=(f"{log.path}: end {log.position}", f"{best.path}: end {best.position}"),
                evidence=f"the copy ends at offset {log.end_offset} in epoch {log.last_epoch}, {minutes(behind_ms)} "
                + (f"and {behind:,} records " if behind > 0 else "")
                + f"before the best one (offset {best.end_offset}, epoch {best.last_epoch})",
            )


# ------------------------------------------------------------------------------------------------------------- times


def _idle_ms(facts: Facts) -> int:
    """The longest usual pause between two records; 0 if a controller writes none while idle."""
    values = [
        node.settings.number("metadata.max.idle.interval.ms") for node in facts.controllers if node.settings is not None
    ]
    return 0 if 0 in values else max([GAP_MS, *(10 * value for value in values)])


def _once(facts: Facts) -> Iterator[tuple[Node, LogFacts]]:
    """The copies of the log without those with the same times: the best copy stands for all that agree with it."""
    if facts.best is not None and facts.best.log is not None:
        yield facts.best, facts.best.log


def noop_gap(facts: Facts) -> Iterator[Finding]:
    """A pause in the middle of the log."""
    longest = _idle_ms(facts)
    if not longest:
        return
    for node, log in _once(facts):
        gaps = [
            (before, after)
            for before, after in pairwise(log.batches)
            if after.base_timestamp - before.max_timestamp > longest and before.max_timestamp >= 0
        ]
        if not gaps:
            continue
        told = [
            f"{minutes(after.base_timestamp - before.max_timestamp)} from {at(before.max_timestamp)} (offset "
            f"{before.next_offset - 1}, epoch {before.epoch}) to {at(after.base_timestamp)} (epoch {after.epoch})"
            for before, after in gaps
        ]
        moves = any(before.epoch != after.epoch for before, after in gaps)
        yield Finding(
            id="noop-gap",
            severity=Severity.WARN if moves else Severity.INFO,
            nodes=(node.name,),
            subjects=tuple(f"offset {after.base_offset}" for _, after in gaps),
            read=tuple(f"{log.path}, offset {after.base_offset}" for _, after in gaps[:_MOST_GAPS]),
            evidence=f"no record was written for {listed(told, _MOST_GAPS)}",
        )


def clock_skew(facts: Facts) -> Iterator[Finding]:
    """Time that goes back where the epoch changes."""
    for node, log in _once(facts):
        jumps = [
            (before, after)
            for before, after in pairwise(log.batches)
            if before.epoch != after.epoch and before.max_timestamp - after.base_timestamp > SKEW_MS
        ]
        if not jumps:
            continue
        told = [
            f"epoch {after.epoch} begins at offset {after.base_offset} with {at(after.base_timestamp)}, "
            f"{minutes(before.max_timestamp - after.base_timestamp)} before the record in front of it"
            for before, after in jumps
        ]
        yield Finding(
            id="clock-skew",
            severity=Severity.WARN,
            nodes=(node.name,),
            subjects=tuple(f"offset {after.base_offset}" for _, after in jumps),
            read=tuple(f"{log.path}, offset {after.base_offset}" for _, after in jumps[:_MOST_GAPS]),
            evidence=listed(told, _MOST_GAPS),
        )


def endless_elections(facts: Facts) -> Iterator[Finding]:
    """Many leaders in a short time, or epochs that rise without a record."""
    for node, log in _once(facts):
        times = [one.timestamp_ms for one in log.elections]
        window = max(
            ((sum(start <= one <= start + WINDOW_MS for one in times), start) for start in times), default=(0, 0)
        )
        if window[0] > MANY_ELECTIONS:
            number, start = window
            inside = [one for one in log.elections if start <= one.timestamp_ms <= start + WINDOW_MS]
            is_recent = log.end_ms - inside[-1].timestamp_ms <= RECENT_MS
            yield Finding(
                id="endless-elections",
                severity=Severity.ERROR if is_recent else Severity.INFO,
                nodes=(node.name,),
                subjects=(f"epochs {inside[0].epoch} to {inside[-1].epoch}",),
                read=tuple(f"{log.path}, offset {one.offset}" for one in inside[:_MOST_GAPS]),
                evidence=f"{number} leaders were elected from {at(start)} to {at(inside[-1].timestamp_ms)}: "
                + listed(f"{one.leader_id} in epoch {one.epoch}" for one in inside),
            )
    for node, log in _logs(facts):
        state = log.quorum_state
        if state is not None and not log.is_empty and state.leader_epoch > log.last_epoch + FAR_AHEAD_EPOCHS:
            yield Finding(
                id="endless-elections",
                severity=Severity.ERROR,
                nodes=(node.name,),
                subjects=(f"epoch {state.leader_epoch}",),
                read=(f"{_state_path(log)}: leaderEpoch", f"{log.path}: last epoch"),
                evidence=f"quorum-state has epoch {state.leader_epoch}, and the last record has epoch {log.last_epoch}",
            )


CHECKS: Final = (
    Check("quorum-state-unreadable", quorum_state_unreadable, (Need.DIRECTORY,)),
    Check("quorum-state-missing", quorum_state_missing, (Need.DIRECTORY,)),
    Check("quorum-state-behind-log", quorum_state_behind_log, (Need.DIRECTORY,)),
    Check("quorum-state-far-ahead", quorum_state_far_ahead, (Need.DIRECTORY,)),
    Check("log-gap", log_gap, (Need.DIRECTORY,)),
    Check("log-start-uncovered", log_start_uncovered, (Need.DIRECTORY,)),
    Check("log-missing", log_missing, (Need.DIRECTORY,)),
    Check("snapshot-damaged", snapshot_damaged, (Need.DIRECTORY,)),
    Check("log-torn-tail", log_torn_tail, (Need.DIRECTORY,)),
    Check("unknown-record", unknown_record, (Need.DIRECTORY,)),
    Check("diverged-log", diverged_log, (Need.SEVERAL,)),
    Check("stale-copy", stale_copy, (Need.SEVERAL,)),
    Check("noop-gap", noop_gap, (Need.DIRECTORY,)),
    Check("clock-skew", clock_skew, (Need.DIRECTORY,)),
    Check("endless-elections", endless_elections, (Need.DIRECTORY,)),
)
