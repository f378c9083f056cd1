"""Nodes with both roles in one process: records, leadership of the quorum and of partitions, shutdown, restart."""

from __future__ import annotations

from pathlib import Path

import trio

from kraft.admin import open_admin
from kraft.client import ConsumerSettings, open_client
from support.kraft.data_cluster import DataCluster, data_cluster
from transport.interface import Endpoint

FEW = 50


async def write(cluster: DataCluster, topic: str, *values: int) -> None:
    async with open_client(cluster.endpoints) as client, client.producer(topic) as producer:
        sent = [await producer.send(b"%d" % value, partition=0) for value in values]
        for one in sent:
            await one.wait()


async def read(cluster: DataCluster, topic: str) -> list[int]:
    async with (
        open_client(cluster.endpoints) as client,
        client.consumer(topic, ConsumerSettings(partitions=(0,))) as consumer,
    ):
        return [int(record.value or b"") async for record in consumer]


async def active_controller(cluster: DataCluster) -> int:
    async with open_admin([Endpoint("127.0.0.1", port) for port in cluster.controllers.values()]) as admin:
        return (await admin.describe_quorum()).leader_id


def test_three_such_processes_go_on_when_the_active_controller_dies_and_when_it_stops(tmp_path: Path) -> None:
    with data_cluster(tmp_path, combined=3, min_insync_replicas="2") as cluster:
        cluster.create_topic("t", replicas=3)
        trio.run(write, cluster, "t", *range(FEW))
        victim = trio.run(active_controller, cluster)
        cluster.kill(victim)
        trio.run(write, cluster, "t", *range(FEW, 2 * FEW))
        assert trio.run(read, cluster, "t") == list(range(2 * FEW))
        cluster.start(victim)
        cluster.until(lambda image: len(image.topics["t"].partitions[0].isr) == 3)

        leaving = trio.run(active_controller, cluster)
        assert leaving != victim
        cluster.stop(leaving)
        assert trio.run(active_controller, cluster) != leaving
        partition = cluster.until(lambda image: "t" in image.topics).topics["t"].partitions[0]
        assert leaving not in partition.isr
        trio.run(write, cluster, "t", *range(2 * FEW, 3 * FEW))
        assert trio.run(read, cluster, "t") == list(range(3 * FEW))
