"""Long operations on consumer groups, found in several turns, of which only the last one has effects."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, cast

from kraft.access.errors import ApiError
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, CoordinatorResult
from kraft.handling.steps import Handling, long_step
from kraft.limits import OPERATION_BEGINNINGS, REQUEST_STEPS_PER_TURN
from transport.protocol.errors import Error

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

Portions = Generator[None, None, CoordinatorResult]
Begin = Callable[["GroupShard", Context], Portions | None]
"""The portions of an operation; None if it is little work."""


def in_portions(
    runtime: CoordinatorRuntime[GroupsState], group_id: str, begin: Begin, now_ms: int
) -> Handling[CoordinatorResult | ApiError | None]:
    """Find an operation, or its refusal, in several turns; None if it can be found in one.

    Nothing shows of it until it is whole. If others change the group or the topics in between, it begins anew. Its last
    portion and what the caller does with it are in one turn.
    """
    number = runtime.number_of(group_id)
    for _ in range(OPERATION_BEGINNINGS):
        known = runtime.active(number)
        if isinstance(known, Error):
            return None
        shard, context = cast("GroupShard", known.shard), known.context(now_ms)
        present = shard.present(group_id, context.state)
        try:
            portions = begin(shard, context)
            if portions is None:
                return None
            while (
                runtime.active(number) is known
                and shard.present(group_id, known.state) is present
                and known.image.topics is context.image.topics
            ):
                next(portions)
                yield from long_step(REQUEST_STEPS_PER_TURN)
        except StopIteration as done:
            operation: CoordinatorResult = done.value
            return operation
        except ApiError as refused:
            return refused
    return ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS, "Others change the group meanwhile. Ask again.")
