"""Traces of partitions for `docs/protocol/PartitionTrace.tla`, as modules of TLA+ with one constant each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kraft.invariants.cluster_model import NO_LEADER
from kraft.sim.protocol.partition_steps import UNKNOWN, Decision, PartitionStep, PartitionTrace

CONFIGURATION: Final = """SPECIFICATION TraceSpec
CONSTANTS
  None = "None"
  Brokers <- RunBrokers
  MinIsr <- RunMinIsr
  ControllerMinIsr <- RunControllerMinIsr
  HasElr <- RunHasElr
  MayBeUnclean <- RunMayBeUnclean
VIEW Place
INVARIANTS OneLeaderPerEpoch
"""


class PartitionRun(Struct, frozen=True):
    """A trace as the specification reads it."""

    name: str
    group: tuple[int, int, int, bool, bool]
    """The number of replicas, min.insync.replicas for leaders and for controllers, whether there is an ELR, whether
    elections may be unclean: runs of one group fit into one module.
    """
    first: str
    lives: str
    steps: tuple[str, ...]


def partition_run(name: str, trace: PartitionTrace) -> PartitionRun:
    """The trace of a partition from its steps."""
    names = {broker: f"b{at}" for at, broker in enumerate(trace.replicas, 1)}
    ranks = _ranks(trace)
    return PartitionRun(
        f"{name} {trace.name}",
        (len(names), trace.min_isr, trace.controller_min_isr, trace.has_elr, trace.may_be_unclean),
        _decision(trace.first, names),
        _per_broker(trace.lives, names),
        tuple(_record(step, names, ranks) for step in trace.steps),
    )


def _ranks(trace: PartitionTrace) -> dict[int, int]:
    offsets = {0}
    for step in trace.steps:
        offsets |= {step.end, step.mark}
        if step.state is not None:
            offsets |= {step.state.end, step.state.high_watermark}
    return {offset: rank for rank, offset in enumerate(sorted(offsets))}


def _record(step: PartitionStep, names: dict[int, str], ranks: dict[int, int]) -> str:
    fields = [
        ("what", f'"{step.what}"'),
        ("who", _named(step.broker, names)),
        ("end", str(ranks[step.end])),
        ("mark", str(ranks[step.mark])),
        ("to", str(step.to)),
        ("is_last", _truth(step.state is not None)),
    ]
    if step.what == "Propose":
        lives = dict(zip(step.isr, step.lives, strict=True))
        fields.append(("set", _set(step.isr, names)))
        fields.append(("lives", "[" + ", ".join(f"{names[one]} |-> {life}" for one, life in lives.items()) + "]"))
    if step.decision is not None:
        fields.append(("state", _decision(step.decision, names)))
    if step.state is not None:
        state = step.state
        fields += [
            ("leads", _truth(state.leads)),
            ("epoch", str(state.epoch + 1)),
            ("version", str(state.version + 1)),
            ("log_end", str(ranks[state.end])),
            ("last_epoch", str(-1 if state.last_epoch == UNKNOWN else state.last_epoch + 1)),
            ("watermark", str(ranks[state.high_watermark])),
        ]
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields) + "]"


def _decision(decision: Decision, names: dict[int, str]) -> str:
    return (
        f"[leader |-> {_named(decision.leader, names)}, isr |-> {_set(decision.isr, names)},"
        f" elr |-> {_set(decision.elr, names)}, fenced |-> {_set(decision.fenced, names)},"
        f" broker |-> {_per_broker(decision.brokers, names)},"
        f" epoch |-> {decision.epoch + 1}, version |-> {decision.version + 1}]"
    )


def _per_broker(values: Iterable[int], names: dict[int, str]) -> str:
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in zip(names.values(), values, strict=True)) + "]"


def _named(broker: int, names: dict[int, str]) -> str:
    return '"None"' if broker == NO_LEADER else f'"{names[broker]}"'


def _set(brokers: Iterable[int], names: dict[int, str]) -> str:
    return "{" + ", ".join(f'"{names[one]}"' for one in brokers) + "}"


def _truth(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def partition_module_of(runs: list[PartitionRun]) -> str:
    """The module `PartitionRuns` for runs of one group."""
    (replicas, min_isr, controller_min_isr, has_elr, may_be_unclean) = runs[0].group
    assert all(run.group == runs[0].group for run in runs), "runs of one group"
    names = ", ".join(f'"b{number}"' for number in range(1, replicas + 1))
    traces = ",\n".join(
        f"[first |-> {run.first},\n lives |-> {run.lives},\n steps |-> <<\n" + ",\n".join(run.steps) + "\n>>]"
        for run in runs
    )
    return (
        "---- MODULE PartitionRuns ----\n"
        "EXTENDS Integers\n"
        f"RunBrokers == {{{names}}}\n"
        f"RunMinIsr == {min_isr}\n"
        f"RunControllerMinIsr == {controller_min_isr}\n"
        f"RunHasElr == {_truth(has_elr)}\n"
        f"RunMayBeUnclean == {_truth(may_be_unclean)}\n"
        f"Runs == <<\n{traces}\n>>\n"
        "====\n"
    )
