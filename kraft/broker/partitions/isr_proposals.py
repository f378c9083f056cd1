"""The ISR changes that a broker's leaders request from the controller (Kafka: `Partition.maybeExpandIsr`,
`maybeShrinkIsr` and `handleAlterPartitionUpdate`).

One change of a partition is open at a time. `kraft.broker.isr_changes` puts the proposals into AlterPartition requests
and passes each answer on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kraft.broker.partitions.hosted_partition import HostedPartition
from kraft.broker.partitions.leading import Leading
from kraft.broker.replicas import Follower, LedPartition, PartitionKey


class IsrProposals:
    """The open and the unsent proposals of a broker.

    Args:
        partitions: The replicas of the broker.
        on_change: Called after the ISR of a partition has changed.
    """

    def __init__(
        self, partitions: Mapping[PartitionKey, HostedPartition], on_change: Callable[[HostedPartition], None]
    ) -> None:
        self.unsent: dict[PartitionKey, None] = {}
        """The partitions with an unsent proposal, in the order of proposing."""
        self._partitions = partitions
        self._on_change = on_change

    def propose(self, part: HostedPartition, isr: tuple[int, ...]) -> None:
        """Request an ISR."""
        assert part.leading is not None, part.key
        part.leading.propose(isr)
        self.unsent[part.key] = None

    def forget(self, key: PartitionKey) -> None:
        """The partition is not led any more, or metadata has replaced its proposal."""
        self.unsent.pop(key, None)

    def take(self) -> Iterator[tuple[PartitionKey, LedPartition]]:
        """Take all proposals that are to be sent now, in the form of the request."""
        unsent, self.unsent = self.unsent, {}
        for key in unsent:
            leading = self._leading(key)
            if leading is not None and leading.proposed is not None:
                yield key, _led(leading)

    def accepted(self, key: PartitionKey, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller answered with the present partition; an answer for an older state changes nothing."""
        leading = self._leading(key)
        if leading is None or leading.leader_epoch != leader_epoch or partition_epoch < leading.partition_epoch:
            return
        self._commit(key, leading, isr, partition_epoch)

    def withdrawn(self, key: PartitionKey, partition_epoch: int) -> None:
        """A member is not eligible: return to the committed ISR, until a follower fetches again."""
        leading = self._asking(key, partition_epoch)
        if leading is not None:
            self._commit(key, leading, leading.isr, leading.partition_epoch)

    def given_up(self, key: PartitionKey, partition_epoch: int) -> None:
        """The controller has newer metadata: wait for it."""
        leading = self._asking(key, partition_epoch)
        if leading is not None:
            leading.is_given_up = True
            self.forget(key)

    def again(self, key: PartitionKey, partition_epoch: int) -> None:
        """The request failed: send the proposal again."""
        if self._asking(key, partition_epoch) is not None:
            self.unsent[key] = None

    def _commit(self, key: PartitionKey, leading: Leading, isr: tuple[int, ...], partition_epoch: int) -> None:
        leading.accept(isr, partition_epoch)
        self.forget(key)
        self._on_change(self._partitions[key])

    def _leading(self, key: PartitionKey) -> Leading | None:
        part = self._partitions.get(key)
        return None if part is None else part.leading

    def _asking(self, key: PartitionKey, partition_epoch: int) -> Leading | None:
        """The leadership, if its proposal is still the one of this epoch."""
        leading = self._leading(key)
        if leading is None or leading.proposed is None or leading.is_given_up:
            return None
        return leading if leading.partition_epoch == partition_epoch else None


def _led(leading: Leading) -> LedPartition:
    return LedPartition(
        leading.replicas,
        leading.isr,
        leading.leader_epoch,
        leading.partition_epoch,
        {one: Follower(remote.broker_epoch, remote.caught_up_ms) for one, remote in leading.remotes.items()},
        leading.proposed,
    )
