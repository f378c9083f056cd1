"""A fingerprint leaves nothing out that decides what a replica does next, and a fork shares nothing that can change."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from msgspec import Struct

from kraft.process.parts import Input
from kraft.process.process import Process
from kraft.replica.interface.events import Output
from kraft.sim import Result, controller_member, run
from kraft.sim.nodes.member_kinds import LOADED, MACHINES, MEMBERS
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.state.copier import field_names, fields_of
from kraft.sim.state.fingerprints import SUMMARIES, fingerprint, irrelevant_of, relevant_names
from kraft.sim.state.forking import forked
from kraft.sim.state.irrelevant import GIVEN, IRRELEVANT
from kraft.state_machine import Codec
from metadata_log.image import MetadataImage
from metadata_log.memory_disk import MemoryDisk
from metadata_log.serde import Message

Way = tuple[str | int, ...]
"""The names of fields and the places in containers that lead from a replica to an object that it holds."""
MISSED_BEFORE: Final = {
    ("Commits", "deadline_ms"),
    ("SnapshotSchedule", "maker"),
    ("SnapshotSchedule", "cleaner"),
    ("InFlightRequests", "reply_to"),
}
"""Fields of a replica, each with its class, that the fingerprint once left out."""


@cache
def _samples() -> tuple[Process, ...]:
    """Copies of replicas in simulated quorums, each with a kind of object that those before do not have."""
    samples: list[Process] = []
    met: set[type] = set()
    step, rng = Process.step, Random(1)

    def step_and_look(replica: Process, event: Input, now_ms: int) -> list[Output]:
        outputs = step(replica, event, now_ms)
        if rng.random() < 0.05:
            kinds = {type(found) for _, found in _objects(replica)}
            if not kinds <= met:
                met.update(kinds)
                samples.append(forked(replica))
        return outputs

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Process, "step", step_and_look)
        for seed, members in enumerate(("replica", "controller", MACHINES)):
            run(seed, 3, make_member=MEMBERS[members])
        assert isinstance(SeedSearch(members=LOADED, faults=()).run(0), Result)
    return tuple(samples)


def _objects(value: Any, way: Way = (), seen: set[int] | None = None) -> Iterator[tuple[Way, Any]]:
    """Everything with fields of its own that a fingerprint walks, once, with the way to it."""
    seen = set() if seen is None else seen
    kind = type(value)
    if isinstance(value, (list, tuple, deque)):
        for at, item in enumerate(value):
            yield from _objects(item, (*way, at), seen)
    elif isinstance(value, dict):
        for at, item in enumerate(value.values()):
            yield from _objects(item, (*way, at), seen)
    elif _has_fields(kind) and not any(issubclass(kind, one) for one in SUMMARIES) and id(value) not in seen:
        seen.add(id(value))
        yield way, value
        for name in relevant_names(value):
            yield from _objects(getattr(value, name), (*way, name), seen)


def _has_fields(kind: type) -> bool:
    """Whether its fields can be set: a frozen struct is replaced as a whole, in the field that holds it."""
    if issubclass(kind, Struct):
        return not kind.__struct_config__.frozen
    is_ours = kind.__module__.startswith(("kraft", "metadata_log")) and not issubclass(kind, Enum)
    return is_ours and (kind.__dictoffset__ != 0 or bool(field_names(kind)))


def _at(replica: Process, way: Way) -> Any:
    found: Any = replica
    for part in way:
        if isinstance(part, str):
            found = getattr(found, part)
        else:
            found = list(found.values() if isinstance(found, dict) else found)[part]
    return found


def test_every_field_of_a_replica_is_in_the_fingerprint_or_declared_irrelevant() -> None:
    changed: set[tuple[str, str]] = set()
    for sample in _samples():
        before = fingerprint(sample)
        for way, found in list(_objects(sample)):
            for name, _ in list(fields_of(found)):
                if name in irrelevant_of(type(found)) or (type(found).__name__, name) in changed:
                    continue
                fork = forked(sample)
                assert fingerprint(fork) == before
                setattr(_at(fork, way), name, "something else")
                assert fingerprint(fork) != before, (type(found).__name__, name, way)
                changed.add((type(found).__name__, name))
    print(sorted(changed))
    assert changed >= MISSED_BEFORE
    assert len(changed) > 200, "there is more in a replica than that"


@pytest.mark.parametrize("kind", IRRELEVANT, ids=lambda kind: kind.__name__)
def test_each_irrelevant_declaration_names_a_field(kind: type) -> None:
    text = inspect.getsource(kind)
    for name, why in IRRELEVANT[kind].items():
        assert f"self.{name}" in text or f" {name}:" in text, (kind.__name__, name)
        assert why


def test_constructor_arguments_never_change(monkeypatch: pytest.MonkeyPatch) -> None:
    step, first = Process.step, dict[tuple[int, str], tuple[Any, Any]]()
    compared = 0

    def step_and_compare(replica: Process, event: Input, now_ms: int) -> list[Output]:
        nonlocal compared
        outputs = step(replica, event, now_ms)
        for _, found in _objects(replica):
            for name, why in irrelevant_of(type(found)).items():
                if why == GIVEN:
                    # The object is kept, so that no other one gets its id.
                    _, value = first.setdefault((id(found), name), (found, getattr(found, name)))
                    assert getattr(found, name) is value, (type(found).__name__, name)
                    compared += 1
        return outputs

    monkeypatch.setattr(Process, "step", step_and_compare)
    run(1, 3, make_member=controller_member, chaos_ms=2000)
    assert compared > 1000


def _changeable(value: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """By id all that is reachable and can change; what is reached by functions only is left out."""
    kind = type(value)
    if id(value) in seen or isinstance(value, (Message, MetadataImage, Codec, type)):
        return seen
    if isinstance(value, (list, deque, set)):
        seen[id(value)] = value
        parts = list(value)
    elif isinstance(value, dict):
        seen[id(value)] = value
        parts = list(value.values())
    elif isinstance(value, tuple):
        parts = list(value)
    elif isinstance(value, Struct):
        if not kind.__struct_config__.frozen:
            seen[id(value)] = value
        parts = [getattr(value, name) for name in kind.__struct_fields__]
    elif isinstance(value, MemoryDisk):
        # It keeps contents that it shares with others until one side changes them.
        seen[id(value)] = value
        parts = [value._names, value._open, value._pending]
    elif _has_fields(kind):
        seen[id(value)] = value
        parts = [item for _, item in fields_of(value)]
    elif isinstance(value, Random):
        seen[id(value)] = value
        parts = []
    elif inspect.ismethod(value) or inspect.isbuiltin(value):
        parts = [value.__self__]
    else:
        parts = []
    for part in parts:
        _changeable(part, seen)
    return seen


def test_a_fork_shares_no_mutable_object() -> None:
    for sample in _samples():
        fork = forked(sample)
        original, copied = _changeable(sample, {}), _changeable(fork, {})
        assert len(original) > 50
        shared = [original[one] for one in original.keys() & copied.keys()]
        assert not shared, [type(one).__name__ for one in shared]


class _Begun:
    def __init__(self, values: Callable[[], Iterator[int]]) -> None:
        self.values = values()


def test_a_type_without_a_copy_rule_is_an_error() -> None:
    with pytest.raises(TypeError, match="no rule says how to copy a generator"):
        forked(_Begun(lambda: (number for number in range(3))))
