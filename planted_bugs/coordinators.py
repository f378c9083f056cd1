"""Mutants of the coordinators of groups and of transactions (KIP-98, KIP-447, KIP-848, KIP-890)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from msgspec import structs

from kraft.broker.request.batch_check import FirstBatch
from kraft.broker.request.produce import Entry, ProduceHandler, UnverifiedProduce
from kraft.coordinators.groups import classic, classic_members, migration, state
from kraft.coordinators.groups import shard as group_shard
from kraft.coordinators.groups.classic import ClassicGroups
from kraft.coordinators.groups.classic_group import ClassicGroup, Member
from kraft.coordinators.groups.consumer.draft import Draft
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.groups import ConsumerGroups
from kraft.coordinators.groups.consumer.member import Member as ConsumerMember
from kraft.coordinators.groups.consumer.member import with_epoch
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.runtime.partition import CoordinatorPartition
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.shard import Context, CoordinatorResult, Record
from kraft.coordinators.transactions import marker_sender, operations, transaction
from kraft.coordinators.transactions import shard as transaction_shard
from kraft.coordinators.transactions.shard import TransactionShard
from kraft.coordinators.transactions.transaction import Decision, Expected, Transaction
from kraft.coordinators.transactions.verification import ADDS_SINCE
from kraft.partitions.replicas.key import PartitionKey
from kraft.wire import WireRequest
from planted_bugs.registry import Patches, Scope, mutant
from transport.protocol.errors import Error
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

# What both coordinators share


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def coordinators_answer_before_the_watermark(code: Patches) -> None:
    """A coordinator answers as soon as it has decided, before its records are written and replicated."""
    code.replace(CoordinatorPartition, "_is_all_committed", property(lambda _: True))


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def coordinators_show_what_is_not_committed(code: Patches) -> None:
    """A committed read of a coordinator sees the records that are written and not replicated yet."""
    code.replace(CoordinatorPartition, "committed", property(lambda part: part.state))


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def coordinators_survive_their_leadership(code: Patches) -> None:
    """A coordinator keeps what it knows when another broker leads its partition, and goes on with that later."""
    sound = CoordinatorRuntime.on_leaders

    def on_leaders(runtime: CoordinatorRuntime[object], keys: Iterable[PartitionKey], now_ms: int) -> None:
        sound(runtime, [key for key in keys if key[1] not in runtime.partitions], now_ms)

    code.replace(CoordinatorRuntime, "on_leaders", on_leaders)


# Groups


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def rebalances_keep_the_generation(code: Patches) -> None:
    """The next assignment of a classic group has the generation of the one before."""
    sound = ClassicGroup.begin_generation

    def begin_generation(group: ClassicGroup, now_ms: int) -> None:
        before = group.generation
        sound(group, now_ms)
        group.generation = max(before, 1)

    code.replace(ClassicGroup, "begin_generation", begin_generation)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def sync_of_any_generation(code: Patches) -> None:
    """A member of a classic group gets the present assignment whatever generation it names."""
    sound = ClassicGroups.sync

    def sync(groups: ClassicGroups, request: WireRequest[SyncGroupRequest], context: Context) -> CoordinatorResult:
        message = request.message
        group = groups.find(message.group_id, context.state)
        if group is not None:
            message = structs.replace(message, generation_id=group.generation)
        return sound(groups, structs.replace(request, message=message), context)

    code.replace(ClassicGroups, "sync", sync)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def assignments_of_the_leader_for_all(code: Patches) -> None:
    """Every member of a classic group gets the assignment of the leader of the group."""
    sound = classic.synced

    def synced(
        request: WireRequest, error: Error, group: ClassicGroup | None = None, member: Member | None = None
    ) -> SyncGroupResponse:
        if group is not None and group.leader is not None:
            member = group.members.get(group.leader, member)
        return sound(request, error, group, member)

    code.replace(classic, "synced", synced)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def partitions_change_hands_at_once(code: Patches) -> None:
    """A member of a consumer group gets its partitions before their former owner has given them up."""
    code.replace(ConsumerGroup, "held_near", lambda group, topic_id, numbers: {})


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def aborted_offsets_count(code: Patches) -> None:
    """The offsets of an aborted transaction become committed ones."""
    sound = state.end_transaction

    def end_transaction(
        groups: GroupsState, producer_id: int, *, is_commit: bool
    ) -> Generator[None, None, GroupsState]:
        return sound(groups, producer_id, is_commit=True)

    code.replace(group_shard, "end_transaction", end_transaction)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def offsets_count_before_the_marker(code: Patches) -> None:
    """The offsets of an open transaction are committed ones at once."""
    sound = state.replay_groups

    def replay_groups(groups: GroupsState, record: Record, offset: int, producer_id: int) -> GroupsState:
        return sound(groups, record, offset, -1)

    code.replace(group_shard, "replay_groups", replay_groups)


# Groups that change their protocol


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def upgraded_groups_begin_their_epochs_anew(code: Patches) -> None:
    """A classic group with members becomes a consumer group of the first epoch, whatever its generation is."""
    sound = migration.upgraded

    def upgraded(group: ClassicGroup, *given: Any) -> Draft:
        generation, group.generation = group.generation, 1
        try:
            return sound(group, *given)
        finally:
            group.generation = generation

    code.replace(group_shard, "upgraded", upgraded)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def upgraded_groups_forget_what_members_own(code: Patches) -> None:
    """The members of a classic group own nothing any more, and do not know that, once it is a consumer group."""
    sound = migration._upgraded_member

    def upgraded_member(*given: Any) -> migration._Upgraded:
        found = sound(*given)
        return structs.replace(found, member=structs.replace(found.member, assigned={}))

    code.replace(migration, "_upgraded_member", upgraded_member)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def downgraded_groups_begin_their_generations_anew(code: Patches) -> None:
    """A consumer group with members becomes a classic group of the first generation, whatever its epoch is."""
    sound = migration.downgraded

    def downgraded(draft: Draft, *given: Any, rebalances: bool) -> CoordinatorResult:
        draft.group = structs.replace(draft.group, epoch=1)
        return sound(draft, *given, rebalances=rebalances)

    code.replace(group_shard, "downgraded", downgraded)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def classic_members_wait_for_no_former_owner(code: Patches) -> None:
    """A classic member of a consumer group gets its target before the former owners have given their partitions up."""
    sound = ConsumerGroups.reconciling

    def reconciling(
        groups: ConsumerGroups, draft: Draft, member: ConsumerMember, *given: Any, wish_changed: bool
    ) -> Generator[None, None, ConsumerMember]:
        if member.classic is None:
            return (yield from sound(groups, draft, member, *given, wish_changed=wish_changed))
        epoch, target = draft.group.assignment_epoch, draft.group.targets.get(member.member_id, {})
        updated = structs.replace(member, epoch=epoch, assigned=with_epoch(target, epoch), revoking={})
        draft.assignment(updated)
        return updated

    code.replace(ConsumerGroups, "reconciling", reconciling)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def classic_members_sync_at_any_epoch(code: Patches) -> None:
    """A classic member of a consumer group gets its present assignment whatever generation it names."""
    sound = classic_members._known

    def known(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        member = group.members.get(member_id)
        return sound(group, member_id, instance_id, generation if member is None else member.epoch)

    code.replace(classic_members, "_known", known)


# Transactions


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def new_producers_keep_the_epoch(code: Patches) -> None:
    """InitProducerId gives the present epoch of a transactional id to another producer."""
    sound = transaction._next_epoch

    def next_epoch(
        known: Transaction, expected: Expected | None, timeout_ms: int, take_id: transaction.TakeId, now_ms: int
    ) -> Decision:
        decision = sound(known, expected, timeout_ms, take_id, now_ms)
        if decision.written is None or known.epoch < 0:
            return decision
        written = structs.replace(decision.written, epoch=known.epoch)
        return structs.replace(decision, written=written, epoch=known.epoch)

    code.replace(transaction, "_next_epoch", next_epoch)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def new_producers_overtake_an_ending(code: Patches) -> None:
    """InitProducerId begins anew while the partitions still learn how the last transaction has ended."""
    sound = transaction.initialize

    def initialize(known: Transaction | None, *given: Any, is_pending: bool, version: int) -> Decision:
        if known is not None and known.status.is_ending:
            known, is_pending = transaction.complete(known, known.updated_ms), False
        return sound(known, *given, is_pending=is_pending, version=version)

    code.replace(operations, "initialize", initialize)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def new_producers_forget_the_open_transaction(code: Patches) -> None:
    """InitProducerId begins anew without an end of the transaction that the former producer has left open."""
    sound = transaction.initialize

    def initialize(known: Transaction | None, *given: Any, is_pending: bool, version: int) -> Decision:
        if known is not None and known.status is transaction.Status.ONGOING:
            known = structs.replace(known, status=transaction.Status.EMPTY, partitions=frozenset())
        return sound(known, *given, is_pending=is_pending, version=version)

    code.replace(operations, "initialize", initialize)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def ends_of_any_epoch_count(code: Patches) -> None:
    """A producer with a former epoch may end the transaction of its successor."""
    sound = transaction._end_and_bump

    def end_and_bump(known: Transaction | None, producer: Expected, *given: Any, **more: Any) -> Decision:
        if known is not None:
            producer = Expected(known.producer_id, known.epoch)
        return sound(known, producer, *given, **more)

    code.replace(transaction, "_end_and_bump", end_and_bump)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def markers_before_the_outcome_is_committed(code: Patches) -> None:
    """Partitions learn the end of a transaction before its outcome is replicated."""
    sound = TransactionShard._writing

    def writing(
        shard: TransactionShard, name: str, written: Transaction, context: Context, result: object
    ) -> CoordinatorResult:
        if written.status.is_ending:
            shard._sender.begin(shard.partition, name, shard._epoch, written)
        return sound(shard, name, written, context, result)

    code.replace(TransactionShard, "_writing", writing)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def markers_commit_every_transaction(code: Patches) -> None:
    """Partitions are told to commit, whatever the outcome of a transaction is."""
    sound = marker_sender._request

    def request(taken: list[tuple[marker_sender.Ending, transaction.TopicPartition]]) -> WriteTxnMarkersRequest:
        told = sound(taken)
        return structs.replace(told, markers=[structs.replace(one, transaction_result=True) for one in told.markers])

    code.replace(marker_sender, "_request", request)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def any_end_is_acknowledged(code: Patches) -> None:
    """EndTxn is told of success if the transaction has ended, also the other way."""
    sound = transaction._as_before

    def as_before(known: Transaction, *, is_commit: bool) -> Decision:
        if known.status in (transaction.Status.COMPLETE_COMMIT, transaction.Status.COMPLETE_ABORT):
            return Decision(Error.NONE, None, known.producer_id, known.epoch)
        return sound(known, is_commit=is_commit)

    code.replace(transaction, "_as_before", as_before)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def interrupted_transactions_are_committed(code: Patches) -> None:
    """A transaction that its producer has left open is committed by the next producer, or after its time."""
    sound = transaction.fence

    def fence(known: Transaction, now_ms: int, *, version: int, next_id: int = -1) -> Transaction:
        fenced = sound(known, now_ms, version=version, next_id=next_id)
        return structs.replace(fenced, status=transaction.Status.PREPARE_COMMIT)

    code.replace(transaction, "fence", fence)
    code.replace(transaction_shard, "fence", fence)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def fenced_producers_may_add_partitions(code: Patches) -> None:
    """A producer with a former epoch may add partitions to the transaction of its successor."""

    def mismatch(known: Transaction | None, producer: Expected) -> Decision | None:
        return transaction._FOREIGN if known is None or known.producer_id != producer.producer_id else None

    code.replace(transaction, "_mismatch", mismatch)


@mutant(Scope.COORDINATOR_CLUSTER, budget=200, faults=None)
def older_producers_write_outside_of_transactions(code: Patches) -> None:
    """A leader does not ask whether its partition is in the transaction of a client from before KIP-890."""
    sound = ProduceHandler._unverified

    def unverified(
        produce: ProduceHandler,
        request: WireRequest[ProduceRequest],
        message: ProduceRequest,
        entries: list[Entry],
        batches: list[tuple[Entry, FirstBatch]],
    ) -> UnverifiedProduce:
        if request.version < ADDS_SINCE:
            return UnverifiedProduce(request, entries, batches, {}, None)
        return sound(produce, request, message, entries, batches)

    code.replace(ProduceHandler, "_unverified", unverified)
