"""The appends of a program that embeds a node. Each caller waits in its own task for the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kraft.node.errors import AppendRejected, NodeStopped, NotLeader, OutcomeUnknown
from kraft.node.waiters import Waiters
from kraft.replica.interface.events import Submit, SubmitDone
from transport.protocol.errors import Error

_NOT_LEADING: Final = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.NOT_CONTROLLER})


_WEIGHT: Final = 1024
"""An upper estimate of the bytes that an append takes besides its values."""


class Appends(Waiters[SubmitDone]):
    """The outstanding appends of one node; their limit is in bytes."""

    async def append(self, values: Sequence[bytes]) -> SubmitDone:
        """Submit one atomic unit and wait for its commit; raises the errors of `kraft.node.errors`.

        While the outstanding appends exceed the limit, the call waits before it submits.
        """
        unit = tuple(values)
        weight = _WEIGHT + sum(map(len, unit))
        return _outcome(await self.ask(partial(Submit, values=unit), weight=weight))


def _outcome(done: SubmitDone | None) -> SubmitDone:
    if done is None:
        raise NodeStopped("the node stopped before the append was committed; it may or may not be in the log")
    if done.is_uncertain:
        raise OutcomeUnknown(done.leader)
    if done.error in _NOT_LEADING:
        raise NotLeader(done.leader)
    if done.error is not Error.NONE:
        raise AppendRejected(done.error)
    return done
