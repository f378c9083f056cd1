"""A broker as the controllers see it: it follows the metadata log and keeps its registration (Kafka: `BrokerServer`
without its `KafkaApis`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kraft.access.older_node import Audited
from kraft.agenda import Agenda, Slot
from kraft.broker.agent import BrokerAgent
from kraft.calls import Call, CancelCall, LeaveCluster, Left
from kraft.committed import Committed, FollowsLog, Noted
from kraft.replica.interface.actions import Action
from kraft.replica.interface.events import Submit
from kraft.server import Server
from kraft.supported_features import SUPPORTED_FEATURES, check_supported
from metadata_log.image import MetadataImage
from metadata_log.image.record_values import encode_image, published_features


class RegisteredBroker(FollowsLog, Server):
    """A broker with its agent. A subclass has the replicas, and answers whoever asks for them.

    Args:
        agent: The registration of the broker, and what the metadata says of its replicas.
        agenda: The times at which the broker has work to do.
        audited: The latest entries of the audit log.
    """

    def __init__(self, agent: BrokerAgent, agenda: Agenda, audited: list[Audited] | None = None) -> None:
        super().__init__(agenda, audited)
        self.agent = self._owner = agent
        self._through = agent.noted
        self._is_leaving = False
        """Whether the host waits for the end of the controlled shutdown."""
        self._plan()

    def _plan(self) -> None:
        """Say when the agent has work to do."""
        if self._is_leaving and self.agent.may_stop:
            self.agenda.now(Slot.AGENT)
        else:
            self.agenda.at(Slot.AGENT, self.agent.deadline_ms())

    def committed_image(self) -> MetadataImage:
        """The committed metadata, without records of a transaction that is open."""
        return self.agent.image

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        features = self.agent.image.features
        super().apply_more()
        if self._applying is None and self.agent.image.features is not features:
            check_supported(self.agent.image.features)
        self._plan()
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
        self._plan()

    def on_call(self, call: Call | CancelCall | Submit, now_ms: int) -> Action | None:
        """Leave the cluster before the controller beside this broker ends; `Left` follows."""
        if not isinstance(call, Call):
            return super().on_call(call, now_ms)
        assert isinstance(call.ask, LeaveCluster), call
        self._is_leaving = True
        self.on_begin_shutdown(now_ms)
        return None

    def _farewell(self) -> Iterator[Noted]:
        """Tell the host once that the broker has handed over what it led."""
        if self._is_leaving and self.agent.may_stop:
            self._is_leaving = False
            yield Noted(Left())

    @property
    def may_stop(self) -> bool:
        """Whether the controller has confirmed the controlled shutdown."""
        return self.agent.may_stop
