"""Whatever a share coordinator has acknowledged is there after a crash: nothing is acknowledged before it is stored."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from kraft.coordinators.shares.persister import PersistedState
from metadata_log.memory_disk import MemoryDisk
from support.broker.request_brokers import BROKERS, Brokers, NewTopic
from support.broker.share_brokers import STATES, WORK, change, key
from transport.protocol.errors import Error

TOPICS: Final = [
    NewTopic("__share_group_state", STATES, ((101,),), {"cleanup.policy": "delete", "retention.ms": "-1"}),
    NewTopic("work", WORK, ((101,),) * 3),
]


def started(disks: dict[int, MemoryDisk]) -> Brokers:
    brokers = Brokers(TOPICS, disks=disks)
    for _ in range(5):
        brokers.poll(101, after_ms=1)
    return brokers


def state_of(brokers: Brokers, number: int) -> PersistedState | Error:
    found: list[PersistedState | Error] = []
    brokers.requests[101].persister.read(key(number), 0, brokers.now_ms, lambda result, _: found.append(result))
    for _ in range(5):
        brokers.poll(101, after_ms=1)
    [result] = found
    return result


@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_survives_the_process(seed: int) -> None:
    rng = Random(seed)
    disks = {one: MemoryDisk() for one in BROKERS}
    expected = dict.fromkeys(range(3), 0)
    """The number of writes of each share partition that were acknowledged."""
    asked = dict.fromkeys(range(3), 0)
    for life in range(4):
        brokers = started(disks)
        persister = brokers.requests[101].persister
        for number in range(3):
            if life == 0:
                persister.initialize(key(number), 0, 0, brokers.now_ms, lambda *_: None)
                continue
            found = state_of(brokers, number)
            assert isinstance(found, PersistedState)
            [batch] = found.batches
            assert expected[number] <= batch.last_offset <= asked[number], "what is not acknowledged may be there"
            asked[number] = expected[number] = batch.last_offset
        for _ in range(rng.randrange(20, 40)):
            number = rng.randrange(3)
            asked[number] += 1
            at = asked[number]

            def then(error: Error, _: int, number: int = number, at: int = at) -> None:
                assert error is Error.NONE
                expected[number] = at

            persister.write(key(number), change((0, at, 2, 1)), brokers.now_ms, then)
            for _ in range(rng.randrange(2)):
                brokers.poll(101, after_ms=1)
        # The process ends here, without a word: calls are under way.
    assert all(expected.values())
