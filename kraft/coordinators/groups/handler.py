"""The common part of the handlers of requests to groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from kraft.access.authorizer import AclOperation, AclResource
from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.runtime import CoordinatorRuntime, refused
from kraft.coordinators.runtime.shard import Operation
from kraft.handling.rights import Rights
from kraft.handling.steps import Handling
from kraft.limits import GROUPS_PER_STEP
from kraft.wire import Answer, WireRequest
from transport.protocol.errors import Error

if TYPE_CHECKING:
    from kraft.coordinators.groups.shard import GroupShard

G = TypeVar("G", bound=Struct)


class GroupsHandler:
    """Answers requests to groups.

    Args:
        runtime: The coordinators of this broker.
        settings: The settings.
        rights: What clients may do.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupsState], settings: GroupConfig, rights: Rights) -> None:
        self._runtime = runtime
        self._settings = settings
        self._rights = rights

    def _may_see(self, request: WireRequest[Any], names: Iterable[str]) -> Handling[bool]:
        """Whether the client may describe all topics of these names."""
        for number, name in enumerate(names, 1):
            if not self._rights(request, AclOperation.DESCRIBE, AclResource.TOPIC, name):
                return False
            if number % GROUPS_PER_STEP == 0:
                yield None
        return True

    def _committed(
        self, group_id: str, find: Callable[[GroupsState, str], G | None], kind: str
    ) -> G | tuple[Error, str | None]:
        """A group of one kind as far as it is committed; the error and its text if this broker cannot tell of it."""
        known = self._runtime.readable(self._runtime.number_of(group_id))
        if isinstance(known, Error):
            return known, None
        group = find(known.committed, group_id)
        if group is None:
            other = cast("GroupShard", known.shard).present(group_id, known.committed)
            what = "not found" if other is None else f"is not a {kind}"
            return Error.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}."
        return group

    def _write(self, operation: Operation, group_id: str, error: Error, now_ms: int) -> Answer | None:
        """Do an operation on a group, unless there is an error already."""
        if error is not Error.NONE:
            return refused(operation, error)
        return self._runtime.write(self._runtime.number_of(group_id), operation, now_ms)
