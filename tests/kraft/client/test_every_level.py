"""A cluster formatted for each release that we can format: producers, groups, transactions, and the loss of a broker.

After that its levels rise to the newest ones, and those of its features fall to 0, with the same work again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from kraft.admin.features import UpgradeType, update_features
from kraft.client import ConsumerSettings, GroupProtocol, GroupSettings, Isolation, open_client
from metadata_log.image import MetadataImage, Partition
from metadata_log.releases import FEATURES, LATEST_RELEASE, METADATA_VERSIONS, feature_levels
from support.kraft.data_cluster import FIRST_BROKER, DataCluster, data_cluster

COMMITTED: Final = ConsumerSettings(isolation=Isolation.READ_COMMITTED)
SETTINGS: Final[dict[str, Any]] = {
    "offsets_topic_replication_factor": "2",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_replication_factor": "2",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "0",
    # A heartbeat that is late closes its connection, and what is forwarded on it is repeated.
    "broker_heartbeat_interval_ms": "500",
    "broker_session_timeout_ms": "1500",
}
OLDEST: Final = next(iter(METADATA_VERSIONS))
IN_TURN: Final = (OLDEST, "3.9-IV0", "4.3-IV0")
"""Without level 1 of transaction.version, without directories, and the newest level of an older release."""


async def work(cluster: DataCluster, name: str, protocols: tuple[GroupProtocol, ...]) -> None:
    """Whatever a level decides about: records, offsets and transactions, with groups of each protocol."""
    with trio.fail_after(60):
        await trio.to_thread.run_sync(partial(cluster.create_topic, f"in-{name}", 2, 2))
        await trio.to_thread.run_sync(partial(cluster.create_topic, f"out-{name}", 1, 2))
        async with open_client(cluster.endpoints) as client:
            async with client.producer(f"in-{name}") as producer:
                for number in range(6):
                    await producer.send(b"%d" % number, partition=number % 2)
            for protocol in protocols:
                group = f"{name}-{protocol.value}"
                settings = GroupSettings(
                    protocol=protocol,
                    session_timeout_ms=6000,
                    heartbeat_interval_ms=300,
                    follows=False,
                    auto_commit=False,
                )
                is_aborted, copied = False, 0
                async with client.transactional(group) as copier, client.group(f"in-{name}", group, settings) as member:
                    while records := await member.batch():
                        async with copier.transaction() as transaction:
                            for record in records:
                                await transaction.send(f"out-{name}", record.value)
                            await transaction.send_offsets(member, records)
                            if not is_aborted:
                                is_aborted = True
                                await transaction.abort()
                                member.rewind()
                            else:
                                copied += len(records)
                assert copied == 6
                async with client.group(f"in-{name}", group, settings) as member:
                    assert await member.batch() == ()
            async with client.consumer(f"out-{name}", COMMITTED) as consumer:
                found = sorted([record.value or b"" async for record in consumer])
        assert found == sorted([b"%d" % number for number in range(6)] * len(protocols))


def partitions_of(image: MetadataImage) -> list[Partition]:
    return [one for topic in image.topics.by_id.values() for one in topic.partitions]


def protocols_at(group_version: int) -> tuple[GroupProtocol, ...]:
    return tuple(GroupProtocol) if group_version else (GroupProtocol.CLASSIC,)


@pytest.mark.parametrize(
    "release", [pytest.param(one, marks=() if one in IN_TURN else pytest.mark.soak) for one in METADATA_VERSIONS]
)
def test_a_cluster_of_each_release_works_and_changes_its_levels(release: str, tmp_path: Path) -> None:
    with data_cluster(tmp_path, 2, release=release, **SETTINGS) as cluster:
        features = cluster.until(lambda image: True).features
        assert dict(features.all_levels()) == dict(feature_levels(release))
        trio.run(work, cluster, "before", protocols_at(features.level("group.version")))
        # The other broker leads, and the one that comes back follows: epochs, ISRs and directories by the level.
        cluster.kill(FIRST_BROKER)
        cluster.until(
            lambda image: all(p.leader == FIRST_BROKER + 1 for t in image.topics.by_id.values() for p in t.partitions)
        )
        cluster.start(FIRST_BROKER)
        cluster.until(lambda image: all(len(one.isr) == 2 for one in partitions_of(image)))
        trio.run(work, cluster, "after", protocols_at(features.level("group.version")))
        raised = dict(feature_levels(LATEST_RELEASE))
        wanted = {name: level for name, level in raised.items() if level > features.level(name)}
        if wanted:
            set_levels(cluster, wanted, UpgradeType.UPGRADE)
        trio.run(work, cluster, "raised", protocols_at(1))
        set_levels(cluster, dict.fromkeys(FEATURES, 0), UpgradeType.SAFE_DOWNGRADE)
        trio.run(work, cluster, "lowered", protocols_at(0))


def set_levels(cluster: DataCluster, levels: dict[str, int], direction: UpgradeType) -> None:
    """Change levels, and wait until each broker has them."""

    async def change() -> None:
        async with cluster.open_admin() as admin:
            await update_features(admin, levels, direction)

    cluster.do(change)
    cluster.until(lambda image: all(image.features.level(name) == level for name, level in levels.items()))
