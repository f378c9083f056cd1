"""Producers and consumers go on when leaders die, and nodes with both roles stop and come back."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.lowlevel

from kraft.admin import open_admin
from kraft.client import ConsumerSettings, ProducerSettings, open_client
from support.kraft.data_cluster import DataCluster, data_cluster
from transport.interface import Endpoint

RECORDS = 400
KILL_AT = 100


async def test_acknowledged_records_survive_the_death_of_their_leader_once_and_in_order(tmp_path: Path):
    starting = data_cluster(tmp_path, brokers=3, min_insync_replicas="2")
    cluster = await trio.to_thread.run_sync(starting.__enter__)
    try:
        await trio.to_thread.run_sync(cluster.create_topic, "t", 1, 3)
        leader = await trio.to_thread.run_sync(cluster.leader_of, "t")
        seen: list[bytes | None] = []
        async with open_client(cluster.endpoints) as client, trio.open_nursery() as nursery:

            async def follow() -> None:
                async with client.consumer("t", ConsumerSettings(follows=True)) as consumer:
                    async for record in consumer:
                        seen.append(record.value)
                        if len(seen) == RECORDS:
                            return

            nursery.start_soon(follow)
            async with client.producer("t", ProducerSettings(acks=-1)) as producer:
                sent = []
                for number in range(RECORDS):
                    sent.append(await producer.send(b"%d" % number))
                    if number == KILL_AT:
                        await sent[0].wait()
                        await trio.to_thread.run_sync(cluster.kill, leader)
                    if number % 10 == 0:
                        await trio.lowlevel.checkpoint()
                offsets = [(await one.wait()).offset for one in sent]
        assert offsets == list(range(RECORDS))
        assert seen == [b"%d" % number for number in range(RECORDS)]
        assert await trio.to_thread.run_sync(cluster.leader_of, "t") != leader
    finally:
        await trio.to_thread.run_sync(lambda: starting.__exit__(None, None, None))


# Nodes with both roles in one process: records, leadership of the quorum and of partitions, shutdown, restart.


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
