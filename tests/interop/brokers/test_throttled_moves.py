"""Kafka's `kafka-reassign-partitions --throttle` bounds moves between brokers of either make, and between the
directories of one of ours, and `--verify` removes the bounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from metadata_log import replay
from metadata_log.image import ResourceType
from our_brokers import OURS, THEIRS, OurBrokers, kafkas_broker, our_brokers
from support.eventually import eventually
from support.interop.broker_cluster import STARTED, TOPIC_TOOL
from support.interop.kafka_tools import KafkaTools
from support.interop.real_kafka import KafkaInstallation

pytestmark = pytest.mark.kafka
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
OTHER: Final = 102
MOVES: Final = {"ours": (OURS, OTHER), "leaves": (OTHER, THEIRS), "comes": (THEIRS, OURS)}
"""Each broker leads one and follows one, so that no two moves share a bound."""
STAYS: Final = "stays"
"""Moves between the directories of `OTHER`."""
RATE: Final = 500_000
"""Bytes a second of each broker and direction."""
RATE_OF_DIRECTORIES: Final = 400_000
REPLICAS: Final = "replication.throttled.replicas"
RECORD: Final = 10_000
COUNT: Final = 400
SETTINGS: Final = ("replica.fetch.max.bytes=50000", "replica.fetch.wait.max.ms=20")


def size(directories: tuple[Path, ...], topic: str, suffix: str = "") -> int:
    """The bytes of a partition's segments in these directories; `suffix` is of a copy that is made."""
    found = [path for one in directories for path in one.glob(f"{topic}-0{suffix}/*.log")]
    total = 0
    for path in found:
        with suppress(FileNotFoundError):  # Renamed meanwhile.
            total += path.stat().st_size
    return total


class Watched:
    """How fast replicas grow."""

    def __init__(self, whole: Mapping[str, int]) -> None:
        self._whole = whole
        self._began: dict[str, tuple[float, int]] = {}
        self.rates: dict[str, float] = {}

    def look(self, sizes: Mapping[str, int]) -> bool:
        """Note sizes; whether all replicas are whole."""
        now = time.monotonic()
        for topic, size in sizes.items():
            if size and topic not in self.rates:
                began, _ = self._began.setdefault(topic, (now, size))
                if size >= self._whole[topic]:
                    self.rates[topic] = size / (now - began)
        return self.rates.keys() == self._whole.keys()


def throttles(cluster: OurBrokers) -> dict[tuple[str, str], str]:
    """All settings of brokers and topics that bound moves, by the resource's name and the key."""
    configs = replay(str(cluster.layout.partition(1))).configs
    return {
        (name, key): value
        for (kind, name), settings in configs.by_resource.items()
        if kind in (ResourceType.BROKER, ResourceType.TOPIC)
        for key, value in settings.items()
        if "throttled" in key or "io.max" in key
    }


def test_throttled_moves_take_their_time_and_the_bounds_go(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    with our_brokers(tmp_path, OURS, OTHER, settings=SETTINGS, directories=2) as cluster:
        process, port = kafkas_broker(newer_kafka, cluster, SETTINGS)
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, OTHER, THEIRS, beside=port)
            with KafkaTools(newer_kafka) as tools:
                moved(cluster, tools)
        finally:
            process.kill()


def moved(cluster: OurBrokers, tools: KafkaTools) -> None:
    def done(tool: str, *words: str) -> str:
        ran = tools.run(tool, f"--bootstrap-server={cluster.bootstrap}", *words)
        assert ran.returncode == 0, f"{words}:\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    homes = {topic: first for topic, (first, _) in MOVES.items()} | {STAYS: OTHER}
    for topic, home in homes.items():
        done(TOPIC_TOOL, "--create", f"--topic={topic}", f"--replica-assignment={home}")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 2 * RECORD, "linger.ms": 0})
    for number in range(COUNT):
        for topic in homes:
            producer.produce(topic, value=bytes([number % 256]) * RECORD, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    whole = {topic: size(cluster.log_dirs(home), topic) for topic, home in homes.items()}
    assert min(whole.values()) > COUNT * RECORD

    first, second = cluster.log_dirs(OTHER)
    target = first if size((second,), STAYS) else second
    moves = [
        *({"topic": topic, "partition": 0, "replicas": [to]} for topic, (_, to) in MOVES.items()),
        {"topic": STAYS, "partition": 0, "replicas": [OTHER], "log_dirs": [str(target)]},
    ]
    plan = cluster.layout.root / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = f"--reassignment-json-file={plan}"
    bounds = (f"--throttle={RATE}", f"--replica-alter-log-dirs-throttle={RATE_OF_DIRECTORIES}")
    watched = Watched(whole)

    def look() -> bool:
        sizes = {topic: size(cluster.log_dirs(to), topic) for topic, (_, to) in MOVES.items()}
        return watched.look(sizes | {STAYS: size((target,), STAYS, "*")})

    done(REASSIGN, file, "--execute", *bounds)
    expected = {(topic, f"leader.{REPLICAS}"): f"0:{home}" for topic, (home, _) in MOVES.items()}
    expected |= {(topic, f"follower.{REPLICAS}"): f"0:{to}" for topic, (_, to) in MOVES.items()}
    rates = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
    expected |= {(str(one), rate): str(RATE) for one in (OURS, OTHER, THEIRS) for rate in rates}
    expected[str(OTHER), "replica.alter.log.dirs.io.max.bytes.per.second"] = str(RATE_OF_DIRECTORIES)
    # The tool names a partition that stays, too.
    expected |= {(STAYS, f"leader.{REPLICAS}"): f"0:{OTHER}", (STAYS, f"follower.{REPLICAS}"): ""}
    assert throttles(cluster) == expected
    eventually(look, "all replicas are whole")
    bound = dict.fromkeys(MOVES, RATE) | {STAYS: RATE_OF_DIRECTORIES}
    used = {topic: rate / bound[topic] for topic, rate in watched.rates.items()}
    # A leader of Kafka that holds back looks at its rate again only when the Fetch has waited.
    assert used.pop("comes") == pytest.approx(0.9, abs=0.2)
    assert used == pytest.approx(dict.fromkeys(used, 1), abs=0.1)

    def verified() -> bool:
        return "still in progress" not in done(REASSIGN, file, "--verify")

    eventually(verified, "the moves are complete")
    assert throttles(cluster) == {}
    assert {topic: cluster.leader_of(topic) for topic in homes} == {topic: to for topic, (_, to) in MOVES.items()} | {
        STAYS: OTHER
    }
    assert size((target,), STAYS) == whole[STAYS]
