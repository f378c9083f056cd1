"""The file of a node's steps has what its core has done, in each turn."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kraft.node.logging import NodeLog
from kraft.node.protocol_steps import NodeCore, protocol_steps
from kraft.quorum.recorded import ProtocolStep, State
from kraft.quorum.recorded_turns import SIZE, turns_in
from kraft.sim.protocol.files import within_protocol
from kraft.sim.protocol.trace import Trace
from kraft.sim.runs import simulator
from kraft.sim.search.seed_search import SeedSearch

LOG = NodeLog(1, lambda: 0)
Shown = tuple[str, int, State | None]


def shown(turns: list[list[ProtocolStep]]) -> dict[int, list[Shown]]:
    """The states of each node, without those that come again."""
    states: dict[int, list[Shown]] = {}
    for turn in turns:
        last = turn[-1]
        states.setdefault(last.replica[0], []).append((last.role, last.epoch, last.state))
    return {node: [one for one, _ in groupby(of_node)] for node, of_node in states.items()}


def told(turns: list[list[ProtocolStep]]) -> dict[int, set[tuple[Any, ...]]]:
    """What each node did."""
    steps: dict[int, set[tuple[Any, ...]]] = {}
    for turn in turns:
        for one in turn:
            if one.what not in ("AppendData", "Take"):
                # What was fetched once is told once, in the role of then.
                role = "" if one.what == "Fetch" else one.role
                fact = one.what, role, one.epoch, one.end, one.last_epoch, one.candidate
                steps.setdefault(one.replica[0], set()).add(fact)
    return steps


@pytest.mark.parametrize(
    ("members", "seed"), [("core", 0), ("core", 3), ("replica", 5), ("replica", 8), ("dynamic", 0)]
)
def test_a_file_has_the_turns_of_a_recorded_core(
    members: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = within_protocol(SeedSearch(members=members, chaos_ms=3000), seed)
    trace = Trace()
    replace(search, recorder=trace.record).run(seed, [])
    with ExitStack() as open_files:
        makers: dict[int, Any] = {}

        def make(*, recorder: object, **of_core: Any) -> NodeCore:
            node = of_core["local"].id
            if node not in makers:
                file = str(tmp_path / f"{node}.steps")
                makers[node] = open_files.enter_context(protocol_steps(file, LOG, 4_000_000))
            core: NodeCore = makers[node](**of_core)
            return core

        monkeypatch.setattr(simulator, "RecordedCore", make)
        replace(search, recorder=trace.record).run(seed, [])
    files = [turns_in(file.read_bytes()) for file in tmp_path.iterdir()]
    written = [turn for _, turn in sorted((one for file in files for one in file), key=lambda one: one[0])]
    assert len(written) > 50
    assert shown(written) == shown(trace.turns)
    assert told(written) == told(trace.turns)


def test_a_full_file_says_so_once_and_keeps_what_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "steps"
    turn = [ProtocolStep((1, ""), "Restart", "Unattached", 1)]
    with caplog.at_level(logging.INFO), ExitStack() as stack:
        make_core = stack.enter_context(protocol_steps(str(path), LOG, 4096))
        file = make_core.keywords["file"]  # type: ignore[attr-defined]
        for _ in range(100):
            file.write(turn, 0)
    assert caplog.text.count("protocol-steps-full") == 1
    kept = path.read_bytes()
    assert 4096 - 2 * SIZE - 100 < len(kept) <= 4096
    assert {tuple(steps) for _, steps in turns_in(kept)} == {tuple(turn)}


def test_a_process_goes_on_in_the_file_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    turn = [ProtocolStep((1, ""), "Restart", "Unattached", 1)]
    for _ in range(2):
        with protocol_steps(str(path), LOG, 65536) as make_core:
            make_core.keywords["file"].write(turn, 0)  # type: ignore[attr-defined]
    cut = path.read_bytes()[:-3]
    assert [steps for _, steps in turns_in(path.read_bytes())] == [turn, turn]
    assert [steps for _, steps in turns_in(cut)] == [turn]
