"""The invariants of what a broker believes of the partitions that it hosts, in one life of the broker (Kafka:
`Partition`, `AlterPartitionManager`; KIP-497, KIP-841, KIP-903).

Metadata, answers of the controller and fetches of followers reach a leader in any order. The caller says what reaches a
broker, what the broker believes after each step, and what it sends. The ledger shares no code with the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from kraft.invariants.cluster_model import PartitionKey
from kraft.invariants.violation import InvariantViolated

UNKNOWN: Final = -1
"""The end or the epoch of a follower before its first fetch under a leadership."""


class Remote(Struct, frozen=True):
    """A follower as its leader sees it: the incarnation that fetched last, and the offset of that fetch."""

    broker_epoch: int = UNKNOWN
    end_offset: int = UNKNOWN


class Belief(Struct, frozen=True):
    """The state of one hosted partition, as a running broker believes it to be."""

    broker_id: int
    key: PartitionKey
    name: str
    leader_epoch: int
    partition_epoch: int
    """The latest one that the broker knows, from metadata or from an answer to a leader."""
    isr: tuple[int, ...] = ()
    remotes: Mapping[int, Remote] = {}
    """The followers as their leader knows them."""
    is_leader: bool = False


class CommittedIsrs(Protocol):
    """The committed metadata of partitions."""

    def isr_at(self, key: PartitionKey, partition_epoch: int) -> tuple[int, ...] | None:
        """The ISR of a partition epoch; None if no record has it, or the topic is deleted."""


class LeadershipLedger:
    """A record of all that running brokers believed, sent and received. Every method raises `InvariantViolated`."""

    def __init__(self, metadata: CommittedIsrs) -> None:
        self._metadata = metadata
        self._beliefs: dict[tuple[int, PartitionKey], Belief] = {}
        self._epochs: dict[tuple[int, int], set[int]] = {}
        """The broker epochs with which a follower has fetched, by leader and follower."""
        self._offsets: dict[tuple[int, int, PartitionKey], set[int]] = {}
        """The offsets that a follower has fetched of a partition, by leader and follower."""
        self._told: dict[tuple[int, PartitionKey], tuple[int, int]] = {}
        """The leader epoch and the high watermark in the last answer to a follower."""
        self._own_epochs: dict[int, int] = {}
        self.proposals = 0
        """How many proposed ISRs were checked."""

    def began(self, broker_id: int) -> None:
        """A broker has started: nothing of its former life counts."""
        self._beliefs = {at: one for at, one in self._beliefs.items() if at[0] != broker_id}
        self._told = {at: one for at, one in self._told.items() if at[0] != broker_id}
        self._epochs = {at: one for at, one in self._epochs.items() if at[0] != broker_id}
        self._offsets = {at: one for at, one in self._offsets.items() if at[0] != broker_id}
        self._own_epochs.pop(broker_id, None)

    def registered(self, broker_id: int, epoch: int) -> None:
        """A broker believes that its registration has this epoch; -1 before the registration."""
        before = self._own_epochs.setdefault(broker_id, epoch)
        if epoch == before:
            return
        if epoch < before:
            raise InvariantViolated(f"the epoch of broker {broker_id} falls from {before} to {epoch} in one life")
        self._own_epochs[broker_id] = epoch

    def fetched(
        self, leader: int, follower: int, broker_epoch: int, offsets: Iterable[tuple[PartitionKey, int]]
    ) -> None:
        """A Fetch of a follower arrives at a broker."""
        self._epochs.setdefault((leader, follower), set()).add(broker_epoch)
        for key, offset in offsets:
            self._offsets.setdefault((leader, follower, key), set()).add(offset)

    def believes(self, belief: Belief) -> None:
        """A broker has completed a step, and believes this of a partition."""
        at = belief.broker_id, belief.key
        before = self._beliefs.get(at)
        self._beliefs[at] = belief
        if before is not None:
            self._check_epochs(before, belief)
        if belief.is_leader:
            self._check_isr(belief)
            self._check_remotes(before, belief)

    def _check_epochs(self, before: Belief, now: Belief) -> None:
        where = f"{now.name} on broker {now.broker_id}"
        if now.leader_epoch < before.leader_epoch:
            raise InvariantViolated(
                f"the leader epoch of {where} falls from {before.leader_epoch} to {now.leader_epoch}"
            )
        if now.partition_epoch < before.partition_epoch:
            raise InvariantViolated(
                f"the partition epoch of {where} falls from {before.partition_epoch} to {now.partition_epoch}"
            )

    def _check_isr(self, now: Belief) -> None:
        committed = self._metadata.isr_at(now.key, now.partition_epoch)
        if committed is not None and set(committed) != set(now.isr):
            raise InvariantViolated(
                f"broker {now.broker_id} leads {now.name} with the ISR {sorted(now.isr)} of partition epoch"
                f" {now.partition_epoch}, which has the ISR {sorted(committed)}"
            )

    def _check_remotes(self, before: Belief | None, now: Belief) -> None:
        """A leader knows of a follower only what the follower has fetched from it, and begins with nothing."""
        has_led = before is not None and before.is_leader
        for follower, remote in now.remotes.items():
            if remote == Remote() or (has_led and before is not None and before.remotes.get(follower) == remote):
                continue
            where = f"broker {now.broker_id} leads {now.name} in epoch {now.leader_epoch}"
            if not has_led:
                raise InvariantViolated(
                    f"{where} since now, and knows of a former fetch of broker {follower}: {remote}"
                )
            if remote.broker_epoch not in self._epochs.get((now.broker_id, follower), ()):
                raise InvariantViolated(f"{where}, and broker {follower} has never fetched with its epoch in {remote}")
            if remote.end_offset not in self._offsets.get((now.broker_id, follower, now.key), ()):
                raise InvariantViolated(f"{where}, and broker {follower} has never fetched from the offset in {remote}")

    def counted(self, belief: Belief, follower: int, broker_epoch: int, registered: int) -> None:
        """A leader has counted a Fetch with a broker epoch; by its metadata the follower has the epoch `registered`."""
        if UNKNOWN < broker_epoch < registered:
            raise InvariantViolated(
                f"broker {belief.broker_id} counts a fetch of {belief.name} by broker {follower} with epoch"
                f" {broker_epoch}, and knows that broker with epoch {registered}"
            )

    def proposed(
        self, broker_id: int, key: PartitionKey, leader_epoch: int, members: Iterable[tuple[int, int]]
    ) -> None:
        """A leader proposes an ISR: the members with their broker epochs."""
        self.proposals += 1
        belief = self._beliefs.get((broker_id, key))
        if belief is None or belief.leader_epoch != leader_epoch or not belief.is_leader:
            raise InvariantViolated(
                f"broker {broker_id} proposes an ISR of {key} in leader epoch {leader_epoch}, and does not lead there"
            )
        for follower, epoch in members:
            known = belief.remotes.get(follower, Remote()).broker_epoch
            if known not in (UNKNOWN, epoch):
                raise InvariantViolated(
                    f"broker {broker_id} proposes broker {follower} with epoch {epoch} for the ISR of {belief.name},"
                    f" and the last fetch of that broker had epoch {known}"
                )

    def in_flight(self, broker_id: int, requests: int) -> None:
        """A broker waits for the answers to this many AlterPartition requests."""
        if requests > 1:
            raise InvariantViolated(f"broker {broker_id} has {requests} AlterPartition requests under way at once")

    def answered(self, broker_id: int, key: PartitionKey, name: str, leader_epoch: int, watermark: int) -> None:
        """A leader tells a follower its high watermark."""
        epoch, told = self._told.get((broker_id, key), (UNKNOWN, UNKNOWN))
        if epoch == leader_epoch and watermark < told:
            raise InvariantViolated(
                f"broker {broker_id} tells a follower of {name} the high watermark {watermark} in leader epoch"
                f" {leader_epoch}, after {told}"
            )
        self._told[broker_id, key] = leader_epoch, watermark
