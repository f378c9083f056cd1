"""A broker goes on with a snapshot of very many producers between other work, and stops asking for turns then."""

from __future__ import annotations

import pytest

from kraft.partitions.log import producer_files, producers
from support.broker.request_brokers import Brokers, NewTopic, batch, produce, topic_id

COUNT = 60


def test_a_snapshot_of_many_producers_is_finished_by_later_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_files, "PRODUCERS_AT_ONCE", COUNT // 2)
    monkeypatch.setattr(producers, "PRODUCERS_PER_STEP", 10)
    configs = {"internal.segment.bytes": str(COUNT * 80), "file.delete.delay.ms": "1"}
    brokers = Brokers([NewTopic("many", topic_id(1), ((101,),), configs)])
    key = topic_id(1), 0
    log = brokers.part(101, key).log
    manager = brokers.managers[101]
    at = 0
    while log.producers.unwritten is None:
        brokers.ask(101, produce(key, batch(b"v", producer_id=at, sequence=0), acks=1))
        at += 1
        assert at < 10 * COUNT, "no segment was rolled"
    rolled = log.producers.unwritten
    turns = 0
    while log.producers.unwritten is not None:
        assert manager.deadline_ms() == 0
        manager.shrink(brokers.now_ms)
        turns += 1
    assert turns > rolled // 10
    assert rolled in log.producers.snapshots
    assert manager.deadline_ms() > brokers.now_ms
