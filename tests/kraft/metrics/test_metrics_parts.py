"""The parts of the metrics: windows, quantiles, names, counts of partitions, limits of families."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
import trio
from trio.testing import MockClock

from kraft.metrics.exposition import MAX_SERIES, PER_PORTION, families_of, texts_of
from kraft.metrics.names import Dialect, Kind, Mbean, Own, Reading, series_of
from kraft.metrics.topic_counts import TopicCounter
from kraft.metrics.windows import RECENT, WINDOW_S, Quantiles, Recent, Sampled
from kraft.node.metrics.meters import Meters
from kraft.testing import Cluster
from metadata_log.image import MetadataImage
from metadata_log.types import BOOTSTRAP_SNAPSHOT
from scraped_metrics import Scrape
from support.random_metadata import RandomCluster


def test_windows_forget_after_two_lengths_and_have_no_average_without_values() -> None:
    stat = Sampled(0.0)
    assert math.isnan(stat.average(1.0))
    assert math.isnan(stat.maximum(1.0))
    stat.record(10, 1.0)
    stat.record(30, 2.0)
    assert (stat.average(3.0), stat.maximum(3.0)) == (20, 30)
    assert stat.rate(30.0) == pytest.approx(40 / 30), "a window that has just begun counts as a whole one"
    stat.record(2, WINDOW_S + 1)
    assert stat.maximum(WINDOW_S + 2) == 30
    assert stat.maximum(2 * WINDOW_S + 1) == 2, "the first window is over"
    assert math.isnan(stat.average(4 * WINDOW_S))
    assert stat.rate(4 * WINDOW_S) == 0


def test_quantiles_are_of_the_recent_values_and_counts_of_all() -> None:
    recent = Recent()
    assert recent.quantiles() == Quantiles(0, 0.0, ())
    for at in range(RECENT * 2):
        recent.record(float(at))
    found = recent.quantiles()
    assert (found.count, found.total) == (RECENT * 2, sum(range(RECENT * 2)))
    values = dict(found.values)
    assert values[0.5] == pytest.approx(RECENT * 1.5, abs=1)
    assert values[0.999] == pytest.approx(RECENT * 2 - 1, abs=2)


GAUGE = Mbean("kafka.controller", "KafkaController", "ActiveControllerCount", "x")
TAGGED = Mbean("kafka.controller", "KafkaController", "BrokerRegistrationState", "x")
METER = Mbean("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec", "x", Kind.METER)
HISTOGRAM = Mbean("kafka.controller", "ControllerEventManager", "EventQueueTimeMs", "x", Kind.HISTOGRAM)
ATTRIBUTE = Mbean("kafka.server", "raft-metrics", "high-watermark", "x")
TOTAL = Mbean("kafka.server", "raft-channel-metrics", "request-total", "x", Kind.TOTAL)
TEXT = Mbean("kafka.server", "raft-metrics", "current-state", "x", Kind.TEXT)
LAG = Mbean("kafka.server", "broker-metadata-metrics", "last-applied-record-lag-ms", "x")
QUEUE = "kafka_controller_controllereventmanager_eventqueuetimems"


@pytest.mark.parametrize(
    ("reading", "names", "strimzi"),
    [
        (Reading(GAUGE, 1), ["kafka_controller_kafkacontroller_activecontrollercount"], None),
        (
            Reading(TAGGED, 30, (("broker", "101"),)),
            ['kafka_controller_kafkacontroller_brokerregistrationstate{broker="101"}'],
            None,
        ),
        (
            Reading(METER, 3),
            [
                "kafka_controller_controllerstats_uncleanleaderelections_total",
                "kafka_controller_controllerstats_uncleanleaderelectionspersec_total",
            ],
            ["kafka_controller_controllerstats_uncleanleaderelections_total"],
        ),
        (
            Reading(HISTOGRAM, Quantiles(2, 5.0, ((0.5, 1.0), (0.99, 4.0)))),
            [
                f'{QUEUE}{{quantile="0.5"}}',
                f'{QUEUE}{{quantile="0.99"}}',
                f'{QUEUE}{{quantile="0.50"}}',
                f"{QUEUE}_count",
                f"{QUEUE}_sum",
            ],
            [
                f'{QUEUE}{{quantile="0.5"}}',
                f'{QUEUE}{{quantile="0.99"}}',
                f'{QUEUE}{{quantile="0.50"}}',
                f"{QUEUE}_count",
            ],
        ),
        (
            Reading(ATTRIBUTE, 7),
            ["kafka_server_raft_metrics_high_watermark"],
            ["kafka_server_raftmetrics_high_watermark"],
        ),
        (
            Reading(TOTAL, 7),
            ["kafka_server_raft_channel_metrics_request_total", "kafka_server_raft_channel_metrics_request"],
            ["kafka_server_raftchannelmetrics_request_total"],
        ),
        (
            Reading(TEXT, "leader"),
            ['kafka_server_raft_metrics_current_state_info{state="leader",current_state="leader"}'],
            ['kafka_server_raftmetrics_current_state{current_state="leader"}'],
        ),
        (
            Reading(LAG, 7),
            ["kafka_server_broker_metadata_metrics_last_applied_record_lag_ms"],
            ["kafka_server_brokermetadatametrics_last_applied_record_lag_ms"],
        ),
    ],
)
def test_mbeans_have_the_names_of_their_exporters(
    reading: Reading, names: list[str], strimzi: list[str] | None
) -> None:
    for dialect, wanted in ((Dialect.JMX_EXPORTER, names), (Dialect.STRIMZI_JMX, strimzi or names)):
        found = []
        for one in series_of(reading, dialect):
            labels = ",".join(f'{key}="{value}"' for key, value in one.labels.items())
            found.append(f"{one.name}{{{labels}}}" if labels else one.name)
        assert found == wanted


@pytest.mark.parametrize("seed", range(6))
def test_counts_of_partitions_equal_a_walk_over_all_of_them(seed: int) -> None:
    print("seed", seed)
    rng = Random(f"counts {seed}")
    cluster = RandomCluster(rng)
    counter = TopicCounter()
    for _ in range(40):
        for _ in range(rng.randint(1, 30)):
            cluster.step()
        steps = counter.counting(cluster.image.topics)
        if rng.random() < 0.2:
            next(steps, None)
            steps.close()
            continue
        try:
            while True:
                next(steps)
        except StopIteration as end:
            counts = end.value
        partitions = [one for topic in cluster.image.topics.by_id.values() for one in topic.partitions]
        assert counts.topics == len(cluster.image.topics)
        assert counts.partitions == len(partitions)
        assert counts.offline == sum(one.leader == -1 for one in partitions)
        assert counts.imbalanced == sum(one.leader != one.replicas[0] for one in partitions)
        assert counter.latest(cluster.image.topics).is_complete
    assert not counter.latest(MetadataImage().topics).is_complete


def test_a_family_has_a_limit_and_its_text_comes_in_portions() -> None:
    metric = Own("kraft_many", "Many.")
    readings = [Reading(metric, at, (("n", str(at)),)) for at in range(MAX_SERIES + 7)]
    families = families_of(readings, [Dialect.JMX_EXPORTER])
    parts = list(texts_of(families))
    assert len(parts) > MAX_SERIES // PER_PORTION
    text = b"".join(parts).decode()
    assert text.count("# TYPE kraft_many gauge") == 1
    scrape = Scrape(text)
    assert len(scrape.all("kraft_many")) == MAX_SERIES
    assert scrape.value("kraft_metrics_dropped_series") == 7


def test_label_values_are_escaped() -> None:
    metric = Own("kraft_texts", "Texts.")
    hostile = 'a"b\\c\nd'
    (text,) = texts_of(families_of([Reading(metric, 1, (("text", hostile),))], [Dialect.JMX_EXPORTER]))
    assert Scrape(text.decode()).value("kraft_texts", text=hostile) == 1


async def test_meters_count_elections_and_leaders(autojump_clock: MockClock) -> None:
    async with Cluster(controllers=3, seed=3) as cluster:
        meters = {node_id: Meters() for node_id in cluster.ids}
        for node_id, meter in meters.items():
            cluster.node(node_id)._meter = meter
        leader = await cluster.leader()
        await cluster.kill(leader)
        others = cluster.others(leader)
        second = await cluster.leader(among=others)
        await trio.sleep(2)
        for node_id in others:
            counted = meters[node_id].counted(cluster.node(node_id)._transport)
            assert counted.leaders_seen >= 1
        families = {family.name: family for family in meters[second].families()}
        won = [
            sample.value
            for sample in families["kraft_elections"].samples
            if sample.labels == {"role": "candidate", "outcome": "won"}
        ]
        assert won == [1.0]
        assert not any(sample.name.endswith("_created") for family in families.values() for sample in family.samples)


async def test_the_time_since_the_last_contact_grows_without_jumps_back(autojump_clock: MockClock) -> None:
    """A survivor falls back to following its dead leader again and again, which proves no contact."""
    async with Cluster(controllers=3, seed=4) as cluster:
        leader = await cluster.leader()
        await cluster.wait_for_offset(1, *cluster.ids)
        last = cluster.others(leader)[0]
        node = cluster.node(last)
        meters = Meters()
        meters.look(node._replica, node._clock.now_ms())
        for node_id in cluster.others(last):
            await cluster.kill(node_id)
        killed_ms = node._clock.now_ms()
        seen = []
        for _ in range(200):
            await trio.sleep(0.1)
            meters.look(node._replica, node._clock.now_ms())
            heard = meters.counted(node._transport).heard_ms
            assert heard is not None
            assert heard <= killed_ms + 1
            seen.append(heard)
        assert all(before <= after for before, after in pairwise(seen))


async def test_the_snapshot_that_a_format_wrote_was_not_taken(autojump_clock: MockClock) -> None:
    """`LatestSnapshotGeneratedBytes` of Kafka counts none of `format` either."""
    async with Cluster(controllers=1, seed=5) as cluster:
        node = cluster.node(await cluster.leader())
        assert node._replica.core.log.snapshots == (BOOTSTRAP_SNAPSHOT,)
        meters = Meters()
        meters.look(node._replica, node._clock.now_ms())
        assert meters.counted(node._transport).snapshot is None
