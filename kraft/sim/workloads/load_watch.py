"""What must become of controllers that have much to decide: a silent broker is fenced, and leaders stay."""

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
"""The broker that falls silent when all faults have ended."""
TOPICS: Final = 20
MOST_ELECTIONS: Final = 3
"""The maximal number of leaders after the end of all faults: the present one, and successors after a resignation."""


class LoadWatch:
    """The `Watch` of a world with much to decide."""

    def __init__(self) -> None:
        self._elections: int | None = None

    def fall_silent(self, world: SimulatedQuorum) -> None:
        """From now on leaders are counted."""
        self._elections = world.invariants.votes.elections

    def submitting(self, submit_id: int, line: str, world: SimulatedQuorum) -> None:
        """Nothing to do: the ledger of the world observes the outcome."""

    def administering(self, request: Message) -> None:
        """Nothing to do: the quorum may perform or refuse the request."""

    def started(self, member: Member, world: SimulatedQuorum) -> None:
        """Nothing is remembered of a node."""

    def stepped(self, member: Member, outputs: list[Output], world: SimulatedQuorum) -> None:
        """Leaders do not come and go by themselves, and only registered brokers have sessions."""
        assert isinstance(member, ReplicaMember), member
        controller = member.controller
        if controller is not None and controller.is_active:
            registered = {(one.id, one.epoch) for one in controller.history.latest.brokers.by_id.values()}
            strangers = controller._sessions._contacts.keys() - registered
            if strangers:
                raise InvariantViolated(f"node {member.node_id} has sessions of {sorted(strangers)}, not registered")
        if self._elections is None:
            return
        count = world.invariants.votes.elections - self._elections
        if count > MOST_ELECTIONS:
            raise InvariantViolated(
                f"{count} leaders were elected since all faults ended: {world.invariants.votes.leaders}"
            )

    def unsettled(self, world: SimulatedQuorum) -> str:
        """All topics are there, and the silent broker is fenced."""
        image = image_of_leader(world)
        if image is None:
            return "no controller is active"
        if len(image.topics) < TOPICS:
            return f"only {len(image.topics)} topics are there"
        silent = image.brokers.by_id.get(SILENT)
        return "" if silent is not None and silent.fenced else f"broker {SILENT} is not fenced: {silent}"

    def concluded(self, world: SimulatedQuorum) -> None:
        """There is nothing that can only be judged now."""


def image_of_leader(world: SimulatedQuorum) -> MetadataImage | None:
    """What the active controller has committed; None if there is none."""
    for node_id in world.leaders():
        member = world.hosts[node_id].member
        assert isinstance(member, ReplicaMember), member
        controller = member.controller
        if controller is not None and controller.is_active:
            return controller.history.committed
    return None
