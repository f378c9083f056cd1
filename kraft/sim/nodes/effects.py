"""The parts that a bare core and a replica share as simulated nodes: planned failures, and how an effect of the core
becomes an output.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from kraft.quorum.effects import PeerFault, StateChanged
from kraft.replica.interface.events import SubmitDone
from kraft.sim.world.member_interface import Answer, Changed, PeerFaultReported, WriteOutcome
from transport.protocol.errors import Error


class PlannedFailure(Struct):
    """Fails a later operation of a node, counted from now, and each one after that until the node has crashed."""

    operations_left: int
    failure: Callable[[str, str], Exception]
    """Makes the exception from the name of the operation and from the path of the file, if there is one."""

    def count(self, operation: str, path: str = "") -> None:
        """The node is about to perform an operation. Raises the planned exception once enough operations are done."""
        self.operations_left -= 1
        if self.operations_left <= 0:
            raise self.failure(operation, path)


def report_of(effect: object) -> Changed | PeerFaultReported | None:
    """The report on a change of state or on a fault of a peer; None for any other effect."""
    match effect:
        case StateChanged():
            return Changed(f"{effect.source}->{effect.target} {effect.cause}")
        case PeerFault(peer_id=peer_id, what=what):
            return PeerFaultReported(peer_id, what)
        case _:
            return None


def granting_answer(request_id: int, message: object, epoch: int, candidate_id: int, *, is_pre_vote: bool) -> Answer:
    """A response that grants a vote or a pre-vote in an epoch to a candidate."""
    if is_pre_vote:
        return Answer(request_id, message, pre_granted=epoch)
    return Answer(request_id, message, granted=(epoch, candidate_id))


def outcome_of(done: SubmitDone) -> WriteOutcome:
    """The outcome of a submission to a replica."""
    if done.error == Error.NONE:
        return WriteOutcome.COMMITTED
    return WriteOutcome.UNKNOWN if done.is_uncertain else WriteOutcome.REFUSED
