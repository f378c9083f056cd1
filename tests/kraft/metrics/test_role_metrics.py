"""The metrics of controllers and brokers by role, on a running cluster in virtual time, and the seventh wedge."""

from __future__ import annotations

from random import Random

import trio
from msgspec.structs import replace
from trio.testing import MockClock

from kraft.metrics.cluster import ACTIVE, FENCED, image_of
from kraft.metrics.exposition import families_of, texts_of
from kraft.metrics.names import Dialect
from kraft.metrics.readiness import is_ready, readiness
from kraft.metrics.samples import readings_of
from kraft.metrics.topic_counts import TopicCounter
from kraft.metrics.view import NodeView
from kraft.node.node import Node
from kraft.quorum.values import ReplicaKey
from kraft.quorum.voters import Voter, VoterSet
from kraft.testing import Cluster
from metadata_log.image import MetadataImage
from metadata_log.types import random_uuid
from scraped_metrics import Scrape
from views_of_readiness import failing, ready, until, view_of

OF_CONTROLLER = "kafka_controller_kafkacontroller_"


def metadata_of(node: Node) -> MetadataImage:
    image = image_of(node._process)
    assert image is not None
    return image


def scrape_of(node: Node, *, is_broker: bool = False) -> Scrape:
    """All readings of a node, as a scrape would show them."""
    image = metadata_of(node)
    counter = TopicCounter()
    for _ in counter.counting(image.topics):
        pass
    view: NodeView = replace(view_of(node), is_broker=is_broker, topics=counter.latest(image.topics))
    text = b"".join(texts_of(families_of(readings_of(view), [Dialect.JMX_EXPORTER])))
    return Scrape(text.decode())


async def test_brokers_and_partitions_are_counted_by_every_controller(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, brokers=3, seed=11) as cluster:
        leader = await cluster.leader()
        await cluster.create_topic("orders", partitions=6, replication_factor=1)
        await ready(cluster, *cluster.ids)
        nodes = [cluster.node(node_id) for node_id in cluster.ids]
        await until(lambda: all("orders" in metadata_of(node).topics for node in nodes))
        for node_id in cluster.ids:
            scrape = scrape_of(cluster.node(node_id))
            assert scrape.value(f"{OF_CONTROLLER}activebrokercount") == 3
            assert scrape.value(f"{OF_CONTROLLER}globaltopiccount") == 1
            assert scrape.value(f"{OF_CONTROLLER}globalpartitioncount") == 6
            assert scrape.value(f"{OF_CONTROLLER}offlinepartitionscount") == 0
            for broker_id in cluster.brokers:
                assert scrape.value(f"{OF_CONTROLLER}brokerregistrationstate", broker=str(broker_id)) == ACTIVE
            has_heartbeats = scrape.has(f"{OF_CONTROLLER}timesincelastheartbeatreceivedms", broker="101")
            assert has_heartbeats is (node_id == leader), "only the active controller hears brokers"
        await cluster.brokers[101].kill()
        image = await cluster.wait_for_image(lambda image: image.brokers.by_id[101].fenced)
        lost = sum(one.leader == -1 for one in image.topics["orders"].partitions)
        assert lost > 0, "a topic of six partitions with one replica each has some on each broker"
        await trio.sleep(5)
        for node_id in cluster.ids:
            scrape = scrape_of(cluster.node(node_id))
            assert scrape.value(f"{OF_CONTROLLER}fencedbrokercount") == 1
            assert scrape.value(f"{OF_CONTROLLER}brokerregistrationstate", broker="101") == FENCED
            assert scrape.value(f"{OF_CONTROLLER}offlinepartitionscount") == lost
            assert scrape.value(f"{OF_CONTROLLER}preferredreplicaimbalancecount") >= lost
        session = scrape_of(cluster.node(leader)).value(
            f"{OF_CONTROLLER}timesincelastheartbeatreceivedms", broker="101"
        )
        assert session == 9000, "a dead broker stays at its session timeout, as in Kafka"


async def test_a_broker_has_the_metrics_of_its_metadata_and_no_controllers(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=1, brokers=1, seed=12) as cluster:
        await cluster.leader()
        await cluster.wait_for_brokers()
        scrape = scrape_of(cluster.node(101), is_broker=True)
        assert scrape.value("kafka_server_broker_metadata_metrics_last_applied_record_offset") > 0
        assert scrape.value("kafka_server_kafkaserver_brokerstate") == 3
        assert scrape.has("kafka_server_raft_metrics_current_state_info", state="observer")
        assert scrape.value("kafka_server_raft_metrics_current_vote") == -1
        assert not any(name.startswith("kafka_controller") for name, _, _ in scrape.samples)
        assert is_ready(readiness(view_of(cluster.node(101))))


async def test_a_voter_with_another_disk_is_not_ready(autojump_clock: MockClock) -> None:
    """Wedge 7: the voter set has this id with another directory, so that the node only observes."""
    async with Cluster(controllers=1, seed=13) as cluster:
        await cluster.leader()
        await ready(cluster, 1)
        node = cluster.node(1)
        quorum = node._replica.core._quorum
        (voter,) = quorum.voters.voters
        other = Voter(ReplicaKey(1, random_uuid(Random(13))), voter.endpoints)
        quorum._take_voters(replace(quorum.history, static_voters=VoterSet.of([other])))
        checks = readiness(view_of(node))
        assert "member" in failing(checks)
        (member,) = [one for one in checks if one.name == "member"]
        assert str(other.key.directory_id) in member.text
