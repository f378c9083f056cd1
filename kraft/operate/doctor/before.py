"""Preflights: whether a planned step would break the quorum or lose data. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kraft.operate.doctor.checks.brokers import ELR, dict_of
from kraft.operate.doctor.checks.check import listed
from kraft.operate.doctor.checks.identity import empty_voters
from kraft.operate.doctor.checks.live import LAG_RECORDS, is_behind
from kraft.operate.doctor.checks.partitions import min_isr, named, partitions
from kraft.operate.doctor.checks.quorum import AUTO_JOIN
from kraft.operate.doctor.facts.finding import Finding, Severity
from kraft.operate.doctor.facts.log_facts import LogFacts
from kraft.operate.doctor.facts.node import Facts, LiveFacts, Node
from kraft.operate.doctor.facts.settings import VOTERS
from kraft.operate.doctor.unclean_election import OPERATION as UNCLEAN_ELECTION
from kraft.operate.doctor.unclean_election import unclean_election_reasons
from kraft.quorum.voters import majority
from metadata_log.image.features import KRAFT_VERSION, METADATA_VERSION
from metadata_log.image.persistent_map import in_key_order
from metadata_log.releases import METADATA_CHANGES, METADATA_VERSIONS, resolve_release
from metadata_log.types import Uuid
from metadata_log.zookeeper_mode import MIGRATE_FIRST

NEEDS_NODE: Final = ("restart", "format", "remove-voter", "add-voter", "decommission", "restore")
"""The operations that are about one node."""
CAUGHT_UP_MS: Final = 4_000
"""Twice the fetch time-out: a voter that was caught up within this time follows its leader."""


def preflight(
    facts: Facts,
    operation: str,
    node_id: int | None,
    findings: tuple[Finding, ...],
    release: str | None = None,
) -> list[Finding]:
    """The reasons against a step.

    Args:
        facts: What is known.
        operation: One of `OPERATIONS`.
        node_id: The node of the step; None for all given nodes, where that makes sense.
        findings: The findings of the checks, which a start takes into account.
        release: The release to upgrade or downgrade to, such as `4.1`; None for the newest that any node supports.

    Returns:
        Findings with the id `before-OPERATION`; none if nothing speaks against the step.

    Raises:
        DirectoryError: The release is unknown.
    """
    former = [node for node in facts.nodes if node.in_zookeeper_mode and node_id in {None, node.id}]
    if former:
        return [_in_zookeeper_mode(operation, node) for node in former]
    target = None if release is None else METADATA_VERSIONS[resolve_release(release)]
    if operation == "start":
        return [*_start(facts, node_id, findings)]
    if operation == "downgrade":
        return [*_downgrade(facts, target)]
    if operation == UNCLEAN_ELECTION:
        return unclean_election_reasons(facts)
    return [
        Finding(
            id=f"before-{operation}",
            severity=severity,
            nodes=() if node_id is None else (f"node {node_id}",),
            subjects=() if node_id is None else (str(node_id),),
            read=_read(facts),
            evidence=evidence,
        )
        for severity, evidence in (
            _upgrade(facts, node_id, target) if operation == "upgrade" else _STEPS[operation](facts, node_id)
        )
    ]


def _in_zookeeper_mode(operation: str, node: Node) -> Finding:
    return Finding(
        id=f"before-{operation}",
        severity=Severity.FATAL,
        nodes=(node.name,),
        subjects=() if node.id is None else (str(node.id),),
        read=tuple(one.path for one in node.directories),
        evidence=f"{node.name} is in ZooKeeper mode",
        remedy=MIGRATE_FIRST.rstrip("."),
    )


Reasons = Iterator[tuple[Severity, str]]


def _read(facts: Facts) -> tuple[str, ...]:
    if facts.live is not None:
        return (f"{facts.live.bootstrap}: DescribeQuorum",)
    return tuple(node.log.path for node in facts.nodes if node.log is not None) or tuple(
        node.settings.source for node in facts.nodes if node.settings is not None
    )


def caught_up(facts: Facts) -> dict[int, bool | None]:
    """Whether each voter has caught up: as the leader says, or else by its copy of the log. None means "not known"."""
    if facts.live is not None and facts.live.leader is not None:
        live = facts.live
        silent = [one.id for one in live.answers if one.problem]
        return {
            one.id: one.id not in silent
            and not is_behind(live, one)
            and (one.id == live.leader_id or (one.caught_up_ms_ago or 0) <= CAUGHT_UP_MS)
            for one in live.voters
        }
    ends = {node.id: node.log for node in facts.controllers if node.id is not None}
    best = max((log.position for log in ends.values() if log is not None), default=None)
    result: dict[int, bool | None] = {}
    for voter in facts.quorum.ids:
        if voter not in ends or best is None:
            result[voter] = None
            continue
        log = ends[voter]
        result[voter] = log is not None and log.last_epoch == best.epoch and log.end_offset >= best.offset - LAG_RECORDS
    return result


def _told(state: dict[int, bool | None]) -> str:
    words = {True: "has caught up", False: "is behind", None: "is not known"}
    return listed(f"voter {voter} {words[is_up]}" for voter, is_up in state.items())


def _node(facts: Facts, node_id: int | None) -> Node | None:
    return next((one for one in facts.nodes if one.id == node_id), None)


# -------------------------------------------------------------------------------------------------------- operations


def _start(facts: Facts, node_id: int | None, findings: tuple[Finding, ...]) -> Iterator[Finding]:
    node = _node(facts, node_id)
    mine = [
        one
        for one in findings
        if one.severity is Severity.FATAL and (node is None or not one.nodes or node.name in one.nodes)
    ]
    if mine:
        yield Finding(
            id="before-start",
            severity=Severity.FATAL,
            nodes=tuple(dict.fromkeys(name for one in mine for name in one.nodes)),
            subjects=tuple(dict.fromkeys(one.id for one in mine)),
            read=tuple(dict.fromkeys(place for one in mine for place in one.read))[:4],
            evidence=f"fatal findings: {listed(dict.fromkeys(one.id for one in mine))}",
        )
    empty, has_majority = empty_voters(facts)
    known = {one.id for one in facts.controllers}
    unknown = [voter for voter in facts.quorum.ids if voter not in known]
    if empty and has_majority and unknown:
        yield Finding(
            id="before-start",
            severity=Severity.ERROR,
            nodes=tuple(one.name for one in empty),
            subjects=tuple(str(one.id) for one in empty),
            read=_read(facts),
            evidence=f"voters {listed(one.id for one in empty)} are empty, and voters {listed(unknown)} were not "
            "given: the voters with a log may be fewer than a majority",
            remedy="Name the directories of all voters, or start the voters with a log first and wait for a leader",
        )


def _restart(facts: Facts, node_id: int | None) -> Reasons:
    assert node_id is not None
    state = caught_up(facts)
    if facts.live is not None and facts.live.leader is None:
        yield Severity.FATAL, f"the quorum has no leader ({facts.live.problem})"
    if node_id in state:
        others = {voter: is_up for voter, is_up in state.items() if voter != node_id}
        up, wanted = sum(is_up is True for is_up in others.values()), majority(len(state))
        if len(state) == 1:
            yield Severity.WARN, f"{node_id} is the only voter: there is no leader while the node is down"
        elif up < wanted:
            is_open = up + sum(is_up is None for is_up in others.values()) >= wanted
            severity = Severity.ERROR if is_open else Severity.FATAL
            what = f"without voter {node_id} a majority needs {wanted} voters that have caught up"
            yield severity, f"{what}: {_told(others)}"
        if facts.live is not None and facts.live.leader_id == node_id and up < len(others) and up >= wanted:
            yield Severity.WARN, f"{node_id} leads, and not every other voter has caught up: {_told(others)}"
    yield from _lost_partitions(facts, node_id)
    if node_id not in state and not _is_registered(facts, node_id):
        yield Severity.ERROR, f"node {node_id} is neither a voter nor a registered broker"


def _is_registered(facts: Facts, node_id: int) -> bool:
    return facts.image is not None and node_id in facts.image.image.brokers.by_id


def _lost_partitions(facts: Facts, broker: int) -> Reasons:
    if facts.image is None or not _is_registered(facts, broker):
        return
    hosted = [one for one in partitions(facts.image) if broker in one[2].isr]
    offline = [one for one in hosted if one[2].isr == (broker,)]
    below = [
        one
        for one in hosted
        if one not in offline and len(one[2].isr) - 1 < min(min_isr(facts, one[0].name), len(one[2].replicas))
    ]
    if offline:
        what = f"{len(offline):,} partitions go offline with broker {broker}: {listed(map(named, offline))}"
        yield Severity.ERROR, what
    if below:
        yield Severity.ERROR, f"{len(below):,} partitions fall below min.insync.replicas: {listed(map(named, below))}"


def _format(facts: Facts, node_id: int | None) -> Reasons:
    assert node_id is not None
    node = _node(facts, node_id)
    if node is not None and node.log is not None and not node.log.is_empty:
        end = f"up to offset {node.log.end_offset} in epoch {node.log.last_epoch}"
        is_best = facts.best is node
        yield (
            Severity.FATAL if is_best else Severity.ERROR,
            f"{node.log.path} holds a log {end}" + (", the best copy among those given" if is_best else ""),
        )
    if node_id in facts.quorum.ids:
        with_log = {one.id for one in facts.controllers if one.log is not None and not one.log.is_empty}
        others = [voter for voter in facts.quorum.ids if voter != node_id]
        left = [voter for voter in others if voter in with_log]
        known = {one.id for one in facts.controllers}
        unknown = [voter for voter in others if voter not in known]
        wanted = facts.quorum.majority
        if len(left) + len(unknown) < wanted:
            what = f"only voters {listed(left) or '(none)'} of {listed(facts.quorum.ids)} would have a log"
            yield Severity.FATAL, f"{what}; a majority is {wanted}"
        elif len(left) < wanted:
            yield Severity.ERROR, f"voters {listed(unknown)} were not given: a majority with a log is not proved"
        has_leader = facts.live is not None and facts.live.leader_id >= 0
        if facts.quorum.kraft_version == 1 and not has_leader:
            yield (
                Severity.ERROR,
                f"voter {node_id} of a dynamic quorum gets another directory id by a format, and no leader is known to "
                "remove the old one",
            )
    clusters = sorted({one.meta.cluster_id for one in facts.nodes if one.meta is not None and one.id != node_id})
    if len(clusters) > 1:
        yield Severity.FATAL, f"the other nodes do not agree on the cluster id: {listed(clusters)}"


def _upgrade(facts: Facts, node_id: int | None, target: int | None) -> Reasons:
    if facts.live is not None and facts.live.leader is None:
        yield Severity.FATAL, f"the quorum has no leader ({facts.live.problem})"
    if facts.image is None:
        yield Severity.ERROR, "no metadata could be read, so that the versions of the nodes are not known"
        return
    image = facts.image.image
    registered = [
        *((one.id, "controller", dict_of(one.features)) for _, one in in_key_order(image.controllers.by_id)),
        *((one.id, "broker", dict_of(one.features)) for _, one in in_key_order(image.brokers.by_id)),
    ]
    if target is None:
        target = max((ranges.get(METADATA_VERSION, (0, 0))[1] for _, _, ranges in registered), default=0)
    voters = facts.quorum.ids
    for id_, kind, ranges in registered:
        if node_id is not None and id_ != node_id:
            continue
        highest = ranges.get(METADATA_VERSION, (0, 0))[1]
        ghost = " (neither a voter nor a given node)" if kind == "controller" and voters and id_ not in voters else ""
        if highest < target:
            yield (
                Severity.ERROR,
                f"{kind} {id_}{ghost} supports {METADATA_VERSION} up to {highest}, below {target}",
            )
        if kind == "controller" and facts.quorum.kraft_version == 0 and ranges.get(KRAFT_VERSION, (0, 0))[1] < 1:
            yield Severity.ERROR, f"controller {id_}{ghost} does not support {KRAFT_VERSION} 1"
    static = [
        node.name
        for node in facts.nodes
        if node.settings is not None and node.settings.words(VOTERS) and facts.quorum.kraft_version == 0
    ]
    if static:
        yield (
            Severity.WARN,
            f"after an upgrade of {KRAFT_VERSION}, {VOTERS} has no effect: replace the setting on {listed(static)} "
            "then, and not before",
        )
    if image.features.level(ELR) == 0 and image.features.metadata_version is not None:
        brokers = [broker.id for _, broker in in_key_order(image.brokers.by_id) if broker.fenced]
        if brokers:
            yield Severity.WARN, f"brokers {listed(brokers)} are fenced: their versions may be out of date"


def _downgrade(facts: Facts, target: int | None) -> Iterator[Finding]:
    """A release that cannot read the log, or to which Kafka refuses to lower metadata.version."""
    places = _read(facts)
    for node in facts.nodes:
        if node.log is not None and node.log.unknown:
            first = node.log.unknown[0]
            yield Finding(
                id="before-downgrade",
                severity=Severity.FATAL,
                nodes=(node.name,),
                read=(f"{first.where}, offset {first.offset}",),
                evidence=f"{first.what} at offset {first.offset} is newer than this software",
            )
    level = None if facts.image is None else facts.image.image.features.metadata_version
    if level is None or target is None:
        what = "the present metadata.version is not known" if level is None else "no release is named"
        remedy = "" if level is None else "Name the release: --release-version V"
        yield Finding(id="before-downgrade", severity=Severity.ERROR, read=places, evidence=what, remedy=remedy)
        return
    lost = sorted(change for change in METADATA_CHANGES if target < change <= level)
    if lost:
        yield Finding(
            id="mv-downgrade-impossible",
            severity=Severity.FATAL,
            subjects=(METADATA_VERSION,),
            read=places,
            evidence=f"{METADATA_VERSION} is {level}, the release has {target}, and the levels {listed(lost)} between "
            "them changed the metadata",
        )
    elif target < level:
        yield Finding(
            id="before-downgrade",
            severity=Severity.ERROR,
            subjects=(METADATA_VERSION,),
            read=places,
            evidence=f"{METADATA_VERSION} is {level}, and the release has {target}",
            remedy="Lower the level before the software: kraft features downgrade --feature "
            f"{METADATA_VERSION}={target}",
        )


def _remove_voter(facts: Facts, node_id: int | None) -> Reasons:
    assert node_id is not None
    quorum = facts.quorum
    if quorum.kraft_version == 0:
        yield Severity.FATAL, "the quorum is static (kraft.version 0): voters cannot be removed"
        return
    if node_id not in quorum.ids:
        yield Severity.ERROR, f"{node_id} is not among the voters {listed(quorum.ids)}"
        return
    left = [voter for voter in quorum.ids if voter != node_id]
    if not left:
        yield Severity.FATAL, f"{node_id} is the only voter"
        return
    if len(left) % 2 == 0 or len(left) == 1:
        yield Severity.WARN, f"{len(left)} voters remain ({listed(left)}): {len(left) - majority(len(left))} may fail"
    state = {voter: is_up for voter, is_up in caught_up(facts).items() if voter != node_id}
    up, wanted = sum(is_up is True for is_up in state.values()), majority(len(left))
    if up < wanted:
        is_open = up + sum(is_up is None for is_up in state.values()) >= wanted
        yield (
            Severity.ERROR if is_open else Severity.FATAL,
            f"the majority of the {len(left)} remaining voters is {wanted}: {_told(state)}",
        )
    node = _node(facts, node_id)
    if node is not None and node.settings is not None and node.settings.flag(AUTO_JOIN):
        yield Severity.ERROR, f"{node.settings.where(AUTO_JOIN)} is true: node {node_id} adds itself again"


def _add_voter(facts: Facts, node_id: int | None) -> Reasons:
    assert node_id is not None
    quorum, node = facts.quorum, _node(facts, node_id)
    if quorum.kraft_version == 0:
        yield Severity.FATAL, "the quorum is static (kraft.version 0): voters cannot be added"
        return
    voter = quorum.find(node_id)
    if voter is not None:
        same = node is None or node.directory_id in {None, voter.directory_id}
        what = "is a voter already" if same else f"is still a voter with directory {voter.directory_id}"
        yield Severity.FATAL, f"{node_id} {what}"
    if node is None:
        yield Severity.WARN, f"node {node_id} was not given: its log and its listeners are not known"
        return
    best = facts.best
    if best is not None and best.log is not None and best is not node:
        end = 0 if node.log is None else node.log.end_offset
        if end < best.log.end_offset - LAG_RECORDS:
            yield Severity.ERROR, f"node {node_id} ends at offset {end}, and the best copy at {best.log.end_offset}"
    if node.settings is not None and quorum.voters and quorum.voters[0].endpoints:
        names = {name for name, _, _ in quorum.voters[0].endpoints}
        if not names & set(node.settings.advertised):
            yield Severity.ERROR, f"node {node_id} has none of the voters' listeners {listed(sorted(names))}"


def _decommission(facts: Facts, node_id: int | None) -> Reasons:
    assert node_id is not None
    if facts.image is None:
        yield Severity.ERROR, "no metadata could be read"
        return
    image = facts.image.image
    if node_id not in image.brokers.by_id:
        yield Severity.ERROR, f"broker {node_id} is not registered"
        return
    alone = [
        one for one in partitions(facts.image) if one[2].isr == (node_id,) or (not one[2].isr and node_id in one[2].elr)
    ]
    if alone:
        yield Severity.FATAL, f"{len(alone):,} partitions have no other replica in sync: {listed(map(named, alone))}"
    hosted = [one for one in partitions(facts.image) if node_id in one[2].replicas]
    if len(hosted) > len(alone):
        yield Severity.ERROR, f"{len(hosted):,} partitions have a replica on broker {node_id}"
    brokers = len(image.brokers.by_id) - 1
    wide = sorted({one[0].name for one in partitions(facts.image) if len(one[2].replicas) > brokers})
    if wide:
        yield Severity.ERROR, f"{brokers} brokers are too few for the replication factor of {listed(wide)}"


def _restore(facts: Facts, node_id: int | None) -> Reasons:
    """The directory of a node, restored from a backup, against what the quorum and the other copies know."""
    assert node_id is not None
    node, live = _node(facts, node_id), facts.live
    if node is None or node.log is None:
        yield Severity.ERROR, f"no directory of node {node_id} with a metadata log was given"
        return
    log, others = node.log, [one for one in facts.nodes if one is not node]
    running = [] if live is None else [one for one in live.answers if one.id == node_id and not one.problem]
    if running:
        yield Severity.FATAL, f"node {node_id} answers at {running[0].address}: the node runs on another directory"
    owners = {one.name for one in others if node.directory_id is not None and one.directory_id == node.directory_id}
    if live is not None:
        fetchers = (*live.voters, *live.fetching)
        owners |= {f"node {one.id}" for one in fetchers if one.id != node_id and one.directory_id == node.directory_id}
    if owners:
        yield Severity.FATAL, f"the directory id {node.directory_id} is in use: {listed(sorted(owners))}"
    epochs = [0 if live is None else live.leader_epoch, *(_epoch(one.log) for one in others if one.log is not None)]
    if max(epochs) > _epoch(log):
        what = f"the copy knows epoch {_epoch(log)}, and the quorum has reached epoch {max(epochs)}"
        yield Severity.ERROR, f"{what}: votes and acknowledgements of the node since then are forgotten"
    best = max((one.log for one in others if one.log is not None), key=lambda one: one.position, default=None)
    if best is not None and log.position < best.position:
        yield (
            Severity.ERROR,
            f"the copy ends at offset {log.end_offset} in epoch {log.last_epoch}, and {best.path} at offset "
            f"{best.end_offset} in epoch {best.last_epoch}",
        )
    elif live is not None and live.leader is not None and log.end_offset < live.leader.log_end_offset - LAG_RECORDS:
        yield (
            Severity.ERROR,
            f"the copy ends at offset {log.end_offset}, and the leader at {live.leader.log_end_offset}",
        )


def _epoch(log: LogFacts) -> int:
    return max(log.last_epoch, 0 if log.quorum_state is None else log.quorum_state.leader_epoch)


def _quorum_config(facts: Facts) -> Reasons:
    """The quorum of the given properties files against the one of the log."""
    configured = [(node, node.settings) for node in facts.nodes if node.settings is not None]
    best, live = facts.best, facts.live
    if not configured:
        yield Severity.ERROR, "no properties file was given (-c)"
    if best is not None and best.log is not None:
        level = best.log.kraft_version
        old = set(best.log.elections[-1].voters) if best.log.elections else set()
    else:
        level = facts.quorum.kraft_version if live is None or live.leader is None else int(_has_directories(live))
        old = set() if live is None else {one.id for one in live.voters}
    if level is None or (level == 0 and not old):
        yield Severity.ERROR, "neither a log nor a live quorum names the present voters"
    sets = {tuple(sorted(one.id for one in settings.voters)) for _, settings in configured if settings.voters}
    if level != 1 and len(sets) > 1:
        yield Severity.FATAL, f"{VOTERS} is not the same in all files: {'; '.join(listed(one) for one in sorted(sets))}"
    for node, settings in configured:
        new = {one.id for one in settings.voters}
        if level == 1 and settings.words(VOTERS):
            yield Severity.WARN, f"{VOTERS} of {node.name} has no effect: the log has kraft.version 1"
        elif level == 0 and not new and facts.is_controller(node):
            yield Severity.FATAL, f"{settings.source} does not set {VOTERS}, and the log has kraft.version 0"
        elif level == 0 and old and new != old and majority(len(old)) + majority(len(new)) <= len(old | new):
            what = f"a majority of the voters {listed(sorted(new))} of {settings.source}"
            yield (
                Severity.FATAL,
                f"{what} need not have a voter of a majority of the present ones: {listed(sorted(old))}",
            )


def _has_directories(live: LiveFacts) -> bool:
    return any(one.directory_id != Uuid.ZERO for one in live.voters)


_STEPS: Final[dict[str, Callable[[Facts, int | None], Reasons]]] = {
    "restart": _restart,
    "format": _format,
    "remove-voter": _remove_voter,
    "add-voter": _add_voter,
    "decommission": _decommission,
    "restore": _restore,
    "quorum-config": lambda facts, node_id: _quorum_config(facts),
}
OPERATIONS: Final = ("start", "upgrade", "downgrade", UNCLEAN_ELECTION, *_STEPS)
"""The names of the steps that can be planned."""


def is_safe(reasons: list[Finding]) -> bool:
    """Whether nothing speaks against the step but warnings."""
    return not any(one.severity in {Severity.FATAL, Severity.ERROR} for one in reasons)
