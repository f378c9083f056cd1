"""Clients of three brokers under random faults: what was acknowledged stays, is written once, and is read as it is.

The brokers replicate through their request handlers and sessions, over encoded requests. Faults, elections and time are
those of the random runs of replication. Each failure names its seed.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace
from test_random_replication import RandomRun

from kraft.broker.requests import Requests
from kraft.handling.settings import RequestSettings
from kraft.partitions.replicas import ReplicaManager
from kraft.wire import Answer, Outcome, Send
from metadata_log.image import MetadataImage
from metadata_log.records.batch import scan
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message, schema_of
from support.broker.data_brokers import KEY, part_of
from support.broker.request_brokers import batch, due_of, fetch, only_partition, produce, wire_request
from support.broker.wired_brokers import Wired
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.protocol.messages.fetch import FetchRequest

PRODUCER = 77
TIMEOUT_MS = 1500
RETRIED = {Error.NOT_LEADER_OR_FOLLOWER, Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS}
LATEST = {0: 13, 1: 18, 2: 11, 27: 2}


class Served(Wired):
    """Wired brokers of which each answers requests of clients and followers through its handlers."""

    def __init__(self) -> None:
        self.requests: dict[int, Requests] = {}
        self.images: dict[int, MetadataImage] = {}
        """The image of each broker: one that is cut off has an old one."""
        self.last_id = 0
        super().__init__(3)

    def start(self, broker_id: int, *, is_clean: bool = False) -> ReplicaManager:
        manager = super().start(broker_id, is_clean=is_clean)
        settings = RequestSettings(broker_id=broker_id)
        self.requests[broker_id] = Requests(manager, settings, Random(broker_id + self.last_id))
        self.images[broker_id] = self.image
        return manager

    def commit(self, *added: Message) -> None:
        super().commit(*added)
        self.images |= {one: self.image for one in self.managers if one not in self.silent}

    def send(self, broker_id: int, message: Message) -> tuple[int, Outcome | None]:
        """Send a request to a broker as bytes; returns its id and the outcome."""
        api_key = schema_of(type(message)).api_key
        assert api_key is not None
        version = LATEST[api_key]
        frame = encode_request(api_key, version, 1, "c", message, apis=ALL_APIS)
        _, decoded = decode_request(frame, apis=ALL_APIS)
        self.last_id += 1
        request = wire_request(self.last_id, api_key, version, decoded)
        return self.last_id, self.requests[broker_id].on_request(request, self.images[broker_id], self.now_ms)

    def _answer(self, leader: int, request: Message) -> Message | None:
        if leader not in self.managers:
            return None
        if isinstance(request, FetchRequest):
            request = replace(request, max_wait_ms=0)
        _, outcome = self.send(leader, request)
        assert isinstance(outcome, Answer), outcome
        api_key = schema_of(type(request)).api_key
        assert api_key is not None
        frame = encode_response(api_key, LATEST[api_key], 1, outcome.message, apis=ALL_APIS)
        return decode_response(api_key, LATEST[api_key], frame, apis=ALL_APIS)[1]


class ClientsRun(RandomRun):
    """A random run with an idempotent producer that repeats each batch until it is acknowledged, and a consumer."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, loses_power=False)
        self.served = Served()
        self.wired = self.served
        self.acknowledged: list[bytes] = []
        self.repeated = 0
        """How often the producer had to send a batch again."""
        self.read = 0
        """The next offset of the consumer."""
        self._batch: tuple[bytes, ...] = ()
        """The batch that is not acknowledged yet."""
        self._sequence = 0
        self._pending: tuple[int, int] | None = None
        """The broker and the id of the request that waits."""

    def append(self) -> None:
        """The producer sends a batch, or its last one again, to a broker that it takes for the leader."""
        leaders = [one for one, manager in self.wired.managers.items() if part_of(manager).is_leader]
        if self._pending is not None or not leaders:
            return
        if not self._batch:
            self._batch = tuple(b"%d" % (self.count + at) for at in range(self.rng.randrange(1, 4)))
            self.count += len(self._batch)
        else:
            self.repeated += 1
        data = batch(*self._batch, producer_id=PRODUCER, sequence=self._sequence)
        broker_id = self.rng.choice(leaders)
        request_id, outcome = self.served.send(broker_id, produce(KEY, data, timeout_ms=TIMEOUT_MS))
        self._pending = broker_id, request_id
        if outcome is not None:
            self._on_outcome(outcome)

    def end(self) -> None:
        """A broker ends, and with it the connections of its clients."""
        super().end()
        if self._pending is not None and self._pending[0] not in self.wired.managers:
            self._pending = None

    def pass_time(self) -> None:
        super().pass_time()
        self.answer()

    def answer(self) -> None:
        """The controller answers, and the brokers look at their waiting requests."""
        super().answer()
        for one in self.wired.managers:
            self.served.requests[one].use(self.served.images[one])
            for outcome in due_of(self.served.requests[one], self.wired.now_ms):
                assert not isinstance(outcome, Send)
                self._on_outcome(outcome)

    def _on_outcome(self, outcome: Outcome) -> None:
        if self._pending is None or outcome.request_id != self._pending[1]:
            return
        broker_id, _ = self._pending
        self._pending = None
        assert isinstance(outcome, Answer)
        part = only_partition(outcome.message)
        if part.error_code == Error.NONE:
            for at, value in enumerate(self._batch):
                assert self.committed.setdefault(part.base_offset + at, value) == value, part
            self.acknowledged += self._batch
            self._sequence += len(self._batch)
            self._batch = ()
        elif part.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # A broker that was cut off before the last batches still takes itself for the leader.
            assert broker_id != self.wired.partition.leader, part
        else:
            assert part.error_code in RETRIED, part

    def fetch(self) -> None:
        super().fetch()
        if self.rng.random() < 0.3 and self.wired.managers:
            self.consume(self.rng.choice(sorted(self.wired.managers)))

    def consume(self, broker_id: int) -> None:
        """The consumer reads on at any replica."""
        _, outcome = self.served.send(broker_id, fetch((KEY, self.read)))
        assert isinstance(outcome, Answer)
        part = only_partition(outcome.message)
        if part.error_code == Error.OFFSET_OUT_OF_RANGE:
            return  # this replica is behind
        assert part.error_code == Error.NONE, part
        for each in scan(part.records):
            for at, record in enumerate(records_of(each)):
                offset = each.base_offset + at
                assert self.committed.setdefault(offset, record.value) == record.value, f"read {record} of {broker_id}"
                self.read = max(self.read, offset + 1)

    def calm(self) -> None:
        super().calm()
        for _ in range(10):
            self.append()
            self.wired.run(1000)
            self.answer()
            if not self._batch:
                break
        assert not self._batch, "the producer is not acknowledged in a sound cluster"
        leader = self.wired.partition.leader
        values = list(self.log_of(leader).values())
        assert [value for value in values if value != b"last"] == self.acknowledged
        self.wired.run(1000)
        for _ in range(len(values)):
            self.consume(leader)
        assert self.read == part_of(self.wired.managers[leader]).log.end_offset


def run_of(seed: int) -> ClientsRun:
    print(f"seed {seed}")
    made = ClientsRun(seed)
    made.run(200)
    return made


@pytest.mark.parametrize("seed", range(10))
def test_acknowledged_records_survive_once_and_are_read_as_they_are(seed: int) -> None:
    run_of(seed)


def test_the_runs_acknowledge_and_repeat() -> None:
    runs = [run_of(seed) for seed in range(20, 24)]
    assert sum(len(run.acknowledged) for run in runs) > 50
    assert sum(run.repeated for run in runs) > 5
