"""Thousands of properties files with the verdict of Kafka's own class: ours is the same, or the page says why."""

from __future__ import annotations

import json
import lzma
from typing import Final

import pytest

from kraft.config import Config, ConfigError
from kraft.config.definitions import NODE
from kraft.config.keys import NARROWER
from support import ROOT
from support.listener_files import files, stored

VERDICTS: Final = json.loads(lzma.decompress((ROOT / "tests/data/config_verdicts.json.xz").read_bytes()))
PAGE: Final = (ROOT / "docs/differences.md").read_text("utf-8")


def ours(text: str) -> str:
    try:
        Config.parse(text)
    except ConfigError:
        return "refused"
    return "read"


@pytest.mark.parametrize("name", VERDICTS)
def test_a_file_is_read_or_refused_as_by_kafka(name: str) -> None:
    case = VERDICTS[name]
    is_same, is_named = ours(case["properties"]) == case["kafka"], f"`{name}`" in PAGE
    assert is_same or is_named, f"Kafka: {case['kafka']}, {case['kafka_says']}"
    assert not (is_same and is_named), "the page of differences names a case without a difference"


def test_numbers_that_are_bounded_closer_than_kafkas_are_on_the_page() -> None:
    assert NARROWER
    for key in NARROWER:
        assert key in NODE
        assert f"`{key}`" in PAGE


# 9,312 properties files with settings of listeners.


BROKER = """\
process.roles=broker
node.id=101
controller.quorum.voters=1@127.0.0.1:9001
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT
listeners=A://127.0.0.1:9092,B://127.0.0.1:9093
log.dirs=/var/lib/kraft
"""


def is_read(text: str) -> bool:
    try:
        Config.parse(text)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("part", range(3))
def test_a_file_with_listeners_is_read_or_refused_as_by_kafka(part: int) -> None:
    every = list(zip(files(), stored(), strict=True))
    assert len(every) == 9312
    assert sum(theirs for _, theirs in every) == 250
    lenient = 0
    for text, theirs in every[part::3]:
        ours = is_read(text)
        # The page of differences: without both settings the first listener is that between brokers.
        if ours and not theirs and "inter.broker" not in text:
            lenient += 1
            continue
        assert ours == theirs, text
    assert lenient < 20


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            "inter.broker.listener.name=B\nadvertised.listeners=A://h:9092\n",
            "inter.broker.listener.name=B: B is not in advertised.listeners",
        ),
        (
            "advertised.listeners=CONTROLLER://h:9001\n",
            "advertised.listeners=CONTROLLER://h:9001: no listener of brokers is there",
        ),
    ],
)
def test_the_listener_between_brokers_is_advertised(lines: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(BROKER + lines)
    assert what in str(caught.value)


def test_the_listener_between_brokers_is_by_default_one_that_is_advertised() -> None:
    assert Config.parse(BROKER).inter_broker_listener == "A"
    assert Config.parse(f"{BROKER}advertised.listeners=B://h:9093\n").inter_broker_listener == "B"
