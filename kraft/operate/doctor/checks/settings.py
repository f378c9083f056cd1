"""Checks of single properties files, and of listeners and time-outs between nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kraft.config.addresses import ListenerSpec
from kraft.config.config import judged
from kraft.config.errors import ConfigError
from kraft.config.unknown_keys import unknown_keys
from kraft.operate.doctor.checks.check import Check, bytes_text, listed
from kraft.operate.doctor.facts.finding import Finding, Need, Severity
from kraft.operate.doctor.facts.node import Facts, Node
from kraft.operate.doctor.facts.settings import CONTROLLER_NAMES, PROTOCOL_MAP, Settings
from metadata_log.records.redact import REDACTED

FETCH: Final = "controller.quorum.fetch.timeout.ms"
ELECTION: Final = "controller.quorum.election.timeout.ms"
REQUEST: Final = "controller.quorum.request.timeout.ms"
SESSION: Final = "broker.session.timeout.ms"
HEARTBEAT: Final = "broker.heartbeat.interval.ms"
SHORTEST_FETCH_MS: Final = 500
SMALL_RETENTION_BYTES: Final = 10 << 20
SMALL_RETENTION_MS: Final = 3_600_000
SMALL_DISK_BYTES: Final = 20 << 30


def config_refused(facts: Facts) -> Iterator[Finding]:
    """Settings with which a node does not start, whether it is ours or Kafka's."""
    for node, settings in facts.configured():
        if (error := judged(settings.values, settings.source).refused) is not None:
            yield _of_verdict("config-refused", Severity.FATAL, node, error)


def config_not_supported(facts: Facts) -> Iterator[Finding]:
    """Settings with which `kraft serve` does not start, and Kafka may."""
    for node, settings in facts.configured():
        if any(REDACTED in one.value for one in settings.values.values()):
            continue  # a bundle has no secrets, without which a login cannot be judged
        if (error := judged(settings.values, settings.source).not_supported) is not None:
            yield _of_verdict("config-not-supported", Severity.WARN, node, error)


def config_not_for_kafka(facts: Facts) -> Iterator[Finding]:
    """Settings with which Kafka does not start."""
    for node, settings in facts.configured():
        for error in judged(settings.values, settings.source).not_for_kafka:
            yield _of_verdict("config-not-for-kafka", Severity.WARN, node, error)


def setting_unknown(facts: Facts) -> Iterator[Finding]:
    """Keys that nobody knows: a warning for each that may mean a known one, and one note about the others."""
    for node, settings in facts.configured():
        unknown = list(unknown_keys(settings.values))
        for one in unknown:
            if one.nearest is not None:
                yield Finding(
                    id="setting-unknown",
                    severity=Severity.WARN,
                    nodes=(node.name,),
                    subjects=(one.key,),
                    read=(f"{one.where}: {one.key}",),
                    evidence=f"there is no setting {one.key}{one.advice}",
                    remedy=f"Write {one.nearest}, or leave the line out",
                )
        if others := [one for one in unknown if one.nearest is None]:
            yield Finding(
                id="setting-unknown",
                severity=Severity.INFO,
                nodes=(node.name,),
                subjects=tuple(one.key for one in others),
                read=tuple(f"{one.where}: {one.key}" for one in others),
                evidence=f"neither Kafka nor kraft serve has a setting {listed(one.key for one in others)}",
            )


def _of_verdict(check: str, severity: Severity, node: Node, error: ConfigError) -> Finding:
    return Finding(
        id=check,
        severity=severity,
        nodes=(node.name,),
        read=(error.where or node.name,),
        evidence=error.what,
        remedy=error.hint or "",
    )


def metadata_retention(facts: Facts) -> Iterator[Finding]:
    """Retention of the metadata log that is tiny, or endless on a small disk."""
    for node, settings in facts.configured():
        size = settings.number("metadata.max.retention.bytes")
        age = settings.number("metadata.max.retention.ms")
        wrong = []
        if 0 <= size < SMALL_RETENTION_BYTES:
            wrong.append(("metadata.max.retention.bytes", f"is {size}, below {bytes_text(SMALL_RETENTION_BYTES)}"))
        if 0 <= age < SMALL_RETENTION_MS:
            wrong.append(("metadata.max.retention.ms", f"is {age}, below one hour"))
        directory = node.metadata_directory
        host = None if directory is None else directory.host
        if size < 0 and host is not None and host.total_bytes < SMALL_DISK_BYTES:
            what = f"is {size}, and the disk has {bytes_text(host.total_bytes)}"
            wrong.append(("metadata.max.retention.bytes", what))
        for key, what in wrong:
            yield Finding(
                id="metadata-retention",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(key,),
                read=(settings.where(key),),
                evidence=f"{key} {what}",
            )


def quorum_timeouts(facts: Facts) -> Iterator[Finding]:
    """Time-outs of a voter that are short or contradict each other, and those that differ between voters."""
    controllers = [(node, settings) for node, settings in facts.configured() if facts.is_controller(node)]
    for node, settings in controllers:
        fetch, election, request = (settings.number(key) for key in (FETCH, ELECTION, REQUEST))
        wrong = []
        if fetch < SHORTEST_FETCH_MS:
            wrong.append(f"{FETCH} is {fetch}, below {SHORTEST_FETCH_MS}")
        if election > 2 * fetch:
            wrong.append(f"{ELECTION} is {election}, more than twice {FETCH} ({fetch})")
        if fetch < request and (FETCH in settings.values or REQUEST in settings.values):
            wrong.append(f"{FETCH} is {fetch}, below {REQUEST} ({request})")
        if wrong:
            yield Finding(
                id="quorum-timeouts",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=(FETCH, ELECTION, REQUEST),
                read=tuple(settings.where(key) for key in (FETCH, ELECTION, REQUEST) if key in settings.values),
                evidence="; ".join(wrong),
            )
    for key in (FETCH, ELECTION):
        values = {node.name: settings.number(key) for node, settings in controllers}
        if len(set(values.values())) > 1:
            yield Finding(
                id="quorum-timeouts",
                severity=Severity.WARN,
                nodes=tuple(values),
                subjects=(key,),
                read=tuple(settings.where(key) for _, settings in controllers),
                evidence=f"{key} differs: " + listed(f"{name} has {value}" for name, value in values.items()),
            )


def session_timeouts(facts: Facts) -> Iterator[Finding]:
    """A session time-out that two heartbeats do not fit into, on one node or between controllers and brokers."""
    every = list(facts.configured())
    for node, settings in every:
        yield from _session(node, settings, settings)
    for node, settings in every:
        for other, theirs in every:
            is_between = other is not node and facts.is_controller(node) and facts.is_broker(other)
            alone = any(True for _ in _session(node, settings, settings)) or any(
                True for _ in _session(other, theirs, theirs)
            )
            if is_between and not alone:
                yield from _session(node, settings, theirs, other)
    values = {node.name: settings.number(SESSION) for node, settings in every if facts.is_controller(node)}
    if len(set(values.values())) > 1:
        yield Finding(
            id="session-timeouts",
            severity=Severity.ERROR,
            nodes=tuple(values),
            subjects=(SESSION,),
            read=tuple(settings.where(SESSION) for node, settings in every if facts.is_controller(node)),
            evidence=f"{SESSION} differs: " + listed(f"{name} has {value}" for name, value in values.items()),
        )


def _session(node: Node, settings: Settings, theirs: Settings, other: Node | None = None) -> Iterator[Finding]:
    session, heartbeat = settings.number(SESSION), theirs.number(HEARTBEAT)
    if session > 2 * heartbeat:
        return
    where = "" if other is None else f" of {other.name}"
    yield Finding(
        id="session-timeouts",
        severity=Severity.ERROR if session < 2 * heartbeat else Severity.WARN,
        nodes=(node.name,) if other is None else (node.name, other.name),
        subjects=(SESSION, HEARTBEAT),
        read=(settings.where(SESSION), theirs.where(HEARTBEAT)),
        evidence=f"{SESSION} is {session}, and {HEARTBEAT}{where} is {heartbeat}",
    )


# --------------------------------------------------------------------------------------------------------- listeners


def listener_map(facts: Facts) -> Iterator[Finding]:
    """Names of listeners that have no protocol, no listener, or another name than the voter set."""
    for node, settings in facts.configured():
        for evidence, key, names in _wrong_listeners(facts, node, settings):
            missing = ",".join(f"{name}:PLAINTEXT" for name in names)
            yield Finding(
                id="listener-map",
                severity=Severity.FATAL,
                nodes=(node.name,),
                subjects=names,
                read=(settings.where(key), settings.where("listeners")),
                evidence=evidence,
                remedy=f"Add {missing}, or the protocol in use, to {PROTOCOL_MAP}" if key == PROTOCOL_MAP else "",
            )


def _wrong_listeners(facts: Facts, node: Node, settings: Settings) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Evidence, key and listener names of each contradiction."""
    bound = tuple(one.name for one in settings.listeners)
    controllers = settings.controller_names
    protocols = settings.protocols()
    unmapped = tuple(dict.fromkeys(name for name in (*bound, *controllers) if name not in protocols))
    if unmapped:
        yield f"{listed(unmapped)} has no entry in {PROTOCOL_MAP}", PROTOCOL_MAP, unmapped
    if not controllers and settings.roles:
        yield f"{CONTROLLER_NAMES} is not set", CONTROLLER_NAMES, ()
    is_controller, is_broker = facts.is_controller(node), facts.is_broker(node)
    if is_controller and bound:
        absent = tuple(name for name in controllers if name not in bound)
        if absent:
            what = f"{listed(absent)} in {CONTROLLER_NAMES} is not among the listeners ({listed(bound)})"
            yield what, CONTROLLER_NAMES, absent
    if is_controller and not is_broker:
        others = tuple(name for name in bound if name not in controllers)
        if others and controllers:
            yield f"{listed(others)} is a listener of a node that is only a controller", "listeners", others
    if is_broker and not is_controller:
        foreign = tuple(name for name in settings.advertised if name in controllers)
        if foreign:
            yield f"the broker has the controller listener {listed(foreign)}", "listeners", foreign
    voter = facts.quorum.find(settings.node_id)
    if is_controller and voter is not None and facts.quorum.kraft_version == 1 and controllers:
        names = tuple(name for name, _, _ in voter.endpoints)
        if names and controllers[0] not in names:
            what = f"{CONTROLLER_NAMES} begins with {controllers[0]}, and the voter set has {listed(names)}"
            yield what, CONTROLLER_NAMES, (controllers[0],)


def controller_listener_mismatch(facts: Facts) -> Iterator[Finding]:
    """First controller listeners with different names or protocols."""
    owners: dict[tuple[str, str], list[tuple[Node, Settings]]] = defaultdict(list)
    for node, settings in facts.configured():
        if settings.controller_names:
            name = settings.controller_names[0]
            owners[name, settings.protocols().get(name, "?")].append((node, settings))
    known = [pair for pair in owners if pair[1] != "?"]
    if len(known) < 2:
        return
    yield Finding(
        id="controller-listener-mismatch",
        severity=Severity.FATAL,
        nodes=tuple(node.name for pair in known for node, _ in owners[pair]),
        subjects=tuple(dict.fromkeys(name for name, _ in known)),
        read=tuple(settings.where(CONTROLLER_NAMES) for pair in known for _, settings in owners[pair]),
        evidence="; ".join(
            f"{listed(node.name for node, _ in owners[pair])}: {pair[0]} with {pair[1]}" for pair in known
        ),
    )


def _is_loopback(host: str) -> bool:
    return ListenerSpec("", host, 0).is_loopback


def advertised_loopback(facts: Facts) -> Iterator[Finding]:
    """A loopback address for other nodes, while other nodes are on other hosts."""
    for node, settings in facts.configured():
        others = [one.host for one in settings.voters if one.id != settings.node_id]
        others += [host for host, _ in settings.bootstrap_servers]
        others += [
            one.host for other, theirs in facts.configured() if other is not node for one in theirs.advertised.values()
        ]
        remote = [host for host in others if host and not _is_loopback(host) and host not in {"0.0.0.0", "::"}]
        is_told = "advertised.listeners" in settings.values
        loopback = [
            one
            for one in settings.advertised.values()
            if one.host and (_is_loopback(one.host) or (is_told and one.host in {"0.0.0.0", "::"}))
        ]
        if remote and loopback:
            key = "advertised.listeners" if is_told else "listeners"
            hosts = listed(dict.fromkeys(remote))
            yield Finding(
                id="advertised-loopback",
                severity=Severity.ERROR,
                nodes=(node.name,),
                subjects=tuple(one.name for one in loopback),
                read=(settings.where(key),),
                evidence=f"{listed(loopback)} is for this host only, and other nodes are at {hosts}",
            )


def plaintext_controller(facts: Facts) -> Iterator[Finding]:
    """A controller listener in plaintext that other hosts reach."""
    for node, settings in facts.configured():
        if not facts.is_controller(node):
            continue
        protocols = settings.protocols()
        exposed = [
            one
            for one in settings.listeners
            if one.name in settings.controller_names
            and protocols.get(one.name) == "PLAINTEXT"
            and not (one.host and _is_loopback(one.host))
        ]
        if exposed:
            yield Finding(
                id="plaintext-controller",
                severity=Severity.WARN,
                nodes=(node.name,),
                subjects=tuple(one.name for one in exposed),
                read=(settings.where("listeners"), settings.where(PROTOCOL_MAP)),
                evidence=f"controller listener {listed(one.name for one in exposed)} is PLAINTEXT on an address that "
                "other hosts reach",
            )


CHECKS: Final = (
    Check("config-refused", config_refused, (Need.SETTINGS,)),
    Check("config-not-supported", config_not_supported, (Need.SETTINGS,)),
    Check("config-not-for-kafka", config_not_for_kafka, (Need.SETTINGS,)),
    Check("setting-unknown", setting_unknown, (Need.SETTINGS,)),
    Check("metadata-retention", metadata_retention, (Need.SETTINGS,)),
    Check("quorum-timeouts", quorum_timeouts, (Need.SETTINGS,)),
    Check("session-timeouts", session_timeouts, (Need.SETTINGS,)),
    Check("listener-map", listener_map, (Need.SETTINGS,)),
    Check("controller-listener-mismatch", controller_listener_mismatch, (Need.SETTINGS, Need.SEVERAL)),
    Check("advertised-loopback", advertised_loopback, (Need.SETTINGS,)),
    Check("plaintext-controller", plaintext_controller, (Need.SETTINGS,)),
)
