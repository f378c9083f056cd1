"""The members of groups and the transactional workers of a run: when they send, to which broker, and which of their
messages are lost, late or repeated on the way.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.sim.nodes.cluster import broker_ids
from kraft.sim.nodes.data_broker import forgets
from kraft.sim.runs.client_lives import ClientLives
from kraft.sim.runs.client_requests import FIRST_TOPIC_MS, TEND_MS, ClientRequests, restart_without_directory
from kraft.sim.runs.simulator import Simulator, Work
from kraft.sim.workloads.client_steps import Ask, Steps
from kraft.sim.workloads.coordinator_clients import (
    GROUP,
    ClassicMember,
    ConsumerMember,
    MixedMember,
    Observer,
    Remover,
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
        self._lives = ClientLives(rng, self._requests, self._broker_ids, self._look, _may_repeat)

    def begin(self, simulator: Simulator) -> None:
        """Begin to send."""
        watch = simulator.world.watch
        assert isinstance(watch, CoordinatorWatch), watch
        self._simulator, self._watch = simulator, watch
        self._world = World(watch.ledger.image)
        if CONSUMER[0] in self._groups and Random(f"{self._seed}/regex").random() < BY_REGEX:
            self._world.regex = f"{INPUT[:3]}.*"
        self._requests.begin(simulator)
        steps: list[Steps] = []
        for group in self._groups:
            kind = _KINDS[group]
            count = 1 if self._forgets else MEMBERS
            rngs = [Random(f"{self._seed}/{group} {one}") for one in range(count)]
            steps += [kind(rng, self._world, group, one).steps() for one, rng in enumerate(rngs)]
        for number, name in enumerate(self._workers):
            is_plain = Random(f"{self._seed}/plain {name}").random() < PLAIN
            for one in range(INSTANCES):
                rng = Random(f"{self._seed}/{name} {one}")
                steps.append(Worker(rng, self._world, name, number, one, is_plain=is_plain).steps())
        for group in (*self._groups, *((TRANSFORMERS,) if self._workers else ())):
            rng = Random(f"{self._seed}/observer of {group}")
            steps.append(Observer(rng, self._world, GROUP, group).steps())
        for group in self._groups if self._forgets else ():
            rng = Random(f"{self._seed}/remover of {group}")
            steps.append(Remover(rng, self._world, GROUP, group).steps())
        self._lives.begin(simulator, watch, steps)
        simulator.queue.schedule(TEND_MS, self._tend)
        simulator.queue.schedule(FIRST_TOPIC_MS, self._create)
        if self._segment_bytes is not None:
            simulator.queue.schedule(1, self._create_small)

    def end(self) -> None:
        """No message is lost any more, and each group and each worker is to finish something."""
        self._requests.is_over = self._world.is_over = self._lives.is_over = True
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

    def on_administered(self, request_id: int) -> None:
        """A client has received its response, unless that is lost on the way."""
        self._lives.on_administered(request_id)

    def _look(self) -> None:
        """Tell the clients of the present world."""
        self._world.image, self._world.now_ms = self._watch.ledger.image, self._simulator.now_ms


def _may_repeat(step: Ask) -> bool:
    """Whether a request may come twice. No connection repeats a request, and two copies of a commit may enclose a later
    one. Nor does a copy of an older client's request come in its next transaction, which has the same epoch.
    """
    return step.version is None and not isinstance(step.request, OffsetCommitRequest)
