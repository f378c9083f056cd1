"""The checks of runs with slow decisions: a silent broker is fenced, and leaders keep their leadership."""

from __future__ import annotations

from typing import Final

from kraft.invariants.violation import InvariantViolated
from kraft.sim.nodes.replica_member import ReplicaMember
from kraft.sim.world.member_interface import Member, Output
from kraft.sim.world.simulated_quorum import SimulatedQuorum
from metadata_log.image import MetadataImage
from metadata_log.serde import Message

BROKERS: Final = (101, 102, 103)
SILENT: Final = BROKERS[-1]
"""The broker that stops sending heartbeats when all faults have ended."""
TOPICS: Final = 20
MOST_ELECTIONS: Final = 3
"""The maximal number of leaders after the end of all faults: the present one, and successors after a resignation."""


class LoadWatch:
    """The `Watch` of a world with slow decisions."""

    def __init__(self) -> None:
        self._elections: int | None = None

    def fall_silent(self, world: SimulatedQuorum) -> None:
        """Count the elections from now on: a broker has stopped sending heartbeats."""
        self._elections = world.invariants.votes.elections

    def submitting(self, submit_id: int, line: str, world: SimulatedQuorum) -> None:
        """Nothing to do: the ledger of the world observes the outcome."""

    def administering(self, request: Message) -> None:
        """Nothing to do: the quorum may perform or refuse the request."""

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """Nothing to do: no state belongs to a node."""

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """Check that leaders change only with faults, and that only registered brokers have sessions."""
        assert isinstance(member, ReplicaMember), member
        controller = member.controller
        if controller is not None and controller.is_active:
            registered = {(one.id, one.epoch) for one in controller.history.latest.brokers.by_id.values()}
            strangers = controller._sessions._contacts.keys() - registered
            if strangers:
                told = ", ".join(f"broker {broker_id} in epoch {epoch}" for broker_id, epoch in sorted(strangers))
                raise InvariantViolated(f"node {member.node_id} has sessions of {told}, not registered")
        if self._elections is None:
            return
        count = world.invariants.votes.elections - self._elections
        if count > MOST_ELECTIONS:
            raise InvariantViolated(
                f"{count} leaders were elected since all faults ended: {list(world.invariants.votes.leaders[-count:])}"
            )

    def unsettled(self, world: SimulatedQuorum) -> str:
        """Say what is missing until all topics exist and the silent broker is fenced; empty if nothing is."""
        image = image_of_leader(world)
        if image is None:
            return "no controller is active"
        if len(image.topics) < TOPICS:
            return f"only {len(image.topics)} topics are there"
        silent = image.brokers.by_id.get(SILENT)
        return "" if silent is not None and silent.fenced else f"broker {SILENT} is not fenced: {silent}"

    def concluded(self, world: SimulatedQuorum) -> None:
        """Nothing to do: all checks happen during the run."""


def image_of_leader(world: SimulatedQuorum) -> MetadataImage | None:
    """The committed metadata of the active controller; None if there is none."""
    for node_id in world.leaders():
        member = world.hosts[node_id].member
        assert isinstance(member, ReplicaMember), member
        controller = member.controller
        if controller is not None and controller.is_active:
            return controller.history.committed
    return None
