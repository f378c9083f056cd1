"""Checks of the topics in which coordinators keep groups and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.operate.doctor.checks.check import Check, listed
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts
from metadata_log.image.configs import ResourceType

POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"
DELETE: Final = "delete"
"""Kafka's default."""
PARTITIONS: Final = 50
"""Kafka's default for both topics."""


class Internal(Struct, frozen=True):
    """An internal topic: the setting of the number of its partitions, and what one of its keys is."""

    topic: str
    setting: str
    what: str
    cure: str


INTERNAL: Final = (
    Internal(
        "__consumer_offsets",
        "offsets.topic.num.partitions",
        "group",
        "kraft dump --records shows the former offsets, and kraft groups reset GROUP --from-file FILE --execute "
        "commits them again",
    ),
    Internal(
        "__transaction_state",
        "transaction.state.log.num.partitions",
        "transactional id",
        "each producer that begins again gets an id anew, and kraft transactions find-hanging shows what it left open",
    ),
)


def internal_cleanup(facts: Facts) -> Iterator[Finding]:
    """Internal topics whose old records are deleted, or that are never compacted."""
    if facts.image is None:
        return
    image = facts.image.image
    for one in INTERNAL:
        if one.topic not in image.topics:
            continue
        policy = next(
            (
                setting
                for resource in ((ResourceType.TOPIC, one.topic), (ResourceType.BROKER, ""))
                for key in (POLICY, f"log.{POLICY}")
                if (setting := image.configs.of(resource).get(key)) is not None
            ),
            DELETE,
        )
        if {word.strip() for word in policy.split(",")} == {COMPACT}:
            continue
        yield Finding(
            id="internal-cleanup",
            severity=Severity.ERROR,
            subjects=(one.topic,),
            read=(facts.image.where,),
            evidence=f"topic {one.topic} has {POLICY} {policy or '(empty)'}, and only {COMPACT} keeps the last record "
            f"of each {one.what}",
            remedy=f"kraft configs set topic {one.topic} {POLICY}={COMPACT}",
        )


def internal_partitions(facts: Facts) -> Iterator[Finding]:
    """Internal topics with another number of partitions than brokers were told."""
    if facts.image is None:
        return
    topics = facts.image.image.topics
    for one in INTERNAL:
        if one.topic not in topics:
            continue
        actual = len(topics[one.topic].partitions)
        told = {
            node.settings.where(one.setting): wanted
            for node in facts.brokers
            if node.settings is not None and (wanted := node.settings.number(one.setting, PARTITIONS)) != actual
        }
        if told:
            yield Finding(
                id="internal-partitions",
                severity=Severity.WARN,
                subjects=(one.topic,),
                read=(facts.image.where, *told),
                evidence=f"topic {one.topic} has {actual} partitions, and the brokers are told "
                f"{listed(sorted(set(told.values())))} ({listed(told)}). Where the topic was given partitions after "
                f"its first use, each {one.what} that hashes elsewhere by now seems lost",
                remedy=f"{one.setting}={actual} in the configurations of all brokers, if only the setting was changed: "
                f"it counts only before the topic exists. If partitions were added, nothing takes them away: "
                f"{one.cure}",
            )


CHECKS: Final = (
    Check("internal-cleanup", internal_cleanup, (Need.IMAGE,)),
    Check("internal-partitions", internal_partitions, (Need.IMAGE,)),
)
