"""Appends on their way into the log: each waits in its caller's task for the word of the replica."""

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
"""Bytes that an append takes beside its values, generously."""


class Appends(Waiters[SubmitDone]):
    """The outstanding appends of one node; their limit is in bytes."""

    async def append(self, values: Sequence[bytes]) -> SubmitDone:
        """Submit one atomic unit and wait until it is committed; raises what `kraft.node.errors` names. While too many
        bytes wait already, it waits before that.
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
