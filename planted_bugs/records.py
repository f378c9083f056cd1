"""Mutants of brokers with data: leaders, followers, watermarks and ISRs (KIP-101, KIP-279, KIP-497, KIP-966)."""

from __future__ import annotations

from kraft.broker.request import fetch, reading
from kraft.broker.request.produce import ProduceHandler, WaitingProduce
from kraft.partitions.log.partition_log import PartitionLog
from kraft.partitions.log.producers import ProducerStates
from kraft.partitions.replicas import hosted_partition, leading
from kraft.partitions.replicas.followers import Followers
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.hosting import Hosting
from kraft.partitions.replicas.key import PartitionKey
from kraft.partitions.replicas.leaders import Leaders
from kraft.partitions.replicas.leading import Leading, RemoteReplica
from kraft.partitions.replicas.manager import ReplicaManager
from kraft.partitions.replicas.watermarks import next_high_watermark
from metadata_log.image import MetadataImage, Partition
from metadata_log.types import NEVER_MS, Uuid
from planted_bugs.registry import Patches, Scope, mutant, survivor

# The watermark


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def watermark_of_the_leader_alone(code: Patches) -> None:
    """The high watermark of a leader is the end of its own log, whatever the ISR has."""

    def high_watermark(current: int, leader_end: int, follower_ends: object, *, isr_size: int, min_isr: int) -> int:
        return next_high_watermark(current, leader_end, (), isr_size=isr_size, min_isr=min_isr)

    code.replace(leading, "next_high_watermark", high_watermark)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def one_follower_is_enough_for_the_watermark(code: Patches) -> None:
    """The high watermark needs one follower, perhaps one that has left the ISR, and not all members of the ISR."""

    def high_watermark(current: int, leader_end: int, follower_ends: list[int], *, isr_size: int, min_isr: int) -> int:
        best = max(follower_ends, default=leader_end)
        return next_high_watermark(current, leader_end, (best,), isr_size=isr_size, min_isr=min_isr)

    code.replace(leading, "next_high_watermark", high_watermark)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def min_isr_is_not_checked(code: Patches) -> None:
    """A leader appends and commits records with fewer replicas in sync than min.insync.replicas."""

    def high_watermark(current: int, leader_end: int, follower_ends: list[int], *, isr_size: int, min_isr: int) -> int:
        return next_high_watermark(current, leader_end, follower_ends, isr_size=isr_size, min_isr=0)

    code.replace(leading, "next_high_watermark", high_watermark)
    code.replace(hosted_partition, "effective_min_isr", lambda setting, replica_count: 0)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None, profile="full-directories")
def watermark_waits_for_ever(code: Patches) -> None:
    """A follower that has just left the ISR holds the watermark back until it fetches or another batch comes, though
    its log directory has failed.
    """
    code.replace(Leading, "_may_return", lambda _, one, remote, image: leading.is_eligible(one, remote, image))
    code.replace(Leaders, "deadline_ms", lambda leaders: leaders._shrink_ms)
    _end_no_wait(code)


@survivor(
    Scope.DATA_CLUSTER,
    tried=30,
    killed_by="tests/kraft/broker/request/test_held_watermarks.py::test_a_follower_outside_of_the_isr_is_waited_for_no_longer_than_the_lag_time",
    because="Probably a follower that leaves the ISR while it is caught up has lost its log directory, or is fenced.",
)
def watermark_waits_for_the_next_append(code: Patches) -> None:
    """Nothing looks at a watermark again when the lag time of a follower outside of the ISR is over."""
    _end_no_wait(code)


def _end_no_wait(code: Patches) -> None:
    poll = Leaders.poll

    def shrink_alone(leaders: Leaders, now_ms: int) -> None:
        leaders._held, leaders._held_ms = {}, NEVER_MS
        poll(leaders, now_ms)

    code.replace(Leaders, "poll", shrink_alone)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None, profile="full-directories")
def isr_changes_leave_the_watermark(code: Patches) -> None:
    """A leader does not look at its watermark after a change of the ISR."""
    lead = Leaders.lead

    def lead_alone(leaders: Leaders, part: HostedPartition, partition: Partition, now_ms: int) -> None:
        watermark = part.log.high_watermark
        lead(leaders, part, partition, now_ms)
        part.log.high_watermark = watermark

    code.replace(Leaders, "lead", lead_alone)
    code.replace(Leaders, "_on_isr", lambda leaders, key, now_ms: None)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None, profile="full-directories")
def failed_directories_leave_producers_waiting(code: Patches) -> None:
    """A log directory that fails wakes no request that waits for its partitions."""
    go_offline = Hosting.go_offline

    def go_offline_in_silence(hosting: Hosting, part: HostedPartition, reason: str) -> None:
        watched, hosting.watched = hosting.watched, ()
        go_offline(hosting, part, reason)
        hosting.watched = watched

    code.replace(Hosting, "go_offline", go_offline_in_silence)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def followers_believe_any_watermark(code: Patches) -> None:
    """A follower takes the watermark of its leader, also above the end of its own log."""

    def raise_high_watermark(log: PartitionLog, offset: int) -> None:
        log.high_watermark = max(log.high_watermark, offset)

    code.replace(PartitionLog, "raise_high_watermark", raise_high_watermark)


@survivor(
    Scope.DATA_CLUSTER,
    tried=200,
    killed_by="tests/kraft/broker/test_broker_transcripts.py::test_transcript[divergence]",
    because="Probably such a follower truncates before its leader commits anything. The seeds are those of small-logs.",
)
def watermark_from_a_stale_fetch(code: Patches) -> None:
    """A leader counts the fetch of a follower with another history, as if the follower had the leader's records."""

    class AnyDivergence:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    code.replace(fetch, "NO_DIVERGENCE", AnyDivergence())


# The ISR


@survivor(
    Scope.DATA_CLUSTER,
    tried=30,
    killed_by="tests/kraft/partitions/replicas/test_replication.py::test_a_follower_that_has_lost_records_ends_where_it_fetches",
    because="Probably a broker that restarts leaves its ISRs, or finds another leader epoch.",
)
def ends_of_followers_never_fall(code: Patches) -> None:
    """A leader keeps the largest end that a follower ever had, though the follower has lost its last records since."""
    on_fetch = RemoteReplica.on_fetch

    def keep_the_largest(remote: RemoteReplica, fetch_offset: int, *given: int) -> None:
        on_fetch(remote, max(fetch_offset, remote.end_offset), *given)

    code.replace(RemoteReplica, "on_fetch", keep_the_largest)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def isr_expanded_before_catching_up(code: Patches) -> None:
    """A leader proposes a follower for the ISR at its first fetch, however far behind the follower is."""
    code.replace(leading, "may_join", lambda *_: True)


# Answers to producers and consumers


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def acknowledged_by_the_leader_alone(code: Patches) -> None:
    """A Produce with acks=all is answered after the append of the leader."""

    def is_complete(handler: ProduceHandler, waiting: WaitingProduce, image: MetadataImage) -> bool:
        for entry in waiting.entries:
            entry.awaited = None
        return True

    code.replace(ProduceHandler, "is_complete", is_complete)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def consumers_read_above_the_watermark(code: Patches) -> None:
    """A consumer reads to the end of the log."""
    code.replace(reading, "bound_of", lambda partition, isolation: partition.log.end_offset)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def readers_of_committed_records_read_all(code: Patches) -> None:
    """A reader of committed records reads to the high watermark, above the last stable offset."""
    code.replace(
        reading,
        "bound_of",
        lambda partition, isolation: (
            partition.log.end_offset if isolation is reading.Isolation.LOG_END else partition.log.high_watermark
        ),
    )


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def aborted_transactions_are_not_named(code: Patches) -> None:
    """The answer to a reader of committed records names no aborted transaction."""
    code.replace(PartitionLog, "aborted", lambda log, offset, end_offset: [])


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def markers_count_when_they_are_appended(code: Patches) -> None:
    """A transaction is over for readers once its marker is appended, and not once the marker is replicated."""
    code.replace(
        ProducerStates, "first_unstable_offset", property(lambda states: min(states.open_transactions, default=None))
    )


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def duplicates_are_appended(code: Patches) -> None:
    """A batch of an idempotent producer that comes again is appended again."""
    code.replace(ProducerStates, "duplicate_of", lambda states, batch: None)
    code.replace(ProducerStates, "check", lambda states, batch: None)


# Truncation


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def truncation_to_the_watermark(code: Patches) -> None:
    """A new follower truncates its log to its high watermark, and not where the histories part (KIP-101)."""
    follow = Followers.follow

    def truncate_and_follow(one: Followers, part: HostedPartition, now_ms: int) -> None:
        known = one._fetching.get(part.key)
        if known is None or known.leader_epoch != part.leader_epoch:
            part.log.truncate(part.log.high_watermark, now_ms=now_ms)
        follow(one, part, now_ms)

    code.replace(Followers, "follow", truncate_and_follow)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def unclean_leaders_truncate_no_follower(code: Patches) -> None:
    """A leader does not tell a follower that their histories part, so that the follower keeps its old records."""
    code.replace(reading, "divergence", lambda partition, wanted: None)


@mutant(Scope.DATA_CLUSTER, budget=200, faults=None)
def replicas_that_nobody_may_lead_are_given_up(code: Patches) -> None:
    """A broker removes its replica of a partition that waits for an operator to elect a leader."""
    sound = ReplicaManager.on_partition

    def on_partition(
        manager: ReplicaManager,
        key: PartitionKey,
        partition: Partition | None,
        now_ms: int,
        directory: Uuid | None = None,
    ) -> None:
        sound(manager, key, partition, now_ms, directory)
        if partition is not None and not (partition.isr or partition.elr or partition.last_known_elr):
            manager._stop(key, now_ms)

    code.replace(ReplicaManager, "on_partition", on_partition)
