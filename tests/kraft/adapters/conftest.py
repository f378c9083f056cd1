"""A quorum of one node, for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft.sync
from store_quorums import prepare, running


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return prepare(tmp_path_factory.mktemp("quorum"), 1)


@pytest.fixture(scope="module")
def store(files: list[Path]) -> Iterator[kraft.sync.Store]:
    with running(files) as (only,):
        yield only
