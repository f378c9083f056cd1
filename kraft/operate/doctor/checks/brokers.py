"""Checks of brokers, features and credentials in the metadata."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from kraft.operate.doctor.checks.check import Check, at, listed, minutes
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import Facts
from kraft.operate.doctor.facts.settings import Settings
from metadata_log.image.configs import ResourceType
from metadata_log.image.features import METADATA_VERSION
from metadata_log.image.image import MetadataImage
from metadata_log.image.names import SCRAM_MECHANISMS
from metadata_log.image.persistent_map import in_key_order
from metadata_log.releases import LATEST_RELEASE, METADATA_VERSIONS

GONE_MS: Final = 7 * 86_400_000
ELR: Final = "eligible.leader.replicas.version"
ELR_NEEDS: Final = METADATA_VERSIONS["4.0-IV1"]
_KINDS: Final[dict[int, str]] = {ResourceType.TOPIC: "topic", ResourceType.BROKER: "broker"}
_USER: Final = re.compile(r"""username\s*=\s*["']?([^"'\s;]+)""")


def fenced(facts: Facts) -> Iterator[tuple[int, ImageFacts]]:
    """The brokers that are fenced and do not shut down."""
    if facts.image is not None:
        for broker_id, broker in in_key_order(facts.image.image.brokers.by_id):
            if broker.fenced and not broker.in_controlled_shutdown:
                yield broker_id, facts.image


def broker_fenced(facts: Facts) -> Iterator[Finding]:
    """Fenced brokers."""
    for broker_id, image_facts in fenced(facts):
        since = image_facts.fenced_since.get(broker_id)
        is_known = since is not None and since.offset >= 0
        what = f" since {at(since.timestamp_ms)}" if since is not None and is_known else ""
        offset = f", offset {since.offset}" if since is not None and is_known else ""
        yield Finding(
            id="broker-fenced",
            severity=Severity.ERROR,
            subjects=(str(broker_id),),
            read=(f"{image_facts.where}{offset}",),
            evidence=f"broker {broker_id} is fenced{what}; the log ends at {at(image_facts.end_ms)}",
            remedy=f"Start broker {broker_id}, or repair its way to the controllers: "
            f"kraft brokers describe {broker_id}",
        )


def replicas_of(image: MetadataImage) -> Counter[int]:
    """The number of replicas of each broker."""
    return Counter(
        replica for topic in image.topics.by_id.values() for one in topic.partitions for replica in one.replicas
    )


def broker_never_returned(facts: Facts) -> Iterator[Finding]:
    """Brokers that were fenced long ago and still have replicas."""
    if facts.image is None:
        return
    replicas = replicas_of(facts.image.image)
    for broker_id, broker in in_key_order(facts.image.image.brokers.by_id):
        since = facts.image.fenced_since.get(broker_id)
        if not broker.fenced or since is None or since.timestamp_ms < 0 or not replicas[broker_id]:
            continue
        gone_ms = facts.image.end_ms - since.timestamp_ms
        if gone_ms > GONE_MS:
            yield Finding(
                id="broker-never-returned",
                severity=Severity.WARN,
                subjects=(str(broker_id),),
                read=(facts.image.where,),
                evidence=f"broker {broker_id} is fenced since {at(since.timestamp_ms)} ({minutes(gone_ms)} before the "
                f"end of the log) and has {replicas[broker_id]} replicas",
            )


def mv_vs_software(facts: Facts) -> Iterator[Finding]:
    """Feature levels that a registered node does not support, and a level that all nodes are beyond."""
    if facts.image is None:
        return
    image = facts.image.image
    nodes = [
        *((f"controller {one.id}", dict_of(one.features)) for _, one in in_key_order(image.controllers.by_id)),
        *((f"broker {one.id}", dict_of(one.features)) for _, one in in_key_order(image.brokers.by_id)),
    ]
    for name, level in image.features.all_levels():
        out = [
            f"{registered} supports {ranges[name][0]}-{ranges[name][1]}"
            for registered, ranges in nodes
            if name in ranges and not ranges[name][0] <= level <= ranges[name][1]
        ]
        if out:
            yield Finding(
                id="mv-vs-software",
                severity=Severity.FATAL,
                subjects=(name,),
                read=(facts.image.where,),
                evidence=f"{name} is {level}; {listed(out)}",
            )
    current = image.features.metadata_version
    highest = [ranges[METADATA_VERSION][1] for _, ranges in nodes if METADATA_VERSION in ranges]
    if current is None or not highest:
        return
    can, now = _release(min(highest)), _release(current)
    if current < min(highest) and now != can:
        yield Finding(
            id="mv-vs-software",
            severity=Severity.INFO,
            subjects=(METADATA_VERSION,),
            read=(facts.image.where,),
            evidence=f"{METADATA_VERSION} is {current} ({now}), and every registered node supports {min(highest)} "
            f"({can})",
            remedy=f"kraft features upgrade --release-version {can}",
        )


def dict_of(features: tuple[tuple[str, int, int], ...]) -> dict[str, tuple[int, int]]:
    """The supported levels of a registration, by feature."""
    return {name: (low, high) for name, low, high in features}


def _release(level: int) -> str:
    """The release of a metadata.version, such as `4.3`."""
    names = [name for name, one in METADATA_VERSIONS.items() if one <= level]
    return (names[-1] if names else LATEST_RELEASE).partition("-")[0]


def elr_state(facts: Facts) -> Iterator[Finding]:
    """Eligible leader replicas that could be on, or a setting that should be gone with them."""
    if facts.image is None:
        return
    image = facts.image.image
    level, version = image.features.level(ELR), image.features.metadata_version or 0
    if level == 0 and version >= ELR_NEEDS:
        yield Finding(
            id="elr-state",
            severity=Severity.WARN,
            subjects=(ELR,),
            read=(facts.image.where,),
            evidence=f"{ELR} is 0, and {METADATA_VERSION} {version} allows 1",
        )
    if level == 0:
        return
    for (kind, name), values in in_key_order(image.configs.by_resource):
        if kind == ResourceType.BROKER and name and "min.insync.replicas" in values:
            yield Finding(
                id="elr-state",
                severity=Severity.INFO,
                subjects=(name,),
                read=(f"{facts.image.where}: ConfigRecord of broker {name}",),
                evidence=f"broker {name} has min.insync.replicas={values['min.insync.replicas']}, and {ELR} is {level}",
                consequence="The value is not allowed with this feature; it is ignored.",
                remedy=f"kraft configs delete broker {name} min.insync.replicas",
            )


def unclean_enabled(facts: Facts) -> Iterator[Finding]:
    """Unclean elections on any level."""
    key = "unclean.leader.election.enable"
    for node in facts.nodes:
        if node.settings is not None and node.settings.flag(key):
            yield Finding(
                id="unclean-enabled",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(key,),
                read=(node.settings.where(key),),
                evidence=f"{key} is true for all topics in {node.settings.source}",
                remedy=f"Remove {key}=true from {node.settings.source}",
            )
    if facts.image is None:
        return
    for (kind, name), values in in_key_order(facts.image.image.configs.by_resource):
        if values.get(key, "").lower() != "true":
            continue
        what = _KINDS.get(kind, "resource")
        yield Finding(
            id="unclean-enabled",
            severity=Severity.WARN,
            subjects=(name or "(all brokers)",),
            read=(f"{facts.image.where}: ConfigRecord of {what} {name}",),
            evidence=f"{key} is true for {what + ' ' + name if name else 'all brokers'}",
            remedy=f"kraft configs set {what} {name or 'default'} {key}=false",
        )


def open_transaction(facts: Facts) -> Iterator[Finding]:
    """A metadata transaction without an end."""
    if facts.image is not None and (begin := facts.image.open_transaction) is not None:
        yield Finding(
            id="open-transaction",
            severity=Severity.WARN,
            subjects=(f"offset {begin.offset}",),
            read=(f"{facts.image.where}, offset {begin.offset}",),
            evidence=f"a transaction begins at offset {begin.offset} and does not end before "
            f"{facts.image.image.end.offset}",
        )


def scram_missing(facts: Facts) -> Iterator[Finding]:
    """Users of nodes for SCRAM without a credential."""
    if facts.image is None or facts.image.image.features.metadata_version is None:
        return
    by_user = facts.image.image.scram.by_user
    codes = {name: code for code, name in SCRAM_MECHANISMS.items()}
    for node in facts.nodes:
        if node.settings is None:
            continue
        for key, mechanism, user in _scram_users(node.settings):
            if codes[mechanism] in by_user.get(user, {}):
                continue
            yield Finding(
                id="scram-missing",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(user,),
                read=(node.settings.where(key), facts.image.where),
                evidence=f"{key} authenticates as user {user} by {mechanism}, and {user} has no such credential",
                remedy=f"kraft users set {user} --mechanism {mechanism} --password-file FILE; for a new cluster "
                "kraft format CONFIG --add-scram …",
            )


def _scram_users(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Key, mechanism and user of each SCRAM login of a node at other nodes."""
    mechanisms = {settings.text(f"sasl.mechanism.{part}.protocol").upper() for part in ("controller", "inter.broker")}
    for mechanism in sorted(mechanisms & set(SCRAM_MECHANISMS.values())):
        for key, setting in sorted(settings.values.items()):
            lower = key.lower()
            is_login = lower == "sasl.jaas.config" or (
                lower.startswith("listener.name.") and lower.endswith(f".{mechanism.lower()}.sasl.jaas.config")
            )
            if is_login and (user := _USER.search(setting.value)) is not None:
                yield key, mechanism, user[1]


def record_contradicts(facts: Facts) -> Iterator[Finding]:
    """A record that no replay accepts."""
    if facts.image is not None and facts.image.problem:
        yield Finding(
            id="record-contradicts",
            severity=Severity.FATAL,
            nodes=(facts.best.name,) if facts.best is not None else (),
            subjects=(facts.image.where,),
            read=(facts.image.where,),
            evidence=facts.image.problem,
        )


CHECKS: Final = (
    Check("record-contradicts", record_contradicts, (Need.IMAGE,)),
    Check("broker-fenced", broker_fenced, (Need.IMAGE,)),
    Check("broker-never-returned", broker_never_returned, (Need.IMAGE,)),
    Check("mv-vs-software", mv_vs_software, (Need.IMAGE,)),
    Check("elr-state", elr_state, (Need.IMAGE,)),
    Check("unclean-enabled", unclean_enabled),
    Check("open-transaction", open_transaction, (Need.IMAGE,)),
    Check("scram-missing", scram_missing, (Need.SETTINGS, Need.IMAGE)),
)
