"""The common part of the handlers of requests to groups."""

from __future__ import annotations

from kraft.config.group_settings import GroupConfig
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.runtime import CoordinatorRuntime, refused
from kraft.coordinators.runtime.shard import Operation
from kraft.handling.rights import Rights
from kraft.wire import Answer
from transport.protocol.errors import Error


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

    def _write(self, operation: Operation, group_id: str, error: Error, now_ms: int) -> Answer | None:
        """Do an operation on a group, unless there is an error already."""
        if error is not Error.NONE:
            return refused(operation, error)
        return self._runtime.write(self._runtime.number_of(group_id), operation, now_ms)
