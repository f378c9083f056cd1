"""The language of `tests/transcripts/broker`: brokers with data in virtual time, on disks in memory.

The controller does what the commands say. Offsets `4-6` are 4 and 5, and `@3` is the leader epoch. `P` is a partition
such as `orders-0`, `B` a broker, `D` a log directory such as `a`, and a setting in brackets may be left out.

    > brokers 101 102 [racks=a,b dirs=2 NAME=VALUE …]      new brokers with empty disks at 0 ms, with Kafka's settings
    > topic NAME 101,102 101,103 [isr=101 unassigned NAME=VALUE …]     the replicas of each partition, the leader first
    > leader P B|- [isr=101] / isr P 101,102 / replicas P 101,103 [isr= leader=]
    > place P B D / older P 101 B      where a replica is; an ISR and a leader, with the partition epoch before
    > configure TOPIC NAME=VALUE … / delete TOPIC / quota CLIENT NAME=VALUE
    > fence B / unfence B / leaving B      the registration of a broker; `leaving` is in controlled shutdown
    > metadata B later|now             it learns of nothing until `now`
    > at MS                            time passes for all; what happens before MS is below its time
    > produce B P… [acks=all values=a,b key= timeout= version= by=CLIENT producer=ID/EPOCH
                    sequence= txn=ID transactional age=MS raw=torn|damaged|twice]
    > fetch B P… [at=OFFSET,… wait=0 min= max= part-max= committed version= by=CLIENT session=NAME/EPOCH
                  forget=P rack= from=FOLLOWER broker-epoch= epoch= last= start=]
    > offsets B P latest|earliest|max-timestamp|MS [committed version= from= epoch=] / epoch-end B P EPOCH [epoch=]
    > delete-records B P OFFSET [timeout=] / marker B P producer=ID/EPOCH commit|abort [coordinator= v2]
    > producer-id B / move B P D / gone CLIENT
    > deliver A B [WHAT|request|answer] / lose A B [WHAT]      the oldest message from A to B
    > fail A B [WHAT]                  the connection of the oldest request of A to B fails
    > settle                           deliver everything, until nothing is on its way
    > open A B / hold A B              what they say arrives at once, and is not shown; or by command again
    > decide B [ERROR top-error= late told]    the controller answers AlterPartition; metadata follows, or precedes
                                (`late`; by another command: `told`)
    > answer B PEER|controller [WHAT] [P… error= top-error= hw= start= records=4-6@3 torn=BYTES damaged diverging=4@2
                                offset= first= count=]
    > stop B / kill B / cut B / start B    a clean stop; what was written stays; what was not flushed is lost
    > shutdown B / release B           a controlled shutdown, and the controller's leave to stop
    > remove B D P FILE / break B D    a file is lost; the disk fails there from now on
    > show B P / log B P / segments B P / files B [P]

`pytest tests/kraft/broker/test_broker_transcripts.py --rewrite-transcripts` writes what the brokers do; read the diff.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from metadata_log.image import MetadataDelta, MetadataImage, Partition
from metadata_log.log.clean_shutdown import CLEAN_SHUTDOWN_FILE
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.frame import encode_record
from metadata_log.serde import Message, schema_of
from metadata_log.types import OffsetAndEpoch, Uuid
from support.transcripts.broker_words import (
    START_MS,
    TIMES,
    Names,
    answer_text,
    batch_of,
    handmade,
    records_text,
    request_text,
    whole_text,
)
from support.transcripts.driver import fields, parted
from support.transcripts.seats import CONTROLLER, Answered, Broker, Closed, Output, Replica, Reported, Sent, Spec
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.errors import Error
from transport.protocol.headers import decode_request, decode_response, encode_request, encode_response
from transport.protocol.messages import alter_partition as ap
from transport.protocol.messages import alter_replica_log_dirs as dirs
from transport.protocol.messages import delete_records as dr
from transport.protocol.messages import fetch as f
from transport.protocol.messages import list_offsets as lo
from transport.protocol.messages import offset_for_leader_epoch as oe
from transport.protocol.messages import produce as p
from transport.protocol.messages import write_txn_markers as wm

LIFE = 1000
"""The broker epoch of the first life of broker 101 is 1101, of the second 2101."""
_LATEST = {0: 13, 1: 18, 2: 11, 21: 2, 22: 5, 23: 4, 24: 5, 27: 2, 34: 2}
"""The version of each API, where the command names none: the highest that brokers of Kafka 4.3 offer."""
_SETTINGS = {
    "produce": "acks values key timeout version by producer sequence txn transactional age raw",
    "fetch": "at wait min max part-max committed version by session forget rack from broker-epoch epoch last start",
    "offsets": "committed version from epoch by",
    "epoch-end": "epoch version from by",
    "delete-records": "timeout version by",
    "marker": "producer commit abort coordinator v2 version by",
    "producer-id": "by version",
    "answer": "error top-error hw start records torn damaged diverging offset first count",
    "leader": "isr",
    "replicas": "isr leader",
    "decide": "top-error",
}
"""The settings of each command that has its own; another one is a mistake."""


class Flight(Struct, frozen=True):
    """A message between two nodes. An answer has the `reply_to` of its request."""

    source: int
    target: int
    reply_to: object
    message: Message
    is_answer: bool


class Asker(Struct, frozen=True):
    """Who waits for the answer to a request: a client by its name, or a broker."""

    api_key: int
    version: int
    client: str = ""
    request: Flight | None = None


class Node(Struct):
    """A broker with its disk, over all of its lives."""

    spec: Spec
    disk: MemoryDisk
    broker: Broker | None = None
    lives: int = 0
    known: int = 0
    """How many batches of metadata it has."""
    is_behind: bool = False
    may_stop: bool = False
    told: str = ""
    """What its last heartbeat said beside that it lives."""
    broken: tuple[str, ...] = ()
    seen: dict[str, Replica] = {}

    @property
    def epoch(self) -> int:
        """The broker epoch."""
        return self.spec.broker_id + LIFE * self.lives

    @property
    def first_directory(self) -> Uuid:
        """Where the controller puts replicas."""
        return next(iter(self.spec.directories.values()))

    @property
    def running(self) -> Broker:
        """The broker of this life."""
        assert self.broker is not None, f"{self.spec.broker_id} is down"
        return self.broker


class BrokerPlayer:
    """Runs the commands of one file and keeps what they print."""

    settings = _SETTINGS

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._now_ms = START_MS
        self._names = Names()
        self._nodes: dict[int, Node] = {}
        self._values: list[tuple[bytes, ...]] = []
        self._image = MetadataImage()
        self._flights: list[Flight] = []
        self._outstanding: dict[tuple[int, int], list[Flight]] = {}
        """The requests without an answer, by sender and receiver."""
        self._askers: dict[int, Asker] = {}
        self._forgotten: set[int] = set()
        """The requests with a closed connection."""
        self._open: set[frozenset[int]] = set()
        self._last_request = 0

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out one command; the lines it prints."""
        self._lines = []
        getattr(self, f"_on_{name.replace('-', '_')}")(*words)
        self._go_on()
        return self._lines

    # Commands: the cluster

    def _on_brokers(self, *arguments: str) -> None:
        self._begin()
        plain, given = parted(arguments)
        ids = [int(one) for one in plain]
        racks, count = given.pop("racks", "").split(","), int(given.pop("dirs", 1))
        for at, broker_id in enumerate(ids):
            directories = {
                f"/{letter}": Uuid(bytes([at + 1, number + 1] * 8)) for number, letter in enumerate("abc"[:count])
            }
            self._names.directories |= {one: path.strip("/") for path, one in directories.items()}
            settings = given | ({"broker.rack": racks[at]} if racks[0] else {})
            self._nodes[broker_id] = Node(
                Spec(broker_id=broker_id, directories=directories, settings=settings), MemoryDisk()
            )
        self._commit(records.FeatureLevelRecord(name="metadata.version", feature_level=30))
        for broker_id in ids:
            self._on_start(str(broker_id))

    def _on_start(self, name: str) -> None:
        broker_id, node = int(name), self._nodes[int(name)]
        assert node.broker is None, f"{broker_id} runs"
        node.lives += 1
        files, spec = node.disk, node.spec
        clean = tuple(one for path, one in spec.directories.items() if files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"))
        for path in spec.directories:
            files.mkdir(path)
        self._commit(
            records.RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=node.epoch,
                incarnation_id=Uuid(bytes([node.lives, broker_id] * 8)),
                fenced=False,
                rack=spec.settings.get("broker.rack"),
                log_dirs=tuple(spec.directories.values()),
                end_points=(records.BrokerEndpoint(name="PLAINTEXT", host=f"b{broker_id}", port=9092),),
            )
        )
        node.spec = replace(spec, clean=clean)
        node.broker = Broker(node.spec, files)
        node.known, node.told, node.may_stop, node.seen = 0, "", False, {}
        self._catch_up(broker_id)
        now_ms = self._now_ms - 1000
        while not node.broker.is_running:
            assert now_ms <= self._now_ms, f"{broker_id} does not start"
            self._ticked(broker_id, now_ms)
            now_ms = max(now_ms + 1, node.broker.deadline_ms())

    def _end(self, broker_id: int) -> Node:
        """The broker ends: its connections close, and nobody learns how its requests went."""
        node = self._nodes[broker_id]
        node.broker, node.seen = None, {}
        self._flights = [one for one in self._flights if broker_id not in (one.source, one.target)]
        for pair in [pair for pair in self._outstanding if pair[0] == broker_id]:
            del self._outstanding[pair]
        for request_id in [key for key, one in self._askers.items() if one.request and one.request.source == broker_id]:
            self._forget(request_id)
        return node

    def _on_stop(self, name: str) -> None:
        self._nodes[int(name)].running.close()
        self._end(int(name)).disk.kill()

    def _on_kill(self, name: str) -> None:
        self._end(int(name)).disk.kill()

    def _on_cut(self, name: str) -> None:
        self._end(int(name)).disk.crash()

    def _on_shutdown(self, name: str) -> None:
        self._nodes[int(name)].running.shut_down(self._now_ms)

    def _on_release(self, name: str) -> None:
        self._nodes[int(name)].may_stop = True

    def _on_remove(self, name: str, *path: str) -> None:
        assert self._nodes[int(name)].broker is None, f"{name} runs"
        self._nodes[int(name)].disk.remove("/" + "/".join(path))

    def _on_break(self, name: str, directory: str) -> None:
        node = self._nodes[int(name)]
        node.broken += (f"/{directory}",)

        def fail(operation: str, path: str) -> None:
            if any(path.startswith(one) for one in node.broken):
                raise OSError(5, "Input/output error", path)

        node.disk.on_operation = fail

    # Commands: metadata

    def _on_topic(self, name: str, *arguments: str) -> None:
        plain, given = parted(arguments)
        topic_id = Uuid(bytes([7, len(self._names.topics) + 1] * 8))
        self._names.topics[topic_id] = name
        made: list[Message] = [records.TopicRecord(name=name, topic_id=topic_id)]
        isr, is_placed = _ids(given.pop("isr", "")), "unassigned" not in arguments
        for number, each in enumerate(one for one in plain if one != "unassigned"):
            replicas = _ids(each)
            made.append(
                records.PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=isr or replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(self._nodes[one].first_directory if is_placed else Uuid.ZERO for one in replicas),
                )
            )
        self._commit(*made, *_configs(name, given))

    def _on_configure(self, topic: str, *settings: str) -> None:
        self._commit(*_configs(topic, fields(settings)))

    def _on_delete(self, topic: str) -> None:
        self._commit(records.RemoveTopicRecord(topic_id=self._names.topic_id(topic)))

    def _on_leader(self, partition: str, leader: str, *settings: str) -> None:
        isr = _ids(fields(settings).get("isr", ""))
        change = records.PartitionChangeRecord(leader=-1 if leader == "-" else int(leader), isr=isr or None)
        self._change(partition, change)

    def _on_isr(self, partition: str, isr: str) -> None:
        self._change(partition, records.PartitionChangeRecord(isr=_ids(isr)))

    def _on_older(self, partition: str, isr: str, leader: str) -> None:
        """The partition epoch is that before the last change; nothing else is as it was."""
        topic_id, number = self._names.key(partition)
        now = self._partition(partition)
        self._commit(
            records.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=now.replicas,
                isr=_ids(isr),
                leader=int(leader),
                leader_epoch=now.leader_epoch,
                partition_epoch=now.partition_epoch - 1,
                directories=now.directories,
            )
        )

    def _on_replicas(self, partition: str, replicas: str, *settings: str) -> None:
        now, ids, given = self._partition(partition), _ids(replicas), fields(settings)
        places = dict(zip(now.replicas, now.directories, strict=True))
        directories = tuple(places.get(one) or self._nodes[one].first_directory for one in ids)
        isr, leader = _ids(given.get("isr", "")), int(given.get("leader", -2))
        change = records.PartitionChangeRecord(replicas=ids, directories=directories, isr=isr or None, leader=leader)
        self._change(partition, change)

    def _on_place(self, partition: str, name: str, directory: str) -> None:
        now, broker_id = self._partition(partition), int(name)
        place = self._nodes[broker_id].spec.directories[f"/{directory}"]
        moved = zip(now.replicas, now.directories, strict=True)
        directories = tuple(place if one == broker_id else was for one, was in moved)
        self._change(partition, records.PartitionChangeRecord(directories=directories))

    def _change(self, partition: str, change: records.PartitionChangeRecord) -> None:
        topic_id, number = self._names.key(partition)
        self._commit(replace(change, topic_id=topic_id, partition_id=number))

    def _on_fence(self, name: str) -> None:
        self._commit(records.FenceBrokerRecord(id=int(name), epoch=self._nodes[int(name)].epoch))

    def _on_unfence(self, name: str) -> None:
        self._commit(records.UnfenceBrokerRecord(id=int(name), epoch=self._nodes[int(name)].epoch))

    def _on_leaving(self, name: str) -> None:
        """The controller has heard that a broker is shutting down."""
        self._commit(
            records.BrokerRegistrationChangeRecord(
                broker_id=int(name), broker_epoch=self._nodes[int(name)].epoch, in_controlled_shutdown=1
            )
        )

    def _on_quota(self, client: str, setting: str) -> None:
        [(key, value)] = fields((setting,)).items()
        entity = (records.EntityData(entity_type="client-id", entity_name=client),)
        self._commit(records.ClientQuotaRecord(entity=entity, key=key, value=float(value)))

    def _on_metadata(self, name: str, when: str) -> None:
        self._nodes[int(name)].is_behind = when == "later"
        self._catch_up(int(name))

    def _partition(self, name: str) -> Partition:
        topic_id, number = self._names.key(name)
        return self._image.topics.by_id[topic_id].partitions[number]

    def _commit(self, *added: Message) -> None:
        delta, base = MetadataDelta(self._image), self._image.end.offset
        for at, record in enumerate(added):
            delta.replay(record, base + at)
        self._image = delta.apply(OffsetAndEpoch(epoch=1, offset=base + len(added)))
        self._values.append(tuple(encode_record(one, schema_of(type(one)).versions.highest) for one in added))
        for broker_id in self._nodes:
            self._catch_up(broker_id)

    def _catch_up(self, broker_id: int) -> None:
        node = self._nodes[broker_id]
        if node.broker is None or node.is_behind:
            return
        for values in self._values[node.known :]:
            node.broker.commit(values)
        node.known = len(self._values)
        if node.broker.is_running:
            self._run(broker_id)

    # Commands: time

    def _on_at(self, milliseconds: str) -> None:
        until_ms = START_MS + int(milliseconds)
        assert until_ms >= self._now_ms, "time does not go back"
        while True:
            self._go_on()
            due_ms = min((node.broker.deadline_ms() for node in self._nodes.values() if node.broker), default=until_ms)
            if due_ms > until_ms:
                break
            self._now_ms = max(due_ms, self._now_ms)
            before = len(self._lines)
            for broker_id, node in self._nodes.items():
                if node.broker is not None and node.broker.deadline_ms() <= self._now_ms:
                    self._run(broker_id)
            self._go_on()
            if len(self._lines) > before and self._now_ms < until_ms:
                self._lines.insert(before, f"({self._now_ms - START_MS} ms)")
        self._now_ms = until_ms

    # Commands: clients

    def _on_produce(self, broker: str, *arguments: str) -> None:
        parts, given = _split(arguments)
        version = int(given.get("version", _LATEST[ApiKey.PRODUCE]))
        data = batch_of(given.get("values", "a").split(","), given, self._now_ms - int(given.get("age", 0)))
        data = _SPOILS[given["raw"]](data) if "raw" in given else data
        topics: dict[str, list[p.PartitionProduceData]] = {}
        for part in parts:
            topic, number = _parted(part)
            topics.setdefault(topic, []).append(p.PartitionProduceData(index=number, records=data))
        acks = given.get("acks", "all")
        message = m.ProduceRequest(
            transactional_id=given.get("txn"),
            acks=-1 if acks == "all" else int(acks),
            timeout_ms=int(given.get("timeout", 30_000)),
            topic_data=[
                p.TopicProduceData(topic, self._names.topic_id(topic), partition_data=data)
                for topic, data in topics.items()
            ],
        )
        self._ask(int(broker), message, given, version)

    def _on_fetch(self, broker: str, *arguments: str) -> None:
        parts, given = _split(arguments)
        version = int(given.get("version", _LATEST[ApiKey.FETCH]))
        follower = int(given.get("from", -1))
        registered = self._nodes[follower].epoch if follower > 0 else -1
        session, _, session_epoch = given.get("session", "none/-1").partition("/")
        wanted: dict[str, list[f.FetchPartition]] = {}
        offsets = [int(one) for one in given.get("at", "0").split(",")]
        for at, part in enumerate(parts):
            topic, number = _parted(part)
            wanted.setdefault(topic, []).append(
                f.FetchPartition(
                    partition=number,
                    current_leader_epoch=int(given.get("epoch", -1)),
                    fetch_offset=offsets[min(at, len(offsets) - 1)],
                    last_fetched_epoch=int(given.get("last", -1)),
                    log_start_offset=int(given.get("start", 0 if follower > 0 else -1)),
                    partition_max_bytes=int(given.get("part-max", 1 << 20)),
                )
            )
        forgotten = [_parted(one) for one in given.get("forget", "").split(",") if one]
        message = m.FetchRequest(
            replica_id=follower if version < 15 else -1,
            replica_state=f.ReplicaState(follower, int(given.get("broker-epoch", registered)))
            if version >= 15
            else f.ReplicaState(),
            max_wait_ms=int(given.get("wait", 0)),
            min_bytes=int(given.get("min", 1)),
            max_bytes=int(given.get("max", 50 << 20)),
            isolation_level=int("committed" in given),
            session_id=self._names.session_id(session),
            session_epoch=int(session_epoch),
            topics=[
                f.FetchTopic(topic=topic, topic_id=self._names.topic_id(topic), partitions=asked)
                for topic, asked in wanted.items()
            ],
            forgotten_topics_data=[
                f.ForgottenTopic(topic=topic, topic_id=self._names.topic_id(topic), partitions=[number])
                for topic, number in forgotten
            ],
            rack_id=given.get("rack", ""),
        )
        self._ask(int(broker), message, given, version)

    def _on_offsets(self, broker: str, partition: str, at: str, *settings: str) -> None:
        given = fields(settings)
        topic, number = _parted(partition)
        wanted = lo.ListOffsetsPartition(
            partition_index=number,
            current_leader_epoch=int(given.get("epoch", -1)),
            timestamp=TIMES[at] if at in TIMES else START_MS + int(at),
        )
        message = m.ListOffsetsRequest(
            replica_id=int(given.get("from", -1)),
            isolation_level=int("committed" in given),
            topics=[lo.ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        self._ask(int(broker), message, given)

    def _on_epoch_end(self, broker: str, partition: str, epoch: str, *settings: str) -> None:
        given = fields(settings)
        topic, number = _parted(partition)
        wanted = oe.OffsetForLeaderPartition(
            partition=number, current_leader_epoch=int(given.get("epoch", -1)), leader_epoch=int(epoch)
        )
        message = m.OffsetForLeaderEpochRequest(
            replica_id=int(given.get("from", -1)), topics=[oe.OffsetForLeaderTopic(topic, [wanted])]
        )
        self._ask(int(broker), message, given)

    def _on_delete_records(self, broker: str, partition: str, offset: str, *settings: str) -> None:
        given = fields(settings)
        topic, number = _parted(partition)
        wanted = dr.DeleteRecordsTopic(topic, [dr.DeleteRecordsPartition(number, int(offset))])
        self._ask(
            int(broker), m.DeleteRecordsRequest(topics=[wanted], timeout_ms=int(given.get("timeout", 30_000))), given
        )

    def _on_marker(self, broker: str, partition: str, *settings: str) -> None:
        given = fields(settings)
        topic, number = _parted(partition)
        producer_id, _, producer_epoch = given["producer"].partition("/")
        marker = wm.WritableTxnMarker(
            producer_id=int(producer_id),
            producer_epoch=int(producer_epoch),
            transaction_result="commit" in given,
            topics=[wm.WritableTxnMarkerTopic(topic, [number])],
            coordinator_epoch=int(given.get("coordinator", 0)),
            transaction_version=2 if "v2" in given else 0,
        )
        self._ask(int(broker), m.WriteTxnMarkersRequest(markers=[marker]), given)

    def _on_producer_id(self, broker: str, *settings: str) -> None:
        message = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self._ask(int(broker), message, fields(settings))

    def _on_move(self, broker: str, partition: str, directory: str) -> None:
        topic, number = _parted(partition)
        moved = dirs.AlterReplicaLogDir(path=f"/{directory}", topics=[dirs.AlterReplicaLogDirTopic(topic, [number])])
        self._ask(int(broker), m.AlterReplicaLogDirsRequest(dirs=[moved]), {})

    def _on_gone(self, client: str) -> None:
        for request_id in [key for key, asker in self._askers.items() if asker.client == client]:
            self._forget(request_id)

    def _forget(self, request_id: int) -> None:
        """The connection of a request is closed."""
        del self._askers[request_id]
        self._forgotten.add(request_id)
        for node in self._nodes.values():
            if node.broker is not None:
                node.broker.gone(request_id)

    def _ask(self, broker_id: int, message: Message, given: dict[str, str], version: int | None = None) -> None:
        api_key = _api_key(message)
        version = int(given.get("version", _LATEST[api_key])) if version is None else version
        self._arrive(broker_id, message, Asker(api_key, version, client=given.get("by", "client")))

    def _arrive(self, broker_id: int, message: Message, asker: Asker) -> None:
        """A request arrives, in the bytes of its version."""
        self._last_request += 1
        frame = encode_request(asker.api_key, asker.version, 1, asker.client, message, apis=ALL_APIS)
        _, decoded = decode_request(frame, apis=ALL_APIS)
        self._askers[self._last_request] = asker
        broker = self._nodes[broker_id].running
        outputs = broker.request(
            self._last_request, asker.api_key, asker.version, decoded, asker.client or "broker", self._now_ms
        )
        self._did(broker_id, outputs)
        self._run(broker_id)

    # Commands: messages between brokers, and to the controller

    def _on_deliver(self, source: str, target: str, what: str = "") -> None:
        self._deliver(self._take(_node(source), _node(target), what))

    def _on_lose(self, source: str, target: str, what: str = "") -> None:
        self._take(_node(source), _node(target), what)

    def _on_fail(self, source: str, target: str, what: str = "") -> None:
        broker_id, request = int(source), self._asked(int(source), _node(target), what)
        self._answered(request)
        self._flights = [one for one in self._flights if one is not request]
        for request_id in [key for key, asker in self._askers.items() if asker.request is request]:
            self._forget(request_id)
        self._replied(broker_id, request.reply_to, None)

    def _on_settle(self) -> None:
        self._deliver_all(self._is_between_brokers)

    def _deliver_all(self, wanted: Callable[[Flight], bool]) -> None:
        """Deliver such messages, and what they lead to, until there are none."""
        for _ in range(10_000):
            arriving = next(filter(wanted, self._flights), None)
            if arriving is None:
                return
            self._flights.remove(arriving)
            self._deliver(arriving)
        raise AssertionError("it never settles")

    def _on_open(self, one: str, other: str) -> None:
        self._open.add(frozenset((int(one), int(other))))

    def _on_hold(self, one: str, other: str) -> None:
        self._open.discard(frozenset((int(one), int(other))))

    def _on_decide(self, name: str, *arguments: str) -> None:
        broker_id = int(name)
        flight = self._take(broker_id, CONTROLLER, "AlterPartition")
        request = flight.message
        assert isinstance(request, m.AlterPartitionRequest), request
        given = fields(arguments)
        error = next((Error[one] for one in arguments if "=" not in one and one not in ("late", "told")), Error.NONE)
        top = Error[given.get("top-error", "NONE")]
        changes: list[Message] = []
        if not (error or top or "told" in arguments):
            changes = [
                records.PartitionChangeRecord(
                    topic_id=topic.topic_id,
                    partition_id=one.partition_index,
                    isr=tuple(each.broker_id for each in one.new_isr_with_epochs),
                )
                for topic in request.topics
                for one in topic.partitions
            ]
        answer = m.AlterPartitionResponse(
            error_code=top, topics=[] if top else [_altered(topic, error) for topic in request.topics]
        )
        if changes and "late" in arguments:
            self._commit(*changes)
        self._answered(flight)
        self._replied(broker_id, flight.reply_to, answer)
        if changes and "late" not in arguments:
            self._commit(*changes)

    def _on_answer(self, source: str, target: str, *arguments: str) -> None:
        broker_id, peer = int(source), _node(target)
        parts, given = _split(arguments)
        kinds = [one for one in given if one[0].isupper()]
        request = self._asked(broker_id, peer, kinds[0] if kinds else "")
        self._flights = [one for one in self._flights if one is not request]
        self._answered(request)
        answer = handmade(request.message, parts, given, self._names, self._now_ms)
        self._replied(broker_id, request.reply_to, answer)

    def _asked(self, source: int, target: int, what: str) -> Flight:
        """The oldest open request between two nodes, of this kind."""
        waiting = self._outstanding.get((source, target), [])
        return next(one for one in waiting if what in ("", _kind(one.message)))

    def _take(self, source: int, target: int, what: str) -> Flight:
        for one in self._flights:
            if (one.source, one.target) == (source, target) and what in (
                "",
                _kind(one.message),
                "answer" if one.is_answer else "request",
            ):
                self._flights.remove(one)
                return one
        raise AssertionError(f"no {what or 'message'} from {source} to {target} among {self._flights}")

    def _is_between_brokers(self, flight: Flight) -> bool:
        return CONTROLLER not in (flight.source, flight.target) and self._nodes[flight.target].broker is not None

    def _deliver(self, flight: Flight) -> None:
        if flight.is_answer:
            self._replied(flight.target, flight.reply_to, flight.message)
            return
        api_key = _api_key(flight.message)
        asker = Asker(api_key, _LATEST[api_key], request=flight)
        self._arrive(flight.target, flight.message, asker)

    def _answered(self, request: Flight) -> None:
        waiting = self._outstanding[request.source, request.target]
        waiting[:] = [one for one in waiting if one is not request]

    def _replied(self, broker_id: int, reply_to: object, message: Message | None) -> None:
        self._nodes[broker_id].running.reply(reply_to, message, self._now_ms)
        self._run(broker_id)

    # Commands: a look

    def _on_show(self, name: str, partition: str) -> None:
        [replica] = [one for part, one in self._nodes[int(name)].running.replicas() if part == partition]
        role = _role(replica)
        if replica.proposed is not None:
            role += f" proposed={_text(replica.proposed)}"
        if replica.is_offline:
            role = "is offline"
        offsets = f"start={replica.start} hw={replica.high_watermark} stable={replica.stable} end={replica.end}"
        self._lines.append(
            f"{name} {partition} {role} epoch={replica.leader_epoch} {offsets} epochs={_epochs(replica)}"
        )

    def _on_log(self, name: str, partition: str) -> None:
        text = records_text(self._nodes[int(name)].running.batches(partition), whole_text)
        self._lines.append(f"{name} {partition} holds {text}")

    def _on_segments(self, name: str, partition: str) -> None:
        bases = ",".join(map(str, self._nodes[int(name)].running.segments(partition)))
        self._lines.append(f"{name} {partition} has segments from {bases}")

    def _on_files(self, name: str, within: str = "") -> None:
        disk = self._nodes[int(name)].disk
        for path in self._nodes[int(name)].spec.directories:
            if within not in ("", *disk.list(path)):
                continue
            entries = sorted(re.sub(r"\.[0-9a-f]{32}-", ".*-", one) for one in disk.list(f"{path}/{within}".strip("/")))
            shown = [one for one in entries if within or re.search(r"-\d+(\.|$)", one)]
            self._lines.append(f"{name} has in {f'{path}/{within}'.strip('/')}: {' '.join(shown) or '-'}")

    # What the brokers do

    def _go_on(self) -> None:
        """Deliver what open connections carry."""
        self._deliver_all(lambda one: self._is_open(one.source, one.target) and self._is_between_brokers(one))

    def _is_open(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._open

    def _run(self, broker_id: int) -> None:
        """Let a broker do what is due now."""
        broker = self._nodes[broker_id].running
        for _ in range(1000):
            if broker.deadline_ms() > self._now_ms:
                return
            self._ticked(broker_id, self._now_ms)
        raise AssertionError(f"{broker_id} is never done at {self._now_ms - START_MS} ms")

    def _ticked(self, broker_id: int, now_ms: int) -> None:
        self._did(broker_id, self._nodes[broker_id].running.tick(now_ms), now_ms)

    def _did(self, broker_id: int, outputs: list[Output], now_ms: int | None = None) -> None:
        """Print what has changed, then what was sent and answered."""
        node = self._nodes[broker_id]
        now = dict(node.running.replicas())
        for name in dict.fromkeys((*node.seen, *now)):
            self._lines += [f"{broker_id} {name} {what}" for what in self._changes(node.seen.get(name), now.get(name))]
        node.seen = now
        for output in outputs:
            match output:
                case Sent():
                    self._sent(broker_id, output, self._now_ms if now_ms is None else now_ms)
                case Answered() | Closed():
                    self._finished(broker_id, output)
                case Reported(text=text):
                    self._lines.append(f"{broker_id} reports: {re.sub(r'[0-9a-f]{32}', '*', text)}")

    def _sent(self, broker_id: int, sent: Sent, now_ms: int) -> None:
        node, request = self._nodes[broker_id], sent.request
        flight = Flight(broker_id, sent.target, sent.reply_to, request, False)
        if isinstance(request, m.BrokerRegistrationRequest):
            node.running.reply(sent.reply_to, m.BrokerRegistrationResponse(broker_epoch=node.epoch), now_ms)
            return
        if isinstance(request, m.BrokerHeartbeatRequest):
            said = request_text(request, self._names)
            if said != node.told and (node.told or said != "BrokerHeartbeat offline=-"):
                self._lines.append(f"{broker_id} -> controller {said}")
            node.told = said
            answer = m.BrokerHeartbeatResponse(
                is_caught_up=True,
                is_fenced=request.want_fence,
                should_shut_down=request.want_shut_down and node.may_stop,
            )
            node.running.reply(sent.reply_to, answer, now_ms)
            if node.running.may_stop:
                self._lines.append(f"{broker_id} may stop")
            return
        self._flights.append(flight)
        self._outstanding.setdefault((broker_id, sent.target), []).append(flight)
        if not self._is_open(broker_id, sent.target):
            self._lines.append(f"{broker_id} -> {_peer(sent.target)} {request_text(request, self._names)}")

    def _finished(self, broker_id: int, output: Answered | Closed) -> None:
        if output.request_id in self._forgotten:
            return
        asker = self._askers.pop(output.request_id)  # a second answer finds nobody
        request = asker.request
        who = str(request.source) if request else asker.client
        if isinstance(output, Closed):
            self._lines.append(f"{broker_id} closes the connection of {who}: {output.why}")
            return
        if output.message is None:
            mute = f" mute={output.mute_ms}" if output.mute_ms else ""
            self._lines.append(f"{broker_id} => {who} nothing{mute}")
            return
        frame = encode_response(asker.api_key, asker.version, 1, output.message, apis=ALL_APIS)
        _, message = decode_response(asker.api_key, asker.version, frame, apis=ALL_APIS)
        if request is not None:
            self._answered(request)
            self._flights.append(Flight(broker_id, request.source, request.reply_to, message, True))
        if request is None or not self._is_open(broker_id, request.source):
            self._lines.append(f"{broker_id} => {who} {answer_text(message, self._names, is_of_broker=bool(request))}")

    def _changes(self, before: Replica | None, now: Replica | None) -> Iterator[str]:
        """The changes of a replica."""
        if now is None:
            yield "is given up"
            return
        if now.is_offline:
            if before is None or not before.is_offline:
                yield "is offline"
            return
        if before is None or before.is_offline:
            assert now.directory is not None
            place = f"in {self._names.directories[now.directory]}"
            if now.end:
                place += f" start={now.start} hw={now.high_watermark} end={now.end} epochs={_epochs(now)}"
            yield f"{place} {_role(now)} epoch={now.leader_epoch}"
            return
        is_new = (before.leader, before.leader_epoch, before.is_leader) != (now.leader, now.leader_epoch, now.is_leader)
        if is_new:
            yield f"{_role(now)} epoch={now.leader_epoch}"
        elif before.isr != now.isr:
            yield f"isr {_text(now.isr)}"
        if now.end < before.end:
            yield f"truncates to {now.end}"
        elif now.end > before.end and now.start == now.end:
            yield f"begins anew at {now.end}"
        elif now.end > before.end:
            yield f"{'appends' if now.is_leader else 'copies'} {before.end}-{now.end}@{now.epochs[-1].epoch}"
        elif now.epochs != before.epochs:
            yield f"epochs {_epochs(now)}"
        if now.start not in (before.start, now.end if now.end > before.end else -1):
            yield f"log start {now.start}"
        if now.high_watermark != before.high_watermark:
            yield f"high watermark {now.high_watermark}"
        if now.stable != before.stable and (now.stable != now.high_watermark or before.stable != before.high_watermark):
            yield f"stable offset {now.stable}"
        if now.copy_directory not in (before.copy_directory, None):
            yield f"is copied to {self._names.directories[now.copy_directory]}"
        if now.directory != before.directory and now.directory is not None:
            yield f"is now in {self._names.directories[now.directory]}"


def _role(replica: Replica) -> str:
    return f"leads isr={_text(replica.isr)}" if replica.is_leader else f"follows {_leader(replica.leader)}"


def _altered(topic: ap.AlterPartitionRequestTopicData, error: Error) -> ap.AlterPartitionResponseTopicData:
    return ap.AlterPartitionResponseTopicData(
        topic_id=topic.topic_id,
        partitions=[
            ap.AlterPartitionResponsePartitionData(partition_index=one.partition_index, error_code=error)
            if error
            else ap.AlterPartitionResponsePartitionData(
                partition_index=one.partition_index,
                leader_epoch=one.leader_epoch,
                isr=[each.broker_id for each in one.new_isr_with_epochs],
                partition_epoch=one.partition_epoch + 1,
            )
            for one in topic.partitions
        ],
    )


def _configs(topic: str, given: dict[str, str]) -> list[Message]:
    return [
        records.ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value or None)
        for name, value in given.items()
    ]


def _torn(data: bytes) -> bytes:
    return data[:-1]


def _damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _twice(data: bytes) -> bytes:
    return data + data


_SPOILS: dict[str, Callable[[bytes], bytes]] = {"torn": _torn, "damaged": _damaged, "twice": _twice}


def _split(arguments: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """The partitions and the settings of a command; a word without a number at its end is a setting."""
    parts = [one for one in arguments if re.fullmatch(r"[^=]+-\d+", one)]
    return parts, fields(tuple(one for one in arguments if one not in parts))


def _parted(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def _api_key(message: Message) -> int:
    api_key = schema_of(type(message)).api_key
    assert api_key is not None, message
    return api_key


def _kind(message: Message) -> str:
    return re.sub("Request$|Response$", "", type(message).__name__)


def _node(name: str) -> int:
    return CONTROLLER if name == "controller" else int(name)


def _peer(broker_id: int) -> str:
    return "controller" if broker_id == CONTROLLER else str(broker_id)


def _leader(broker_id: int) -> str:
    return "nobody" if broker_id < 0 else str(broker_id)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one)


def _text(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "-"


def _epochs(replica: Replica) -> str:
    return ",".join(f"{one.epoch}from{one.offset}" for one in replica.epochs) or "-"
