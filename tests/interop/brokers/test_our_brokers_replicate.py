"""Three brokers of ours in processes replicate; one dies under a producer that waits for all replicas."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kafka import KafkaProducer
from test_clients_on_our_broker import consumed, make_topic

from support.interop.our_brokers import batches, our_brokers

BROKERS = (101, 102, 103)
BEFORE = 100
AFTER = 100
SECONDS = 60
TOPIC = "replicated"


def test_records_that_all_replicas_acknowledged_survive_the_death_of_their_leader(tmp_path: Path):
    with our_brokers(tmp_path, *BROKERS, settings=("min.insync.replicas=2", "default.replication.factor=3")) as brokers:
        make_topic(brokers, TOPIC, replication_factor=3)
        servers = brokers.bootstrap.split(",")
        with closing(KafkaProducer(bootstrap_servers=servers, acks="all", retries=100, linger_ms=5)) as producer:
            sent = [producer.send(TOPIC, value=b"v%d" % n, partition=0) for n in range(BEFORE)]
            acknowledged = [one.get(SECONDS) for one in sent]
            [leader] = {brokers.leader_of(TOPIC)}
            brokers.kill(leader)
            sent = [producer.send(TOPIC, value=b"v%d" % n, partition=0) for n in range(BEFORE, BEFORE + AFTER)]
            acknowledged += [one.get(SECONDS) for one in sent]
        assert [one.offset for one in acknowledged] == list(range(BEFORE + AFTER))
        found = consumed(brokers, TOPIC, BEFORE + AFTER)
        assert [value for _, _, value in found] == [b"v%d" % n for n in range(BEFORE + AFTER)]
        assert brokers.leader_of(TOPIC) != leader
        brokers.start(leader)
        brokers.wait_until_in_sync(TOPIC, len(BROKERS))
        for broker in BROKERS:
            brokers.stop(broker)
        logs = [batches(brokers.log_dir(broker), TOPIC) for broker in BROKERS]
        assert logs[0] == logs[1] == logs[2]
        assert len(logs[0]) > 0
