"""The preflight of an unclean election: which partitions would lose which records (KIP-966).

Metadata says which replicas have every committed record, and which replica would lead. Only the log directories of
brokers say where the logs of the replicas end. Pure: facts in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from kraft.config.data_settings import TopicDefaults
from kraft.controller.decision.topic_configs import UNCLEAN_ELECTION, unclean_election
from kraft.controller.topics.leader_selection import Candidates, Elected, Election, elect
from kraft.controller.topics.partition_updates import acceptance
from kraft.operate.doctor.checks.brokers import ELR
from kraft.operate.doctor.checks.check import listed
from kraft.operate.doctor.checks.partitions import Placed, named, partitions
from kraft.operate.doctor.facts.finding import Finding, Severity
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import Facts, ReplicaEnd
from metadata_log.image.topics import NO_LEADER

OPERATION: Final = "unclean-election"
_ID: Final = f"before-{OPERATION}"


class ElectionOutcome(Enum):
    """The result of an unclean election for a partition without a leader."""

    LOSES = "loses"
    """The next leader may lack, or lacks, committed records."""
    EQUAL = "equal"
    """The log of the next leader reaches as far as that of a replica with all committed records."""
    CLEAN = "clean"
    """The next leader has all committed records."""
    NONE = "none"
    """No replica is alive."""


_SEVERITIES: Final = {
    ElectionOutcome.LOSES: Severity.FATAL,
    ElectionOutcome.NONE: Severity.ERROR,
    ElectionOutcome.EQUAL: Severity.WARN,
    ElectionOutcome.CLEAN: Severity.INFO,
}
_WHAT: Final = {
    ElectionOutcome.LOSES: "would lose committed records",
    ElectionOutcome.NONE: "would have no leader, as no replica is alive",
    ElectionOutcome.EQUAL: "would lose no record of the given logs",
    ElectionOutcome.CLEAN: "would lose no record, as a replica with all committed records is alive",
}


_MEANS: Final = {
    ElectionOutcome.LOSES: "",
    ElectionOutcome.NONE: "The partitions stay without a leader until a replica is alive. A replica that is not"
    " complete would then lose records.",
    ElectionOutcome.EQUAL: "The partitions are available again.",
    ElectionOutcome.CLEAN: "The partitions are available again.",
}


class Forecast(Struct, frozen=True, kw_only=True):
    """The forecast for one partition.

    Args:
        placed: The partition.
        outcome: What the election does.
        leader: The broker that would lead; `NO_LEADER` for none.
        complete: The brokers with all committed records, as far as the metadata says.
        lost: The first lost offset and the end of the lost range; None if the logs were not given.
        against: The broker with the log that `lost` was compared with.
    """

    placed: Placed
    outcome: ElectionOutcome
    leader: int
    complete: tuple[int, ...]
    lost: tuple[int, int] | None = None
    against: int | None = None


def forecasts(facts: Facts) -> Iterator[Forecast]:
    """The forecast for each partition without a leader."""
    if facts.image is None:
        return
    image = facts.image.image
    is_acceptable = acceptance(image)
    for placed in partitions(facts.image):
        partition = placed[2]
        if partition.leader != NO_LEADER:
            continue
        candidates = Candidates(partition, partition.replicas, partition.isr, partition.elr, is_acceptable)
        elected = elect(candidates, Election.UNCLEAN, elr_enabled=image.features.level(ELR) > 0)
        yield _forecast(facts, placed, elected)


def _forecast(facts: Facts, placed: Placed, elected: Elected) -> Forecast:
    partition, leader = placed[2], elected.leader
    complete = partition.isr or partition.elr or partition.last_known_elr
    if leader == NO_LEADER:
        return Forecast(placed=placed, outcome=ElectionOutcome.NONE, leader=leader, complete=complete)
    if not elected.is_unclean:
        return Forecast(placed=placed, outcome=ElectionOutcome.CLEAN, leader=leader, complete=complete)
    ends = {one.broker: one for one in facts.replica_ends.get(named(placed), ())}
    others = [ends[broker] for broker in complete if broker in ends and broker != leader]
    if leader not in ends or not others:
        return Forecast(placed=placed, outcome=ElectionOutcome.LOSES, leader=leader, complete=complete)
    best = max(others, key=lambda one: (one.epochs.last_epoch or 0, one.log_end))
    lost = (common_end(ends[leader], best), best.log_end)
    outcome = ElectionOutcome.LOSES if lost[0] < lost[1] else ElectionOutcome.EQUAL
    return Forecast(placed=placed, outcome=outcome, leader=leader, complete=complete, lost=lost, against=best.broker)


def common_end(leader: ReplicaEnd, follower: ReplicaEnd) -> int:
    """The offset to which a follower truncates its log under a new leader (Kafka: `OffsetsForLeaderEpoch`, KIP-101)."""
    epoch = follower.epochs.last_epoch
    while epoch is not None:
        asked = leader.epochs.end_offset_for(epoch, leader.log_end)
        own = follower.epochs.end_offset_for(asked.epoch, follower.log_end)
        if own.epoch == asked.epoch:
            return min(asked.offset, own.offset)
        epoch = own.epoch
    return min(leader.log_end, follower.log_end)


def unclean_election_reasons(facts: Facts) -> list[Finding]:
    """The reasons against an unclean election of all partitions without a leader."""
    if facts.image is None:
        return [Finding(id=_ID, severity=Severity.ERROR, evidence="no metadata could be read")]
    predictions = list(forecasts(facts))
    findings = []
    for outcome, severity in _SEVERITIES.items():
        some = [one for one in predictions if one.outcome is outcome]
        if some:
            findings.append(_finding(facts, facts.image, outcome, severity, some))
    if not predictions:
        what = "no partition is without a leader: an unclean election changes nothing"
        findings.append(Finding(id=_ID, severity=Severity.INFO, read=(facts.image.where,), evidence=what))
    return findings


def _finding(
    facts: Facts, image: ImageFacts, outcome: ElectionOutcome, severity: Severity, found: Sequence[Forecast]
) -> Finding:
    number = f"{len(found):,} {'partition' if len(found) == 1 else 'partitions'}"
    evidence = f"{number} {_WHAT[outcome]}: {listed(_told(facts, image, one) for one in found)}"
    if outcome is ElectionOutcome.LOSES and (unread := _unread(found)):
        evidence += f". The lost offsets are not known without the log directories of brokers {listed(unread)}"
    return Finding(
        id=_ID,
        severity=severity,
        subjects=tuple(named(one.placed) for one in found),
        read=(image.where,),
        evidence=evidence,
        consequence=_MEANS[outcome],
        remedy=_remedy(outcome, found),
    )


def _unread(found: Sequence[Forecast]) -> list[int]:
    """The brokers with the logs that would tell the lost offsets."""
    return sorted({broker for one in found if one.lost is None for broker in (one.leader, *one.complete)})


def _told(facts: Facts, image: ImageFacts, one: Forecast) -> str:
    partition = one.placed[2]
    parts = [f"isr {_ids(partition.isr)}", f"elr {_ids(partition.elr)}"]
    if partition.last_known_elr:
        parts.append(f"last known leader {listed(partition.last_known_elr)}")
    parts.append(f"leader epoch {partition.leader_epoch}")
    if one.leader != NO_LEADER:
        parts.append(f"broker {one.leader} would lead")
    if one.lost is not None:
        first, end = one.lost
        what = f"offsets {first} to {end - 1} of broker {one.against} would be lost"
        parts.append(what if first < end else f"all {end} offsets of broker {one.against} are there")
    if _is_allowed(facts, image, one.placed[0].name):
        parts.append(f"{UNCLEAN_ELECTION} is true: the controller does that by itself")
    return f"{named(one.placed)} ({', '.join(parts)})"


def _ids(ids: Sequence[int]) -> str:
    return f"[{','.join(map(str, ids))}]"


def _is_allowed(facts: Facts, image: ImageFacts, topic: str) -> bool:
    """The effective unclean.leader.election.enable of a topic."""
    controller = next((one for one in facts.controllers if one.settings is not None), None)
    defaults = TopicDefaults()
    if controller is not None and controller.settings is not None:
        is_set = controller.settings.flag(UNCLEAN_ELECTION)
        defaults = TopicDefaults(unclean_election=is_set, node_id=-1 if controller.id is None else controller.id)
    return unclean_election(image.image, topic, defaults)


def _remedy(outcome: ElectionOutcome, found: Sequence[Forecast]) -> str:
    topic, number = found[0].placed[0].name, found[0].placed[1]
    command = f"kraft elect unclean --topic-partition {topic}:{number}"
    brokers = sorted({broker for one in found for broker in one.complete})
    if outcome in {ElectionOutcome.LOSES, ElectionOutcome.NONE}:
        start = f"Start broker {listed(brokers)}" if brokers else "Start the brokers of the replicas"
        last = f". The last resort, one partition at a time: {command}" if outcome is ElectionOutcome.LOSES else ""
        return f"{start}: every committed record is there, and a leader is elected at once{last}"
    return command
