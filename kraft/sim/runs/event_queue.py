"""The queue of scheduled actions and calls of a run, in the order of virtual time (Kafka: the `EventQueue` of
`RaftEventSimulationTest`).

A node that is paused or busy takes no events: the queue postpones an action until the node is awake.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.sim.world.actions import Act, Action, Deliver, Tick
from kraft.sim.world.world import World
from metadata_log.types import NEVER_MS

SAME_MOMENT_LIMIT: Final = 20_000
"""More events than this at one moment of virtual time are an endless loop."""


class Times(Struct):
    """The scheduling state of one node."""

    tick_at_ms: int = -1
    """The time of the scheduled tick; -1 if there is none. A tick for any other time is void."""
    paused_until_ms: int = 0
    busy_until_ms: int = 0
    """Until then the owner of the replica is busy and takes no events."""
    is_tick_late: bool = False
    """Whether a tick fell due while the node was busy. It comes before the other events that wait."""
    crash_down_ms: int = 0
    """How long the node stays down after a crash within one of its next steps."""
    clock_step_ms: int = 0
    """By how much the node's clock has stepped, beside the error that each start draws."""
    flush_ms: int = 1
    """The longest time that an fsync takes."""


class EventQueue:
    """The scheduled events of one run, and the virtual time."""

    def __init__(self, world: World, perform: Callable[[Action], bool]) -> None:
        """`perform` performs an action in the world, at its time."""
        self.now_ms = world.now_ms
        self.times = {node_id: Times() for node_id in world.node_ids}
        """The scheduling state of each node."""
        self._hosts = world.hosts
        self._perform = perform
        self._heap: list[tuple[int, int, Action | None, Callable[[], None] | None]] = []
        self._sequence = 0

    def draw_flush_times(self, rng: Random, longest_ms: tuple[int, ...]) -> None:
        """Draw the longest time of an fsync for each node."""
        for times in self.times.values():
            times.flush_ms = rng.choice(longest_ms)

    def schedule(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after this much virtual time. Calls at one moment keep the order of scheduling."""
        self._sequence += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._sequence, None, call))

    def plan(self, action: Action) -> None:
        """Schedule an action at its time, or when the node is awake."""
        self._sequence += 1
        heappush(self._heap, (action.at_ms, self._sequence, action, None))

    def plan_tick(self, node_id: int, at_ms: int) -> None:
        """Schedule the next tick of a node in place of the one scheduled before."""
        times = self.times[node_id]
        if at_ms != times.tick_at_ms:
            times.tick_at_ms = at_ms
            self.plan(Tick(at_ms, node_id))

    @property
    def next_at_ms(self) -> int:
        """The time of the next event; `NEVER_MS` if there is none."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> None:
        """Process events until `is_done`, at most until this virtual time."""
        moment, heap = 0, self._heap
        while heap and heap[0][0] <= end_ms:
            if is_done is not None and is_done():
                return
            at_ms, _, action, call = heappop(heap)
            moment = moment + 1 if at_ms == self.now_ms else 0
            assert moment < SAME_MOMENT_LIMIT, f"a loop in which no time passes, at {at_ms}"
            self.now_ms = at_ms
            if action is not None:
                self.perform_when_awake(action)
            elif call is not None:
                call()
        self.now_ms = max(self.now_ms, end_ms)

    def perform_when_awake(self, action: Action) -> None:
        """Perform an action now, or when the node is awake."""
        times = self.times[action.node]
        if type(action) is Tick:
            if times.tick_at_ms != action.at_ms:
                return
            times.tick_at_ms, times.is_tick_late = -1, False
        # Work ends with an `Act`: another action that falls due in the same millisecond comes one later.
        is_end_of_work = type(action) is Act
        host = self._hosts[action.node]
        is_paused = times.paused_until_ms > self.now_ms
        if times.is_tick_late and not is_paused and not is_end_of_work and host.held is None:
            # An owner looks at its deadlines after each turn, however many events wait.
            times.tick_at_ms, times.is_tick_late = -1, False
            self._perform(Tick(self.now_ms, action.node))
        is_busy = host.held is not None and not is_end_of_work
        if is_busy or is_paused:
            times.is_tick_late = times.is_tick_late or (is_busy and type(action) is Tick)
            self._postpone(action, times)
        else:
            self._perform(action)

    def is_awake(self, node_id: int) -> bool:
        """Whether a node is neither paused nor busy."""
        times = self.times[node_id]
        return max(times.paused_until_ms, times.busy_until_ms) <= self.now_ms

    def _postpone(self, action: Action, times: Times) -> None:
        """Postpone an action until the node is awake. A crash of the node drops local inputs, but not messages."""
        action = replace(action, at_ms=max(self.now_ms + 1, times.paused_until_ms, times.busy_until_ms))
        host = self._hosts[action.node]
        life = host.life
        if type(action) is Tick:
            times.tick_at_ms = action.at_ms

        def wake() -> None:
            if host.life == life or type(action) is Deliver:
                self.perform_when_awake(action)

        self.schedule(action.at_ms - self.now_ms, wake)
