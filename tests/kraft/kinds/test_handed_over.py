"""The state by a rare way is the state by the plain way, field by field.

A log that was truncated, recovered without its snapshots, moved to another directory or cleaned, a partition that was
deleted and made again, a client that gave up, a session that a leader has lost: each goes on as if nothing had
happened. Most tests of such an operation look at the records; what comes along beside them is compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from msgspec import Struct, structs

from kraft.broker.request.sessions import FetchSessions, FullFetch, IncrementalFetch, SessionRefused
from kraft.client import Delivered, ProducerSettings
from kraft.client.state.batches import NewRecord
from kraft.client.state.producing import ProducerState, Undelivered
from kraft.partitions.log.cleaning.choice import CleanerSettings, cleanable
from kraft.partitions.log.cleaning.cleaner import cleaning
from kraft.partitions.log.outcomes import Appended
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas import ReplicaManager
from kraft.partitions.replicas.checkpoint_writer import CheckpointWriter
from kraft.partitions.replicas.fetch_session import FetchSession
from kraft.partitions.replicas.key import PartitionKey
from metadata_log.disk import replace_file
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.records import records as records_of_image
from metadata_log.log.producer_snapshot import StoredProducer
from metadata_log.memory_disk import MemoryDisk
from metadata_log.records import metadata as records
from metadata_log.records.batch import scan
from metadata_log.records.record import records as records_of
from metadata_log.serde import Message
from metadata_log.serde.codec import finished
from metadata_log.types import OffsetAndEpoch, Uuid
from support.broker.cleaned_logs import SEEDS as CLEANED_SEEDS
from support.broker.data_brokers import (
    KEY,
    TOPIC,
    append_to,
    batch,
    cluster,
    directory_id,
    new_topic,
    part_of,
    publish,
    replayed,
    started,
)
from support.broker.dirty_logs import OPTIONS as DIRTY
from support.broker.dirty_logs import Producers
from support.broker.moving_brokers import SECOND, image_of, moved
from support.broker.moving_brokers import started as with_two_directories
from support.kraft.client_wires import Wire, metadata
from support.kraft.plain_logs import (
    NOW_MS,
    OPTIONS,
    Entry,
    check,
    cut,
    new_log,
    seen_by,
    stored,
    write,
)
from support.power import failing_after
from transport.protocol.errors import Error
from transport.protocol.inbound import Cause
from transport.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from transport.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from transport.protocol.messages.metadata import MetadataRequest
from transport.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

# ---------------------------------------------------------------------------------------------------------------- logs


class Facts(Struct):
    """The facts of a log for its users, without its files."""

    start: int
    end: int
    watermark: int
    stable: int
    epochs: list[tuple[int, int]]
    producers: list[StoredProducer]
    open_now: list[tuple[int, int]]
    readable: bytes
    visible: list[int]


def facts(log: PartitionLog) -> Facts:
    """The facts at this moment."""
    states = log.producers.states
    readable, offset = b"", log.start_offset
    while offset < log.end_offset:
        found = log.read(offset, 1 << 20)
        assert isinstance(found, bytes)
        if not found:
            break
        readable += found
        offset = max(one.next_offset for one in scan(found))
    told = [(one.producer_id, one.first_offset) for one in log.aborted(log.start_offset, log.end_offset)]
    return Facts(
        log.start_offset,
        log.end_offset,
        log.high_watermark,
        log.last_stable_offset,
        [(one.epoch, one.offset) for one in log.epochs.entries],
        sorted(states.stored(), key=lambda one: one.producer_id),
        list(states.open_transactions.items()),
        readable,
        [at for at in seen_by(readable, told) if at >= log.start_offset],
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_is_cut_and_goes_on_is_a_log_of_what_is_left(seed: int) -> None:
    """Cut again and again, at offsets and watermarks of all kinds, with other records after each cut. What was written
    after a cut is not on disk, whatever was flushed before.
    """
    disk, rng, history = MemoryDisk(), Random(seed), list[Entry]()
    log = new_log(disk)
    for _ in range(5):
        write(log, rng, history, rng.randrange(4, 16))
        if rng.random() < 0.5:
            log.flush()
        log.raise_high_watermark(rng.randrange(log.high_watermark, log.end_offset + 1))
        # A cut at the beginning of a batch, so that the next one begins where the log ends.
        offset = rng.choice([entry.first for entry in history])
        flushed = min(log.recovery_point, offset)
        log.truncate(offset, now_ms=NOW_MS)
        history[:] = cut(history, offset)
        check(log, history, (seed, offset))
        assert log.recovery_point == flushed, (seed, offset)
        write(log, rng, history, rng.randrange(3), epoch=(history[-1].epoch if history else 0) + 1)
        check(log, history, (seed, offset))
        # Only a segment that is complete has been flushed since.
        assert log.recovery_point in (flushed, log.segments[-1].base_offset), (seed, offset)
    by_the_plain_way = new_log()
    for entry in history:
        by_the_plain_way.append_as_follower(entry.data, leader_epoch=entry.epoch, now_ms=NOW_MS)
    by_the_plain_way.raise_high_watermark(log.high_watermark)
    assert facts(log) == facts(by_the_plain_way)


def without(disk: MemoryDisk, *suffixes: str) -> None:
    """Remove the files of some kinds."""
    for path in disk.files():
        if path.endswith(suffixes):
            disk.remove(path)


def damaged(disk: MemoryDisk) -> None:
    """Spoil the newest producer snapshot."""
    newest = max((path for path in disk.files() if path.endswith(".snapshot")), default=None)
    if newest is not None:
        disk.overwrite(newest, 4, b"\xff\xff")


WAYS: dict[str, Callable[[MemoryDisk], None]] = {
    "as it is": lambda disk: None,
    "without snapshots": lambda disk: without(disk, ".snapshot"),
    "without indexes": lambda disk: without(disk, ".index", ".timeindex", ".txnindex"),
    "without both": lambda disk: without(disk, ".snapshot", ".index", ".timeindex", ".txnindex"),
    "with a damaged snapshot": damaged,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_is_loaded_knows_what_it_knew(seed: int, way: str) -> None:
    """After a clean stop and after a crash, with all files and without some, from each recovery point."""
    rng, history, disk = Random(seed), list[Entry](), MemoryDisk()
    log = new_log(disk)
    write(log, rng, history, 30)
    log.raise_high_watermark(log.end_offset)
    before = facts(log)
    log.flush()
    if seed % 2:
        log.close()
    WAYS[way](disk)
    for recovery_point in sorted({0, 1, before.end // 2, before.end - 1, before.end}):
        again = disk.fork()
        # Kafka takes a log that was stopped cleanly and has no snapshot for one without producers.
        is_clean = seed % 2 == 1 and way in ("as it is", "without indexes") and recovery_point == before.end
        loaded = PartitionLog.open(
            again,
            "d/p-0",
            OPTIONS,
            now_ms=NOW_MS,
            recovery_point=recovery_point,
            high_watermark=before.end,
            is_clean=is_clean,
        )
        assert facts(loaded) == before, (seed, way, recovery_point)
        check(loaded, history, (seed, way, recovery_point))


@pytest.mark.parametrize("seed", CLEANED_SEEDS[:8])
def test_a_log_that_is_cleaned_keeps_its_producers_and_transactions(seed: int) -> None:
    """Compaction removes records; the producers, the epochs and what readers of committed records skip stay. They also
    stay if a start has to find them in the batches that are left.
    """
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "d/p-0", DIRTY, now_ms=NOW_MS)
    Producers(log, Random(seed)).write(60)
    log.raise_high_watermark(log.end_offset)
    before = facts(log)
    now_ms = NOW_MS + 1
    done = finished(cleaning(log, disk, cleanable(log, now_ms=now_ms), CleanerSettings(), now_ms=now_ms))
    after = facts(log)
    ignored = {"readable": b"", "visible": []}
    assert structs.replace(after, **ignored) == structs.replace(before, **ignored)
    log.flush()
    for way, spoil in WAYS.items():
        again = disk.fork()
        spoil(again)
        loaded = PartitionLog.open(again, "d/p-0", DIRTY, now_ms=NOW_MS, high_watermark=before.end)
        found = facts(loaded)
        assert (found.producers, found.open_now, found.stable) == (before.producers, before.open_now, before.stable), (
            way
        )
        assert found.readable == after.readable
    assert done is None or done.bytes_after <= done.bytes_before


# ----------------------------------------------------------------------------------------------- moves and checkpoints


def after_a_restart(disk: MemoryDisk, image: MetadataImage, manager: ReplicaManager | None) -> Facts:
    """The facts that a start finds, after a clean stop of this manager, or after a crash."""
    if manager is not None:
        manager.close(broker_epoch=1001)
        return facts(part_of(with_two_directories(disk, image, is_clean=True)).log)
    return facts(part_of(with_two_directories(disk.fork(), image)).log)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kept", ["all", "some", "none"])
def test_a_replica_that_moves_takes_its_whole_state_along(seed: int, kept: str) -> None:
    """The producers, too, whose batches are gone; and after a stop a start finds what it finds without a move."""
    rng, history, disk = Random(seed), list[Entry](), MemoryDisk()
    image = image_of({"internal.segment.bytes": "500"})
    manager = with_two_directories(disk, image)
    part = part_of(manager)
    write(part.log, rng, history, 30, epoch=0)
    part.log.raise_high_watermark(part.log.end_offset)
    if kept != "all":
        part.log.delete_segments(len(part.log.segments) - (kept == "some"), now_ms=NOW_MS)
    part.log.cleaned_offset = part.log.start_offset
    before = facts(part.log)
    assert manager.moves.alter(KEY, "e", NOW_MS) is Error.NONE
    image = moved(manager, image)
    assert (part.directory, part.log.directory) == (SECOND, "e/t-0")
    assert facts(part.log) == before
    assert part.log.cleaned_offset == before.start
    crashed = after_a_restart(disk, image, None)
    # As in Kafka, producers without batches are in no snapshot below a segment that is recovered.
    unsaved = {} if kept == "all" else {"producers": [], "open_now": [], "stable": 0}
    assert structs.replace(crashed, **unsaved) == structs.replace(before, **unsaved)
    stopped = after_a_restart(disk, image, manager)
    if kept != "none":
        assert stopped == before
    else:
        # As in Kafka, a snapshot at the log start is removed.
        assert structs.replace(stopped, **unsaved) == structs.replace(before, **unsaved)


OTHER_TOPIC = Uuid(bytes([9, 9] * 8))
SETTINGS = {"internal.segment.bytes": "500"}


def made_again(image: MetadataImage) -> MetadataImage:
    """The topic is gone, and another one has its name."""
    topic = records.TopicRecord(name="t", topic_id=OTHER_TOPIC)
    partition = records.PartitionRecord(
        partition_id=0,
        topic_id=OTHER_TOPIC,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory_id(1),),
    )
    configs = [
        records.ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
        for name, value in SETTINGS.items()
    ]
    return replayed(image, records.RemoveTopicRecord(topic_id=TOPIC), topic, partition, *configs)


CHECKPOINTS_MS = 60_000


def a_long_life(disk: MemoryDisk, image: MetadataImage) -> ReplicaManager:
    """A partition with all checkpoints: a log start, a watermark, a recovery point far above the next life."""
    manager = started(1, image, disk)
    log = part_of(manager).log
    write(log, Random(1), [], 40)
    log.raise_high_watermark(log.end_offset)
    assert manager.leaders.delete_records(manager.partitions[KEY], log.end_offset - 3) == log.end_offset - 3
    log.flush()
    manager.hosting.store.write_offsets()
    manager.hosting.store.write_watermarks()
    return manager


class Lagging(CheckpointWriter):
    """A thread that has written nothing before somebody waits for it."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._waiting: dict[tuple[str, str], bytes] = {}

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def put(self, directory: Uuid, path: str, name: str, content: bytes) -> None:
        self._waiting[path, name] = content

    def settle(self) -> None:
        for (path, name), content in self._waiting.items():
            replace_file(self._disk, path, name, content)
        self._waiting.clear()

    def take_failures(self) -> Sequence[tuple[Uuid, OSError]]:
        return ()


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("is_power", [False, True])
def test_a_partition_that_is_made_again_begins_with_nothing_of_its_former_life(
    is_power: bool, is_damaged: bool
) -> None:
    """A partition is deleted, which may be offline, and another one of its name is made. The broker ends before each
    disk operation of that, or not at all; then the new partition gets records, and the broker ends again. The records
    are there, and nothing of the former life is.
    """
    check_made_again(is_power=is_power, is_damaged=is_damaged, lags=False)


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("is_power", [False, True])
def test_a_partition_is_made_again_while_a_thread_still_writes_checkpoints(is_power: bool, is_damaged: bool) -> None:
    """The same with a thread that has written nothing yet: neither what was due before, nor what the deletion puts."""
    check_made_again(is_power=is_power, is_damaged=is_damaged, lags=True)


def check_made_again(*, is_power: bool, is_damaged: bool, lags: bool) -> None:
    """Delete a partition and make it again, with an end before each disk operation."""
    key: PartitionKey = (OTHER_TOPIC, 0)
    operations, was_cut = 0, True
    while was_cut:
        disk = MemoryDisk()
        first = replayed(cluster(1), *new_topic((1,), configs=SETTINGS))
        manager = a_long_life(disk, first)
        if is_damaged:
            disk.overwrite("d/t-0/leader-epoch-checkpoint", 0, b"?")
            ended(disk, is_power=False)
            manager = started(1, first, disk)
            assert part_of(manager).is_offline
        if lags:
            manager.hosting.store.writer = Lagging(disk)
            # The former checkpoints wait in the thread as well.
            manager.shrink(NOW_MS + CHECKPOINTS_MS)
        second = made_again(first)
        with failing_after(disk, operations) as power:
            if lags:
                publish(manager, replayed(first, records.RemoveTopicRecord(topic_id=TOPIC)))
                manager.shrink(NOW_MS)
            publish(manager, second)
        was_cut = power.failed
        if was_cut or is_damaged:
            # What is offline keeps its place until the next start.
            ended(disk, is_power=is_power)
            manager = started(1, second, disk)
        for number in range(3):
            done = append_to(manager, key, batch(b"%d" % number), acks=-1, now_ms=NOW_MS)
            assert isinstance(done, Appended), operations
            assert done.first_offset == number, operations
        before = facts(log_of(manager, key))
        log_of(manager, key).flush()
        ended(disk, is_power=is_power)
        again = log_of(started(1, second, disk), key)
        again.raise_high_watermark(again.end_offset)
        assert facts(again) == before, operations
        operations += 1
    assert operations > (0 if is_damaged else 10)


def log_of(manager: ReplicaManager, key: PartitionKey) -> PartitionLog:
    """The log of a replica."""
    part = manager.partitions.get(key)
    assert part is not None
    return part.log


def ended(disk: MemoryDisk, *, is_power: bool) -> None:
    """The broker ends: with the power, so that only what was flushed is left, or alone."""
    if is_power:
        disk.crash()
    else:
        disk.kill()


# ------------------------------------------------------------------------------------------------------------- clients

OUTCOMES = ("taken", "taken", "lost before", "lost after", "again", "timed out", "refused", "broken")


class Leader:
    """A leader with a real log, behind a network that fails as a test draws."""

    def __init__(self, rng: Random, *, fails: float) -> None:
        self.log = new_log()
        self.ids = 100
        self._rng = rng
        self.fails = fails

    def answer(self, wire: Wire) -> None:
        """Answer the next request of a producer."""
        match wire.due().message:
            case MetadataRequest():
                wire.answer(MetadataRequest, metadata((1,)))
            case InitProducerIdRequest():
                self.ids += 1
                wire.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=self.ids, producer_epoch=0))
            case ProduceRequest() as request:
                wire.answer(ProduceRequest, self._produce(request, wire))

    def _produce(self, request: ProduceRequest, wire: Wire) -> ProduceResponse | Cause:
        outcome = self._rng.choice(OUTCOMES) if self._rng.random() < self.fails else "taken"
        ((part,),) = (topic.partition_data for topic in request.topic_data)
        if outcome == "lost before":
            wire.now_ms += self._rng.choice((1, 2_000, 6_000))
            return Cause.RESET
        refusals = {
            "again": Error.NOT_LEADER_OR_FOLLOWER,
            "refused": Error.TOPIC_AUTHORIZATION_FAILED,
            "broken": Error.INVALID_RECORD,
        }
        if outcome in refusals:
            return answer_with(refusals[outcome], -1)
        done = self.log.append_as_leader(bytes(part.records or b""), epoch=0, now_ms=NOW_MS)
        # One leader, one batch on its way: no batch may begin where none ends.
        assert isinstance(done, Appended), done
        if outcome == "lost after":
            wire.now_ms += self._rng.choice((1, 2_000, 6_000))
            return Cause.RESET
        if outcome == "timed out":
            return answer_with(Error.REQUEST_TIMED_OUT, -1)
        return answer_with(Error.NONE, done.first_offset)


def answer_with(error: Error, offset: int) -> ProduceResponse:
    part = PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
    return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[part])])


@pytest.mark.parametrize("first_seed", range(0, 400, 100))
def test_a_producer_that_gives_up_batches_loses_and_repeats_no_other(first_seed: int) -> None:
    """What is acknowledged is in the log, at its offset, once; what was given up is there at most once; and when all
    faults are over, each new record arrives.
    """
    for seed in range(first_seed, first_seed + 100):
        rng = Random(seed)
        leader = Leader(rng, fails=0.7)
        state = ProducerState("t", [("h", 1)], ProducerSettings(timeout_ms=5_000), rng=Random(1))
        wire = Wire(state)
        sent: dict[int, bytes] = {}
        results: dict[int, Delivered | Undelivered] = {}
        for round_number in range(8):
            if round_number == 6:
                leader.fails = 0.0
            for _ in range(rng.randrange(1, 4)):
                value = b"%d" % len(sent)
                sent[state.add(NewRecord(value=value, partition=0), wire.now_ms)] = value
            while not state.is_idle:
                leader.answer(wire)
                results |= {one.number: one for one in state.take_results()}
            if round_number >= 6:
                assert all(isinstance(results[number], Delivered) for number in list(sent)[-1:]), seed
        found = {record.offset: record.value for data in stored(leader.log) for record in records_of(next(scan(data)))}
        values = list(found.values())
        assert len(values) == len(set(values)), (seed, "a record is there twice")
        for number, value in sent.items():
            result = results[number]
            if isinstance(result, Delivered):
                assert result.offset < 0 or found.get(result.offset) == value, (seed, number, result)
                assert value in values, (seed, number, result)


# ------------------------------------------------------------------------------------------------------- fetch sessions


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_fetches_for_a_follower_what_the_follower_wants(seed: int) -> None:
    """Lost answers, lost requests, a leader that starts again or gives the session away: at each fetch that succeeds,
    the leader has the partitions and the offsets of the follower, no more and no fewer.
    """
    rng = Random(seed)
    keys = [(Uuid(bytes([number] * 16)), 0) for number in range(1, 6)]
    follower, ids = FetchSession(), Random(seed)
    sessions = FetchSessions(8, 10**9, ids.randrange)
    wanted: dict[PartitionKey, FetchPartition] = {}
    changed, unwanted = set[PartitionKey](), set[PartitionKey]()
    successes = 0
    for now_ms in range(200):
        for key in rng.sample(keys, rng.randrange(3)):
            if key in wanted and rng.random() < 0.3:
                del wanted[key]
                unwanted.add(key)
                changed.discard(key)
            else:
                wanted[key] = FetchPartition(partition=0, fetch_offset=rng.randrange(9), current_leader_epoch=1)
                changed.add(key)
                unwanted.discard(key)
        event = rng.choice(("none", "none", "none", "request lost", "answer lost", "restart", "another leader"))
        if event == "restart":
            sessions = FetchSessions(8, 10**9, ids.randrange)
        if event == "another leader":
            follower = FetchSession()
        asks = dict(wanted) if follower.is_full else {key: wanted[key] for key in changed}
        topics, forgotten = follower.topics(asks, unwanted)
        request = FetchRequest(
            session_id=follower.id, session_epoch=follower.epoch, topics=topics, forgotten_topics_data=forgotten
        )
        changed.clear()
        unwanted.clear()
        if event == "request lost":
            follower.on_failure()
            continue
        context = sessions.open(request, 17, is_follower=True, now_ms=now_ms)
        assert isinstance(context, (FullFetch, IncrementalFetch, SessionRefused)), "so few partitions take no steps"
        if isinstance(context, SessionRefused):
            assert not follower.on_response(FetchResponse(error_code=context.error))
            continue
        at_leader = {key: (one.fetch_offset, one.current_leader_epoch) for key, one in context.partitions.items()}
        assert at_leader == {key: (one.fetch_offset, 1) for key, one in wanted.items()}, (seed, now_ms, event)
        data = {key: PartitionData(partition_index=0, high_watermark=now_ms, log_start_offset=0) for key in at_leader}
        answer = sessions.close_small(context, data, now_ms)
        if event == "answer lost":
            follower.on_failure()
            continue
        shown = [
            FetchableTopicResponse(topic_id=key[0], partitions=[one])
            for key, one in answer.partitions.items()
            if isinstance(key[0], Uuid)
        ]
        assert follower.on_response(FetchResponse(session_id=answer.session_id, responses=shown))
        successes += 1
    assert successes > 80


# ------------------------------------------------------------------------------------- tokens and credentials in images


@pytest.mark.parametrize("seed", range(10))
def test_tokens_and_credentials_of_a_snapshot_are_those_of_the_log(seed: int) -> None:
    """Made, renewed, removed and made again, in any order: the records of a snapshot make the same image."""
    rng = Random(seed)
    log: list[Message] = [records.FeatureLevelRecord(name="metadata.version", feature_level=30)]
    held = set[tuple[str, int]]()
    tokens = set[str]()
    for number in range(40):
        user, mechanism = rng.choice(("u", "v", "w")), rng.choice((1, 2))
        token = f"t{rng.randrange(4)}"
        if rng.random() < 0.3 and (user, mechanism) in held:
            held.discard((user, mechanism))
            log.append(records.RemoveUserScramCredentialRecord(name=user, mechanism=mechanism))
        elif rng.random() < 0.5:
            held.add((user, mechanism))
            log.append(
                records.UserScramCredentialRecord(
                    name=user,
                    mechanism=mechanism,
                    salt=bytes([number]),
                    stored_key=bytes([number, 1]),
                    server_key=bytes([number, 2]),
                    iterations=4096 + number,
                )
            )
        elif rng.random() < 0.3 and token in tokens:
            tokens.discard(token)
            log.append(records.RemoveDelegationTokenRecord(token_id=token))
        else:
            tokens.add(token)
            log.append(
                records.DelegationTokenRecord(
                    owner="User:o",
                    requester=rng.choice(("User:o", "User:r")),
                    renewers=tuple(f"User:{one}" for one in rng.sample("abc", rng.randrange(4))),
                    issue_timestamp=number,
                    max_timestamp=1000 + number,
                    expiration_timestamp=rng.choice((0, 500, 1000 + number)),
                    token_id=token,
                )
            )
    by_log = image_by(log)
    by_snapshot = image_by([record for record, _ in records_of_image(by_log)])
    assert set(by_log.tokens.by_id) == tokens
    assert {(user, mechanism) for user, all_of in by_log.scram.by_user.items() for mechanism in all_of} == held
    assert (by_snapshot.tokens, by_snapshot.scram) == (by_log.tokens, by_log.scram)


def image_by(added: list[Message]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for at, record in enumerate(added):
        delta.replay(record, at)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=len(added)))
