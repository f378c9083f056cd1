"""The lives of the clients of a run, which are generators: who waits for which answer, and what goes wrong on the
way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from kraft.invariants.cluster_model import PartitionKey
from kraft.sim.runs.client_requests import ClientRequests, leader_of
from kraft.sim.runs.simulator import Simulator
from kraft.sim.workloads.client_steps import Ask, HangUp, Pause, Step, Steps
from kraft.sim.workloads.record_watch import RecordWatch
from metadata_log.serde import Message


class ClientLives:
    """The clients of one run.

    Args:
        rng: Draws which answers are lost, and who asks the wrong broker.
        requests: Sends their requests.
        broker_ids: The brokers.
        look: Tells the clients of the present world, before each of their steps.
        may_repeat: Whether a request may come twice, from a client that goes on.
    """

    def __init__(
        self,
        rng: Random,
        requests: ClientRequests,
        broker_ids: Sequence[int],
        look: Callable[[], None],
        may_repeat: Callable[[Ask], bool],
    ) -> None:
        self.is_over = False
        """Whether no answer is lost any more."""
        self._rng = rng
        self._requests = requests
        self._broker_ids = broker_ids
        self._look = look
        self._may_repeat = may_repeat
        self._steps: list[Steps] = []
        self._awaited: dict[int, int] = {}
        """The client that waits for each request."""
        self._known: list[dict[PartitionKey, int]] = []
        """The leaders that each client knows, until an answer is missing."""

    def begin(self, simulator: Simulator, watch: RecordWatch, clients: Sequence[Steps]) -> None:
        """Begin the lives of these clients."""
        self._simulator, self._watch = simulator, watch
        self._steps = list(clients)
        self._known = [{} for _ in clients]
        for number in range(len(clients)):
            simulator.queue.schedule(1 + self._rng.randrange(1000), partial(self._go_on, number, None))

    def on_administered(self, request_id: int) -> None:
        """A client has received its response, unless that is lost on the way."""
        response = self._watch.answers.pop(request_id, None)
        number = self._awaited.get(request_id)
        if response is None or number is None:
            return
        if not self.is_over and self._rng.random() < 0.03:
            return
        del self._awaited[request_id]
        self._simulator.queue.schedule(0, partial(self._go_on, number, response))

    def _go_on(self, number: int, answer: Message | None) -> None:
        """A client goes on with an answer, or without."""
        self._look()
        try:
            step: Step = self._steps[number].send(answer)
        except StopIteration:
            return
        match step:
            case Pause(pause_ms=pause_ms):
                self._simulator.queue.schedule(pause_ms, partial(self._go_on, number, None))
            case HangUp(node_id=node_id, peer=peer):
                self._simulator.hang_up(node_id, peer)
                self._simulator.queue.schedule(0, partial(self._go_on, number, None))
            case Ask():
                request_id = self._requests.next_id
                self._awaited[request_id] = number
                self._simulator.queue.schedule(step.patience_ms, partial(self._give_up, number, request_id))
                target, may_repeat = self._target(number, step), self._may_repeat(step)
                self._requests.send(target, step.request, version=step.version, may_repeat=may_repeat)

    def _give_up(self, number: int, request_id: int) -> None:
        if self._awaited.pop(request_id, None) is not None:
            self._known[number].clear()
            self._go_on(number, None)

    def _target(self, number: int, step: Ask) -> int:
        """The broker that gets a request; now and then another one than the right one."""
        if step.target is None or (not self.is_over and self._rng.random() < 0.02):
            return self._rng.choice(self._broker_ids)
        if isinstance(step.target, int):
            return step.target
        known = self._known[number]
        if self._rng.random() < 0.1:
            known.clear()
        return known.setdefault(step.target, leader_of(self._rng, self._watch, step.target, self._broker_ids))
