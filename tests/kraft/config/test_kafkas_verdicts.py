"""373 properties files with the verdict of Kafka's own class: ours is the same, or the page of differences says why.

`tests/interop/controller/test_kafka_settings.py` asks Kafka again.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Final

import pytest

from kraft.config import Config, ConfigError
from kraft.config.definitions import NODE
from kraft.config.keys import NARROWER

ROOT: Final = Path(__file__).parents[3]
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


def test_there_are_as_many_files_as_the_corpus_has() -> None:
    assert len(VERDICTS) == 373
    assert sum(case["kafka"] == "refused" for case in VERDICTS.values()) > 200


def test_numbers_that_are_bounded_closer_than_kafkas_are_on_the_page() -> None:
    assert NARROWER
    for key in NARROWER:
        assert key in NODE
        assert f"`{key}`" in PAGE


@pytest.mark.parametrize(
    ("line", "what", "why"),
    [
        ("log.retention.hours=0", "log.retention.hours=0", "allowed is -1 for no limit, or at least 1"),
        ("log.segment.bytes=100", "log.segment.bytes=100", "allowed is a whole number from 1048576 to 2147483647"),
        ("log.roll.hours=0", "log.roll.hours=0", "allowed is a whole number from 1"),
        ("delete.topic.enable=yes", "delete.topic.enable=yes", "allowed is true or false"),
        ("num.network.threads=abc", "num.network.threads=abc", "allowed is a whole number from 1"),
        ("compression.type=zip", "compression.type=zip", "allowed is uncompressed or zstd or"),
        (
            "log.cleanup.policy=shrink",
            "log.cleanup.policy=shrink",
            "allowed is compact and delete, separated by commas",
        ),
        ("log.dirs=", "log.dirs=", "at least one"),
        ("listener.name.plaintext.num.network.threads=0", "listener.name.plaintext.num.network.threads=0", "from 1"),
        ("principal.builder.class=com.example.B", "principal.builder.class=com.example.B", "DefaultKafkaPrincipalB"),
        ("create.topic.policy.class.name=com.example.P", "=com.example.P", "allowed is an empty value only"),
        ("group.consumer.heartbeat.interval.ms=99999", "=99999", "must not be greater than group.consumer.max"),
        ("replica.fetch.wait.max.ms=40000", "=40000", "must not be greater than replica.socket.timeout.ms (30000)"),
    ],
)
def test_a_refusal_names_the_key_the_value_and_what_is_allowed(line: str, what: str, why: str) -> None:
    broker = VERDICTS["brokerid-same"]["properties"]
    with pytest.raises(ConfigError) as caught:
        Config.parse(f"{broker}{line}\n", source="f")
    assert what in caught.value.what
    assert why in caught.value.what
    assert caught.value.where == f"f:{len(broker.splitlines()) + 1}"
