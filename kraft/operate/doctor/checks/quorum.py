"""Checks of the voter set: settings against the log, and the nodes against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kraft.config.addresses import join_host_port
from kraft.operate.doctor.checks.check import Check, listed, pairs
from kraft.operate.doctor.checks.logs import is_two_quorums
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts, Node
from kraft.operate.doctor.facts.settings import BOOTSTRAP_SERVERS, VOTERS, Settings
from metadata_log.image.features import METADATA_VERSION
from metadata_log.releases import LATEST_RELEASE, METADATA_VERSIONS

AUTO_JOIN: Final = "controller.quorum.auto.join.enable"
MANY_BROKERS: Final = 3


def level_of(facts: Facts, node: Node) -> int | None:
    """The level of kraft.version in a node's own log, or else in the quorum."""
    own = None if node.log is None else node.log.kraft_version
    return facts.quorum.kraft_version if own is None else own


def no_quorum_config(facts: Facts) -> Iterator[Finding]:
    """A node that knows no controller."""
    for node, settings in facts.configured():
        if not settings.words(VOTERS) and not settings.words(BOOTSTRAP_SERVERS):
            yield Finding(
                id="no-quorum-config",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(settings.source,),
                read=(settings.source,),
                evidence=f"{settings.source} has neither {VOTERS} nor {BOOTSTRAP_SERVERS}",
            )


def static_config_on_dynamic(facts: Facts) -> Iterator[Finding]:
    """Static voters although the log names the voters."""
    for node, settings in facts.configured():
        if settings.words(VOTERS) and level_of(facts, node) == 1:
            servers = ",".join(join_host_port(one.host, one.port) for one in settings.voters)
            yield Finding(
                id="static-config-on-dynamic",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(settings.source,),
                read=(settings.where(VOTERS), facts.quorum.where),
                evidence=f"{VOTERS} names {listed(sorted(one.id for one in settings.voters))}; the log has "
                f"kraft.version 1 and the voters {listed(facts.quorum.ids) or '(none)'}",
                remedy=f"Replace {VOTERS} by {BOOTSTRAP_SERVERS}={servers}",
            )


def dynamic_config_on_static(facts: Facts) -> Iterator[Finding]:
    """A controller without static voters although the log has kraft.version 0."""
    for node, settings in facts.configured():
        is_configured = bool(settings.words(VOTERS))
        if facts.is_controller(node) and not is_configured and level_of(facts, node) == 0:
            path = settings.source if node.log is None else node.log.path
            yield Finding(
                id="dynamic-config-on-static",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(settings.source,),
                read=(settings.where(VOTERS), f"{path}: kraft.version"),
                evidence=f"the log has kraft.version 0, and {settings.source} does not set {VOTERS}",
            )


def voters_config_differs(facts: Facts) -> Iterator[Finding]:
    """Different static voters on nodes of one quorum."""
    if facts.quorum.kraft_version == 1:
        return
    by_voters: dict[tuple[tuple[int, str, int], ...], list[tuple[Node, Settings]]] = defaultdict(list)
    for node, settings in facts.configured():
        if settings.voters:
            voters = tuple(sorted((one.id, one.host.lower(), one.port) for one in settings.voters))
            by_voters[voters].append((node, settings))
    if len(by_voters) < 2:
        return
    sets = "; ".join(
        f"{listed(node.name for node, _ in owners)}: "
        + ",".join(f"{voter}@{join_host_port(host, port)}" for voter, host, port in voters)
        for voters, owners in by_voters.items()
    )
    ids = {tuple(voter for voter, _, _ in voters) for voters in by_voters}
    owners_and_settings = [(node, settings) for owners in by_voters.values() for node, settings in owners]
    yield Finding(
        id="voters-config-differs",
        severity=Severity.FATAL if len(ids) > 1 else Severity.WARN,
        nodes=tuple(node.name for node, _ in owners_and_settings),
        subjects=(VOTERS,),
        read=tuple(settings.where(VOTERS) for _, settings in owners_and_settings),
        evidence=f"there are {len(by_voters)} different sets of voters: {sets}",
    )


def self_not_in_voters(facts: Facts) -> Iterator[Finding]:
    """A controller that its own list of voters lacks."""
    for node, settings in facts.configured():
        ids = [one.id for one in settings.voters]
        if facts.is_controller(node) and ids and settings.node_id is not None and settings.node_id not in ids:
            yield Finding(
                id="self-not-in-voters",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=(settings.source,),
                read=(settings.where("node.id"), settings.where(VOTERS)),
                evidence=f"node.id is {settings.node_id}, and {VOTERS} names {listed(sorted(ids))}",
            )


def voters_host_differs(facts: Facts) -> Iterator[Finding]:
    """A voter record with another address than the node advertises."""
    if facts.quorum.kraft_version != 1:
        return
    for node, settings in facts.configured():
        voter = facts.quorum.find(settings.node_id)
        if voter is None or not facts.is_controller(node):
            continue
        known = {name: (host, port) for name, host, port in voter.endpoints}
        for name in settings.controller_names:
            own = settings.advertised.get(name)
            if name not in known or own is None or own.host in {"", "0.0.0.0", "::"}:
                continue
            host, port = known[name]
            if (own.host.lower(), own.port) != (host.lower(), port):
                recorded = join_host_port(host, port)
                now = join_host_port(own.host, own.port)
                key = "advertised.listeners" if "advertised.listeners" in settings.values else "listeners"
                yield Finding(
                    id="voters-host-differs",
                    severity=Severity.ERROR,
                    nodes=(node.name,),
                    subjects=(name,),
                    read=(facts.quorum.where, settings.where(key)),
                    evidence=f"the voter set has {name} of voter {voter.id} at {recorded}, and the node is at {now}",
                    remedy="While a leader is there, restart the node: it updates its voter record. Otherwise give "
                    f"{recorded} back, or kraft recover apply PLAN --into NEWDIR --endpoint {voter.id}={now}",
                )


def voters_even(facts: Facts) -> Iterator[Finding]:
    """An even number of voters."""
    quorum = facts.quorum
    if quorum.voters and len(quorum.voters) % 2 == 0:
        number = len(quorum.voters)
        yield Finding(
            id="voters-even",
            severity=Severity.WARN,
            subjects=tuple(str(one) for one in quorum.ids),
            read=(quorum.where,),
            evidence=f"{number} voters ({listed(quorum.ids)}) tolerate {number - quorum.majority} failures, as "
            f"{number - 1} do",
        )


def voters_single(facts: Facts) -> Iterator[Finding]:
    """One voter for many brokers."""
    image = facts.image
    if image is None or len(facts.quorum.voters) != 1:
        return
    brokers = len(image.image.brokers.by_id)
    if brokers >= MANY_BROKERS:
        yield Finding(
            id="voters-single",
            severity=Severity.WARN,
            subjects=(str(facts.quorum.ids[0]),),
            read=(facts.quorum.where, image.where),
            evidence=f"voter {facts.quorum.ids[0]} alone serves {brokers} brokers",
        )


def two_quorums(facts: Facts) -> Iterator[Finding]:
    """Two quorums with one cluster id."""
    for one, other in pairs(facts.controllers):
        if not is_two_quorums(one, other):
            continue
        assert one.log is not None
        assert other.log is not None
        told = []
        for node, log in ((one, one.log), (other, other.log)):
            change, first = log.voter_change, log.elections[0]
            ids = () if change is None else tuple(voter.id for voter in change.voters)
            told.append(
                f"{node.name}: voters {listed(ids)}, first leader {first.leader_id} in epoch {first.epoch}, "
                f"end {log.end_offset}"
            )
        yield Finding(
            id="two-quorums",
            severity=Severity.FATAL,
            nodes=(one.name, other.name),
            subjects=(one.log.path, other.log.path),
            read=(f"{one.log.path}: VotersRecord", f"{other.log.path}: VotersRecord"),
            evidence="; ".join(told),
        )


def observer_controller(facts: Facts) -> Iterator[Finding]:
    """A controller that follows a dynamic quorum and is no voter."""
    quorum = facts.quorum
    if quorum.kraft_version != 1 or not quorum.voters:
        return
    for node in facts.controllers:
        if node.id is not None and quorum.find(node.id) is None:
            yield Finding(
                id="observer-controller",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(str(node.id),),
                read=(quorum.where,),
                evidence=f"controller {node.id} is not among the voters {listed(quorum.ids)}",
                remedy=f"kraft quorum add {node.id}, or stop the node",
            )


def auto_join_rejoin(facts: Facts) -> Iterator[Finding]:
    """A removed voter that will add itself again."""
    cluster = None if facts.best is None or facts.best.meta is None else facts.best.meta.cluster_id
    history = sorted(
        (
            change
            for node in facts.nodes
            if node.log is not None and node.meta is not None and node.meta.cluster_id == cluster
            for change in node.log.voters
        ),
        key=lambda one: one.offset,
    )
    for node, settings in facts.configured():
        if not settings.flag(AUTO_JOIN) or facts.quorum.find(node.id) is not None:
            continue
        had = [one for one in history if any(voter.id == node.id for voter in one.voters)]
        without = [one for one in history if had and one.offset > had[-1].offset]
        if without:
            yield Finding(
                id="auto-join-rejoin",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(str(node.id),),
                read=(settings.where(AUTO_JOIN), f"{without[0].where}: VotersRecord at {without[0].offset}"),
                evidence=f"the voter set at offset {had[-1].offset} has {node.id}, the one at {without[0].offset} has "
                "not, and the configuration joins automatically",
            )


def auto_join_on_static(facts: Facts) -> Iterator[Finding]:
    """Automatic joining without a dynamic quorum."""
    for node, settings in facts.configured():
        level = level_of(facts, node)
        if settings.flag(AUTO_JOIN) and level != 1 and (level == 0 or settings.words(VOTERS)):
            yield Finding(
                id="auto-join-on-static",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(AUTO_JOIN,),
                read=(settings.where(AUTO_JOIN),),
                evidence=f"{AUTO_JOIN} is true, and "
                + ("the log has kraft.version 0" if level == 0 else f"{VOTERS} names a static quorum"),
            )


def ghost_registration(facts: Facts) -> Iterator[Finding]:
    """Registered controllers that no voter set and no given node explains."""
    if facts.image is None or not facts.quorum.voters:
        return
    controllers = facts.image.image.controllers.by_id
    known = {*facts.quorum.ids, *(node.id for node in facts.controllers)}
    if facts.live is not None:
        known |= {one.id for one in facts.live.fetching}
    for node_id in sorted(one for one in controllers if one not in known):
        ranges = {name: (low, high) for name, low, high in controllers[node_id].features}
        highest = ranges.get(METADATA_VERSION, (0, 0))[1]
        others = [
            high
            for other, registration in sorted(controllers.items())
            if other in known
            for name, _, high in registration.features
            if name == METADATA_VERSION
        ]
        can = min(others, default=METADATA_VERSIONS[LATEST_RELEASE])
        blocks = highest < can
        yield Finding(
            id="ghost-registration",
            severity=Severity.ERROR if blocks else Severity.WARN,
            subjects=(str(node_id),),
            read=(f"{facts.image.where}: RegisterControllerRecord", facts.quorum.where),
            evidence=f"controller {node_id} is registered with {METADATA_VERSION} "
            f"{'-'.join(map(str, ranges.get(METADATA_VERSION, ())))}; the voters are {listed(facts.quorum.ids)}"
            + (f", and the others support {can}" if blocks else ""),
            remedy=f"kraft quorum unregister {node_id}"
            if (facts.image.image.features.metadata_version or 0) >= METADATA_VERSIONS["4.4-IV2"]
            else f"Start a controller of id {node_id} with the present software once, so that it registers its "
            "ranges again"
            if blocks
            else "Nothing is to be done now: the ranges block no upgrade, and Kafka before 4.4 cannot remove "
            "the registration. "
            f"After the next upgrade of the software, start a controller of id {node_id} with it once",
        )


CHECKS: Final = (
    Check("no-quorum-config", no_quorum_config, (Need.SETTINGS,)),
    Check("static-config-on-dynamic", static_config_on_dynamic, (Need.SETTINGS, Need.DIRECTORY)),
    Check("dynamic-config-on-static", dynamic_config_on_static, (Need.SETTINGS, Need.DIRECTORY)),
    Check("voters-config-differs", voters_config_differs, (Need.SETTINGS, Need.SEVERAL)),
    Check("self-not-in-voters", self_not_in_voters, (Need.SETTINGS,)),
    Check("voters-host-differs", voters_host_differs, (Need.SETTINGS, Need.DIRECTORY)),
    Check("voters-even", voters_even),
    Check("voters-single", voters_single, (Need.IMAGE,)),
    Check("two-quorums", two_quorums, (Need.SEVERAL,)),
    Check("observer-controller", observer_controller, (Need.DIRECTORY,)),
    Check("auto-join-rejoin", auto_join_rejoin, (Need.SETTINGS, Need.DIRECTORY)),
    Check("auto-join-on-static", auto_join_on_static, (Need.SETTINGS,)),
    Check("ghost-registration", ghost_registration, (Need.IMAGE,)),
)
