"""A broker as the controllers see it: it follows the metadata log and keeps its registration (Kafka: `BrokerServer`
without its `KafkaApis`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kraft.broker.agent import BrokerAgent
from kraft.committed import Committed, FollowsLog
from kraft.supported_features import SUPPORTED_FEATURES, check_supported
from metadata_log.image import MetadataImage
from metadata_log.image.record_values import encode_image, published_features
from transport.protocol.apis import ApiKey


class RegisteredBroker(FollowsLog):
    """A broker with its agent. A subclass has the replicas, and answers whoever asks for them.

    Args:
        agent: The registration of the broker, and what the metadata says of its replicas.
    """

    apis: tuple[ApiKey, ...]
    """The APIs at its listeners."""

    def __init__(self, agent: BrokerAgent) -> None:
        self.agent = self._owner = agent
        self._through = agent.noted

    def committed_image(self) -> MetadataImage:
        """The committed metadata, without records of a transaction that is open."""
        return self.agent.image

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        features = self.agent.image.features
        super().apply_more()
        if self._applying is None and self.agent.image.features is not features:
            check_supported(self.agent.image.features)
        return ()

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """The record values of the image; None while a transaction is open."""
        image = self.agent.image
        return (lambda: encode_image(image)) if self.agent.is_between_transactions else None

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The feature levels in the metadata, and their offset."""
        return published_features(self.agent.image)

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """The features that this software supports."""
        return SUPPORTED_FEATURES

    def on_begin_shutdown(self, now_ms: int) -> None:
        """Begin the controlled shutdown: the controller moves the leaderships of this broker."""
        self.agent.begin_shutdown(now_ms)

    @property
    def may_stop(self) -> bool:
        """Whether the controller has confirmed the controlled shutdown."""
        return self.agent.may_stop
