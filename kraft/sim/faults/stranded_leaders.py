"""The fault `stranded-leaders`: cuts off a leader until it has a successor, and then the successor in its place."""

from __future__ import annotations

from kraft.sim.world.world import World
from transport.faults import FaultPlan


class StrandedLeaders:
    """The leader that is cut off. Its successor then alone has the end of its own log."""

    def __init__(self, plan: FaultPlan, world: World) -> None:
        self._plan = plan
        self._world = world
        self.waiting: int | None = None
        """The leader that is cut off and has no successor yet."""

    def strand(self) -> None:
        """Cut a leader off, if there is one."""
        leaders = self._world.leaders()
        if leaders:
            self.waiting = leaders[0]
            self._plan.isolate(leaders[0])

    def succeeded_by(self, node_id: int, *, is_calm: bool) -> str:
        """If a node has succeeded the leader, cut off that node instead, unless all faults have ended.

        Returns:
            A description of the change, for the trace; empty if nothing has changed.
        """
        former, view = self.waiting, self._world.hosts[node_id].view
        if former is None or node_id == former or view is None or view.state != "Leader":
            return ""
        self.waiting = None
        if is_calm:
            return ""
        self._plan.heal(former)
        self._plan.isolate(node_id)
        return f"stranded-leaders {former} is back, and its successor {node_id} cut off"
