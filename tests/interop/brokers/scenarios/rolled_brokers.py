"""Brokers that end and start in turn under a verified load, in the same make or in the other."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final, Literal

from support.scenarios.confluent_load import CODECS, ConfluentLoad
from support.scenarios.reassignment_scenarios import elect
from support.scenarios.scenario_cluster import BrokerMake, Cluster, Topic

Way = Literal["kill", "stop"]
SOME: Final = 30
"""Messages that each load must get through between two events."""


class Loads:
    """A topic for each codec, each with an idempotent producer; its first replicas lead in turn."""

    def __init__(self, cluster: Cluster, stack: ExitStack, *, per_second: int, replicas: int = 3) -> None:
        self._cluster = cluster
        self.topics: dict[str, Topic] = {}
        self._loads: dict[str, ConfluentLoad] = {}
        for at, codec in enumerate(CODECS):
            turned = cluster.order[at % len(cluster.order) :] + cluster.order[: at % len(cluster.order)]
            topic = cluster.create(f"load-{codec}", turned[:replicas], min_insync_replicas="2")
            self.topics[codec] = topic
            load = ConfluentLoad(cluster, topic, codec=codec, per_second=per_second, size=100)
            self._loads[codec] = stack.enter_context(load)

    def wait_for_more(self) -> None:
        """Wait until each producer has got through more messages."""
        for load in self._loads.values():
            load.wait_for_more(SOME)

    def wait_until_in_sync(self) -> None:
        """Wait until every replica of every topic is in its ISR."""
        for topic in self.topics.values():
            self._cluster.wait_for_isr(topic, *topic.replicas)

    def let_first_replicas_lead(self) -> set[int]:
        """Elect the first replica of each topic; returns the brokers that lead then."""
        for topic in self.topics.values():
            elect(self._cluster, topic)
            self._cluster.wait_for_leader(topic, topic.replicas[0])
        return {topic.replicas[0] for topic in self.topics.values()}

    def check(self) -> int:
        """Nothing that was acknowledged is lost or there twice, and all replicas have the same bytes."""
        self.wait_until_in_sync()
        for load in self._loads.values():
            load.check()
        for topic in self.topics.values():
            self._cluster.wait_for_equal_logs(topic)
        return sum(len(load.acknowledged) for load in self._loads.values())


def restart(cluster: Cluster, broker: int, loads: Loads, way: Way, make: BrokerMake | None = None) -> None:
    """End a broker, let the load go on without it, and start it, perhaps in another make on the same directory."""
    if way == "kill":
        cluster.kill(broker)
    else:
        cluster.stop(broker)
    loads.wait_for_more()
    if make is not None:
        cluster.makes[broker] = make
    cluster.start(broker)
    loads.wait_until_in_sync()
    loads.wait_for_more()
