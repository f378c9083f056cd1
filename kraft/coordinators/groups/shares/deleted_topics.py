"""The states of share partitions of deleted topics, which the groups forget (Kafka:
`GroupMetadataManager.maybeCleanupShareGroupState`). The share coordinators do the same on their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from kraft.coordinators.groups.shares import states
from kraft.coordinators.groups.shares.draft import ShareDraft
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.shares.heartbeats import ShareTimer
from kraft.coordinators.runtime.partition import RETRY_TIMER_MS
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.limits import GLANCES_PER_UNIT
from metadata_log.image.persistent_map import keys_in_order_by_runs
from metadata_log.types import Uuid
from transport.protocol.errors import Error


class Forgetting:
    """A walk over the groups of a partition, in portions."""

    def __init__(self) -> None:
        self._topics: set[Uuid] = set()
        """The topics that were deleted since the walk began."""
        self._gone: frozenset[Uuid] = frozenset()
        """The topics that the present walk looks for."""
        self._groups: Iterator[str | None] | None = None

    def add(self, topic_ids: Iterable[Uuid]) -> None:
        """Topics were deleted."""
        self._topics |= set(topic_ids)

    def go_on(self, key: ShareTimer, context: Context) -> CoordinatorResult:
        """Write the states of the next groups; the timer ends again if there are more."""
        if self._groups is None:
            self._gone, self._topics = frozenset(self._topics), set()
            self._groups = keys_in_order_by_runs(context.state.groups)
        records: list[Record] = []
        for looked_at, group_id in enumerate(self._groups, 1):
            group = None if group_id is None else context.state.groups.get(group_id)
            if isinstance(group, ShareGroup) and states.is_in(group.states, self._gone):
                draft = ShareDraft(group)
                draft.states(states.without_topics(group.states, self._gone))
                records += draft.records
            if looked_at % GLANCES_PER_UNIT == 0:
                context.budget.take()
            if group_id is None or context.budget.left <= len(records):
                break
        else:
            self._groups = None
        gone = self._gone
        if self._groups is not None or self._topics:
            context.timers.set(key, context.now_ms + 1)

        def ended(error: Error, context: Context) -> None:
            if error not in (Error.NONE, Error.REQUEST_TIMED_OUT):
                self._topics |= gone
                context.timers.set(key, context.now_ms + RETRY_TIMER_MS)

        operation = CoordinatorResult(records, is_atomic=False)
        return structs.replace(operation, on_end=ended) if records else operation
