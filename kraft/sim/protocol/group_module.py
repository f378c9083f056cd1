"""Traces of consumer groups for `docs/protocol/GroupTrace.tla`, as a module of TLA+ with one constant each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kraft.sim.protocol.group_steps import GroupStep, GroupTrace

CONFIGURATION: Final = """SPECIFICATION TraceSpec
CONSTANTS
  Members <- RunMembers
  Partitions <- RunPartitions
VIEW Place
INVARIANTS HeldByOne EpochsInOrder SettledIsTarget
PROPERTIES EpochsRise
"""


class GroupRun(Struct, frozen=True):
    """A trace as the specification reads it."""

    name: str
    group: None
    """All runs fit into one module."""
    epoch: int
    """The group epoch before the first step."""
    members: int
    partitions: int
    steps: tuple[str, ...]


def group_run(name: str, trace: GroupTrace) -> GroupRun:
    """The trace of a group from its steps."""
    names: dict[str, str] = {}
    for step in trace.steps:
        for one in (*step.joined, *((step.member,) if step.member else ())):
            names.setdefault(one, f"m{len(names) + 1}")
    numbers = [number for step in trace.steps for number in _partitions(step)]
    return GroupRun(
        f"{name} {trace.group}",
        None,
        trace.steps[0].epoch - 1,
        len(names),
        max(numbers, default=-1) + 1,
        tuple(_record(step, names) for step in trace.steps),
    )


def _partitions(step: GroupStep) -> Iterable[int]:
    if step.what == "Commit":
        yield step.partition
    for numbers in step.targets.values():
        yield from numbers
    if step.holding is not None:
        yield from step.holding.assigned | step.holding.revoking


def _record(step: GroupStep, names: dict[str, str]) -> str:
    fields = [("what", f'"{step.what}"'), ("epoch", str(step.epoch))]
    if step.member:
        fields.append(("who", f'"{names[step.member]}"'))
    match step.what:
        case "Change":
            fields += [("joined", _named(step.joined, names)), ("gone", _named(step.gone, names))]
        case "Assign":
            shares = ", ".join(
                f'[who |-> "{names[one]}", parts |-> {_set(numbers)}]' for one, numbers in step.targets.items()
            )
            fields.append(("shares", "{" + shares + "}"))
        case "Commit":
            fields.append(("part", str(step.partition)))
        case "Reconcile":
            assert step.holding is not None, step
            has = step.holding
            fields += [("assigned", _set(has.assigned)), ("revoking", _set(has.revoking))]
            sent = ", ".join(f"[epoch |-> {one.epoch}, owned |-> {_set(one.owned)}]" for one in step.heartbeats)
            fields.append(("sent", "{" + sent + "}"))
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields) + "]"


def _named(members: Iterable[str], names: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{names[one]}"' for one in members) + "}"


def _set(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted(numbers))) + "}"


def group_module_of(runs: list[GroupRun]) -> str:
    """The module `GroupRuns` for runs."""
    members = ", ".join(f'"m{number}"' for number in range(1, max(run.members for run in runs) + 1))
    traces = ",\n".join(f"[epoch |-> {run.epoch}, steps |-> <<\n" + ",\n".join(run.steps) + "\n>>]" for run in runs)
    return (
        "---- MODULE GroupRuns ----\n"
        "EXTENDS Integers\n"
        f"RunMembers == {{{members}}}\n"
        f"RunPartitions == 0..{max(run.partitions for run in runs) - 1}\n"
        f"Runs == <<\n{traces}\n>>\n"
        "====\n"
    )
