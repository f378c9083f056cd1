"""Administration over the controllers alone: what is asked for is committed and in the image that is read back.

Virtual time throughout; broker agents lead, follow and catch up, but hold no data.
"""

from __future__ import annotations

from collections import Counter

import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.admin import (
    AdminError,
    ElectionType,
    RequestRefused,
    SomeRefused,
    TopicPartition,
    UpgradeType,
    alter_quotas,
    alter_reassignments,
    create_topic,
    delete_credential,
    delete_topics,
    describe_configs,
    describe_features,
    elect_leaders,
    grow_topic,
    list_reassignments,
    set_password,
    unregister_broker,
    update_features,
)
from kraft.admin.client import ResourceType
from kraft.admin.plan import plan_moves
from kraft.observer import read_image
from kraft.testing import Cluster
from metadata_log.image import MetadataImage
from support.differential.controller_cluster import Cluster as StubCluster
from support.differential.controller_stories import arrives, create, topic
from transport.protocol.errors import Error

TOPICS = 12
"""Made while the leader dies."""


async def test_topics_are_created_changed_and_deleted(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=3, brokers=3, seed=1) as cluster, cluster.admin() as admin:
        await cluster.wait_for_brokers()
        made = await create_topic(admin, "orders", partitions=4, replication_factor=3, configs={"retention.ms": "1"})
        assert (made.partitions, made.replication_factor, made.configs) == (4, 3, {"retention.ms": "1"})
        await create_topic(admin, "never", partitions=1, validate_only=True)
        await grow_topic(admin, "orders", 5)
        image = await read_image(admin)
        assert list(image.topics) == ["orders"]
        assert image.topics["orders"].id == made.id
        assert len(image.topics["orders"].partitions) == 5
        found = await describe_configs(admin, ResourceType.TOPIC, ["orders"], keys=["retention.ms"])
        assert [(each.value, each.source.name) for each in found["orders"]] == [("1", "DYNAMIC_TOPIC_CONFIG")]
        with pytest.raises(SomeRefused) as caught:
            await delete_topics(admin, ["orders", "nosuch"])
        assert {name: one.error for name, one in caught.value.refused.items()} == {
            "nosuch": Error.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert not list((await read_image(admin)).topics)


async def test_partitions_are_reassigned_and_preferred_leaders_restored(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=1, brokers=3, seed=2) as cluster, cluster.admin() as admin:
        await cluster.wait_for_brokers()
        await create_topic(admin, "t", assignment=[(101, 102), (102, 101)])
        zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
        targets = plan_moves(await read_image(admin), ["t"], (102, 103))
        assert {broker for replicas in targets.values() for broker in replicas} == {102, 103}
        await alter_reassignments(admin, targets)
        await cluster.wait_for_image(lambda image: not image.topics.reassigning)
        assert await list_reassignments(admin) == ()
        partitions = (await read_image(admin)).topics["t"].partitions
        assert {TopicPartition("t", number): each.replicas for number, each in enumerate(partitions)} == targets
        outcome = await elect_leaders(admin, ElectionType.PREFERRED, (zero, one, TopicPartition("t", 9)))
        assert sorted(outcome.elected + outcome.not_needed) == [zero, one]
        assert {name: refused.error for name, refused in outcome.refused.items()} == {
            "t-9": Error.UNKNOWN_TOPIC_OR_PARTITION
        }
        for each in (await read_image(admin)).topics["t"].partitions:
            assert each.leader == each.replicas[0]


async def test_a_reassignment_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=1, brokers=3, seed=3) as cluster, cluster.admin() as admin:
        await cluster.wait_for_brokers()
        await create_topic(admin, "t", assignment=[(101, 102)])
        await cluster.brokers[103].kill()
        await cluster.wait_for_image(lambda image: image.brokers.by_id[103].fenced)
        one = TopicPartition("t", 0)
        await alter_reassignments(admin, {one: (102, 103)})
        assert [(each.adding, each.removing) for each in await list_reassignments(admin)] == [((103,), (101,))]
        await alter_reassignments(admin, {one: None})
        # On the same brokers; the order is that of the target, as in Kafka.
        assert (await read_image(admin)).topics["t"].partitions[0].replicas == (102, 101)
        with pytest.raises(SomeRefused, match="t-0: NO_REASSIGNMENT_IN_PROGRESS"):
            await alter_reassignments(admin, {one: None})
        await unregister_broker(admin, 103)
        assert sorted((await read_image(admin)).brokers.by_id) == [101, 102]


async def test_quotas_users_and_features(autojump_clock: trio.testing.MockClock) -> None:
    async with Cluster(controllers=1, seed=4) as cluster, cluster.admin() as admin:
        await cluster.leader()
        entity = (("client-id", None), ("user", "alice"))
        await alter_quotas(admin, entity, {"producer_byte_rate": 1024.0})
        await set_password(admin, "alice", "wonderland", mechanism="SCRAM-SHA-512")
        image = await read_image(admin)
        assert dict(image.quotas.by_entity[entity]) == {"producer_byte_rate": 1024.0}
        assert image.scram.by_user["alice"][2].iterations == 4096
        await alter_quotas(admin, entity, {"producer_byte_rate": None})
        await delete_credential(admin, "alice", mechanism="SCRAM-SHA-512")
        await update_features(admin, {"share.version": 0}, UpgradeType.SAFE_DOWNGRADE)
        image = await read_image(admin)
        assert not image.quotas.by_entity
        assert not image.scram.by_user
        found = {each.name: each for each in (await describe_features(admin)).features}
        assert (found["share.version"].finalized, found["share.version"].highest) == (0, 2)
        assert found["metadata.version"].finalized == image.features.metadata_version


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 16))])
async def test_images_after_a_failover_hold_every_acknowledged_change(
    autojump_clock: trio.testing.MockClock, seed: int
) -> None:
    """The leader is killed while topics are made and images are read; every image has what was there before."""
    async with Cluster(controllers=3, brokers=3, seed=seed) as cluster, cluster.admin() as admin:
        await cluster.wait_for_brokers()
        made: list[str] = []

        async def make() -> None:
            for number in range(TOPICS):
                name = f"t{number}"
                refused: dict[str, RequestRefused] = {}
                try:
                    await create_topic(admin, name, partitions=1, replication_factor=3)
                except SomeRefused as failed:
                    refused = failed.refused
                # It was made, and the answer went down with the leader: the error says that this may be.
                assert {one.error for one in refused.values()} <= {Error.TOPIC_ALREADY_EXISTS}
                assert all("was sent before" in str(one.hint) for one in refused.values())
                made.append(name)
                await trio.sleep(0.05)

        async def read() -> None:
            while len(made) < TOPICS:
                before = list(made)
                assert set(before) <= set((await read_image(admin)).topics)
                await trio.sleep(0.03)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make)
            nursery.start_soon(read)
            await trio.sleep(0.4)
            await cluster.kill(await cluster.leader())
        assert set(made) == set((await read_image(admin)).topics)
        cluster.check()


# -------------------------------------------------------------------------------------------------------------- plans


def stubs(*, racks: bool) -> MetadataImage:
    """Six brokers, in two racks or in none, and a topic with replicas on the first three."""
    cluster = StubCluster()
    for broker in range(101, 107):
        cluster.do(*arrives(broker, rack=f"rack-{broker % 2}" if racks else None))
    homes = ((101, 102), (102, 103), (103, 101), (101, 103), (102, 101), (103, 102))
    cluster.do(create(topic("t", *homes)))
    image: MetadataImage = cluster.controller.controller.history.latest
    return image


IN_NO_RACK, IN_RACKS = stubs(racks=False), stubs(racks=True)
some_brokers = st.permutations(range(101, 107)).flatmap(lambda order: st.integers(2, 6).map(lambda n: order[:n]))


def replicas_of(image: MetadataImage) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", number): each.replicas for number, each in enumerate(image.topics["t"].partitions)}


@settings(max_examples=50)
@given(brokers=some_brokers)
def test_a_reassignment_plan_is_balanced_with_minimal_moves(brokers: list[int]) -> None:
    before = replicas_of(IN_NO_RACK)
    after = before | plan_moves(IN_NO_RACK, ["t"], brokers)
    load, leads = Counter(dict.fromkeys(brokers, 0)), Counter(dict.fromkeys(brokers, 0))
    for replicas in after.values():
        assert len(set(replicas)) == 2
        load.update(replicas)
        leads[replicas[0]] += 1
    assert set(load) == set(brokers)
    assert max(load.values()) - min(load.values()) <= 1, load
    assert max(leads.values()) <= -(-len(after) // len(brokers)) + 1, leads
    were = Counter(broker for replicas in before.values() for broker in replicas if broker in brokers)
    shares = sorted(load.values(), reverse=True)
    can_stay = sum(min(share, count) for share, (_, count) in zip(shares, were.most_common(), strict=False))
    moved = sum(len(set(after[one]) - set(before[one])) for one in after)
    assert moved == 12 - can_stay


@settings(max_examples=50)
@given(brokers=some_brokers)
def test_moved_replicas_are_placed_in_different_racks(brokers: list[int]) -> None:
    before = replicas_of(IN_RACKS)
    for one, replicas in plan_moves(IN_RACKS, ["t"], brokers).items():
        racks = {broker % 2 for broker in replicas}
        assert len(racks) == len({broker % 2 for broker in brokers}) or set(replicas) == set(before[one])


def test_a_plan_for_unknown_topics_or_brokers_is_refused() -> None:
    for topics, brokers, why in (
        (["nosuch"], [101, 102], "there is no topic nosuch"),
        (["t"], [101, 999], "broker 999 is not registered"),
        (["t"], [101, 101], "a broker is named twice"),
        (["t"], [101], "2 replicas cannot be on 1 brokers"),
    ):
        with pytest.raises(AdminError, match=why):
            plan_moves(IN_RACKS, topics, brokers)
