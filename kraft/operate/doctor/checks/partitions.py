"""Checks of the partitions in the metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kraft.operate.doctor.checks.check import Check, at, listed, minutes
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import Facts
from metadata_log.image.topics import Partition, TopicImage

MIN_ISR: Final = "min.insync.replicas"
RECOVERING_MS: Final = 600_000
STUCK_MS: Final = 3_600_000
MANY_BROKERS: Final = 3
SKEW_SHARE: Final = 0.1
SKEW_FACTOR: Final = 1.5

Placed = tuple[TopicImage, int, Partition]


def partitions(found: ImageFacts) -> Iterator[Placed]:
    """Every partition, by topic name and number."""
    for name in found.image.topics:
        topic = found.image.topics[name]
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition


def named(placed: Placed) -> str:
    """`orders-0`."""
    return f"{placed[0].name}-{placed[1]}"


def min_isr(facts: Facts, topic: str) -> int:
    """The effective min.insync.replicas: of the topic, of all brokers, of the controllers' configuration, or 1."""
    assert facts.image is not None
    number = facts.image.image.configs.number_for_topic(topic, MIN_ISR)
    if number is not None:
        return number
    settings = next((node.settings for node in facts.controllers if node.settings is not None), None)
    return 1 if settings is None else settings.number(MIN_ISR)


def _finding(
    facts: Facts,
    check: str,
    severity: Severity,
    found: list[Placed],
    what: str,
    tell: Callable[[Placed], str],
    remedy: str = "",
) -> Iterator[Finding]:
    if found and facts.image is not None:
        yield Finding(
            id=check,
            severity=severity,
            subjects=tuple(named(one) for one in found),
            read=(facts.image.where,),
            evidence=f"{len(found):,} {'partition' if len(found) == 1 else 'partitions'} {what}: "
            + listed(tell(one) for one in found),
            remedy=remedy,
        )


def offline_partitions(facts: Facts) -> Iterator[Finding]:
    """Partitions without a leader."""
    if facts.image is None:
        return
    offline = [one for one in partitions(facts.image) if one[2].leader < 0]
    yield from _finding(
        facts,
        "offline-partitions",
        Severity.ERROR,
        offline,
        "without a leader",
        lambda one: f"{named(one)} (isr {_ids(one[2].isr)}, elr {_ids(one[2].elr or one[2].last_known_elr)})",
        _start_one(offline, _candidates(offline)),
    )


def _start_one(found: list[Placed], brokers: list[int]) -> str:
    """The remedy for partitions of which these brokers have the records; the general one if none is known."""
    if not brokers:
        return ""
    which = "broker" if len(brokers) == 1 else "one of the brokers"
    unclean = f"kraft elect unclean --topic-partition {found[0][0].name}:{found[0][1]}"
    return f"Start {which} {listed(brokers)}. The last resort loses records: {unclean}"


def _candidates(found: list[Placed]) -> list[int]:
    return sorted({broker for _, _, one in found for broker in (*one.isr, *one.elr, *one.last_known_elr)})


def _ids(ids: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, ids))}]"


def under_min_isr(facts: Facts) -> Iterator[Finding]:
    """Partitions with too few replicas in sync, where the replication factor would permit enough."""
    if facts.image is None:
        return
    below = [
        one
        for one in partitions(facts.image)
        if len(one[2].isr) < min(min_isr(facts, one[0].name), len(one[2].replicas))
    ]
    yield from _finding(
        facts,
        "under-min-isr",
        Severity.ERROR,
        below,
        f"below {MIN_ISR}",
        lambda one: f"{named(one)} (isr {_ids(one[2].isr)}, {MIN_ISR} {min_isr(facts, one[0].name)})",
    )


def under_replicated(facts: Facts) -> Iterator[Finding]:
    """Partitions with replicas out of sync."""
    if facts.image is None:
        return
    lacking = [
        one for one in partitions(facts.image) if len(one[2].isr) < len(one[2].replicas) and not one[2].is_reassigning
    ]
    missing = Counter(replica for _, _, one in lacking for replica in one.replicas if replica not in one.isr)
    brokers = sorted(missing)
    yield from _finding(
        facts,
        "under-replicated",
        Severity.WARN,
        lacking,
        f"with replicas out of sync, of {'broker' if len(brokers) == 1 else 'brokers'} {listed(brokers)}",
        lambda one: f"{named(one)} (isr {_ids(one[2].isr)} of {_ids(one[2].replicas)})",
        f"Start broker {listed(brokers)}, or look for slow disks and networks: kraft brokers list",
    )


def min_isr_over_rf(facts: Facts) -> Iterator[Finding]:
    """Topics with fewer replicas than must be in sync."""
    if facts.image is None:
        return
    for name in facts.image.image.topics:
        topic = facts.image.image.topics[name]
        factor = max((len(one.replicas) for one in topic.partitions), default=0)
        wanted = min_isr(facts, name)
        if 0 < factor < wanted:
            yield Finding(
                id="min-isr-over-rf",
                severity=Severity.ERROR,
                subjects=(name,),
                read=(facts.image.where,),
                evidence=f"topic {name} has {MIN_ISR} {wanted} and replication factor {factor}",
                remedy=f"kraft configs set topic {name} {MIN_ISR}={max(1, factor - 1)}, or raise the replication "
                f"factor: kraft reassign plan --topic {name} --to B,B,B --replication-factor {wanted + 1} > plan.json; "
                "kraft reassign plan.json",
            )


def rf_one(facts: Facts) -> Iterator[Finding]:
    """Topics with one replica in a cluster that could keep more."""
    if facts.image is None or len(facts.image.image.brokers.by_id) < MANY_BROKERS:
        return
    image = facts.image.image
    names = [
        name
        for name in image.topics
        if image.topics[name].partitions and all(len(one.replicas) == 1 for one in image.topics[name].partitions)
    ]
    names.sort(key=lambda name: not name.startswith("__"))
    if names:
        yield Finding(
            id="rf-one",
            severity=Severity.WARN,
            subjects=tuple(names),
            read=(facts.image.where,),
            evidence=f"{len(names):,} of {len(image.topics):,} topics have one replica, with "
            f"{len(image.brokers.by_id)} brokers: {listed(names)}",
            remedy=f"kraft reassign plan --topic {names[0]} --to B,B,B --replication-factor 3 > plan.json; "
            "kraft reassign plan.json --wait",
        )


def leader_skew(facts: Facts) -> Iterator[Finding]:
    """Leaders other than the preferred replicas, and brokers with far more leaders than the mean."""
    if facts.image is None:
        return
    led = [one for _, _, one in partitions(facts.image) if one.leader >= 0]
    moved = sum(one.leader != one.replicas[0] for one in led)
    leaders = Counter(one.leader for one in led)
    active = [broker.id for broker in facts.image.image.brokers.by_id.values() if broker.is_active]
    mean = len(led) / len(active) if active else 0
    heavy = sorted(broker for broker, number in leaders.items() if mean >= 1 and number > SKEW_FACTOR * mean)
    told = []
    if led and moved > SKEW_SHARE * len(led):
        told.append(f"{moved:,} of {len(led):,} partitions are not led by their preferred replica")
    if heavy and len(active) > 1:
        most = listed(f"broker {one} leads {leaders[one]}" for one in heavy)
        told.append(f"the mean is {mean:.0f} leaders, and {most}")
    if told:
        yield Finding(
            id="leader-skew",
            severity=Severity.INFO,
            subjects=tuple(map(str, heavy)),
            read=(facts.image.where,),
            evidence="; ".join(told),
        )


def recovering_leader(facts: Facts) -> Iterator[Finding]:
    """Leaders that have not recovered from an unclean election."""
    if facts.image is None:
        return
    recovering = [
        one
        for one in partitions(facts.image)
        if one[2].leader_recovery_state and _age_ms(facts.image, one) > RECOVERING_MS
    ]
    yield from _finding(
        facts,
        "recovering-leader",
        Severity.WARN,
        recovering,
        "with a leader that recovers",
        lambda one: f"{named(one)} (leader {one[2].leader}, since {_since(facts, one)})",
    )


def reassignment_stuck(facts: Facts) -> Iterator[Finding]:
    """Reassignments without progress."""
    if facts.image is None:
        return
    stuck = [one for one in partitions(facts.image) if one[2].is_reassigning and _age_ms(facts.image, one) > STUCK_MS]
    yield from _finding(
        facts,
        "reassignment-stuck",
        Severity.WARN,
        stuck,
        "in a reassignment without progress",
        lambda one: (
            f"{named(one)} (adding {_ids(one[2].adding_replicas)}, removing {_ids(one[2].removing_replicas)}, "
            f"since {_since(facts, one)})"
        ),
    )


def _age_ms(found: ImageFacts, placed: Placed) -> int:
    """The time from the partition's last change to the end of the log; 0 if the time is not known."""
    moment = found.changed.get((placed[0].id, placed[1]))
    return 0 if moment is None or moment.timestamp_ms < 0 else found.end_ms - moment.timestamp_ms


def _since(facts: Facts, placed: Placed) -> str:
    assert facts.image is not None
    moment = facts.image.changed.get((placed[0].id, placed[1]))
    age = minutes(_age_ms(facts.image, placed))
    return "an unknown time" if moment is None else f"{at(moment.timestamp_ms)}, {age}"


CHECKS: Final = (
    Check("offline-partitions", offline_partitions, (Need.IMAGE,)),
    Check("under-min-isr", under_min_isr, (Need.IMAGE,)),
    Check("under-replicated", under_replicated, (Need.IMAGE,)),
    Check("min-isr-over-rf", min_isr_over_rf, (Need.IMAGE,)),
    Check("rf-one", rf_one, (Need.IMAGE,)),
    Check("leader-skew", leader_skew, (Need.IMAGE,)),
    Check("recovering-leader", recovering_leader, (Need.IMAGE,)),
    Check("reassignment-stuck", reassignment_stuck, (Need.IMAGE,)),
)
