"""The assignor of streams groups (Kafka: `StickyTaskAssignor`, `ProcessState`).

Tasks stay where they are, or go where a standby of them is, as long as nobody gets more than a fair part; the others go
to the process with the least load for its threads. Members with an equal claim come in the order in which Kafka's maps
and queues have them, so that a coordinator of either make finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from math import inf
from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from kraft.coordinators.groups.streams.tasks import TaskIds, Tasks
from kraft.handling.coordinators import java_hash
from kraft.handling.orders import in_slot_order
from kraft.limits import STREAMS_TASKS_PER_STEP

Task = tuple[str, int]
"""A subtopology and a partition."""
_T = TypeVar("_T")


class TaskMember(Struct, frozen=True, gc=False):
    """A member, with what it has and what it tells of the state that it holds."""

    member_id: str
    process_id: str
    active: Mapping[str, Iterable[int]] = {}
    standby: TaskIds = {}
    offsets: Mapping[str, Mapping[int, int]] = {}
    """The sums of the offsets of the changelogs of tasks."""


class TaskCounts(Struct, frozen=True, gc=False):
    """The tasks of a subtopology."""

    tasks: int
    is_stateful: bool


class _Queue(Generic[_T]):
    """`java.util.PriorityQueue`: of equal entries it gives the one that Java would give."""

    def __init__(self, weight: Callable[[_T], float]) -> None:
        self._weight = weight
        self._items: list[_T] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, item: _T) -> None:
        items, weight, at = self._items, self._weight, len(self._items)
        items.append(item)
        own = weight(item)
        while at:
            parent = (at - 1) >> 1
            if own >= weight(items[parent]):
                break
            items[at] = items[parent]
            at = parent
        items[at] = item

    def pop(self) -> _T:
        items, weight = self._items, self._weight
        first, last = items[0], items.pop()
        size = len(items)
        if not size:
            return first
        at, own = 0, weight(last)
        while (child := 2 * at + 1) < size:
            if child + 1 < size and weight(items[child]) > weight(items[child + 1]):
                child += 1
            if own <= weight(items[child]):
                break
            items[at] = items[child]
            at = child
        items[at] = last
        return first


class _Process:
    """A process, with its members and what they are given."""

    def __init__(self) -> None:
        self.load: float = inf
        self.counts: dict[str, int] = {}
        self.tasks: set[Task] = set()
        self._count = 0
        self._by_load: _Queue[str] | None = None

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0
        self.load = self._count / len(self.counts)

    def add(self, member_id: str, task: Task) -> int:
        """Give a member a task; returns how many it has now."""
        self._by_load = None
        return self._add(member_id, task)

    def _add(self, member_id: str, task: Task) -> int:
        self._count += 1
        self.tasks.add(task)
        self.counts[member_id] += 1
        self.load = self._count / len(self.counts)
        return self.counts[member_id]

    def add_to_least(self, task: Task) -> tuple[str, int]:
        """Give the task to the member with the fewest tasks; returns that and how many it has now."""
        if len(self.counts) == 1:
            (member_id,) = self.counts
            return member_id, self._add(member_id, task)
        if self._by_load is None:
            self._by_load = _Queue(self.counts.__getitem__)
            for one in in_slot_order(tuple(self.counts)):
                self._by_load.push(one)
        member_id = self._by_load.pop()
        number = self._add(member_id, task)
        self._by_load.push(member_id)
        return member_id, number


class _Quota(Struct):
    """How many tasks a member may have, so that the tasks left are enough for the members left."""

    tasks: int
    members: int
    each: int = 0

    def __post_init__(self) -> None:
        self._share()

    def _share(self) -> None:
        self.each = -(-self.tasks // self.members) if self.members else 0

    def note(self, number: int) -> None:
        """A member has so many tasks now."""
        if number == self.each:
            self.members -= 1
            self.tasks -= number
            self._share()


class _Given(Struct):
    """The tasks of one member."""

    active: dict[str, list[int]] = field(default_factory=dict)
    standby: dict[str, list[int]] = field(default_factory=dict)


class _Candidate(Struct, frozen=True):
    """A member that has state of a task."""

    member: TaskMember
    is_standby: bool
    offset: int


class _Assignment:
    """The state of one run."""

    def __init__(self, members: Sequence[TaskMember], subtopologies: Mapping[str, TaskCounts], standbys: int) -> None:
        active = sum(one.tasks for one in subtopologies.values())
        stateful = sum(one.tasks for one in subtopologies.values() if one.is_stateful)
        self.subtopologies = subtopologies
        self.standbys = standbys
        self.of_active = _Quota(active, len(members))
        self.of_all = _Quota(active + stateful * standbys, len(members))
        self.given = {one.member_id: _Given() for one in members}
        self.had: dict[Task, TaskMember] = {}
        self.candidates: dict[Task, list[TaskMember]] = {}
        self.processes: dict[str, _Process] = {}
        for one in members:
            self.processes.setdefault(one.process_id, _Process()).add_member(one.member_id)
        self._order = _in_table_order([one.process_id for one in members])

    def looking(self, members: Sequence[TaskMember]) -> Generator[None, None, None]:
        """Note who had which task, in portions."""
        found: dict[Task, list[_Candidate]] = {}
        looked_at = 0
        for member in members:
            for subtopology, numbers in member.active.items():
                self.had.update({(subtopology, number): member for number in numbers})
            for subtopology, some in member.standby.items():
                offsets = member.offsets.get(subtopology, {})
                for number in some:
                    candidate = _Candidate(member, True, offsets.get(number, 0))
                    found.setdefault((subtopology, number), []).append(candidate)
            for subtopology, offsets in member.offsets.items():
                standby = frozenset(member.standby.get(subtopology, ()))
                for number, offset in offsets.items():
                    if number not in standby:
                        found.setdefault((subtopology, number), []).append(_Candidate(member, False, offset))
                looked_at += len(offsets)
            looked_at += 1 + sum(len(tuple(one)) for one in (*member.active.values(), *member.standby.values()))
            if looked_at >= STREAMS_TASKS_PER_STEP:
                looked_at = 0
                yield None
        for task, some_candidates in found.items():
            some_candidates.sort(key=lambda one: (not one.is_standby, -one.offset))
            self.candidates[task] = [one.member for one in some_candidates]
            looked_at += len(some_candidates)
            if looked_at >= STREAMS_TASKS_PER_STEP:
                looked_at = 0
                yield None

    def tasks(self, *, stateful: bool = False) -> list[Task]:
        """All tasks, or those with state."""
        return [
            (name, number)
            for name, one in self.subtopologies.items()
            if one.is_stateful or not stateful
            for number in range(one.tasks)
        ]

    def giving_active(self) -> Generator[None, None, None]:
        """Give each task to one member, in portions."""
        tasks = sorted(self.tasks(), key=lambda task: (task[1], _units(task[0])))
        left: list[Task] = []
        for number, task in enumerate(tasks, 1):
            member = self.had.get(task)
            if member is None or not self._give_active(task, member):
                left.append(task)
            if number % STREAMS_TASKS_PER_STEP == 0:
                yield None
        tasks, left = left, []
        for number, task in enumerate(tasks, 1):
            member = self._least(self.candidates.get(task, ()))
            if member is None or not self._give_active(task, member):
                left.append(task)
            if number % STREAMS_TASKS_PER_STEP == 0:
                yield None
        left.sort(key=lambda task: (_units(task[0]), task[1]))
        queue = self._by_load()
        for number, task in enumerate(left, 1):
            process = queue.pop()
            member_id, has = process.add_to_least(task)
            self.of_active.note(has)
            self.of_all.note(has)
            _note(self.given[member_id].active, task)
            queue.push(process)
            if number % STREAMS_TASKS_PER_STEP == 0:
                yield None

    def _give_active(self, task: Task, member: TaskMember) -> bool:
        process = self.processes[member.process_id]
        if process.counts[member.member_id] >= self.of_active.each:
            return False
        has = process.add(member.member_id, task)
        self.of_active.note(has)
        self.of_all.note(has)
        _note(self.given[member.member_id].active, task)
        return True

    def giving_standbys(self) -> Generator[None, None, None]:
        """Give each task with state to some other processes as a standby, in portions."""
        tasks = sorted(self.tasks(stateful=True), key=lambda task: (task[1], _units(task[0])), reverse=True)
        left: list[tuple[Task, int]] = []
        for number, task in enumerate(tasks, 1):
            for replica in range(self.standbys):
                if not self._give_standby(task):
                    left.append((task, self.standbys - replica))
                    break
            if number % STREAMS_TASKS_PER_STEP == 0:
                yield None
        left.sort(key=lambda one: (_units(one[0][0]), one[0][1]), reverse=True)
        queue = self._by_load()
        for number, (task, replicas) in enumerate(left, 1):
            for _ in range(replicas):
                if not self._give_to_least(queue, task):
                    break
            if number % STREAMS_TASKS_PER_STEP == 0:
                yield None

    def _give_standby(self, task: Task) -> bool:
        """Give a task to a member that had it, if its process does not run it now."""
        member = self.had.get(task)
        if (
            member is not None
            and task not in self.processes[member.process_id].tasks
            and self._add_standby(task, member)
        ):
            return True
        member = self._least([one for one in self.candidates.get(task, ()) if self._lacks(one, task)])
        return member is not None and self._add_standby(task, member)

    def _lacks(self, member: TaskMember, task: Task) -> bool:
        return task not in self.processes[member.process_id].tasks

    def _add_standby(self, task: Task, member: TaskMember) -> bool:
        process = self.processes[member.process_id]
        if process.counts[member.member_id] >= self.of_all.each:
            return False
        self.of_all.note(process.add(member.member_id, task))
        _note(self.given[member.member_id].standby, task)
        return True

    def _give_to_least(self, queue: _Queue[_Process], task: Task) -> bool:
        """Give a task to the process with the least load that does not have it; whether there is one."""
        passed: list[_Process] = []
        found = False
        while queue and not found:
            process = queue.pop()
            passed.append(process)
            if task not in process.tasks:
                member_id, has = process.add_to_least(task)
                self.of_all.note(has)
                _note(self.given[member_id].standby, task)
                found = True
        for process in reversed(passed):
            queue.push(process)
        return found

    def _least(self, members: Sequence[TaskMember]) -> TaskMember | None:
        """The member with the least load, of its process and its own; the first one counts as long as none has less of
        both.
        """
        found: TaskMember | None = None
        of_process, own = inf, inf
        for one in members:
            process = self.processes[one.process_id]
            load, count = process.load, process.counts[one.member_id]
            if found is None or (load < of_process and count < own):
                found, of_process, own = one, load, count
        return found

    def _by_load(self) -> _Queue[_Process]:
        queue: _Queue[_Process] = _Queue(lambda process: process.load)
        for name in self._order:
            queue.push(self.processes[name])
        return queue


def assigning(
    members: Sequence[TaskMember], subtopologies: Mapping[str, TaskCounts], standbys: int
) -> Generator[None, None, dict[str, Tasks]]:
    """Find the targets of all members, in portions.

    Args:
        members: The members, in the order of a `java.util.HashMap`.
        subtopologies: The tasks of each subtopology, in ascending order of their names.
        standbys: How many standbys each task with state is to have.
    """
    run = _Assignment(members, subtopologies, standbys)
    yield from run.looking(members)
    if members:
        yield from run.giving_active()
        if standbys:
            yield from run.giving_standbys()
    targets: dict[str, Tasks] = {}
    looked_at = 0
    for member_id, given in run.given.items():
        targets[member_id] = Tasks(_sorted(given.active), _sorted(given.standby))
        looked_at += 1 + sum(map(len, (*given.active.values(), *given.standby.values())))
        if looked_at >= STREAMS_TASKS_PER_STEP:
            looked_at = 0
            yield None
    return targets


def _note(tasks: dict[str, list[int]], task: Task) -> None:
    tasks.setdefault(task[0], []).append(task[1])


def _sorted(tasks: Mapping[str, list[int]]) -> TaskIds:
    return {name: tuple(sorted(numbers)) for name, numbers in tasks.items()}


def _units(text: str) -> bytes | str:
    """The units by which Java orders a text."""
    return text.encode("utf-16-be", "surrogatepass")


_MASK: Final = 0xFFFFFFFF


def _in_table_order(names: Sequence[str]) -> list[str]:
    """The different ones of the names, in the order of a `java.util.HashMap` that was made for so many, and into which
    `computeIfAbsent` has put them one by one: it grows late, also with a name that is there already, and puts a new one
    before the others of its slot.
    """
    size = 1
    while size < len(names):
        size *= 2
    known: dict[str, None] = {}
    for name in names:
        size *= 1 + (len(known) > size * 3 // 4)
        known[name] = None
    newest_first = list(known)[::-1]

    def slot(name: str) -> int:
        value = java_hash(name) & _MASK
        return (value ^ (value >> 16)) & (size - 1)

    return sorted(newest_first, key=slot)
