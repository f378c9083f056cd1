"""A program hears of the metrics of the node that it embeds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

import kraft


async def test_a_program_hears_of_the_metrics_of_its_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Mapping[str, float]] = []
    twice = trio.Event()

    def tell(values: Mapping[str, float]) -> None:
        heard.append(values)
        if len(heard) == 2:
            twice.set()
        raise ZeroDivisionError("a bug of the program")

    with trio.fail_after(20), caplog.at_level(logging.WARNING):
        settings = {"controller.quorum.election.timeout.ms": "150"}
        monitor = kraft.metrics_hook(tell, every_s=0.05)
        async with kraft.create(f"{tmp_path}/1", node_id=1, monitor=monitor, settings=settings) as node:
            await node.append([b"x"])
            await twice.wait()
            assert await node.append([b"the node lives"]) > 0
    assert "a bug of the program" in caplog.text
    last = heard[-1]
    assert last['kraft_node_info{node_id="1"}'] == 1
    assert last["kraft_has_quorum"] == 1
    assert all(isinstance(value, float | int) for value in last.values())
