"""A history of a simulated quorum as a file: the initial state, the actions and the failed check at the end (Kafka's
simulation prints a seed instead; a schedule stays valid when the random draws of the simulator change).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final

import msgspec
from msgspec import Struct

from kraft.sim.nodes.member_kinds import MakeMember
from kraft.sim.nodes.workload_spec import WorkloadSpec
from kraft.sim.runs.scenario import Scenario
from kraft.sim.runs.simulator import Simulator
from kraft.sim.search.planting import bugs, planted
from kraft.sim.world.actions import Action, Submit
from kraft.sim.world.driver import Driver
from kraft.sim.world.trace import Trace
from kraft.sim.world.world import World
from metadata_log.errors import MetadataLogError

FORMAT: Final = 1
RAISES_FOR_OTHERS: Final = "_raise_if"
"""The name of functions that only raise the violation that their caller has found."""


class BadSchedule(MetadataLogError):
    """A file is not a schedule, or this version cannot replay the schedule."""


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The actions on a world that began as `scenario`, with a planted bug if `mutant` names one."""

    format: int = FORMAT
    scenario: Scenario
    mutant: str | None = None
    violated: str = ""
    """The failed check, as named by `check_of`; empty without a failure."""
    message: str = ""
    calm_ms: int = 0
    """If not 0, all faults end after the actions, and the quorum must make progress within this virtual time, in ms."""
    actions: tuple[Action, ...]


class Replayed(Struct, frozen=True):
    """The result of a replay. `performed` are the possible actions; the subjects of the others did not exist."""

    world: World
    performed: tuple[Action, ...]
    failure: Exception | None

    @property
    def digest(self) -> str:
        """The digest of the trace, in hexadecimal."""
        return self.world.trace.digest


def encode_schedule(schedule: Schedule) -> bytes:
    """Encode a schedule as JSON with one action per line, for `decode_schedule`."""
    header = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(schedule, actions=())), indent=1)
    assert header.endswith(b"[]\n}"), header
    lines = b",\n".join(msgspec.json.encode(action) for action in schedule.actions)
    return header[: -len(b"]\n}")] + b"\n" + lines + b"\n]}\n"


def decode_schedule(data: bytes, source: str) -> Schedule:
    """Decode the output of `encode_schedule`; `source` is the name of the file in errors.

    `BadSchedule` if the data is not a schedule, has another format, or names an unknown mutant.
    """
    try:
        schedule = msgspec.json.decode(data, type=Schedule)
    except msgspec.DecodeError as failure:
        hint = "`kraft sim run` and `kraft sim explore` write one when a promise is broken."
        raise BadSchedule(f"{source} is not a schedule: {failure}", hint=hint) from failure
    if schedule.format != FORMAT:
        raise BadSchedule(f"{source} has the format {schedule.format}; this version reads {FORMAT}")
    if schedule.mutant is not None and schedule.mutant not in bugs():
        raise BadSchedule(f"{source} needs the mutant {schedule.mutant}, which this version does not have")
    return schedule


def replay(
    schedule: Schedule,
    *,
    make_member: MakeMember | None = None,
    workload_spec: WorkloadSpec | None = None,
    trace: Trace | None = None,
    driver: Driver | None = None,
    on_performed: Callable[[World, Action], None] = lambda world, action: None,
) -> Replayed:
    """Perform all actions of a schedule again, until a failure.

    Args:
        schedule: The schedule.
        make_member: Makes nodes of a kind that is not in `MEMBERS`.
        workload_spec: The state machine of the nodes, if not counters.
        trace: Receives the lines of the trace.
        driver: Receives the notifications of the world.
        on_performed: Called after each performed action.

    Returns:
        The world at the end, the performed actions, and the failure, if any.

    Raises:
        BadSchedule: The kind of nodes is unknown.
    """
    with planted(schedule.mutant):
        try:
            world = schedule.scenario.make_world(trace or Trace(keep_all=True), make_member, workload_spec)
        except KeyError as unknown:
            raise BadSchedule(f"this version has no nodes of the kind {unknown}") from unknown
        world.driver = driver or world.driver
        return perform_all(world, schedule, on_performed=on_performed)


def perform_all(
    world: World,
    schedule: Schedule,
    *,
    find: Callable[[World, Action], Action | None] = lambda world, action: action,
    on_performed: Callable[[World, Action], None] = lambda world, action: None,
) -> Replayed:
    """Perform all actions of a schedule in a world in its initial state, until a failure.

    `find` returns the corresponding action in this world; None if there is none.
    """
    performed: list[Action] = []
    for action in schedule.actions:
        match = find(world, action)
        if match is None:
            continue
        failure = None
        try:
            has_happened = world.perform(match)
        except Exception as broken:
            has_happened, failure = True, broken
        if has_happened:
            performed.append(match)
            on_performed(world, match)
        if failure is not None:
            return Replayed(world, tuple(performed), failure)
    try:
        _end_in_calm(world, schedule, performed)
    except Exception as broken:
        return Replayed(world, tuple(performed), broken)
    return Replayed(world, tuple(performed), None)


def _end_in_calm(world: World, schedule: Schedule, performed: list[Action]) -> None:
    """End all faults, if the schedule has a calm. Raises the failure of that phase; `NoProgress` without progress."""
    if schedule.calm_ms:
        submitted = (action.submit_id for action in performed if isinstance(action, Submit))
        simulator = Simulator(schedule.scenario, world=world, faults=())
        simulator.resume(1 + max(submitted, default=0))
        simulator.calm(schedule.calm_ms)


def check_of(failure: BaseException) -> str:
    """The name of a failed check: the kind of the failure and the function that raised it.

    Two failures of one check count as the same bug, even with different nodes and offsets.
    """
    place = ""
    traceback: TracebackType | None = failure.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_name != RAISES_FOR_OTHERS:
            place = code.co_qualname
        traceback = traceback.tb_next
    return f"{type(failure).__name__} by {place}"


def function_of(check: str) -> str:
    """The function in a name of `check_of`, without its class; for a nested function the outer one."""
    return check.partition(" by ")[2].partition(".<locals>")[0].rpartition(".")[2]
