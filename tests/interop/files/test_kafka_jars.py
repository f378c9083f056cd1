"""The jars of Apache Kafka are fetched while tests run that do not need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from metadata_log.releases import NEWEST_RELEASE
from support.interop.real_kafka import KafkaInstallation, eventually
from support.kafka_jars import (
    KAFKA_VERSION,
    VERSIONS,
    are_there,
    cache_directory,
    fetch_ahead,
    newer_than_supported,
    newest_published,
)


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


@pytest.mark.parametrize(
    ("published", "is_newer"), [("4.10.0", True), ("4.4.1", True), (NEWEST_RELEASE, False), ("4.3.9", False)]
)
def test_a_release_that_is_not_listed_is_a_warning(published: str, is_newer: bool) -> None:
    warning = newer_than_supported(published)
    assert (warning is not None) is is_newer
    assert warning is None or (published in warning and NEWEST_RELEASE in warning)


def test_the_registry_is_asked_for_its_newest_release(kafka: KafkaInstallation) -> None:
    numbers, newest = (tuple(map(int, one.split("."))) for one in (newest_published(), NEWEST_RELEASE))
    assert numbers >= newest
