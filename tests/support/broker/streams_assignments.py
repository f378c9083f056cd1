"""Streams groups that change step by step, for an assignor of either make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from kraft.coordinators.groups.streams.assignor import TaskCounts, TaskMember, assigning
from kraft.coordinators.groups.streams.tasks import Tasks
from kraft.handling.orders import in_hash_map_order, timeline_order
from metadata_log.serde.codec import finished

STEPS: Final = 8
NAMES: Final = ("0", "1", "2", "10", "orders", "Zähler", "\U0001f600", "\uffee")
"""Subtopologies, among them two whose order by UTF-16 is not that by code points."""

Targets = dict[str, list[dict[str, list[int]]]]


class Group(Struct, frozen=True):
    """What an assignor is asked."""

    subtopologies: Mapping[str, TaskCounts]
    members: Mapping[str, TaskMember]
    standbys: int

    def targets(self) -> dict[str, Tasks]:
        """What ours says."""
        members = [self.members[one] for one in in_hash_map_order(self.members)]
        return finished(assigning(members, self.ordered(), self.standbys))

    def told(self) -> Targets:
        """The same as Kafka's tells it: the active tasks and the standbys of each member."""
        return {
            name: [{task: list(numbers) for task, numbers in of.items()} for of in (one.active, one.standby)]
            for name, one in self.targets().items()
        }

    def ordered(self) -> dict[str, TaskCounts]:
        """The subtopologies in the order of a sorted map of Java's."""
        return {
            one: self.subtopologies[one]
            for one in sorted(self.subtopologies, key=lambda name: name.encode("utf-16-be"))
        }

    def line(self) -> str:
        """The question to Kafka's."""
        members = [to_builtins(self.members[one]) for one in sorted(self.members, key=timeline_order)]
        counts = {name: (one.tasks, one.is_stateful) for name, one in self.subtopologies.items()}
        return json.dumps({"standbys": self.standbys, "subtopologies": counts, "members": members})

    @classmethod
    def parse(cls, asked: Mapping[str, Any]) -> Group:
        """The group of a question."""
        counts = {name: TaskCounts(*one) for name, one in asked["subtopologies"].items()}
        members = [convert(one, TaskMember, strict=False) for one in asked["members"]]
        return cls(counts, {one.member_id: one for one in members}, asked["standbys"])


def told_offsets(draws: Random, group: Group) -> dict[str, dict[int, int]]:
    """The offsets of some tasks, of which several members tell the same."""
    stateful = [name for name, one in group.subtopologies.items() if one.is_stateful]
    return {
        name: {
            number: draws.randrange(4) * 50 for number in range(group.subtopologies[name].tasks) if draws.random() < 0.5
        }
        for name in stateful
        if draws.random() < 0.6
    }


def changed(draws: Random, group: Group) -> Group:
    """The group after each member has come to its target, and some things have changed."""
    targets, members = group.targets(), dict[str, TaskMember]()
    keeps, tells = draws.choice((1.0, 1.0, 0.7)), draws.choice((0.0, 0.3, 1.0))
    for name, one in group.members.items():
        held = targets[name]
        active, standby = (
            {
                task: kept
                for task, numbers in of.items()
                if (kept := tuple(each for each in numbers if draws.random() < keeps))
            }
            for of in (held.active, held.standby)
        )
        offsets = told_offsets(draws, group) if draws.random() < tells else {}
        members[name] = TaskMember(name, one.process_id, active, standby, offsets)
    for _ in range(draws.choice((0, 0, 1, 1, 2, 5))):
        if len(members) > 1:
            del members[draws.choice(list(members))]
    for _ in range(draws.choice((0, 0, 1, 1, 2, 5, 20)) or not members):
        joiner = TaskMember(f"m{draws.randrange(10**9)}", f"process-{draws.randrange(draws.choice((2, 6, 100)))}")
        members[joiner.member_id] = (
            replace(joiner, offsets=told_offsets(draws, group)) if draws.random() < 0.2 else joiner
        )
    subtopologies = dict(group.subtopologies)
    if draws.random() < 0.2 or not subtopologies:
        subtopologies[draws.choice(NAMES)] = TaskCounts(draws.choice((1, 3, 8, 30)), draws.random() < 0.6)
    if draws.random() < 0.1:
        del subtopologies[draws.choice(list(subtopologies))]
    standbys = draws.choice((0, 1, 1, 2, 5)) if draws.random() < 0.2 else group.standbys
    return Group(subtopologies, members, standbys)


def chain(seed: int) -> Iterator[Group]:
    """A group that changes step by step."""
    draws = Random(seed)
    group = Group({}, {}, draws.choice((0, 1, 1, 2)))
    for _ in range(draws.randrange(4)):
        group = changed(draws, replace(group, members={}))
    for _ in range(STEPS):
        group = changed(draws, group)
        yield group
