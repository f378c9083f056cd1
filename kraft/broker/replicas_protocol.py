"""What a broker agent needs of the replicas of its broker, with or without data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kraft.broker.replicas import LedPartition, PartitionKey
from metadata_log.image import MetadataImage, Partition
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.messages.fetch import FetchRequest, FetchResponse


class BrokerReplicas(Protocol):
    """The replicas of one broker: `kraft.broker.replicas.Replicas` without data, a `ReplicaManager` with data."""

    @property
    def proposals(self) -> dict[PartitionKey, None]:
        """The partitions with an unsent proposal of an ISR."""

    @property
    def failed_directories(self) -> dict[Uuid, str]:
        """The log directories that have failed, with the reason."""

    @property
    def partitions_per_turn(self) -> int:
        """How many calls of `on_partition` the agent makes in one turn."""

    # Start and metadata

    @property
    def is_loaded(self) -> bool:
        """Whether the logs are open."""

    def load_more(self, image: MetadataImage, now_ms: int) -> bool:
        """Open the logs, a portion in each call; returns whether all are open. Metadata changes follow then."""

    def on_image(self, image: MetadataImage) -> None:
        """New metadata, before the calls of `on_partition` for its changes."""

    def on_partition(
        self, key: PartitionKey, partition: Partition | None, now_ms: int, directory: Uuid | None = None
    ) -> None:
        """A partition has changed; None if this broker has no online replica of the partition any more.

        `directory` is the log directory for a new replica.
        """

    def hosted(self) -> list[PartitionKey]:
        """The keys of all replicas."""

    def directory_of(self, key: PartitionKey) -> Uuid | None:
        """The log directory that holds a replica already; None for a replica without a log."""

    def take_failed_directories(self) -> Sequence[Uuid]:
        """The log directories that have failed since the last call."""

    # Following

    def leaders(self) -> list[int]:
        """The leaders that this broker follows, in order of their ids."""

    def fetch_from(self, leader: int, broker_epoch: int, now_ms: int) -> Message | None:
        """The next request to a leader; None with nothing to fetch now."""

    def on_fetched(self, leader: int, response: Message | None, now_ms: int) -> int | None:
        """Take the answer of a leader, None for a failed request; returns when the next request is due.

        None leaves that to the interval of the agent.
        """

    # Leading

    def on_fetch(self, request: FetchRequest, image: MetadataImage, now_ms: int) -> FetchResponse:
        """Answer a follower's Fetch at once."""

    def deadline_ms(self) -> int:
        """When the next `shrink` is due."""

    def shrink(self, now_ms: int) -> None:
        """Do what is due, such as the removal of slow followers from the ISR."""

    # Outcomes of a proposal

    def take_proposals(self) -> Iterator[tuple[PartitionKey, LedPartition]]:
        """Take all proposals that are to be sent now."""

    def accepted(self, key: PartitionKey, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has answered with the present partition."""

    def withdrawn(self, key: PartitionKey, partition_epoch: int) -> None:
        """A member is not eligible."""

    def given_up(self, key: PartitionKey, partition_epoch: int) -> None:
        """The controller has newer metadata."""

    def again(self, key: PartitionKey, partition_epoch: int) -> None:
        """The request failed: the proposal is sent again."""
