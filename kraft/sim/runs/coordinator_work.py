"""The members of groups and the transactional workers of a run: when they send, to which broker, and which of their
messages are lost, late or repeated on the way.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from kraft.invariants.cluster_model import PartitionKey
from kraft.sim.nodes.cluster import broker_ids
from kraft.sim.nodes.data_broker import forgets
from kraft.sim.runs.client_requests import FIRST_TOPIC_MS, TEND_MS, ClientRequests, leader_of, restart_without_directory
from kraft.sim.runs.simulator import Simulator, Work
from kraft.sim.workloads.coordinator_clients import (
    GROUP,
    Ask,
    ClassicMember,
    ConsumerMember,
    MixedMember,
    Observer,
    Pause,
    Remover,
    Steps,
    Worker,
    World,
)
from kraft.sim.workloads.coordinator_watch import (
    INPUT,
    OFFSETS,
    OUTPUT,
    STATES,
    TRANSFORMERS,
    WORKERS,
    CoordinatorWatch,
)
from metadata_log.serde import Message
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from transport.protocol.messages.offset_commit import OffsetCommitRequest

CLASSIC: Final = ("classic-0",)
CONSUMER: Final = ("consumer-0",)
MIXED: Final = ("mixed-0",)
ARE_MIXED: Final = 0.3
"""How many of the runs have one group of both kinds of members, in place of one of each."""
MEMBERS: Final = 3
BY_REGEX: Final = 0.4
"""How many of the consumer groups want the inputs by a regular expression."""
INSTANCES: Final = 2
_KINDS: Final = {
    **dict.fromkeys(CLASSIC, ClassicMember),
    **dict.fromkeys(CONSUMER, ConsumerMember),
    **dict.fromkeys(MIXED, MixedMember),
}
LOOK_MS: Final = 50
PLAIN: Final = 0.3
"""How many of the transactional ids are of clients from before KIP-890."""


class CoordinatorWork(Work):
    """The clients of one run."""

    pauses_ms: tuple[int, ...] = (2000, 4000, 8000)
    """Longer than for brokers without coordinators, as a group needs a coordinator for some time."""
    writes_ms: tuple[int, ...] = ()
    quiet_ms: int = 5000
    """Without the topics of the coordinators nothing happens."""

    def __init__(self, seed: int, brokers: int, *, has_small_logs: bool = False) -> None:
        self._rng = rng = Random(f"{seed}/coordinator-work")
        self._broker_ids = broker_ids(brokers)
        self._requests = ClientRequests(rng)
        self._groups = (*CLASSIC[: rng.choice((0, 1, 1))], *CONSUMER[: rng.choice((0, 1, 1))])
        if Random(f"{seed}/mixed").random() < ARE_MIXED:
            self._groups = MIXED
        self._workers = WORKERS[: rng.choice((1, 3)) if self._groups else 3]
        self._forgets = forgets(seed)
        self._segment_bytes = Random(f"{seed}/small-segments").choice((4000, 10_000)) if has_small_logs else None
        """Of the topics of coordinators, where these are cleaned: no active segment is, and a group fits into one."""
        if self._forgets:
            # Workers have no group that keeps their offsets.
            self._groups, self._workers = self._groups or CONSUMER, ()
        self._seed = seed
        self._steps: list[Steps] = []
        self._awaited: dict[int, int] = {}
        """The client that waits for each request."""
        self._known: list[dict[PartitionKey, int]] = []
        """The leaders that each client knows, until an answer is missing."""

    def begin(self, simulator: Simulator) -> None:
        """Begin to send."""
        watch = simulator.world.watch
        assert isinstance(watch, CoordinatorWatch), watch
        self._simulator, self._watch = simulator, watch
        self._world = World(watch.ledger.image)
        if CONSUMER[0] in self._groups and Random(f"{self._seed}/regex").random() < BY_REGEX:
            self._world.regex = f"{INPUT[:3]}.*"
        self._requests.begin(simulator)
        for group in self._groups:
            kind = _KINDS[group]
            for one in range(1 if self._forgets else MEMBERS):
                self._steps.append(kind(Random(f"{self._seed}/{group} {one}"), self._world, group, one).steps())
        for number, name in enumerate(self._workers):
            is_plain = Random(f"{self._seed}/plain {name}").random() < PLAIN
            for one in range(INSTANCES):
                rng = Random(f"{self._seed}/{name} {one}")
                self._steps.append(Worker(rng, self._world, name, number, one, is_plain=is_plain).steps())
        for group in (*self._groups, *((TRANSFORMERS,) if self._workers else ())):
            rng = Random(f"{self._seed}/observer of {group}")
            self._steps.append(Observer(rng, self._world, GROUP, group).steps())
        for group in self._groups if self._forgets else ():
            rng = Random(f"{self._seed}/remover of {group}")
            self._steps.append(Remover(rng, self._world, GROUP, group).steps())
        self._known = [{} for _ in self._steps]
        for number in range(len(self._steps)):
            simulator.queue.schedule(1 + self._rng.randrange(1000), partial(self._go_on, number, None))
        simulator.queue.schedule(TEND_MS, self._tend)
        simulator.queue.schedule(FIRST_TOPIC_MS, self._create)
        if self._segment_bytes is not None:
            simulator.queue.schedule(1, self._create_small)

    def end(self) -> None:
        """No message is lost any more, and each group and each worker is to finish something."""
        self._requests.is_over = self._world.is_over = True
        self._look_on()

    def _look_on(self) -> None:
        """Note what is unfinished."""
        watch, world = self._watch, self._world
        places = [(group, number) for group in self._groups for number in range(world.input_count)]
        groups = [one for one in places if one not in world.commits and not watch.is_lost_to(one[0])]
        workers = [one for one in self._workers if one not in world.ends and not watch.is_lost_to(TRANSFORMERS, one)]
        watch.unfinished = ""
        if groups:
            watch.unfinished = f"partition {groups[0][1]} of group {groups[0][0]} has no owner that commits"
        elif workers:
            watch.unfinished = f"{workers[0]} has not committed a transaction"
        if watch.unfinished:
            self._simulator.queue.schedule(LOOK_MS, self._look_on)

    def _create(self) -> None:
        """Create the topics of the clients, as soon as the cluster can have them."""
        known = self._watch.ledger.image.topics.by_name
        missing = [(name, count) for name, count in ((INPUT, len(WORKERS)), (OUTPUT, 2)) if name not in known]
        leaders = self._simulator.world.leaders()
        if leaders and missing:
            topics = [
                CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=len(self._broker_ids),
                    configs=[CreatableTopicConfig("min.insync.replicas", str(min(2, len(self._broker_ids))))],
                )
                for name, count in missing
            ]
            self._requests.send(self._rng.choice(leaders), CreateTopicsRequest(topics=topics))
        if missing:
            self._simulator.queue.schedule(FIRST_TOPIC_MS, self._create)

    def _create_small(self) -> None:
        """Create the topics of the coordinators before brokers do, unless these are first."""
        leaders = self._simulator.world.leaders()
        known = self._watch.ledger.image.topics.by_name
        missing = [name for name in (OFFSETS, STATES) if name not in known]
        if leaders and missing:
            configs = {"cleanup.policy": "compact", "internal.segment.bytes": str(self._segment_bytes)}
            topics = [
                CreatableTopic(
                    name=name,
                    num_partitions=2,
                    replication_factor=len(self._broker_ids),
                    configs=[CreatableTopicConfig(*one) for one in configs.items()],
                )
                for name in missing
            ]
            self._requests.send(self._rng.choice(leaders), CreateTopicsRequest(topics=topics))
        if missing:
            self._simulator.queue.schedule(20, self._create_small)

    def _tend(self) -> None:
        restart_without_directory(self._simulator, self._broker_ids)
        self._simulator.queue.schedule(TEND_MS, self._tend)

    # Clients

    def on_administered(self, request_id: int) -> None:
        """A client has received its response, unless that is lost on the way."""
        response = self._watch.answers.pop(request_id, None)
        number = self._awaited.get(request_id)
        if response is None or number is None:
            return
        if not self._world.is_over and self._rng.random() < 0.03:
            return
        del self._awaited[request_id]
        self._simulator.queue.schedule(0, partial(self._go_on, number, response))

    def _go_on(self, number: int, answer: Message | None) -> None:
        """A client goes on with an answer, or without."""
        self._world.image, self._world.now_ms = self._watch.ledger.image, self._simulator.now_ms
        try:
            step = self._steps[number].send(answer)
        except StopIteration:
            return
        if isinstance(step, Pause):
            self._simulator.queue.schedule(step.pause_ms, partial(self._go_on, number, None))
            return
        request_id = self._requests.next_id
        self._awaited[request_id] = number
        self._simulator.queue.schedule(step.patience_ms, partial(self._give_up, number, request_id))
        # No connection repeats a request, and two copies of a commit may enclose a later one.
        # Nor does a copy of an older client's request come in its next transaction, which has the same epoch.
        may_repeat = step.version is None and not isinstance(step.request, OffsetCommitRequest)
        self._requests.send(self._target(number, step), step.request, version=step.version, may_repeat=may_repeat)

    def _give_up(self, number: int, request_id: int) -> None:
        if self._awaited.pop(request_id, None) is not None:
            self._known[number].clear()
            self._go_on(number, None)

    def _target(self, number: int, step: Ask) -> int:
        """The broker that gets a request; now and then another one than the right one."""
        if step.target is None or (not self._world.is_over and self._rng.random() < 0.02):
            return self._rng.choice(self._broker_ids)
        if isinstance(step.target, int):
            return step.target
        known = self._known[number]
        if self._rng.random() < 0.1:
            known.clear()
        return known.setdefault(step.target, leader_of(self._rng, self._watch, step.target, self._broker_ids))
