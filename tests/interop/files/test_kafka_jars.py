"""The jars of Apache Kafka are fetched while tests run that do not need them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_jars import KAFKA_VERSION, OLDER_VERSION, are_there, cache_directory, fetch_ahead
from real_kafka import KafkaInstallation, eventually


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_directory(KAFKA_VERSION).parent


def test_the_download_stops_with_the_tests_and_leaves_no_partial_file(
    kafka: KafkaInstallation, empty_cache: Path
) -> None:
    end = fetch_ahead()
    eventually(lambda: len(list(empty_cache.glob("fetch-*/ivy.xml"))) == 2, "both are fetched")
    end()
    assert not are_there()
    assert not list(empty_cache.glob("fetch-*"))


def test_jars_that_are_present_are_not_downloaded(empty_cache: Path) -> None:
    for version in (KAFKA_VERSION, OLDER_VERSION):
        cache_directory(version).mkdir(parents=True)
    assert are_there()
    fetch_ahead()()
    assert sorted(path.name for path in empty_cache.iterdir()) == [
        f"kafka-{OLDER_VERSION}",
        f"kafka-{KAFKA_VERSION}",
    ]
