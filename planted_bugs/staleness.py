"""Mutants of what a leader of a partition believes: answers of the controller and metadata that overtake each other,
former incarnations and former leaderships (KIP-497, KIP-841, KIP-903).

The first five were committed as a list before any search for them, and were then tried once. The other two are kinds of
bugs that an audit had planted before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.replicas import leading as leading_module
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.isr_changes import IsrChanges
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leaders import Leaders
from kraft.partitions.replicas.leading import Leading
from kraft.partitions.replicas.manager import ReplicaManager
from metadata_log.image import MetadataImage, Partition
from metadata_log.types import NO_EPOCH, Uuid
from planted_bugs.registry import Patches, Scope, mutant, survivor
from transport.protocol.messages.alter_partition import AlterPartitionResponsePartitionData

# Tried once


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def older_metadata_replaces_the_answer_of_the_controller(code: Patches) -> None:
    """A leader that knows a partition epoch from an answer of the controller goes back to older metadata."""
    lead = Leaders.lead

    def lead_by_any_metadata(one: Leaders, part: HostedPartition, partition: Partition, now_ms: int) -> None:
        leading = part.leading
        if leading is not None and leading.leader_epoch == partition.leader_epoch:
            leading.accept(partition.isr, partition.partition_epoch)
        lead(one, part, partition, now_ms)

    code.replace(Leaders, "lead", lead_by_any_metadata)


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def follower_offsets_outlive_a_leadership(code: Patches) -> None:
    """A broker that leads again counts the offsets that followers had reached in its former leadership, though another
    broker has led meanwhile.
    """
    on_partition, lead = ReplicaManager.on_partition, Leaders.lead
    former: list[tuple[PartitionLog, Leading]] = []

    def on_partition_and_remember(
        one: ReplicaManager, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        part = one.partitions.get(key)
        if part is not None and part.leading is not None:
            former[:] = [(log, leading) for log, leading in former if log is not part.log]
            former.append((part.log, part.leading))
        on_partition(one, key, partition, now_ms, directory)

    def lead_again(one: Leaders, part: HostedPartition, partition: Partition, now_ms: int) -> None:
        part.leading = part.leading or next((leading for of, leading in former if of is part.log), None)
        lead(one, part, partition, now_ms)

    code.replace(ReplicaManager, "on_partition", on_partition_and_remember)
    code.replace(Leaders, "lead", lead_again)


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def fetches_of_former_incarnations_count(code: Patches) -> None:
    """A leader counts a late fetch of a follower that has registered again since (KIP-903)."""
    on_follower_fetch = Leaders.on_follower_fetch

    def on_any_fetch(
        one: Leaders, part: HostedPartition, replica_id: int, replica_epoch: int, *progress: int
    ) -> object:
        broker = one._hosting.image.brokers.by_id.get(replica_id)
        if broker is not None and NO_EPOCH < replica_epoch < broker.epoch:
            replica_epoch = broker.epoch
        return on_follower_fetch(one, part, replica_id, replica_epoch, *progress)

    code.replace(Leaders, "on_follower_fetch", on_any_fetch)


@survivor(
    Scope.DATA_CLUSTER,
    tried=100,
    killed_by="tests/kraft/broker/test_broker_transcripts.py::test_transcript[isr]",
    because=(
        "The follower has everything when it is proposed, and its next fetch proposes it again: a record has to be "
        "committed without it in between, and the follower has to be elected."
    ),
)
def unanswered_proposals_are_withdrawn(code: Patches) -> None:
    """A leader without an answer to its AlterPartition takes the proposal back, though the controller may have made the
    change.
    """
    judge = IsrChanges._judge

    def judge_silence(changes: IsrChanges, key: PartitionKey, partition_epoch: int, answer: Any, now_ms: int) -> None:
        if answer is not None:
            judge(changes, key, partition_epoch, answer, now_ms)
        elif (leading := changes._asking(key, partition_epoch)) is not None:
            changes._withdraw(key, leading, now_ms)

    code.replace(IsrChanges, "_judge", judge_silence)


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def removals_count_before_the_controller_agrees(code: Patches) -> None:
    """A leader that asks to remove a follower from the ISR commits without that follower before there is an answer."""

    def maximal_isr(isr: tuple[int, ...], proposed: tuple[int, ...] | None) -> tuple[int, ...]:
        return isr if proposed is None else proposed

    code.replace(leading_module, "maximal_isr", maximal_isr)


# Two kinds of an audit


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def older_answers_of_the_controller_are_taken(code: Patches) -> None:
    """A leader takes an answer to AlterPartition also if its metadata has a later partition epoch already."""

    def accepted(
        changes: IsrChanges, key: PartitionKey, answer: AlterPartitionResponsePartitionData, now_ms: int
    ) -> None:
        leading = changes._leading(key)
        if leading is not None and leading.leader_epoch == answer.leader_epoch:
            changes._commit(key, leading, tuple(answer.isr), answer.partition_epoch, now_ms)

    code.replace(IsrChanges, "_accepted", accepted)


@survivor(
    Scope.DATA_CLUSTER,
    tried=30,
    killed_by="tests/kraft/broker/test_broker_transcripts.py::test_transcript[isr]",
    because=(
        "The member has to register again between a proposal and its repetition, and the controller refuses one whose "
        "former incarnation was in the ISR."
    ),
)
def members_are_proposed_with_their_registered_epoch(code: Patches) -> None:
    """A leader proposes a member with the broker epoch of its registration, and not with that of its last fetch."""
    epoch_of: Callable[[IsrChanges, int, Leading, MetadataImage, int], int] = IsrChanges._epoch_of

    def epoch_by_metadata(
        changes: IsrChanges, one: int, leading: Leading, image: MetadataImage, broker_epoch: int
    ) -> int:
        broker = image.brokers.by_id.get(one)
        return epoch_of(changes, one, leading, image, broker_epoch) if broker is None else broker.epoch

    code.replace(IsrChanges, "_epoch_of", epoch_by_metadata)
