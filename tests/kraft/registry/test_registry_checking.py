"""Schemas of strangers are read in processes that end when they take too much, and nobody waits for them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from kraft.registry import checking, schemas
from kraft.registry.checking import KINDS, Checkers, Kind
from kraft.registry.requests import Run
from kraft.registry.schemas import CannotCheck, Earlier, InvalidSchema, Source, TooCostly

FOR_EVER = Run(eval, ("all(zero == 0 for zero in iter(int, 1))",))
PROCESS = Run(eval, ("__import__('os').getpid()",))


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's time is limited as ever; how long that takes is the machine's matter."""
    monkeypatch.setattr(checking, "WALL_SECONDS", 600.0)


def with_checkers(body: Callable[[Checkers, trio.Nursery], Any]) -> None:
    async def main() -> None:
        checkers = Checkers()
        async with trio.open_nursery() as nursery:
            await nursery.start(checkers.run)
            await body(checkers, nursery)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_results_and_errors_come_back_from_one_process() -> None:
    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        number = await checkers.result(PROCESS)
        assert number != os.getpid()
        assert await checkers.result(Run(schemas.canonical, (Source("AVRO", '{"type": "int"}'), False))) == '"int"'
        with pytest.raises(InvalidSchema, match="no JSON"):
            await checkers.result(Run(schemas.canonical, (Source("AVRO", "{"), False)))
        both = Source("JSON", '{"minimum": -1}'), (Earlier(1, Source("JSON", '{"properties": 5}')),), "BACKWARD"
        with pytest.raises(CannotCheck):
            await checkers.result(Run(schemas.incompatibilities, both))
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await checkers.result(Run(eval, ("1 // 0",)))
        assert await checkers.result(PROCESS) == number

    with_checkers(body)


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        pytest.param(FOR_EVER, "CPU time", id="time"),
        pytest.param(Run(bytearray, (1 << 31,)), "MiB of memory", id="memory"),
        pytest.param(Run(eval, ("__import__('os').abort()",)), "ended by SIGABRT", id="crash"),
    ],
)
def test_what_takes_too_much_is_refused_and_the_next_question_answered(
    run: Run, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "KINDS", (Kind(1 << 16, 0.2),))

    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        before = await checkers.result(PROCESS)
        with pytest.raises(TooCostly, match=wanted):
            await checkers.result(run)
        assert await checkers.result(PROCESS) != before
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)

    with_checkers(body)


@pytest.mark.parametrize("kind", schemas.TYPES)
def test_the_time_to_load_a_library_counts_for_nobody(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "KINDS", (Kind(1 << 16, 0.02),))
    smallest = schemas.TYPES[kind].smallest

    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        for _ in range(2):
            await checkers.result(Run(schemas.canonical, (Source(kind, smallest), False)))

    with_checkers(body)


def test_what_sleeps_is_ended_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "WALL_SECONDS", 0.3)

    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        with pytest.raises(TooCostly, match=r"more than 0\.3 s"):
            await checkers.result(Run(eval, ("__import__('time').sleep(600)",)))

    with_checkers(body)


def test_a_small_question_waits_for_no_larger_one() -> None:
    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        for kind in KINDS[:-1]:
            spaces = " " * int(kind.most_bytes)
            nursery.start_soon(checkers.result, Run(eval, (f"{FOR_EVER.arguments[0]}{spaces}",)))
            await trio.testing.wait_all_tasks_blocked()
        assert await checkers.result(Run(len, ("abc",))) == 3

    with_checkers(body)


def test_the_smallest_that_waits_is_next() -> None:
    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        answered: list[int] = []

        async def ask(size: int) -> None:
            answered.append(await checkers.result(Run(len, (" " * size,))))

        async with trio.open_nursery() as inner:
            for size in (40, 3000, 2, 1000, 700, 2000):
                inner.start_soon(ask, size)
                await trio.testing.wait_all_tasks_blocked()
        assert answered[1:] == sorted(answered[1:])

    with_checkers(body)


def test_who_gives_up_leaves_no_answer_behind() -> None:
    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        for _ in range(2):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as inner:
                    for _ in range(3):
                        inner.start_soon(checkers.result, FOR_EVER)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            assert await checkers.result(Run(len, ("abc",))) == 3

    with_checkers(body)


def record(fields: int, name: str = "R") -> Any:
    kinds = ["string", "int", "long"]
    typed = [{"name": f"f{at}", "type": ["null", kinds[at % 3]], "default": None} for at in range(fields)]
    return {"type": "record", "name": name, "namespace": "a.b", "fields": typed}


def document(fields: int) -> Any:
    names = [f"f{at}" for at in range(fields)]
    return {"type": "object", "properties": {name: {"type": ["string", "null"]} for name in names}}


@pytest.mark.parametrize(
    ("kind", "new", "earlier", "level"),
    [
        ("AVRO", record(12_000), [record(11_999)], "FULL"),
        ("AVRO", record(100), [record(100 - at % 50) for at in range(300)], "FULL_TRANSITIVE"),
        (
            "AVRO",
            [record(5, f"E{at}") for at in range(1000)],
            [[record(5, f"E{999 - at}") for at in range(1000)]],
            "FULL",
        ),
        ("JSON", {"enum": list(range(60_000))}, [{"enum": list(range(59_999))}], "BACKWARD"),
        ("JSON", document(300), [document(300 - at) for at in range(210)], "FORWARD_TRANSITIVE"),
    ],
    ids=["fields", "versions", "branches", "values", "documents"],
)
def test_large_comparisons_are_decided_within_the_time_of_a_question(
    kind: str, new: Any, earlier: list[Any], level: str
) -> None:
    """Each takes a tenth to a third of it; Apache Avro's own checker, in Python, needs more than all for some."""
    versions = tuple(Earlier(at, Source(kind, json.dumps(one))) for at, one in enumerate(earlier))
    run = Run(schemas.incompatibilities, (Source(kind, json.dumps(new)), versions, level))

    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        assert await checkers.result(run) == []

    with_checkers(body)


def test_a_comparison_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "KINDS", (Kind(1 << 30, 0.3),))

    def deep(kind: str, levels: int) -> Any:
        if not levels:
            return {"type": kind}
        return {"anyOf": [{"description": str(at), "properties": {"a": deep(kind, levels - 1)}} for at in range(3)]}

    mine, theirs = (Source("JSON", json.dumps(deep(one, 7))) for one in ("number", "string"))

    async def body(checkers: Checkers, nursery: trio.Nursery) -> None:
        with pytest.raises(TooCostly, match="CPU time"):
            await checkers.result(Run(schemas.incompatibilities, (mine, (Earlier(1, theirs),), "BACKWARD")))
        assert await checkers.result(Run(len, ("abc",))) == 3

    with_checkers(body)
