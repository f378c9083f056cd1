"""The language of `tests/transcripts/share_partitions`: a broker that leads the one partition of the topic `t`, members
of the group `g`, and the share coordinator as an object that notes what is written.

    > share-partitions [NAME=VALUE …]    a new broker at 0 ms, with settings of share-partition leaders and `version=`
                                         of share.version; the group begins where its log does
    > set KEY=VALUE …                    the configuration of the group
    > produce N …                        record batches with so many records
    > open N / commit / abort            a record batch of a transaction, and its end
    > trim OFFSET                        the log begins there
    > state FIRST-LAST:STATE*COUNT …     what the share coordinator knows, from offset 0 on; the next fetch loads it
    > fetch m [NAME=VALUE …] [ACKS …]    ShareFetch of the member `m`, with the next epoch of its session, or `epoch=`;
                                         `most=` and `size=` are numbers of records, `mode=`, `wait=`, `min=` and
                                         `renew=` as in the request
    > ack m [epoch=N renew=1] ACKS …     ShareAcknowledge
    > close m                            the connection of the member ends
    > lead                               the partition has a new leader, which is this broker again
    > level N                            share.version
    > writes hold / go / CODE            the share coordinator does not answer, answers, or refuses
    > at MS                              time passes

ACKS are offsets with types: `0-4=1` or, for each offset one, `0-2=1,2,3`. Effects: `MS m => …` is an answer with the
acquired offsets and how often each was delivered, `MS write …` what is written, and `MS letter …` what the dead-letter
queue `dlq.t` has got; `MS m waits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft.coordinators.shares.in_flight import State
from kraft.coordinators.shares.persister import PersistedWrite, ShareKey
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.log.transaction_markers import TransactionMarker
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.record import Record
from metadata_log.records.record import records as stored_records
from support.broker.request_brokers import NewTopic, batch, topic_id
from support.broker.share_leaders import Kept, Ranges, ShareBrokers, share_acknowledge, share_fetch
from support.transcripts.driver import parted
from transport.protocol.errors import Error
from transport.protocol.messages.share_fetch import ShareFetchResponse

BROKER: Final = 101
T: Final = NewTopic("t", topic_id(1), ((BROKER,),))
QUEUE: Final = NewTopic("dlq.t", topic_id(2), ((102,),), {"errors.deadletterqueue.group.enable": "true"})
KEY: Final = ShareKey("g", T.id, 0)
_PRODUCER: Final = 7
_FETCH: Final = {
    "most": "most",
    "size": "batch_size",
    "mode": "share_acquire_mode",
    "wait": "wait_ms",
    "min": "min_bytes",
}


class SharePartitionPlayer:
    """Carries out the commands of one file."""

    settings: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._begin({})

    def _begin(self, given: dict[str, str]) -> None:
        level = int(given.pop("version", "1"))
        self._world = world = ShareBrokers([T, QUEUE], None, **_numbers(given))
        self._level(level)
        world.configure("g", share_auto_offset_reset="earliest")
        world.begin("g", T)
        self._epochs: dict[str, int] = {}
        self._waiting: dict[int, tuple[str, int]] = {}
        """The requests without an answer, with their members and the epochs from before."""
        self._told = self._letters = 0
        self._start_ms = world.now_ms

    def act(self, name: str, words: tuple[str, ...]) -> list[str]:
        """Carry out a command; returns what was written and answered."""
        if name == "share-partitions":
            self._begin(parted(words)[1])
            return []
        if name in ("fetch", "ack"):
            return self._ask(name, words[0], words[1:])
        self._change(name, words)
        return self._effects()

    def _change(self, name: str, words: tuple[str, ...]) -> None:
        world = self._world
        match name, words:
            case "set", _:
                given = parted(words)[1]
                world.configure("g", **{key.replace(".", "_"): value for key, value in given.items()})
            case "produce", _:
                for one in words:
                    self._append(batch(*[b"x"] * int(one)))
            case "open", [count]:
                found = [Record(at, 0, 0, None, b"x") for at in range(int(count))]
                self._append(
                    write_batch(
                        found, epoch=-1, transactional=True, producer_id=_PRODUCER, producer_epoch=0, base_sequence=0
                    )
                )
            case (("commit" | "abort"), []):
                marker = TransactionMarker(
                    producer_id=_PRODUCER, producer_epoch=0, is_commit=name == "commit", coordinator_epoch=0
                )
                manager = world.brokers.managers[BROKER]
                done = manager.leaders.append_marker(manager.partitions[T.id, 0], marker, world.now_ms)
                assert isinstance(done, Appended), done
            case "trim", [offset]:
                manager = world.brokers.managers[BROKER]
                manager.leaders.delete_records(manager.partitions[T.id, 0], int(offset))
            case "state", _:
                kept = world.persister.states[KEY] = Kept(2, 0, 0)
                for one in words:
                    offsets, _, rest = one.partition(":")
                    state, _, count = rest.partition("*")
                    first, last = map(int, offsets.split("-"))
                    kept.offsets |= dict.fromkeys(range(first, last + 1), (int(count), State[state.upper()]))
            case "close", [member]:
                self._epochs.pop(member, None)
                world.close(BROKER, f"{member}:1")
            case "lead", []:
                world.brokers.change(records.PartitionChangeRecord(partition_id=0, topic_id=T.id, leader=BROKER))
            case "level", [level]:
                self._level(int(level))
            case "writes", [what]:
                world.persister.holds = what == "hold"
                world.persister.failing = Error.NONE if what in ("hold", "go") else Error[what]
            case "at", [ms]:
                world.wait(self._start_ms + int(ms))
            case _:
                raise AssertionError(f"no such command: {name} {words}")
        world.settle()

    def _level(self, level: int) -> None:
        self._world.brokers.change(records.FeatureLevelRecord(name="share.version", feature_level=level))

    def _append(self, data: bytes) -> None:
        manager = self._world.brokers.managers[BROKER]
        done = manager.leaders.append(manager.partitions[T.id, 0], data, self._world.now_ms)
        assert isinstance(done, Appended), done

    # --------------------------------------------------------------------------------------------------------- requests

    def _ask(self, name: str, member: str, words: tuple[str, ...]) -> list[str]:
        given, acks = _parted(words)
        before = self._epochs.get(member, 0)
        epoch = given.pop("epoch", before)
        fields: dict[str, Any] = {"member": member}
        if given.pop("renew", 0):
            fields |= {"is_renew_ack": True}
            if name == "fetch":
                fields |= {"most": 0, "min_bytes": 0, "max_bytes": 0, "wait_ms": 0}
        fields |= {_FETCH[key]: value for key, value in given.items()}
        message: Any = (
            share_fetch(T, epoch, acks=acks, **fields)
            if name == "fetch"
            else share_acknowledge(T, epoch, *acks, **fields)
        )
        request_id = self._world.send(BROKER, message, connection=f"{member}:1")
        self._epochs[member] = 1 if epoch == 0 else 0 if epoch < 0 else epoch + 1
        self._waiting[request_id] = member, before
        lines = self._effects()
        return lines if request_id not in self._waiting else [*lines, f"{self._ms} {member} waits"]

    def _queued(self) -> list[Record]:
        """The records of the dead-letter queue."""
        manager = self._world.brokers.managers[102]
        part = manager.partitions[QUEUE.id, 0]
        if part.log.end_offset == 0:
            return []
        data = manager.hosting.read(part, 0, 1 << 24)
        assert isinstance(data, bytes)
        return [one for each in scan(data) for one in stored_records(each)]

    @property
    def _ms(self) -> int:
        return self._world.now_ms - self._start_ms

    def _effects(self) -> list[str]:
        written = self._world.persister.writes[self._told :]
        self._told += len(written)
        lines = [f"{self._ms} write {_write(one)}" for _, one in written]
        queued = self._queued()
        lines += [f"{self._ms} letter {_letter(one)}" for one in queued[self._letters :]]
        self._letters = len(queued)
        for request_id, message in sorted(self._world.answered.items()):
            member, before = self._waiting.pop(request_id)
            if getattr(message, "error_code", 0):
                self._epochs[member] = before
            lines.append(f"{self._ms} {member} => {_text(message)}")
        self._world.answered.clear()
        return lines


def _numbers(given: Mapping[str, str]) -> dict[str, Any]:
    return {name: int(value) for name, value in given.items()}


def _letter(record: Record) -> str:
    told = {each.key.rpartition(".")[2]: (each.value or b"").decode() for each in record.headers}
    return f"{told['offset']}*{told['count']} {told['message']}"


def _parted(words: tuple[str, ...]) -> tuple[dict[str, int], Ranges]:
    """The settings of a request, and its acknowledgements."""
    given: dict[str, int] = {}
    acks = []
    for word in words:
        name, _, value = word.partition("=")
        if name[0].isdigit():
            first, _, last = name.partition("-")
            acks.append((int(first), int(last or first), [int(one) for one in value.split(",") if one]))
        else:
            given[name] = int(value)
    return given, tuple(acks)


def _write(write: PersistedWrite) -> str:
    batches = [
        f"{one.first_offset}-{one.last_offset}:{State(one.delivery_state).name.lower()}*{one.delivery_count}"
        for one in write.batches
    ]
    return " ".join([f"start={write.start_offset} done={write.delivery_complete_count}", *batches])


def _text(message: Any) -> str:
    is_fetch = isinstance(message, ShareFetchResponse)
    name = "fetch" if is_fetch else "ack"
    if message.error_code:
        return f"{name} {Error.of(message.error_code).name}"
    told = []
    for topic in message.responses:
        for part in topic.partitions:
            if is_fetch:
                told += [f"{one.first_offset}-{one.last_offset}*{one.delivery_count}" for one in part.acquired_records]
                told += [f"acks:{Error.of(part.acknowledge_error_code).name}"] if part.acknowledge_error_code else []
            told += [Error.of(part.error_code).name] if part.error_code or not is_fetch else []
    return " ".join([name, *(told or ["-"])])
