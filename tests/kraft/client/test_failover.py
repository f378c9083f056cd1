"""Our producer and our consumer go on when the leader of their partition dies: nothing is lost, nothing comes twice."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.lowlevel

from kraft.client import ConsumerSettings, ProducerSettings, open_client
from support.kraft.data_cluster import data_cluster

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
