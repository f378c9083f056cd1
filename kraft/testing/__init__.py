"""Real nodes inside one test: in virtual time (`Cluster`, below), or for any client over TCP (`Kafka`).

`Cluster` has a memory network and memory disks (Kafka: `RaftClientTestContext`). `Kafka` is what the pytest fixtures
`kafka` and `kafka_cluster` give, and `KafkaContainer` stands in the place of that of testcontainers.

Run a test under Trio's `MockClock` with autojump: a minute of elections then takes a moment. With `brokers`, the
cluster has broker agents. They register, lead, follow and shut down gracefully like Kafka's brokers, but hold no data.
With `data=True` the brokers hold records.

    async with Cluster(controllers=3, seed=7) as cluster:
        leader = await cluster.leader()
        cluster.network.partition({leader}, cluster.others(leader))
        await cluster.leader(among=cluster.others(leader))
        cluster.check()

    async with Cluster(controllers=3, state_machine=Counter) as cluster:
        assert await cluster.machine(1).submit(Add(5)) == 5

    async with Cluster(controllers=3, brokers=3, seed=7) as cluster:
        await cluster.create_topic("orders", partitions=6, replication_factor=3)
        cluster.brokers[101].pause()
        await cluster.wait_for_image(lambda image: image.topics["orders"].partitions[0].isr == (102, 103))

    async with Cluster(controllers=1, brokers=3, data=True) as cluster:
        await cluster.create_topic("orders", replication_factor=3)
        await cluster.produce("orders", [b"three apples"])
        assert [one.value for one in await cluster.consume("orders")] == [b"three apples"]
"""

from typing import TYPE_CHECKING

from metadata_log.lazy_names import lazy_names

if TYPE_CHECKING:
    from kraft.testing.broker import Broker
    from kraft.testing.cluster import Cluster
    from kraft.testing.container import KafkaContainer
    from kraft.testing.kafka import Kafka
    from kraft.testing.virtual import in_virtual_time
else:
    # Loaded when first asked for: pytest imports this package for its plugin in each session.
    _HOMES = {
        "Broker": "kraft.testing.broker",
        "Cluster": "kraft.testing.cluster",
        "Kafka": "kraft.testing.kafka",
        "KafkaContainer": "kraft.testing.container",
        "in_virtual_time": "kraft.testing.virtual",
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = ["Broker", "Cluster", "Kafka", "KafkaContainer", "in_virtual_time"]
