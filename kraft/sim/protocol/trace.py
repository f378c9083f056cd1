"""Traces of a quorum for `docs/protocol/QuorumTrace.tla`: the recorded steps of all replicas, in one order, written as
a module of TLA+ with one constant.

Offsets become their ranks among all offsets that the run ends a log, a watermark or a snapshot at: the rules of the
protocol only compare them, and a log of some hundred records is a short sequence then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kraft.quorum.recorded import Key, ProtocolStep, State
from metadata_log.types import NO_NODE

MOST_STEPS: Final = 50_000
"""The bound on the steps of a trace; later ones are not recorded."""
_OF_ELECTIONS: Final = frozenset(
    ("Nominate", "GrantVote", "Stand", "StandAlone", "Win", "GiveUp", "LearnEpoch", "LearnLeader", "Resign", "Leave")
)


class Trace:
    """Collects the turns of all replicas of a run."""

    def __init__(self, most_steps: int = MOST_STEPS) -> None:
        self.turns: list[list[ProtocolStep]] = []
        self.is_cut = False
        """Whether there were more steps than the bound."""
        self._room = most_steps

    def record(self, turn: list[ProtocolStep]) -> None:
        """Receive the steps of one turn (a `Recorder`)."""
        self._room -= len(turn)
        if self._room < 0:
            self.is_cut = True
        else:
            self.turns.append(turn)


class Run(Struct, frozen=True):
    """A trace as the specification reads it."""

    name: str
    group: tuple[tuple[str, tuple[str, ...]], ...]
    """The replicas, with the voters that each of them knows first: runs of one group fit into one module."""
    steps: tuple[str, ...]
    """The steps as records of TLA+."""
    shown: tuple[str, ...]
    """The steps for a reader."""


def run_of(name: str, turns: Iterable[list[ProtocolStep]]) -> Run:
    """The trace of a run from the turns of its replicas."""
    steps = [step for turn in without_lost_ends(turns) for step in turn]
    names = _names(steps)
    ranks = _ranks(steps)
    first: dict[str, tuple[str, ...]] = {}
    for step in steps:
        if step.state is not None:
            first.setdefault(names[step.replica], tuple(sorted(names[key] for key in step.state.voters)))
    for known in names.values():
        first.setdefault(known, ())
    return Run(
        name,
        tuple(sorted(first.items())),
        tuple(_record(step, names, ranks) for step in steps),
        tuple(map(shown, steps)),
    )


def without_lost_ends(turns: Iterable[list[ProtocolStep]]) -> list[list[ProtocolStep]]:
    """The turns without what a crash within a turn has left undone: what the disk had at the next start tells. Nobody
    has seen that, as the effects of a turn happen in order, and what is sent follows what is written.
    """
    kept: list[list[ProtocolStep]] = []
    latest: dict[Key, list[int]] = {}
    for turn in turns:
        places = latest.setdefault(turn[0].replica, [])
        if turn[0].what == "Restart" and places:
            found = turn[0]
            last = kept[places[-1]]
            before = next((kept[at][-1].on_disk for at in reversed(places[:-1]) if kept[at]), None)
            if last and last[-1].on_disk != found.on_disk:
                is_undone = before == found.on_disk
                kept[places[-1]] = _undone(last, found, is_whole=is_undone)
            elif last and _is_log_undone(last, found):
                kept[places[-1]] = [one for one in last if one.what not in ("Truncate", "Install")]
        places.append(len(kept))
        kept.append(turn)
    return [turn for turn in kept if turn]


def _undone(turn: list[ProtocolStep], found: ProtocolStep, *, is_whole: bool) -> list[ProtocolStep]:
    assert found.on_disk is not None, found
    for at, step in enumerate(turn):
        if step.what in _OF_ELECTIONS and (is_whole or step.epoch > found.on_disk[0]):
            return turn[:at]
    return turn


def _is_log_undone(turn: list[ProtocolStep], found: ProtocolStep) -> bool:
    state = turn[-1].state
    if state is None or not any(one.what in ("Truncate", "Install") for one in turn):
        return False
    return found.end > state.end or (found.state is not None and found.state.start < state.start)


def _names(steps: list[ProtocolStep]) -> dict[Key, str]:
    """A name for each replica. A key without a directory id is the replica with this id."""
    keys = dict.fromkeys(step.replica for step in steps)
    for step in steps:
        if step.state is not None:
            keys.update(dict.fromkeys((*step.state.voters, *step.voters)))
            if step.state.vote is not None:
                keys[step.state.vote] = None
        if step.candidate is not None:
            keys[step.candidate] = None
    names: dict[Key, str] = {}
    of_id: dict[int, list[str]] = {}
    for key in sorted(keys, key=lambda one: (not one[1], list(keys).index(one))):
        known = of_id.setdefault(key[0], [])
        if key[1] or not known:
            known.append(f"n{key[0]}" if not known else f"n{key[0]}_{len(known) + 1}")
            names[key] = known[-1]
        else:
            names[key] = known[0]
    return names


def _ranks(steps: list[ProtocolStep]) -> dict[int, int]:
    offsets = {0}
    for step in steps:
        if step.what not in ("LearnEpoch", "LearnLeader"):
            offsets |= {step.end, step.begin}
        if step.state is not None:
            offsets |= {step.state.end, max(step.state.high_watermark, 0), step.state.start}
    return {offset: rank for rank, offset in enumerate(sorted(offsets))}


def _record(step: ProtocolStep, names: dict[Key, str], ranks: dict[int, int]) -> str:
    end = step.end if step.what in ("LearnEpoch", "LearnLeader") else ranks[step.end]
    fields = [
        ("who", f'"{names[step.replica]}"'),
        ("what", f'"{step.what}"'),
        ("last", f"[epoch |-> {step.last_epoch}, end |-> {end}]"),
        ("to", _named(step.candidate, names)),
        ("role", f'"{step.role}"'),
        ("epoch", str(step.epoch)),
        ("is_last", "TRUE" if step.state is not None else "FALSE"),
    ]
    if step.what == "Restart":
        fields.append(("begin", str(ranks[step.begin])))
    if step.voters:
        fields.append(("set", _set(step.voters, names)))
    if step.state is not None:
        assert step.on_disk is not None, step
        fields += _state(step.state, names, ranks)
        fields.append(("disk", f"<<{', '.join(map(str, step.on_disk))}>>"))
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields) + "]"


def _state(state: State, names: dict[Key, str], ranks: dict[int, int]) -> list[tuple[str, str]]:
    return [
        ("leader", str(state.leader)),
        ("vote", _named(state.vote, names)),
        ("end", str(ranks[state.end])),
        ("last_epoch", str(state.last_epoch)),
        ("watermark", str(ranks[max(state.high_watermark, 0)])),
        ("start", str(ranks[state.start])),
        ("voters", _set(state.voters, names)),
    ]


def _set(keys: tuple[Key, ...], names: dict[Key, str]) -> str:
    return f"{{{_quoted(sorted({names[key] for key in keys}))}}}"


def _named(key: Key | None, names: dict[Key, str]) -> str:
    return '"none"' if key is None else f'"{names[key]}"'


def shown(step: ProtocolStep) -> str:
    """A step for a reader."""
    about = "" if not step.end else f" {step.end}" + (f"@{step.last_epoch}" if step.last_epoch else "")
    told = f"node {step.replica[0]} {step.what}{about}: {step.role} {step.epoch}"
    state = step.state
    if state is None:
        return told
    leader = "-" if state.leader == NO_NODE else state.leader
    vote = "-" if state.vote is None else state.vote[0]
    return (
        f"{told}, leader {leader}, vote {vote}, log {state.start}..{state.end}@{state.last_epoch},"
        f" watermark {state.high_watermark}"
    )


def module_of(runs: list[Run]) -> str:
    """The module `Runs` for runs of one group."""
    group = runs[0].group
    assert all(run.group == group for run in runs), "runs of one group"
    names = [name for name, _ in group]
    ids = ", ".join(f"{name} |-> {name[1:].partition('_')[0]}" for name in names)
    first = ", ".join(f"{name} |-> {{{_quoted(voters)}}}" for name, voters in group)
    traces = ",\n".join("<<\n" + ",\n".join(run.steps) + "\n>>" for run in runs)
    return (
        "---- MODULE Runs ----\n"
        "EXTENDS Integers\n"
        f"RunReplicas == {{{_quoted(names)}}}\n"
        f"RunFirst == [{first}]\n"
        f"Id == [{ids}]\n"
        f"Runs == <<\n{traces}\n>>\n"
        "====\n"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{one}"' for one in names)


__all__ = ["MOST_STEPS", "Run", "Trace", "module_of", "run_of", "shown", "without_lost_ends"]
