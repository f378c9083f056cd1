"""A case for each check of groups and of transactions: what the logs have and clients are told, to the violation."""

from __future__ import annotations

from msgspec.structs import replace

from check_sites import Cases
from kraft.invariants.groups import GroupLedger, encoded_assignment, mark
from kraft.invariants.stored_batches import StoredBatch, stored_batches
from kraft.invariants.transactions import Attempt, TransactionLedger, content
from metadata_log.records.batch_builder import write_batch
from metadata_log.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from metadata_log.records.coordinator import encode_key, encode_value
from metadata_log.records.record import Record
from metadata_log.records.transaction_state import TransactionLogKey, TransactionLogValue
from metadata_log.serde import Message
from record_cases import NOW_MS, marker
from scripted_node import uuid

CASES = Cases()
KEY, OTHER = (uuid(80), 0), (uuid(80), 1)
INPUT = uuid(81)
PLACE = ("g", "input", 0)
_FIRST = encoded_assignment({"input": [0]})
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT = 0, 1, 2, 3


def batch(*pairs: tuple[Message, Message | None], producer_id: int = -1) -> StoredBatch:
    """A batch of a coordinator."""
    encoded = [(encode_key(key), None if value is None else encode_value(value)) for key, value in pairs]
    data = write_batch(
        [Record(at, NOW_MS, 0, key, value) for at, (key, value) in enumerate(encoded)],
        epoch=1,
        transactional=producer_id >= 0,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=0,
    )
    (stored,) = stored_batches(data)
    return stored


def commit(offset: int, its_mark: str = "", producer_id: int = -1) -> StoredBatch:
    """A committed offset."""
    key = OffsetCommitKey(group="g", topic="input", partition=0)
    return batch((key, OffsetCommitValue(offset=offset, metadata=its_mark)), producer_id=producer_id)


def generation(number: int, **owned: list[int]) -> StoredBatch:
    """A classic group, with the partitions of each member."""
    members = tuple(
        MemberMetadata(member_id=one, assignment=encoded_assignment({"input": numbers}))
        for one, numbers in owned.items()
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=number, protocol="p", leader="a", members=members)
    return batch((GroupMetadataKey(group="g"), value))


def member(name: str, epoch: int, *numbers: int) -> tuple[Message, Message]:
    """The records of a member of a consumer group."""
    owned = ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(INPUT, numbers, None)
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=epoch, assigned_partitions=(owned,))
    return ConsumerGroupCurrentMemberAssignmentKey("g", name), value


def group_of(*batches: StoredBatch) -> GroupLedger:
    """The ledger after some batches."""
    ledger = GroupLedger()
    for one in batches:
        ledger.committed(KEY, one)
    return ledger


@CASES("is acknowledged, and no record of it is committed")
def a_commit_is_acknowledged_too_early() -> None:
    ledger = group_of(commit(5, "a"))
    ledger.acknowledged(PLACE, "a")
    ledger.acknowledged(PLACE, "b")


@CASES("the offset b of a transaction .* is acknowledged, and no record of it is committed")
def an_offset_of_a_transaction_is_acknowledged_too_early() -> None:
    ledger = group_of(commit(5, "a", producer_id=5))
    ledger.pended(KEY, 5, PLACE, "a")
    ledger.pended(KEY, 5, PLACE, "b")


@CASES("there is no committed offset .* though one was acknowledged")
def an_acknowledged_commit_is_lost() -> None:
    ledger = group_of(commit(5, "a"))
    ledger.fetched(PLACE, -1, "", 0)
    ledger.acknowledged(PLACE, "a")
    ledger.fetched(PLACE, -1, "", ledger.floor()[PLACE])


@CASES("the fetched offset 5 .* is older than one that was acknowledged before")
def an_older_offset_is_fetched() -> None:
    ledger = group_of(commit(5, "a"), commit(6, "b", producer_id=5), marker(2, is_commit=True))
    ledger.fetched(PLACE, 5, "a", 0)
    assert ledger.offset_of(PLACE) == 6
    ledger.acknowledged(PLACE, "b")
    ledger.fetched(PLACE, 5, "a", ledger.floor()[PLACE])


@CASES("the offset of input-0 in group g is forgotten: nobody asked")
def an_offset_is_forgotten() -> None:
    group_of(commit(5), batch((OffsetCommitKey(group="g", topic="input", partition=0), None)))


@CASES("the epoch of group g falls from 4 to 3")
def the_epoch_of_a_group_falls() -> None:
    key = ConsumerGroupMetadataKey("g")
    group_of(*(batch((key, ConsumerGroupMetadataValue(epoch=one))) for one in (3, 4, 3)))


@CASES("group g is forgotten, and has the members a, b")
def a_group_with_members_is_forgotten() -> None:
    empty = [generation(1, a=[0]), generation(2), batch((GroupMetadataKey(group="g"), None))]
    group_of(*empty, batch(member("a", 1, 0), member("b", 1, 1)), batch((ConsumerGroupMetadataKey("g"), None)))


@CASES("goes back from 6 .* to 5")
def a_committed_offset_goes_back() -> None:
    group_of(commit(5, "a"), commit(6, "b"), commit(5, "c"))


@CASES("member a of group g commits an offset in generation 1, and the group is in generation 2")
def a_member_commits_in_a_former_generation() -> None:
    group_of(generation(1, a=[0]), commit(5, mark("a", 1, 1)), generation(2, b=[0]), commit(6, mark("a", 1, 2)))


@CASES("a commits an offset of group g in generation 1, which has no such member")
def a_static_member_commits_under_its_former_id() -> None:
    members = [MemberMetadata(member_id=one, group_instance_id="i", assignment=_FIRST) for one in "ab"]
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="p", leader="a")
    first, later = (replace(value, members=(one,)) for one in members)
    before, after = (batch((GroupMetadataKey(group="g"), one)) for one in (first, later))
    group_of(before, commit(5, mark("a", 1, 1)), after, commit(6, mark("b", 1, 2)), commit(7, mark("a", 1, 3)))


@CASES("member b commits an offset of group g at epoch 1, and the group has it not")
def somebody_else_commits() -> None:
    left = batch((ConsumerGroupCurrentMemberAssignmentKey("g", "b"), None))
    group_of(batch(member("a", 1, 0), member("b", 1)), left, commit(5, mark("b", 1, 1)))


@CASES("input-0 has two owners in generation 1 of group g: a and b")
def a_generation_has_two_owners() -> None:
    group_of(generation(1, a=[0], b=[0]))


@CASES("the generation of group g falls from 2 to 1")
def a_generation_falls() -> None:
    group_of(generation(2, a=[0]), generation(1, a=[0]))


@CASES("the epoch of member a of group g falls from 2 to 1")
def the_epoch_of_a_member_falls() -> None:
    away = [batch(member("a", 2, 0)), batch(member("a", -2, 0)), batch(member("a", 2, 0))]
    group_of(*away, batch(member("a", 1, 0)))


# Groups that change their protocol

_NO_CLASSIC = (GroupMetadataKey(group="g"), None)
_NO_CONSUMER = (ConsumerGroupMetadataKey("g"), None)


def upgraded(epoch: int, *members: tuple[Message, Message], topics_hash: int = 1) -> StoredBatch:
    """A classic group goes on as a consumer group. The hash is 0 if the coordinator knows no topic of the group."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
    return batch(_NO_CLASSIC, (ConsumerGroupMetadataKey("g"), value), *members)


def downgraded(epoch: int, *, by: str = "a") -> StoredBatch:
    """A consumer group of one member goes on as a classic one."""
    members = (MemberMetadata(member_id=by, assignment=_FIRST),)
    value = GroupMetadataValue(protocol_type="consumer", generation=epoch, protocol="p", leader=by, members=members)
    gone = ConsumerGroupCurrentMemberAssignmentKey("g", "a")
    return batch((gone, None), _NO_CONSUMER, (GroupMetadataKey(group="g"), value))


@CASES("the epoch of group g falls from 3 to 2 as it changes its protocol")
def an_upgraded_group_begins_anew() -> None:
    group_of(generation(1, a=[0]), upgraded(2, member("a", 2, 0)), downgraded(3), upgraded(2, member("a", 2, 0)))


@CASES("group g becomes a classic one with other members: b")
def a_downgraded_group_has_other_members() -> None:
    ledger = group_of(generation(1, a=[0]), upgraded(2, member("a", 2, 0)), downgraded(3))
    assert ledger.migrations == 2
    for one in (upgraded(3, member("a", 3, 0)), downgraded(3, by="b")):
        ledger.committed(KEY, one)


@CASES(r"member a owns \[\] once group g is a consumer group, and was told to own \[0\] before")
def an_upgraded_group_forgets_an_owner() -> None:
    untold = group_of(generation(1, a=[0]), upgraded(1, member("a", 1)))
    assert untold.migrations == 1, "who was told nothing has nothing to lose"
    unknowing = group_of(generation(1, a=[0]))
    unknowing.told("g", 1, "a", [(INPUT, 0)])
    unknowing.committed(KEY, upgraded(1, member("a", 1), topics_hash=0))
    ledger = group_of(generation(1, a=[0]))
    ledger.told("g", 1, "a", [(INPUT, 0)])
    ledger.committed(KEY, upgraded(1, member("a", 1)))


# Transactions


def state(status: int, epoch: int, name: str = "w", version: int = 2) -> StoredBatch:
    """A record of a transactional id, whose client has a transaction version."""
    value = TransactionLogValue(
        producer_id=5, producer_epoch=epoch, transaction_status=status, client_transaction_version=version
    )
    return batch((TransactionLogKey(name), value))


def output(first: int, end: int, offset: int = 0, epoch: int = 0) -> StoredBatch:
    """The outputs of a worker."""
    name, value = content(Attempt(f"{first} to {end}", "w", first, end))
    data = bytearray(
        write_batch(
            [Record(0, NOW_MS, 0, name, value)],
            epoch=1,
            transactional=True,
            producer_id=5,
            producer_epoch=epoch,
            base_sequence=0,
        )
    )
    data[:8] = offset.to_bytes(8, "big")
    (stored,) = stored_batches(bytes(data))
    return stored


def transactions_of(*batches: StoredBatch) -> TransactionLedger:
    """The ledger after some batches of `__transaction_state`."""
    ledger = TransactionLedger()
    for one in batches:
        ledger.decided(one)
    return ledger


def show(ledger: TransactionLedger, *batches: StoredBatch, key: tuple[object, int] = KEY) -> None:
    """Some batches of an output are committed."""
    for one in batches:
        assert key in (KEY, OTHER)
        ledger.committed(KEY if key == KEY else OTHER, f"output-{key[1]}", one, has_attempts=True)


@CASES("the transactional id w is forgotten: it is in use")
def a_transactional_id_is_forgotten() -> None:
    transactions_of(state(EMPTY, 0), batch((TransactionLogKey("w"), None)))


@CASES("the epoch of w falls from 1 to 0")
def the_epoch_of_a_producer_falls() -> None:
    transactions_of(state(EMPTY, 1), state(ONGOING, 0))


@CASES("the transaction of w was to commit, and its next state is 0")
def a_decision_is_forgotten() -> None:
    transactions_of(state(ONGOING, 0), state(PREPARE_COMMIT, 1), state(EMPTY, 2))


@CASES("the transaction of v in epoch 1 has two outcomes")
def a_transaction_has_two_outcomes() -> None:
    transactions_of(state(PREPARE_COMMIT, 1), state(PREPARE_ABORT, 1, name="v"))


@CASES("was told of the commit of its transaction in epoch 0, which is to abort by the log")
def a_producer_is_told_the_wrong_outcome() -> None:
    transactions_of(state(PREPARE_ABORT, 1)).ended_by(5, 0, commits=True)


@CASES("was told of the commit of its transaction in epoch 1, which has no outcome in the log")
def an_older_producer_is_told_the_wrong_outcome() -> None:
    transactions_of(state(PREPARE_ABORT, 1, version=0)).ended_by(5, 1, commits=True)


@CASES("output-0 has a marker to commit .* in epoch 1, and no outcome is committed")
def a_marker_comes_too_early() -> None:
    transactions_of(state(ONGOING, 0)).appended("output-0", marker(1, is_commit=True))


@CASES("in epoch 0, after a marker of epoch 1")
def a_producer_writes_after_the_end() -> None:
    late = output(1, 2, offset=2)
    show(TransactionLedger(), output(0, 1), replace(marker(1, is_commit=True), producer_epoch=1), late)


@CASES("transaction 0 to 1 is visible in part: it is to abort in output-1, and to commit in output-0")
def a_transaction_is_committed_and_aborted() -> None:
    ledger = TransactionLedger()
    show(ledger, output(0, 1), marker(1, is_commit=True))
    show(ledger, output(0, 1), marker(1, is_commit=False), key=OTHER)


@CASES("transaction 0 to 1 is visible in part: output-0 has its records, and 1 other partitions do not")
def a_part_of_a_transaction_is_lost() -> None:
    ledger = TransactionLedger()
    for key in (KEY, OTHER):
        ledger.acknowledged(key, output(0, 1).content)
    show(ledger, output(0, 1), marker(1, is_commit=True))
    ledger.concluded({"w": 1})


@CASES("the outputs of w end at input 1, and its committed offset is 0")
def the_offsets_of_a_transaction_are_lost() -> None:
    ledger = TransactionLedger()
    show(ledger, output(0, 1), replace(marker(1, is_commit=True), producer_epoch=1))
    ledger.concluded({"w": 0})
