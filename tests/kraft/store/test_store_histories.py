"""Histories of a store of real processes, judged from outside: by porcupine, a program in Go that nobody here wrote."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from store_histories import IDS, JUDGE, Operation, StoreProcesses, history, judged
from support.kraft.namespaces import machines

SECONDS = 600
ROUND = 8


@pytest.fixture(autouse=True)
def go() -> None:
    if shutil.which("go") is None:
        pytest.skip("porcupine needs Go")
    known = subprocess.run(["go", "mod", "download"], cwd=JUDGE, capture_output=True, text=True, check=False)
    if known.returncode != 0:
        pytest.skip(f"porcupine cannot be fetched: {known.stderr.strip()[:200]}")


def put(client: int, call: int, end: int, value: str) -> Operation:
    return Operation(client, call, "put", 0, value, told="done", returned=end)


def get(client: int, call: int, end: int, told: str) -> Operation:
    return Operation(client, call, "get", 0, "", told=told, returned=end)


@pytest.mark.soak
def test_porcupine_knows_good_histories_from_bad_ones(tmp_path: Path) -> None:
    swapped = Operation(2, 50, "swap", 0, "c", old="a", told="done", returned=60)
    unknown = Operation(3, 5, "pair", 0, "p")
    histories = [
        [put(1, 10, 20, "a"), get(2, 15, 30, ""), get(2, 31, 40, "a"), swapped, get(1, 61, 70, "c")],
        [put(1, 10, 20, "a"), unknown, get(2, 30, 40, "p"), get(2, 41, 50, "p")],
        [put(1, 10, 20, "a"), put(1, 21, 30, "b"), get(2, 31, 40, "a")],
        [put(1, 10, 20, "a"), put(1, 21, 30, "b"), swapped],
        [put(1, 10, 20, "a"), get(2, 30, 40, "")],
    ]
    assert judged(histories, tmp_path) == ["ok", "ok", "illegal", "illegal", "illegal"]


def histories_of(directory: Path, seconds: float, planted: str = "", *, is_apart: bool = True) -> list[list[Operation]]:
    """Histories of rounds with keys of their own, on machines of their own where these can be had."""
    if is_apart:
        with machines(directory / "hosts") as wire:
            return _histories(StoreProcesses(directory, planted, wire), seconds)
    # A lost update shows without faults, too, and the judge needs no time for outcomes that nobody knows.
    return _histories(StoreProcesses(directory, planted), seconds, is_struck=planted != "lost-updates")


def _histories(processes: StoreProcesses, seconds: float, *, is_struck: bool = True) -> list[list[Operation]]:
    rng = random.Random(seconds)
    try:
        for one in IDS:
            processes.start(one)
        processes.wait()
        rounds = range(max(1, int(seconds / ROUND)))
        return [history(processes, f"r{each}-", ROUND, rng, is_struck=is_struck) for each in rounds]
    finally:
        processes.stop()


@pytest.mark.soak
@pytest.mark.parametrize("is_apart", [False, True], ids=["killed-and-paused", "cut-off-too"])
def test_histories_of_a_store_are_linearizable(tmp_path: Path, *, is_apart: bool) -> None:
    histories = histories_of(tmp_path, SECONDS / 2, is_apart=is_apart)
    done = sum(one.returned > 0 for each in histories for one in each)
    print(f"{sum(map(len, histories))} operations, {done} with an answer")
    assert done > 2 * len(histories)
    found = judged(histories, tmp_path)
    assert set(found) <= {"ok", "unknown"}, found
    assert found.count("unknown") < len(found) / 4


@pytest.mark.soak
@pytest.mark.parametrize("planted", ["stale-reads", "lost-updates"])
def test_a_planted_bug_is_found(planted: str, tmp_path: Path) -> None:
    histories = histories_of(tmp_path, 4 * ROUND, planted, is_apart=False)
    assert "illegal" in judged(histories, tmp_path)
