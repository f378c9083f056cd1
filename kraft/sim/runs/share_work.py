"""The members of share groups of a run: when they send, to which broker, and which of their messages are lost or late
on the way.
"""

from __future__ import annotations

from random import Random
from typing import Final

from kraft.sim.nodes.cluster import broker_ids
from kraft.sim.runs.client_lives import ClientLives
from kraft.sim.runs.client_requests import FIRST_TOPIC_MS, TEND_MS, ClientRequests, restart_without_directory
from kraft.sim.runs.simulator import Simulator, Work
from kraft.sim.workloads.client_steps import Ask, Steps
from kraft.sim.workloads.coordinator_watch import INPUT
from kraft.sim.workloads.share_clients import ShareMember, ShareProducer, ShareWorld
from kraft.sim.workloads.share_watch import ShareWatch
from metadata_log.image import ResourceType
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUPS: Final = ("share-0", "share-1")
MEMBERS: Final = 3
LOOK_MS: Final = 50
SETTLES_MS: Final = 1500
"""How long after their commit every broker has the settings of a group, as there are no faults yet."""
RESET: Final = "share.auto.offset.reset"
_SET: Final = 0


class ShareWork(Work):
    """The clients of one run."""

    pauses_ms: tuple[int, ...] = (2000, 4000, 8000)
    """Longer than for brokers without coordinators, as a group needs a coordinator for some time."""
    writes_ms: tuple[int, ...] = ()
    quiet_ms: int = 5000
    """Without the topics of the coordinators nothing happens."""

    def __init__(self, seed: int, brokers: int) -> None:
        self._rng = rng = Random(f"{seed}/share-work")
        self._seed = seed
        self._broker_ids = broker_ids(brokers)
        self._requests = ClientRequests(rng)
        self._groups = GROUPS[: rng.choice((1, 1, 2))]
        self._members = rng.choice((1, 2, MEMBERS))
        self._partitions = rng.choice((1, 2, 3))
        self._lives = ClientLives(rng, self._requests, self._broker_ids, self._look, _may_repeat)

    def begin(self, simulator: Simulator) -> None:
        """Begin to send."""
        watch = simulator.world.watch
        assert isinstance(watch, ShareWatch), watch
        self._simulator, self._watch = simulator, watch
        self._world = ShareWorld(watch.ledger.image)
        self._requests.begin(simulator)
        steps: list[Steps] = [ShareProducer(Random(f"{self._seed}/producer"), self._world, "producer").steps()]
        for group in self._groups:
            rngs = (Random(f"{self._seed}/{group} {one}") for one in range(self._members))
            steps += [ShareMember(rng, self._world, group).steps() for rng in rngs]
        self._lives.begin(simulator, watch, steps)
        simulator.queue.schedule(TEND_MS, self._tend)
        simulator.queue.schedule(FIRST_TOPIC_MS, self._create)

    def end(self) -> None:
        """No message is lost any more, and the members are to be done with everything."""
        self._requests.is_over = self._world.is_over = self._lives.is_over = True
        self._look_on()

    def _look_on(self) -> None:
        """Note what is unfinished."""
        self._watch.look_on(self._groups)
        self._simulator.queue.schedule(LOOK_MS, self._look_on)

    def _create(self) -> None:
        """Create the topic of the clients, and let groups begin with its first record."""
        image = self._watch.ledger.image
        leaders = self._simulator.world.leaders()
        is_there = INPUT in image.topics.by_name
        if leaders and not is_there:
            topic = CreatableTopic(
                name=INPUT,
                num_partitions=self._partitions,
                replication_factor=len(self._broker_ids),
                configs=[CreatableTopicConfig("min.insync.replicas", str(min(2, len(self._broker_ids))))],
            )
            self._requests.send(self._rng.choice(leaders), CreateTopicsRequest(topics=[topic]))
        unset = [one for one in self._groups if not image.configs.of((ResourceType.GROUP, one)).get(RESET)]
        if leaders and unset:
            resources = [
                AlterConfigsResource(ResourceType.GROUP, one, [AlterableConfig(RESET, _SET, "earliest")])
                for one in unset
            ]
            self._requests.send(self._rng.choice(leaders), IncrementalAlterConfigsRequest(resources=resources))
        if unset or not is_there:
            self._simulator.queue.schedule(FIRST_TOPIC_MS, self._create)
        else:
            self._world.begins_ms = self._simulator.now_ms + SETTLES_MS

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
    """Whether a request may come twice."""
    return True
