"""The programs on the pages about groups and transactions print what the pages show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.documented_programs import HOWTO, program, run_program
from support.kraft.data_cluster import DataCluster, data_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataCluster]:
    settings: dict[str, Any] = {
        "offsets_topic_replication_factor": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "group_initial_rebalance_delay_ms": "0",
    }
    with data_cluster(tmp_path_factory.mktemp("nodes"), **settings) as cluster:
        yield cluster


@pytest.mark.parametrize(("page", "name"), [("consumer-groups.md", "members.py"), ("transactions.md", "copier.py")])
def test_a_program_prints_what_its_page_shows(cluster: DataCluster, tmp_path: Path, page: str, name: str):
    host, _, port = cluster.bootstrap.partition(":")
    printed = run_program(str(program(page, name, tmp_path)), host, port, folder=tmp_path)
    assert f"```\n{printed}```" in (HOWTO / page).read_text()
