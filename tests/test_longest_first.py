"""The spread of the suite over processes: no fixture starts twice, and ports are separate."""

from __future__ import annotations

import re

import pytest

from support import ROOT
from support.longest_first import FIRST, LAYERS, TOGETHER
from support.loopback import PORTS, free_ports, own_ports


def test_each_path_of_the_start_order_exists() -> None:
    named = {unit for unit in FIRST if unit not in TOGETHER}.union(LAYERS, *TOGETHER.values())
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_all_users_of_the_two_quorums_are_together() -> None:
    """Each of the two session fixtures starts three nodes; `request.getfixturevalue` takes them by name, too."""
    asks = re.compile(r'def test_\w+\([^)]*\b(?:ours|theirs): Nodes|\["ours", "theirs"\]')
    files = (ROOT / "tests" / "interop").rglob("test_*.py")
    found = {str(path.relative_to(ROOT)) for path in files if asks.search(path.read_text())}
    assert found == set(TOGETHER["a quorum of each make"])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_test_processes_use_distinct_ports(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    taken: set[int] = set()
    for worker in range(workers):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        ports = free_ports(3)
        assert len(set(ports)) == 3
        assert set(ports) <= set(own_ports()) <= set(PORTS)
        assert taken.isdisjoint(own_ports())
        taken.update(own_ports())
    assert len(taken) > len(PORTS) - workers
