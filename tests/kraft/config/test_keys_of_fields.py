"""Each setting of a part of a node is one field of one struct, which names its key and has Kafka's default."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import NODEFAULT, Struct, structs

import kraft
from kraft.config import Config
from kraft.config.definitions import NODE, OF_QUOTAS, checked
from kraft.config.key import Key, keys_of
from kraft.config.keys import NUMBERS, TEXTS

CODE: Final = Path(kraft.__file__).parent
BESIDE: Final = {
    "AdminSettings": (),
    "AuthorizerSettings": (),
    "BrokerOptions": ("clean_directories", "directories", "inter_broker_listener", "paths", "previous_epoch"),
    "CleanerSettings": (),
    "ConnectionSettings": (),
    "ConsumerGroupConfig": (),
    "DataSettings": ("broker_id", "change_weight", "directories", "logs_per_step", "new_log_weight", "static"),
    "DecisionSettings": (),
    "GroupConfig": (),
    "MetricsSettings": (),
    "QuorumConfig": ("fetch_max_wait_ms", "high_watermark_propagation_delay_ms", "observer_timeout_ms"),
    "ReplicaOptions": (
        *("bootstrap", "cluster_id", "directory", "endpoints", "inline_flush", "judged_per_turn", "listener"),
        *("make_core", "max_uncommitted_bytes", "max_waiting", "may_vote", "node_id", "voters"),
    ),
    "ReplicationSettings": (),
    "RequestSettings": (
        *("broker_id", "cluster_id", "inter_broker_listener", "most_waiting", "own_settings", "session_eviction_ms"),
    ),
    "ShareCoordinatorConfig": (),
    "ShareGroupConfig": (),
    "ShareLeaderConfig": (),
    "SnapshotOptions": ("clean_every_ms",),
    "StreamsGroupConfig": (),
    "TelemetryConfig": (),
    "TokenSettings": (),
    "TopicDefaults": ("node_id",),
    "TransactionConfig": (),
}
"""The structs with keys, and their fields without one: what a node knows from its disks and its listeners, and what
Kafka has no setting for.
"""
OF_A_NODE: Final = (
    *("process.roles", "node.id", "controller.listener.names", "listeners", "advertised.listeners", "log.dirs"),
    *("inter.broker.listener.name", "security.inter.broker.protocol", "listener.security.protocol.map", "log.dir"),
    *("controller.quorum.voters", "controller.quorum.bootstrap.servers", "metadata.log.dir", "early.start.listeners"),
    *("config.providers", "sasl.enabled.mechanisms", "sasl.mechanism.controller.protocol"),
    *("sasl.mechanism.inter.broker.protocol", "connections.max.reauth.ms"),
)
"""The settings of `Config` itself: the place of a node, and its listeners with their certificates and logins."""
NO_LIMIT: Final = ("log.flush.scheduler.interval.ms", "replica.alter.log.dirs.io.max.bytes.per.second")
"""Kafka's greatest number, for which there is a word of our own."""
DERIVED: Final = (
    "metadata.max.retention.bytes",
    "quota.window.size.seconds",
    "leader.imbalance.check.interval.seconds",
)


@cache
def settings_structs() -> tuple[type[Struct], ...]:
    """Every struct with a field that names a key."""
    found: dict[str, type[Struct]] = {}
    for path in sorted(CODE.rglob("*.py")):
        text = path.read_text("utf-8")
        if "from kraft.config.key import" not in text:
            continue
        module = importlib.import_module(".".join(("kraft", *path.relative_to(CODE).with_suffix("").parts)))
        for node in ast.parse(text).body:
            one = getattr(module, node.name, None) if isinstance(node, ast.ClassDef) else None
            if (
                isinstance(one, type)
                and issubclass(one, Struct)
                and any(isinstance(k, Key) for k in keys_of(one).values())
            ):
                found[one.__name__] = one
    return tuple(found.values())


def test_each_field_has_a_key_or_is_no_setting() -> None:
    beside = {
        one.__name__: tuple(sorted(set(one.__struct_fields__) - keys_of(one).keys())) for one in settings_structs()
    }
    assert beside == {name: tuple(sorted(fields)) for name, fields in BESIDE.items()}


def test_each_key_is_read_by_one_field() -> None:
    keys = [key for one in settings_structs() for key in keys_of(one).values() if isinstance(key, Key)]
    named = Counter(name for key in keys for name in key.names)
    assert [name for name, times in named.items() if times > 1] == []
    assert (NUMBERS.keys() | TEXTS.keys()) - named.keys() == set(OF_A_NODE)
    assert [name for name in OF_A_NODE if name in named] == []


@pytest.mark.parametrize("struct", settings_structs(), ids=lambda one: one.__name__)
def test_the_defaults_are_kafkas(struct: type[Struct]) -> None:
    fields = {one.name: one for one in structs.fields(struct)}
    for name, key in keys_of(struct).items():
        if not isinstance(key, Key) or key.names[0] in (*NO_LIMIT, *DERIVED):
            continue
        own, definition = fields[name], NODE.get(key.names[0]) or OF_QUOTAS.get(key.names[0])
        assert own.default is not NODEFAULT, name
        if key.names[0] in NUMBERS:
            assert own.default == NUMBERS[key.names[0]].default, name
        elif definition is None or definition.default is None or key.read is not None:
            assert built(struct, name) == own.default, name
        else:
            assert checked(definition, definition.default) == own.default, name


def built(struct: type[Struct], field: str) -> Any:
    """What a file without settings makes of a field."""
    facts = {one.name: None for one in structs.fields(struct) if one.required}
    return getattr(Config(node_id=1, voters=(), listeners=()).of(struct, **facts), field)


@pytest.mark.parametrize("struct", settings_structs(), ids=lambda one: one.__name__)
def test_a_file_without_settings_makes_the_defaults(struct: type[Struct]) -> None:
    facts = {one.name: None for one in structs.fields(struct) if one.required}
    assert Config(node_id=1, voters=(), listeners=()).of(struct, **facts) == struct(**facts)
