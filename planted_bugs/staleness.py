"""Mutants of what a leader of a partition believes: answers of the controller and metadata that overtake each other,
former incarnations and former leaderships (KIP-497, KIP-841, KIP-903).

The first five were committed as a list before any search for them, and were then tried once. The other two are kinds of
bugs that an audit had planted before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kraft.broker.isr_changes import IsrChanges
from kraft.broker.log.partition_log import PartitionLog
from kraft.broker.partitions import leaders
from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.isr_proposals import IsrProposals
from kraft.broker.partitions.leaders import Leaders
from kraft.broker.partitions.leading import Leading, new_leadership
from kraft.broker.partitions.manager import ReplicaManager
from kraft.broker.replicas import LedPartition, PartitionKey
from kraft.broker.replicas_protocol import BrokerReplicas
from kraft.broker.settings import NO_EPOCH
from metadata_log.image import MetadataImage, Partition
from metadata_log.types import Uuid
from planted_bugs.registry import Patches, Scope, mutant, survivor
from transport.protocol.messages.fetch import ReplicaState

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
    on_partition = ReplicaManager.on_partition
    former: list[tuple[PartitionLog, Leading]] = []

    def on_partition_and_remember(
        one: ReplicaManager, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        part = one.partition(key)
        if part is not None and part.leading is not None:
            former[:] = [(log, leading) for log, leading in former if log is not part.log]
            former.append((part.log, part.leading))
        on_partition(one, key, partition, now_ms, directory)

    def lead_again(
        partition: Partition, before: Leading | None, log: PartitionLog, broker_id: int, now_ms: int
    ) -> Leading:
        known = before or next((leading for of, leading in former if of is log), None)
        return new_leadership(partition, known, log, broker_id, now_ms)

    code.replace(ReplicaManager, "on_partition", on_partition_and_remember)
    code.replace(leaders, "new_leadership", lead_again)


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def fetches_of_former_incarnations_count(code: Patches) -> None:
    """A leader counts a late fetch of a follower that has registered again since (KIP-903)."""
    on_follower_fetch = Leaders.on_follower_fetch

    def on_any_fetch(
        one: Leaders, key: PartitionKey, follower: ReplicaState, fetch_offset: int, log_start: int, now_ms: int
    ) -> object:
        broker = one._hosting.image.brokers.by_id.get(follower.replica_id)
        if broker is not None and NO_EPOCH < follower.replica_epoch < broker.epoch:
            follower = replace(follower, replica_epoch=broker.epoch)
        return on_follower_fetch(one, key, follower, fetch_offset, log_start, now_ms)

    code.replace(Leaders, "on_follower_fetch", on_any_fetch)


@survivor(
    Scope.DATA_CLUSTER,
    tried=100,
    killed_by=("tests/kraft/broker/test_broker_agent.py::test_errors_of_alter_partition_are_handled_as_in_kafka"),
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

    def judge_silence(
        changes: IsrChanges, replicas: BrokerReplicas, key: PartitionKey, partition_epoch: int, answer: Any, now_ms: int
    ) -> None:
        if answer is None:
            replicas.withdrawn(key, partition_epoch)
        else:
            judge(changes, replicas, key, partition_epoch, answer, now_ms)

    code.replace(IsrChanges, "_judge", judge_silence)


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def removals_count_before_the_controller_agrees(code: Patches) -> None:
    """A leader that asks to remove a follower from the ISR commits without that follower before there is an answer."""

    def maximal_isr(leading: Leading) -> tuple[int, ...]:
        return leading.isr if leading.proposed is None else leading.proposed

    code.replace(Leading, "maximal_isr", property(maximal_isr))


# Two kinds of an audit


@mutant(Scope.DATA_CLUSTER, budget=100, faults=None, profile="overtaking")
def older_answers_of_the_controller_are_taken(code: Patches) -> None:
    """A leader takes an answer to AlterPartition also if its metadata has a later partition epoch already."""

    def accepted(
        proposals: IsrProposals, key: PartitionKey, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> None:
        leading = proposals._leading(key)
        if leading is not None and leading.leader_epoch == leader_epoch:
            proposals._commit(key, leading, isr, partition_epoch)

    code.replace(IsrProposals, "accepted", accepted)


@survivor(
    Scope.DATA_CLUSTER,
    tried=30,
    killed_by=(
        "tests/kraft/broker/test_broker_agent.py::"
        "test_a_repeated_proposal_names_the_incarnation_that_fetched_and_not_one_that_has_registered_since"
    ),
    because=(
        "The member has to register again between a proposal and its repetition, and the controller refuses one whose "
        "former incarnation was in the ISR."
    ),
)
def members_are_proposed_with_their_registered_epoch(code: Patches) -> None:
    """A leader proposes a member with the broker epoch of its registration, and not with that of its last fetch."""
    epoch_of: Callable[[IsrChanges, int, LedPartition, MetadataImage, int], int] = IsrChanges._epoch_of

    def epoch_by_metadata(
        changes: IsrChanges, one: int, led: LedPartition, image: MetadataImage, broker_epoch: int
    ) -> int:
        broker = image.brokers.by_id.get(one)
        return epoch_of(changes, one, led, image, broker_epoch) if broker is None else broker.epoch

    code.replace(IsrChanges, "_epoch_of", epoch_by_metadata)
