"""Keys that nobody knows: each names the known key that it may mean, and its line."""

from __future__ import annotations

import pytest

from kraft.config import Config
from kraft.config.kafka_keys import READ
from kraft.config.properties import parse_properties
from kraft.config.unknown_keys import near, unknown_keys

GOOD = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
"""


def unknown(text: str) -> list[tuple[str, str | None]]:
    return [(one.where, one.nearest) for one in unknown_keys(parse_properties(text, source="f"))]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("listner", "listeners"),
        ("log.dirz", "log.dirs"),
        ("Log.Dirs", "log.dirs"),
        ("log_dir", "log.dir"),
        ("proces.roles", "process.roles"),
        ("nodeid", "node.id"),
        ("num.partition", "num.partitions"),
        ("controler.quorum.voters", "controller.quorum.voters"),
        ("metadata.log.dirs", "metadata.log.dir"),
        ("listener.nam.client.ssl.keystore.location", "listener.name.client.ssl.keystore.location"),
        ("listener.name.client.ssl.keystore.lcation", "listener.name.client.ssl.keystore.location"),
        ("listener.name.client.plain.sasl.jas.config", "listener.name.client.plain.sasl.jaas.config"),
    ],
)
def test_an_optional_key_with_a_wrong_letter_names_the_right_one(typed: str, meant: str) -> None:
    assert unknown(f"{GOOD}{typed}=x\n") == [("f:6", meant)]
    assert [one for one in Config.parse(f"{GOOD}{typed}=x\n", source="f").warnings if "unknown" in one] == [
        f"unknown setting {typed}; did you mean {meant}? (f:6)"
    ]


def test_every_key_that_is_read_is_found_by_a_letter_less() -> None:
    for key in sorted(READ)[::40]:
        assert near(key[:3] + key[4:], READ) in {key, key[:3] + key[4:]}, key


@pytest.mark.parametrize(
    "line",
    [
        "listener.name.client.scram-sha-256.sasl.jaas.config=x",
        "listener.name.client.ssl.keystore.location=x",
        "listener.name.client.com.example.whatever=x",
        "config.providers.env.class=x",
        "rlmm.config.anything=x",
        "zookeeper.connect=x",
    ],
)
def test_keys_with_free_names_are_no_near_misses(line: str) -> None:
    assert unknown(line) == []
