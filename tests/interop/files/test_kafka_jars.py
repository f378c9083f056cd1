"""The jars of Apache Kafka are fetched while tests run that do not need them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_jars import KAFKA_VERSION, VERSIONS, are_there, cache_directory, fetch_ahead
from real_kafka import KafkaInstallation, eventually


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_directory(KAFKA_VERSION).parent


def test_the_download_stops_with_the_tests_and_leaves_no_partial_file(
    kafka: KafkaInstallation, empty_cache: Path
) -> None:
    end = fetch_ahead()
    eventually(lambda: len(list(empty_cache.glob("fetch-*/ivy.xml"))) == len(VERSIONS), "all are being fetched")
    end()
    assert not any(are_there(version) for version in VERSIONS)
    assert not list(empty_cache.glob("fetch-*"))


def test_jars_that_are_present_are_not_downloaded(empty_cache: Path) -> None:
    for version in VERSIONS:
        cache_directory(version).mkdir(parents=True)
    assert all(are_there(version) for version in VERSIONS)
    fetch_ahead()()
    assert {path.name for path in empty_cache.iterdir()} == {f"kafka-{version}" for version in VERSIONS}
