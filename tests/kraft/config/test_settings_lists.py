"""Each of Kafka's settings is read, refused unless it has its default, or without effect: lists, code and page."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from kraft.config import Config, ConfigError
from kraft.config.definitions import GROUP, NODE, TOPIC, checked
from kraft.config.group_synonyms import group_bounds, group_synonym
from kraft.config.kafka_keys import READ, REFUSED, WITHOUT_EFFECT
from kraft.config.keys import SEGMENT_BYTES_OVERRIDE
from kraft.config.topic_synonyms import TOPIC_SYNONYMS
from support import ROOT

CODE: Final = ROOT / "kraft"
TABLES: Final = frozenset(
    (
        "config/kafka_table.py",
        "config/kafka_keys.py",
        "config/keys.py",
        "config/checks.py",
        "config/config.py",
        "config/described.py",
        "config/topic_synonyms.py",
        "broker/metadata/config_changes.py",
        "broker/metadata/settings_together.py",
    )
)
"""The modules that name settings without reading them."""
READERS: Final = frozenset(("config/config.py",))
"""Those of them that read some, by methods of the reader."""
NO_NODE: Final = (
    "sim/",
    "local/",
    "testing/",
    "operate/",
    "cli/",
    "invariants/",
    "history_checker/",
    "client/",
    "admin/",
)
"""What is no part of a node."""
BY_PARTS: Final = ("sasl.oauthbearer.", "sasl.oauthbearer.client.credentials.client.")
"""The beginnings of keys that the code puts together."""
GOOD: Final = """\
process.roles=broker
node.id=101
controller.quorum.voters=1@127.0.0.1:9001
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9101
log.dirs=/var/lib/kraft
"""


def named_in_code() -> frozenset[str]:
    """Every setting that the code of a node reads: its key stands there."""
    texts: set[str] = set()
    for path in CODE.rglob("*.py"):
        place = path.relative_to(CODE).as_posix()
        if place in TABLES - READERS or place.startswith(NO_NODE):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if place not in TABLES:
                    texts |= {text, *(before + text for before in BY_PARTS)}
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="reader")), args=[ast.Constant(value=str(text)), *_]
                ):
                    texts.add(text)
                case _:
                    pass
    of_topics = {one.name for key, synonyms in TOPIC_SYNONYMS.items() if key in texts for one in synonyms}
    of_groups = {one for key in GROUP for one in (group_synonym(key), *group_bounds(key)) if one is not None}
    return frozenset(texts | of_topics | of_groups)


def test_each_setting_is_in_one_list() -> None:
    lists = (READ, REFUSED.keys(), WITHOUT_EFFECT)
    for key in NODE:
        assert sum(key in one for one in lists) == 1, key
    assert {key for one in lists for key in one} == NODE.keys()


def test_what_is_read_stands_in_the_code_and_what_has_no_effect_does_not() -> None:
    named = named_in_code()
    assert sorted(READ - named) == [SEGMENT_BYTES_OVERRIDE], "which the reader of numbers knows by its name"
    assert sorted(WITHOUT_EFFECT & named) == []
    assert sorted(REFUSED.keys() & named) == []


@pytest.mark.parametrize("key", REFUSED)
def test_a_setting_that_restricts_what_does_not_exist_here_is_refused(key: str) -> None:
    value = {"BOOLEAN": "true", "INT": "5"}.get(NODE[key].type, "com.example.Any")
    for name in (key, f"listener.name.plaintext.{key}"):
        with pytest.raises(ConfigError, match="only") as caught:
            Config.parse(GOOD, overrides=[f"{name}={value}"])
        assert REFUSED[key] in str(caught.value.hint)
    default = NODE[key].default
    if default is not None:
        checked(NODE[key], default)
        Config.parse(GOOD, overrides=[f"{key}={default}"])


def test_a_broker_has_no_tiered_storage_and_a_controller_alone_allows_its_topics() -> None:
    line = "remote.log.storage.system.enable=true"
    with pytest.raises(ConfigError, match="allowed is false only"):
        Config.parse(GOOD, overrides=[line])
    listeners = "listeners=CONTROLLER://127.0.0.1:9093"
    without_broker = [line, "process.roles=controller", "controller.quorum.voters=101@127.0.0.1:9093", listeners]
    assert Config.parse(GOOD, overrides=without_broker).is_controller
    Config.parse(GOOD, overrides=["remote.log.storage.system.enable=false"])


def test_the_page_names_each_setting_that_is_refused_or_without_effect() -> None:
    page = (ROOT / "docs/configuration.md").read_text("utf-8")
    refused, _, rest = page.partition("## Settings that are refused")[2].partition("## Settings without effect")
    idle = rest.partition("\n## ")[0]
    for key, reason in REFUSED.items():
        assert f"| `{key}` | {NODE[key].default or 'empty'} | {reason} |" in refused
    assert idle.split(":\n\n")[1].strip() == ", ".join(f"`{key}`" for key in sorted(WITHOUT_EFFECT)) + "."


def test_every_default_is_allowed() -> None:
    for table in (NODE, TOPIC):
        for key in table.values():
            if key.default is not None:
                checked(key, key.default)


@pytest.mark.parametrize(
    ("line", "role", "is_warned"),
    [
        ("broker.id=101", "broker", False),
        ("num.partitions=3", "broker", True),
        ("default.replication.factor=3", "broker", True),
        ("num.partitions=3", "controller", False),
        ("group.coordinator.rebalance.protocols=classic,consumer", "broker", True),
        ("min.insync.replicas=2", "broker", False),
    ],
)
def test_settings_that_kafka_will_give_up_are_warned_about(line: str, role: str, is_warned: bool) -> None:
    """As Kafka 4.4.0 does at a start."""
    text = GOOD
    if role == "controller":
        text = text.replace("roles=broker", "roles=controller").replace("PLAINTEXT://", "CONTROLLER://")
        text = text.replace("1@127.0.0.1:9001", "101@127.0.0.1:9101")
    key = line.partition("=")[0]
    warned = [one for one in Config.parse(f"{text}{line}\n", source="f").warnings if one.startswith(f"{key} ")]
    assert bool(warned) is is_warned
    assert all(one.endswith("(f:7)") for one in warned)


def test_an_id_under_its_old_name_alone_is_warned_about() -> None:
    found = Config.parse(GOOD.replace("node.id", "broker.id"), source="f")
    assert found.node_id == 101
    assert found.warnings == ("broker.id is deprecated: use node.id instead (f:2)",)
