"""Throttles of followers: one that is behind fetches so many bytes a second, one in sync fetches all (KIP-73)."""

from __future__ import annotations

import pytest

from kraft.partitions.replicas.settings import ReplicationSettings
from kraft.partitions.replicas.throttles import Throttle, throttled_partitions
from metadata_log.records import metadata as records
from wired_brokers import Wired

RATE = 100_000
"""Bytes a second."""
BATCH = b"x" * 5_000
BATCHES = 400
THROTTLED = "follower.replication.throttled"


def rate(value: int | None, broker: str) -> records.ConfigRecord:
    text = None if value is None else str(value)
    return records.ConfigRecord(resource_type=4, resource_name=broker, name=f"{THROTTLED}.rate", value=text)


def behind(replicas: str, bound: int | None, broker: str) -> Wired:
    """Broker 2 has left the ISR, lacks 2 MB, and begins to catch up under a throttle."""
    replication = ReplicationSettings(fetch_max_bytes=20_000)
    wired = Wired(2, configs={f"{THROTTLED}.replicas": replicas}, replication=replication)
    wired.silent.add(2)
    wired.append(1, b"a")
    wired.run(70_000)
    assert wired.isr() == (1,)
    wired.silent.clear()
    for _ in range(BATCHES):
        wired.append(1, BATCH)
    wired.commit(rate(bound, broker))
    return wired


def caught_up_after_ms(wired: Wired) -> int:
    began = wired.now_ms
    while wired.ends()[2] < wired.ends()[1]:
        wired.run(100)
        assert wired.now_ms < began + 120_000
    return wired.now_ms - began


@pytest.mark.parametrize(("replicas", "broker"), [("*", "2"), ("1:2,0:2", ""), ("0:1, 0:2", "2")])
def test_a_follower_that_is_behind_fetches_at_the_rate(replicas: str, broker: str) -> None:
    wired = behind(replicas, RATE, broker)
    assert caught_up_after_ms(wired) / 1000 == pytest.approx(BATCHES * len(BATCH) / RATE, rel=0.1)
    wired.run(1000)
    assert wired.isr() == (1, 2)


@pytest.mark.parametrize(
    ("replicas", "bound", "broker"), [("*", None, "2"), ("*", RATE, "1"), ("0:1", RATE, "2"), ("", RATE, "")]
)
def test_others_are_not_held_back(replicas: str, bound: int | None, broker: str) -> None:
    """A fetch of 20 kB each 100 ms is twice the rate."""
    assert caught_up_after_ms(behind(replicas, bound, broker)) <= 14_000


def test_a_follower_in_sync_is_never_held_back() -> None:
    wired = Wired(2, configs={f"{THROTTLED}.replicas": "*"})
    wired.run(200)
    wired.commit(rate(1, ""))
    for _ in range(50):
        wired.append(1, BATCH)
        wired.run(200)
        assert wired.watermarks()[1] == wired.ends()[1]
    assert wired.isr() == (1, 2)


def test_the_end_of_a_throttle_lets_the_follower_go() -> None:
    wired = behind("*", 1, "")
    wired.run(5000)
    assert wired.ends()[2] < 10
    wired.commit(rate(None, ""))
    assert caught_up_after_ms(wired) <= 14_000


def test_lists_of_partitions_and_brokers() -> None:
    def of(text: str) -> list[int]:
        found = throttled_partitions("k", {"k": text}, 3)
        return [number for number in range(12) if number in found]

    assert of(" * ") == list(range(12))
    assert of("0:3, 1:2,11:3,x:3,2:y,") == [0, 11]
    assert of("") == []
    assert 0 not in throttled_partitions("k", {}, 3)


def test_the_first_window_counts_whole() -> None:
    throttle = Throttle(11, 1000)
    throttle.bound = 1000
    throttle.note(900, 5)
    assert (throttle.bytes_per_second(5), throttle.look(5)) == (900, False)
    throttle.note(200, 6)
    assert throttle.look(6)
    assert (throttle.wait_ms(5000, 1000), throttle.wait_ms(100, 1000)) == (105, 100)
    assert throttle.look(1104)
    assert not throttle.look(1105)
    assert throttle.bytes_per_second(2005) == pytest.approx(1100 / 2.0)
