"""Traces of transactions for `docs/protocol/TransactionTrace.tla`, as a module of TLA+ with one constant each."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kraft.sim.protocol.transaction_steps import TransactionStep, TransactionTrace

CONFIGURATION: Final = """SPECIFICATION TraceSpec
CONSTANTS
  Processes <- RunProcesses
  Partitions <- RunPartitions
  Version <- RunVersion
VIEW Place
INVARIANTS NoneHangs TailIsSound
PROPERTIES DecisionsStay
"""
_FIELDS: Final = {
    "Init": ("who",),
    "Begin": ("t",),
    "Produce": ("part", "t", "seq"),
    "Stray": ("part", "t", "seq"),
    "Again": ("part", "t", "seq"),
    "Add": ("part",),
    "End": ("kind", "was_asked"),
    "Finish": ("kind",),
    "Take": ("part", "t", "seq"),
    "Mark": ("part", "kind"),
    "Told": ("kind",),
}
"""The fields of each step for the specification, beside the epoch."""


class TransactionRun(Struct, frozen=True):
    """A trace as the specification reads it."""

    name: str
    group: int
    """The version: runs of one version fit into one module."""
    processes: int
    partitions: int
    steps: tuple[str, ...]


def transaction_run(name: str, trace: TransactionTrace) -> TransactionRun:
    """The trace of a transactional id from its steps."""
    steps, processes = list[str](), 0
    for step in trace.steps:
        processes += step.what == "Init"
        steps.append(_record(step, processes))
    return TransactionRun(f"{name} {trace.name}", trace.version, processes, len(trace.parts), tuple(steps))


def _record(step: TransactionStep, processes: int) -> str:
    values = {
        "who": str(processes),
        "part": str(step.part),
        "t": str(step.transaction),
        "seq": str(step.sequence),
        "kind": f'"{step.kind}"',
        "was_asked": str(step.was_asked).upper(),
    }
    # An epoch of 0 is none in the specification.
    fields = {"what": f'"{step.what}"', "epoch": str(step.epoch + 1)}
    fields |= {name: values[name] for name in _FIELDS[step.what]}
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields.items()) + "]"


def transaction_module_of(runs: list[TransactionRun]) -> str:
    """The module `TransactionRuns` for runs."""
    traces = ",\n".join("<<\n" + ",\n".join(run.steps) + "\n>>" for run in runs)
    return (
        "---- MODULE TransactionRuns ----\n"
        "EXTENDS Integers\n"
        f"RunProcesses == 1..{max(1, *(run.processes for run in runs))}\n"
        f"RunPartitions == 1..{max(1, *(run.partitions for run in runs))}\n"
        f"RunVersion == {runs[0].group}\n"
        f"Runs == <<\n{traces}\n>>\n"
        "====\n"
    )
