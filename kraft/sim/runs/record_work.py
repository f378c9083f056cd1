"""The producers and consumers of a run with data: when they send, to which broker, and which of their messages are
lost, late or repeated on the way.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from kraft.invariants.cluster_model import PartitionKey
from kraft.sim.nodes.cluster import broker_ids
from kraft.sim.nodes.data_broker import DataBroker
from kraft.sim.runs.client_requests import (
    FIRST_TOPIC_MS,
    TEND_MS,
    ClientRequests,
    leader_of,
    restart_without_directory,
)
from kraft.sim.runs.simulator import Simulator, Work
from kraft.sim.workloads.record_clients import (
    ALL,
    COMPACTED,
    Consumer,
    Producer,
    TransactionalProducer,
    choose_partition,
    deletion,
    move,
)
from kraft.sim.workloads.record_watch import LONGEST_MS, RecordWatch
from kraft.sim.world.host import START_MS
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from transport.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from transport.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCERS: Final = 3
CONSUMERS: Final = 2
PATIENCE_MS: Final = 2500
"""A client that waits longer for an answer sends again."""
FULL_MS: Final = 60_000
"""How long a producer waits for the answer to a last batch, and how long a directory may be full meanwhile."""

Client = Producer | TransactionalProducer | Consumer


class RecordWork(Work):
    """The clients of one run."""

    pauses_ms: tuple[int, ...] = ()
    writes_ms: tuple[int, ...] = ()

    def __init__(
        self,
        seed: int,
        brokers: int,
        *,
        has_small_logs: bool = False,
        has_full_directories: bool = False,
        combined: int = 0,
    ) -> None:
        self._rng = rng = Random(f"{seed}/record-work")
        self._broker_ids = broker_ids(brokers, combined)
        self._mean_ms = rng.choice((10, 30, 100))
        self._deletes = rng.choice((0.0, 0.0, 0.05))
        self._clients: list[Client] = [
            *(
                Producer(Random(f"{seed}/producer {one}"), f"producer {one}", fills_logs=has_small_logs)
                for one in range(PRODUCERS)
            ),
            *(Consumer(Random(f"{seed}/consumer {one}")) for one in range(CONSUMERS)),
        ]
        later = Random(f"{seed}/transactions")
        self._moves = later.choice((0.0, 0.0, 0.03))
        """How often an operator moves a replica to another log directory in the turn of a consumer."""
        self._has_small_logs = has_small_logs
        if has_small_logs:
            self._mean_ms, self._moves = min(self._mean_ms, 30), 0.05
        self._clients += [
            TransactionalProducer(Random(f"{seed}/transactions {one}"), f"transactions {one}")
            for one in range(later.choice((0, 0, 1, 2)))
        ]
        self._waiting: dict[int, tuple[int, int]] = {}
        """The request with the answer that a client waits for, and until when, by the number of the client."""
        self._owners: dict[int, int] = {}
        self._leaders: list[dict[PartitionKey, int]] = [{} for _ in self._clients]
        """The leaders that each client knows, until an error or a time-out: one that is cut off still gets records."""
        self._requests = ClientRequests(rng)
        self._is_over = False
        self._has_full_directories = has_full_directories
        self._written_ms = 0
        """When the last batches were written, after the end of all faults."""
        self._last_rng = Random(f"{seed}/last-writes")

    def begin(self, simulator: Simulator) -> None:
        """Begin to send."""
        watch = simulator.world.watch
        assert isinstance(watch, RecordWatch), watch
        self._simulator, self._watch = simulator, watch
        self._requests.begin(simulator)
        for number in range(len(self._clients)):
            simulator.queue.schedule(self._pause_ms(), partial(self._turn, number))
        simulator.queue.schedule(TEND_MS, self._tend)
        simulator.queue.schedule(FIRST_TOPIC_MS, self._create)
        if self._has_small_logs:
            simulator.queue.schedule(FIRST_TOPIC_MS, self._create_compacted)

    def _create(self) -> None:
        """Create a topic with a replica on each broker, as soon as the cluster can have one."""
        if self._is_over or len(self._watch.ledger.image.topics):
            return
        self._ask_for_topic("t1")
        self._simulator.queue.schedule(FIRST_TOPIC_MS, self._create)

    def _create_compacted(self) -> None:
        """Create the compacted topic, also after its deletion."""
        if self._is_over:
            return
        if COMPACTED not in self._watch.ledger.image.topics.by_name:
            self._ask_for_topic(COMPACTED, ("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"))
        self._simulator.queue.schedule(FIRST_TOPIC_MS, self._create_compacted)

    def _ask_for_topic(self, name: str, *settings: tuple[str, str]) -> None:
        """Ask a leading controller, if there is one, for a topic with a replica on each broker."""
        leaders = self._simulator.world.leaders()
        if leaders:
            topic = CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=len(self._broker_ids),
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings],
            )
            self._requests.send(self._rng.choice(leaders), CreateTopicsRequest(topics=[topic]))

    def end(self) -> None:
        """Send no new batches, and no message is lost any more.

        If a directory may be full, one is at last, and one more batch goes to each partition. No later append moves a
        watermark on that waits, and the operator leaves the broker alone until all of these batches have their answers,
        or until it shows that their ISRs are too small.
        """
        self._is_over = self._requests.is_over = True
        if self._has_full_directories:
            self._watch.is_writing = True
            self._simulator.queue.schedule(TEND_MS, self._write_last)

    def _write_last(self) -> None:
        simulator, rng = self._simulator, self._last_rng
        if self._watch.not_whole(simulator.world):
            simulator.queue.schedule(TEND_MS, self._write_last)
            return
        victim = rng.choice([one for one in self._broker_ids if self._follows_below_second(one)] or self._broker_ids)
        simulator.queue.schedule(rng.choice((0, 0, 20, 300)), partial(simulator.fill_directory, victim, FULL_MS))
        image = self._watch.ledger.image
        for name in image.topics:
            topic = image.topics[name]
            for number in range(len(topic.partitions)):
                key = (topic.id, number)
                record = Record(0, START_MS + simulator.now_ms, 0, b"last", b"last".ljust(rng.choice((10, 5000)), b"."))
                records = write_batch([record], epoch=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1)
                data = TopicProduceData(topic_id=key[0], partition_data=[PartitionProduceData(number, records)])
                self._requests.send(self._leader(key), ProduceRequest(acks=ALL, timeout_ms=FULL_MS, topic_data=[data]))
        self._watch.is_writing, self._written_ms = False, simulator.now_ms

    def _follows_below_second(self, broker_id: int) -> bool:
        """Whether the second log directory of a broker holds a replica that follows."""
        member = self._simulator.world.hosts[broker_id].member
        assert isinstance(member, DataBroker), member
        manager, directories = member.manager, member.log_dirs
        parts = [] if manager is None else [manager.partitions.get(key) for key in list(manager.partitions)]
        return any(
            part is not None
            and not part.is_offline
            and not part.is_leader
            and part.log.directory.startswith(f"{directories[-1]}/")
            for part in parts
        )

    def on_administered(self, request_id: int) -> None:
        """A client has received its response, unless that is lost on the way."""
        response = self._watch.answers.pop(request_id, None)
        number = self._owners.pop(request_id, None)
        if response is None or number is None or self._waiting.get(number, (0, 0))[0] != request_id:
            return
        if not self._is_over and self._rng.random() < 0.03:
            return
        del self._waiting[number]
        if self._clients[number].on_answer(response):
            self._leaders[number].clear()

    def _pause_ms(self) -> int:
        return 1 + int(self._rng.expovariate(1 / self._mean_ms))

    def _turn(self, number: int) -> None:
        """A client sends its next request, unless the client still waits."""
        self._simulator.queue.schedule(self._pause_ms(), partial(self._turn, number))
        now_ms, rng = self._simulator.now_ms, self._rng
        if number in self._waiting:
            if now_ms < self._waiting[number][1]:
                return
            self._leaders[number].clear()
        image = self._watch.ledger.image
        client = self._clients[number]
        if isinstance(client, Producer | TransactionalProducer):
            asked = client.next_request(image, now_ms, is_over=self._is_over)
        else:
            if not self._is_over and rng.random() < self._deletes:
                self._delete()
            if not self._is_over and self._moves and rng.random() < self._moves:
                self._move()
            asked = client.next_request(image)
        if asked is None:
            return
        key, request = asked
        self._waiting[number] = self._requests.next_id, now_ms + PATIENCE_MS
        self._owners[self._requests.next_id] = number
        self._requests.send(self._target(number, key), request)

    def _delete(self) -> None:
        image = self._watch.ledger.image
        key = choose_partition(self._rng, image)
        if key is not None:
            most = self._watch.records.committed_end(key)
            self._requests.send(self._leader(key), deletion(self._rng, image, key, most))

    def _move(self) -> None:
        """Ask a broker to move a partition to other brokers, all drawn at random."""
        image = self._watch.ledger.image
        key = choose_partition(self._rng, image)
        if key is not None:
            self._requests.send(self._rng.choice(self._broker_ids), move(self._rng, image, key))

    def _target(self, number: int, key: PartitionKey | None) -> int:
        """The leader of a partition, as far as a client knows; now and then any other broker."""
        if key is None or self._rng.random() < 0.05:
            return self._rng.choice(self._broker_ids)
        return self._leaders[number].setdefault(key, self._leader(key))

    def _leader(self, key: PartitionKey) -> int:
        return leader_of(self._rng, self._watch, key, self._broker_ids)

    def _tend(self) -> None:
        """Restart each broker with a failed log directory, once its disk takes bytes again. The operator makes room in
        a full directory after the faults, as soon as no producer waits.
        """
        simulator = self._simulator
        is_patient = simulator.now_ms <= self._written_ms + LONGEST_MS + TEND_MS
        if self._is_over and not (self._watch.is_writing or (is_patient and self._watch.unanswered(simulator.world))):
            for node_id in self._broker_ids:
                simulator.free_directory(node_id)
        restart_without_directory(simulator, self._broker_ids)
        self._simulator.queue.schedule(TEND_MS, self._tend)
