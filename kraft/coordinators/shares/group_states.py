"""The states that share groups need, and the end of a group: what their coordinator asks of share coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.groups.shares.group import ShareGroup
from kraft.coordinators.groups.shares.states import Beginning, Partitions
from kraft.coordinators.groups.state import GroupsState, share_group
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Operation
from kraft.coordinators.shares.offset_operations import DeletedGroup
from kraft.coordinators.shares.state_calls import Errors, StateCalls

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard


class StatesBegun(Struct):
    """The share coordinators have answered for some share partitions of a group."""

    group_id: str
    partitions: Partitions
    is_done: bool
    request = None

    def decide(self, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Let members have them, or let the next heartbeat ask again."""
        group = share_group(context.state, self.group_id)
        return shard.shares.begun(group, self.partitions, context, is_done=self.is_done)

    def tell(self, result: object) -> None:
        """Nobody has asked."""

    def refuse(self, refused: ApiError) -> None:
        """Nobody has asked."""


class GroupStates:
    """Asks for the states of the share groups that this broker coordinates.

    Args:
        runtime: The coordinators of this broker.
        calls: Asks the share coordinators.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupsState], calls: StateCalls) -> None:
        self._runtime = runtime
        self._calls = calls

    def begin(self, group_id: str, epoch: int, asked: list[Beginning], partitions: Partitions, now_ms: int) -> None:
        """Begin states for a group. Where others wait for too many, the group asks again after a while."""

        def done(errors: Errors, now_ms: int) -> None:
            self._go_on(group_id, StatesBegun(group_id, partitions, not any(errors.values())), now_ms)

        if self._calls.has_room(len(asked)):
            self._calls.initialize(group_id, epoch, asked, done, now_ms)

    def delete_group(self, operation: Any, group: ShareGroup, shard: GroupShard, context: Context) -> CoordinatorResult:
        """Delete a group with its states, for an operation that answers for it."""
        group_id = group.group_id
        deletion = DeletedGroup(
            group_id, self._calls, lambda half, now_ms: self._go_on(group_id, half, now_ms), operation
        )
        return deletion.begin(group, shard, context)

    def _go_on(self, group_id: str, operation: Operation, now_ms: int) -> None:
        self._runtime.go_on(self._runtime.number_of(group_id), operation, now_ms)
