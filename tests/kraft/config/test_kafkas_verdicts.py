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
