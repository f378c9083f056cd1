"""How a member comes from the tasks that it has to its target (Kafka: `CurrentAssignmentBuilder`).

A member gives up tasks first, and says so; then it gets those that nobody holds any more. A task that changes its role
within a member does so at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.coordinators.groups.streams.group import MemberState, StreamsGroup, StreamsMember
from kraft.coordinators.groups.streams.tasks import HOLDS_NOTHING, HeldTasks, TaskIds, Tasks, overlap
from kraft.limits import STREAMS_TASKS_PER_STEP
from transport.protocol.errors import Error

_Set = dict[str, set[int]]
_FENCED = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."


class TaskTarget(Struct, frozen=True, gc=False):
    """The tasks that a member should have, as of an epoch."""

    epoch: int
    tasks: Tasks


def reconciling(
    group: StreamsGroup, member: StreamsMember, target: TaskTarget, owned: Tasks | None
) -> Generator[None, None, StreamsMember]:
    """Find the member after its next step to its target, in portions; the same object if there is none.

    Args:
        group: The group, for who holds which task.
        member: The member.
        target: Its target.
        owned: What it says that it owns; None if it does not say so.

    Raises:
        ApiError: Its state is not known.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target.epoch:
            return member
        case MemberState.UNREVOKED_TASKS:
            if _holds(owned, member.revoking):
                return member
            return (yield from _next(group, member, target, owned, member.epoch + 1))
        case MemberState.UNKNOWN:
            if owned is None or not owned.is_empty:
                raise ApiError(Error.FENCED_MEMBER_EPOCH, _FENCED)
            return (yield from _next(group, member, target, owned, target.epoch))
        case _:
            return (yield from _next(group, member, target, owned, member.epoch))


def _holds(owned: Tasks | None, revoking: HeldTasks) -> bool:
    """Whether a member may still hold some of these tasks."""
    return owned is None or overlap(owned, revoking)


class _Role:
    """The tasks of one role: those that stay, that are to be given up, and that are to come."""

    def __init__(self, held: Mapping[str, Iterable[int]], target: TaskIds) -> None:
        self.had: _Set = {name: set(numbers) for name, numbers in held.items()}
        self.wanted: _Set = {name: set(numbers) for name, numbers in target.items()}
        self.stays: _Set = {}
        self.revoked: _Set = {}
        self.comes: _Set = {}
        for name in {**self.wanted, **self.had}:
            had, wanted = self.had.get(name, set()), self.wanted.get(name, set())
            for found, numbers in (
                (self.stays, had & wanted),
                (self.revoked, had - wanted),
                (self.comes, wanted - had),
            ):
                if numbers:
                    found[name] = numbers

    def withhold(self, taken: Mapping[str, set[int]]) -> bool:
        """Leave out tasks that somebody else has; whether there are some."""
        common = {name: numbers & taken[name] for name, numbers in self.comes.items() if name in taken}
        for name, numbers in common.items():
            _remove(self.comes, name, numbers)
        return any(common.values())

    def grant(self, numbers_of: Mapping[str, Iterable[int]]) -> _Set:
        """Give those of these tasks that are to come at once; returns them."""
        granted: _Set = {}
        for name, numbers in numbers_of.items():
            some = self.comes.get(name, set()).intersection(numbers)
            if some:
                _remove(self.comes, name, some)
                self.stays.setdefault(name, set()).update(some)
                granted[name] = some
        return granted


def _remove(tasks: _Set, name: str, numbers: Iterable[int]) -> None:
    left = tasks.get(name)
    if left is not None:
        left.difference_update(numbers)
        if not left:
            del tasks[name]


class _Holders:
    """The holders of the tasks that are to come to a member."""

    def __init__(self) -> None:
        self.active: _Set = {}
        """The active tasks that anybody has."""
        self.active_here: _Set = {}
        """Those of members of the same process."""
        self.standby_here: _Set = {}
        self.warmup_here: _Set = {}


def _finding_holders(group: StreamsGroup, member: StreamsMember) -> Generator[None, None, _Holders]:
    """Find who holds which task, in portions."""
    holders, looked_at = _Holders(), 0
    for one in group.members.values():
        is_here = one.process_id == member.process_id
        for held in (one.assigned, one.revoking):
            for name, epochs in held.active.items():
                holders.active.setdefault(name, set()).update(epochs)
                looked_at += len(epochs)
                if is_here:
                    holders.active_here.setdefault(name, set()).update(epochs)
            if is_here:
                for found, role in ((holders.standby_here, held.standby), (holders.warmup_here, held.warmup)):
                    for name, numbers in role.items():
                        found.setdefault(name, set()).update(numbers)
                        looked_at += len(numbers)
        looked_at += 1
        if looked_at >= STREAMS_TASKS_PER_STEP:
            looked_at = 0
            yield None
    return holders


def _without(tasks: Mapping[str, set[int]], own: Mapping[str, set[int]]) -> _Set:
    return {name: numbers - own.get(name, set()) for name, numbers in tasks.items()}


def _united(*several: Mapping[str, set[int]]) -> _Set:
    found: _Set = {}
    for tasks in several:
        for name, numbers in tasks.items():
            found.setdefault(name, set()).update(numbers)
    return found


def _next(
    group: StreamsGroup, member: StreamsMember, target: TaskTarget, owned: Tasks | None, epoch: int
) -> Generator[None, None, StreamsMember]:
    assigned = member.assigned
    active = _Role(assigned.active, target.tasks.active)
    standby = _Role(assigned.standby, target.tasks.standby)
    warmup = _Role(assigned.warmup, target.tasks.warmup)
    yield None
    holders = yield from _finding_holders(group, member)
    other_standby = _without(holders.standby_here, standby.had)
    other_warmup = _without(holders.warmup_here, warmup.had)
    waits = active.withhold(_united(holders.active, other_standby, other_warmup))
    waits |= standby.withhold(_united(_without(holders.active_here, active.had), holders.standby_here, other_warmup))
    waits |= warmup.withhold(_united(holders.active_here, other_standby, holders.warmup_here))
    yield None
    standby.grant(assigned.active)
    for name, numbers in warmup.grant(assigned.standby).items():
        _remove(standby.revoked, name, numbers)
    for name, numbers in standby.grant(assigned.warmup).items():
        _remove(warmup.revoked, name, numbers)
    for role in (standby, warmup):
        for name in role.had:
            _remove(role.revoked, name, active.wanted.get(name, ()))
    yield None
    revoking = HeldTasks(_kept(active.revoked, assigned), _ids(standby.revoked), _ids(warmup.revoked))
    revokes = not revoking.is_empty and _holds(owned, revoking)
    for role in (standby, warmup):
        _keep_until_active(role, active, revokes=revokes)
    stays = HeldTasks(_kept(active.stays, assigned), _ids(standby.stays), _ids(warmup.stays))
    if revokes:
        return _moved(member, epoch, MemberState.UNREVOKED_TASKS, stays, revoking)
    new = {name: dict.fromkeys(sorted(numbers), target.epoch) for name, numbers in active.comes.items()}
    held = HeldTasks(
        {name: {**stays.active.get(name, {}), **new.get(name, {})} for name in {**stays.active, **new}},
        _ids(_united(standby.stays, standby.comes)),
        _ids(_united(warmup.stays, warmup.comes)),
    )
    return _moved(member, target.epoch, MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE, held)


def _keep_until_active(role: _Role, active: _Role, *, revokes: bool) -> None:
    """A standby that is to become active stays until it does."""
    for name, numbers in role.had.items():
        kept = numbers & active.wanted.get(name, set())
        if not revokes:
            kept -= active.comes.get(name, set())
        if kept:
            role.stays.setdefault(name, set()).update(kept)


def _kept(tasks: _Set, assigned: HeldTasks) -> dict[str, dict[int, int]]:
    """The active tasks with the epochs that they had."""
    return {name: {number: assigned.active[name][number] for number in numbers} for name, numbers in tasks.items()}


def _ids(tasks: Mapping[str, set[int]]) -> TaskIds:
    return {name: tuple(sorted(numbers)) for name, numbers in tasks.items()}


def _moved(
    member: StreamsMember, epoch: int, state: MemberState, assigned: HeldTasks, revoking: HeldTasks = HOLDS_NOTHING
) -> StreamsMember:
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)
