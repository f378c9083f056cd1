"""Checks of the topics in which coordinators keep groups, transactions and the state of share groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kraft.operate.doctor.checks.check import Check, listed
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts
from metadata_log.image import MetadataImage
from metadata_log.image.configs import ResourceType

POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"
DELETE: Final = "delete"
"""Kafka's default."""
RETENTION: Final = "retention.ms"
FOR_EVER: Final = "-1"
PARTITIONS: Final = 50
"""Kafka's default for all of them."""


class Internal(Struct, frozen=True):
    """An internal topic: the setting of the number of its partitions, and what one of its keys is."""

    topic: str
    setting: str
    what: str
    cure: str
    policy: str = COMPACT


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
    Internal(
        "__share_group_state",
        "share.coordinator.state.topic.num.partitions",
        "share partition",
        "kraft dump --records shows the former states, and an empty share group can be given its offsets again",
        DELETE,
    ),
)


def internal_cleanup(facts: Facts) -> Iterator[Finding]:
    """Internal topics whose old records are deleted, or that are never compacted; and that of share groups, whose
    coordinator alone deletes what is old: compaction would keep one of many updates.
    """
    if facts.image is None:
        return
    for one in INTERNAL:
        if one.topic not in facts.image.image.topics:
            continue
        setting = _setting(facts.image.image, one.topic, POLICY)
        policy = DELETE if setting is None else setting
        if {word.strip() for word in policy.split(",")} != {one.policy}:
            why = (
                f"only {COMPACT} keeps the last record of each {one.what}"
                if one.policy == COMPACT
                else f"only {DELETE} keeps all updates of each {one.what}"
            )
            yield _cleanup(one, facts.image.where, POLICY, policy, why, one.policy)
        if one.policy == DELETE:
            retention = _setting(facts.image.image, one.topic, RETENTION)
            if retention != FOR_EVER:
                why = f"the state of each {one.what} that changes rarely is deleted"
                yield _cleanup(one, facts.image.where, RETENTION, retention or "of other topics", why, FOR_EVER)


def _setting(image: MetadataImage, topic: str, name: str) -> str | None:
    """A setting of a topic, or of the cluster for all topics."""
    return next(
        (
            setting
            for resource in ((ResourceType.TOPIC, topic), (ResourceType.BROKER, ""))
            for key in (name, f"log.{name}")
            if (setting := image.configs.of(resource).get(key)) is not None
        ),
        None,
    )


def _cleanup(one: Internal, where: str, name: str, value: str, why: str, wanted: str) -> Finding:
    return Finding(
        id="internal-cleanup",
        severity=Severity.ERROR,
        subjects=(one.topic,),
        read=(where,),
        evidence=f"topic {one.topic} has {name} {value or '(empty)'}, and {why}",
        remedy=f"kraft configs set topic {one.topic} {name}={wanted}",
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
