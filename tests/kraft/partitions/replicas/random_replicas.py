"""Replicas under random faults, with clients that write to them."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from kraft.broker.requests import Requests
from kraft.handling.settings import RequestSettings
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.replicas import ReplicaManager
from kraft.wire import Answer, Outcome, Send
from metadata_log.image import MetadataImage
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message, schema_of
from support.broker.data_brokers import (
    KEY,
    NOW_MS,
    TOPIC,
    append_to,
    batch,
    part_of,
)
from support.broker.request_brokers import batch as client_batch
from support.broker.request_brokers import due_of, fetch, only_partition, produce, wire_request
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.protocol.messages.fetch import FetchRequest
from wired_brokers import Wired


def run_until(manager: ReplicaManager, end_ms: int, now_ms: int = NOW_MS) -> list[int]:
    """Call the manager whenever something is due; returns the times."""
    times = []
    while (due_ms := max(now_ms, manager.deadline_ms())) <= end_ms:
        now_ms = due_ms
        manager.shrink(now_ms)
        times.append(now_ms)
        assert len(times) < 10_000, "the manager is due again and again"
    return times


NO_LEADER = -1


class RandomRun:
    """One run. `committed` is what a consumer or a producer with acks=all has seen: the value at each offset."""

    def __init__(self, seed: int, *, loses_power: bool) -> None:
        self.rng = Random(seed)
        self.loses_power = loses_power
        self.wired = Wired(3, {"flush.messages": "1"} if loses_power else {})
        self.committed: dict[int, bytes | None] = {}
        self.count = 0

    def run(self, steps: int) -> None:
        actions = (
            *[self.append] * 6,
            *[self.fetch] * 12,
            *[self.answer] * 3,
            *[self.pass_time] * 2,
            self.end,
            self.begin,
            self.cut_off,
            self.return_,
            self.move_leader,
        )
        for _ in range(steps):
            self.rng.choice(actions)()
            self.check()
        self.calm()

    # ------------------------------------------------------------------------------------------------------- actions

    def reachable(self) -> list[int]:
        return [one for one in self.wired.managers if one not in self.wired.silent]

    def append(self) -> None:
        leader = self.rng.choice(sorted(self.wired.managers) or [0])
        if leader in self.wired.managers and part_of(self.wired.managers[leader]).is_leader:
            values = [b"%d at %d" % (self.count + at, leader) for at in range(self.rng.randrange(1, 4))]
            self.count += len(values)
            acks = self.rng.choice((-1, 1))
            found = append_to(self.wired.managers[leader], KEY, batch(*values), acks=acks, now_ms=self.wired.now_ms)
            assert isinstance(found, Appended), found

    def fetch(self) -> None:
        if self.reachable():
            self.wired.fetch(self.rng.choice(self.reachable()))

    def answer(self) -> None:
        self.wired.answer_proposals()

    def pass_time(self) -> None:
        self.wired.now_ms += self.rng.choice((1, 100, 1500, 20_000))
        for one in self.reachable():
            self.wired.managers[one].shrink(self.wired.now_ms)

    def end(self) -> None:
        """A broker ends; with power failures, without what its disk has not made durable."""
        if self.wired.managers:
            one = self.rng.choice(sorted(self.wired.managers))
            (self.wired.cut_power if self.loses_power else self.wired.kill)(one)
            self.wired.silent.discard(one)
            self.fence(one)

    def begin(self) -> None:
        ended = [one for one in (1, 2, 3) if one not in self.wired.managers]
        if ended:
            one = self.rng.choice(ended)
            self.wired.restart(one)
            if self.wired.partition.leader == NO_LEADER and one in self.wired.isr():
                self.elect(one)

    def cut_off(self) -> None:
        """A broker hears nothing any more, and the controller fences the broker; the broker goes on on its own."""
        if self.reachable():
            one = self.rng.choice(self.reachable())
            self.wired.silent.add(one)
            self.fence(one)

    def return_(self) -> None:
        if self.wired.silent:
            one = self.rng.choice(sorted(self.wired.silent))
            self.wired.silent.discard(one)
            self.wired.commit(
                records.BrokerRegistrationChangeRecord(broker_id=one, broker_epoch=self.wired.epochs[one], fenced=-1)
            )
            if self.wired.partition.leader == NO_LEADER and one in self.wired.isr():
                self.elect(one)

    def move_leader(self) -> None:
        able = [one for one in self.wired.isr() if one in self.reachable()]
        if able:
            self.elect(self.rng.choice(able))

    def fence(self, gone: int) -> None:
        """The controller removes a broker from the ISR, except the last member, and elects another leader."""
        left = tuple(one for one in self.wired.isr() if one != gone)
        able = [one for one in left if one in self.reachable()]
        change = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=left or None)
        if self.wired.partition.leader == gone:
            leader = self.rng.choice(able) if able else NO_LEADER
            change = records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=left or None, leader=leader)
        self.wired.commit(self.change_of_fence(gone, 1), change)

    def change_of_fence(self, broker_id: int, fenced: int) -> records.BrokerRegistrationChangeRecord:
        epoch = self.wired.epochs[broker_id]
        return records.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)

    def elect(self, leader: int) -> None:
        self.wired.commit(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=leader))

    def calm(self) -> None:
        """Everything works again: all replicas become equal, and everything is committed."""
        for one in sorted(self.wired.silent):
            self.wired.commit(
                records.BrokerRegistrationChangeRecord(broker_id=one, broker_epoch=self.wired.epochs[one], fenced=-1)
            )
        self.wired.silent.clear()
        for one in (1, 2, 3):
            if one not in self.wired.managers:
                self.wired.restart(one)
        self.wired.commit()
        if self.wired.partition.leader == NO_LEADER:
            self.elect(self.wired.isr()[0])
        for _ in range(40):
            self.wired.run(1000)
            self.check()
        # The leader began its epoch without a record, and the followers learn an epoch from its first record only.
        self.wired.append(self.wired.partition.leader, b"last")
        self.wired.run(500)
        self.check()
        self.wired.assert_equal()
        ends = self.wired.ends()
        assert self.wired.watermarks() == ends
        assert self.wired.isr() == (1, 2, 3)

    # -------------------------------------------------------------------------------------------------------- checks

    def log_of(self, broker_id: int) -> dict[int, bytes | None]:
        found = {}
        for each in scan(self.wired.bytes_of(broker_id)):
            for at, record in enumerate(records_of(each)):
                found[each.base_offset + at] = record.value
        return found

    def check(self) -> None:
        leader = self.wired.partition.leader
        for one, manager in self.wired.managers.items():
            part = part_of(manager)
            assert part.log.start_offset <= part.log.high_watermark <= part.log.end_offset
            log = self.log_of(one)
            for offset in range(part.log.high_watermark):
                assert self.committed.setdefault(offset, log[offset]) == log[offset], f"broker {one} at offset {offset}"
            if one == leader and one not in self.wired.silent:
                missing = [offset for offset, value in self.committed.items() if log.get(offset) != value]
                assert missing == [], f"the leader {one} lacks the committed offsets {missing}"


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
        data = client_batch(*self._batch, producer_id=PRODUCER, sequence=self._sequence)
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
