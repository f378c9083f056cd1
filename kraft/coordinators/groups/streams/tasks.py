"""Tasks of a topology: a subtopology and a partition, which runs active, as a standby or as a warm-up (Kafka:
`TasksTuple`, `TasksTupleWithEpochs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

TaskIds = Mapping[str, tuple[int, ...]]
"""The partitions of tasks by subtopology, ascending; no subtopology has none."""
TaskEpochs = Mapping[str, Mapping[int, int]]
"""As `TaskIds`, with the epoch of the group at which each task was given."""
NO_TASKS: Final[TaskIds] = {}
NO_TASK_EPOCHS: Final[TaskEpochs] = {}


class Tasks(Struct, frozen=True, gc=False):
    """The tasks that a member should run, or says that it runs, by their roles."""

    active: TaskIds = NO_TASKS
    standby: TaskIds = NO_TASKS
    warmup: TaskIds = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.active or self.standby or self.warmup)


class HeldTasks(Struct, frozen=True, gc=False):
    """The tasks that a member has, by their roles."""

    active: TaskEpochs = NO_TASK_EPOCHS
    standby: TaskIds = NO_TASKS
    warmup: TaskIds = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.active or self.standby or self.warmup)


NOTHING: Final = Tasks()
HOLDS_NOTHING: Final = HeldTasks()


class Named(Protocol):
    """Tasks as a message or a record has them."""

    @property
    def subtopology_id(self) -> str:
        """The subtopology."""

    @property
    def partitions(self) -> Iterable[int]:
        """The partitions."""


def task_ids(named: Iterable[Named]) -> TaskIds:
    """The tasks of a message or a record, each once."""
    return {one.subtopology_id: numbers for one in named if (numbers := tuple(sorted(set(one.partitions))))}


def count_of(tasks: Iterable[Iterable[int]]) -> int:
    """How many tasks these are."""
    return sum(len(tuple(one)) for one in tasks)


def is_within(owned: TaskIds, held: Mapping[str, Iterable[int]]) -> bool:
    """Whether a member has all that it says to own."""
    return all(subtopology in held and set(held[subtopology]).issuperset(some) for subtopology, some in owned.items())


def overlap(owned: Tasks, held: HeldTasks) -> bool:
    """Whether a member owns one of these tasks in the same role."""
    roles: tuple[tuple[TaskIds, Mapping[str, Iterable[int]]], ...] = (
        (owned.active, held.active),
        (owned.standby, held.standby),
        (owned.warmup, held.warmup),
    )
    return any(
        not set(some).isdisjoint(of_held[subtopology])
        for of_owned, of_held in roles
        for subtopology, some in of_owned.items()
        if subtopology in of_held
    )
