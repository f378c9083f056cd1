"""Bugs of coordinators that forget: offsets that members want, groups with members, and regular expressions."""

from __future__ import annotations

from typing import Any

from kraft.coordinators.groups import offsets
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.state import consumer_group
from planted_bugs.registry import Patches, Scope, mutant


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def offsets_that_members_want_are_forgotten(code: Patches) -> None:
    """Offsets of topics that members of a consumer group want are deleted, and become old."""
    code.replace(ConsumerGroup, "subscribes_to", lambda group, topic: False)


@mutant(Scope.COORDINATOR_CLUSTER, budget=400, faults=None)
def offsets_that_expressions_want_are_forgotten(code: Patches) -> None:
    """Offsets of topics that members want by a regular expression are deleted, and become old."""
    code.replace(ConsumerGroup, "subscribes_to", lambda group, topic: topic in group.names)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def groups_with_members_are_deleted(code: Patches) -> None:
    """DeleteGroups forgets a consumer group that has members, with its offsets."""
    sound = offsets._check_deletion

    def check_deletion(group_id: str, *given: Any) -> Any:
        found = consumer_group(given[-1].state, group_id)
        return sound(group_id, *given) if found is None else found

    code.replace(offsets, "_check_deletion", check_deletion)
