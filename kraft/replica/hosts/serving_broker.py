"""A broker that serves clients, as the application of a `Replica` (Kafka: `BrokerServer` with its `KafkaApis`)."""

from __future__ import annotations

from random import Random

from kraft.broker.metadata.requests import MetadataRequests, MetadataSettings
from kraft.replica.hosts.broker_host import BrokerHost, host_broker
from kraft.replica.interface.options import ReplicaOptions
from metadata_log.serde import Message


def host_serving_broker(
    options: ReplicaOptions, cluster_id: str, bootstrap: tuple[Message, ...], rng: Random
) -> BrokerHost:
    """The factory of a broker agent that also serves clients."""
    assert options.broker is not None, "these are not the options of a broker"
    agent = host_broker(options, cluster_id, bootstrap, rng).agent
    settings = MetadataSettings(
        broker_id=options.node_id,
        cluster_id=cluster_id,
        own_settings=options.own_settings,
        min_insync_replicas=options.min_insync_replicas,
        num_partitions=options.decisions.num_partitions,
        default_replication_factor=options.decisions.default_replication_factor,
        auto_create_topics=options.broker.auto_create_topics,
        request_timeout_ms=options.broker.request_timeout_ms,
        max_partitions=options.broker.max_described_partitions,
    )
    return BrokerHost(agent, MetadataRequests(settings, Random(rng.getrandbits(64))))
