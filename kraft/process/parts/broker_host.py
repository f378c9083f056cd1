"""A `BrokerServer` as a part of a process that observes the metadata log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from kraft.access.authorizer import Denial
from kraft.broker import BrokerListener, BrokerSettings
from kraft.broker.server import BrokerServer
from kraft.broker.settings import PLAINTEXT
from kraft.replica.interface.application import (
    Action,
    Application,
)
from kraft.replica.interface.events import Committed, CommittedBatch, Noted
from kraft.replica.interface.options import ReplicaOptions
from kraft.supported_features import SUPPORTED_FEATURES
from kraft.wire import Answer, Drop, LeaveUnanswered, Outcome, ReplyTo, Send, WireRequest
from metadata_log.image import MetadataImage
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, random_uuid


class BrokerHost:
    """Hosts one `BrokerServer`; its replica never leads."""

    reads_batches = True

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.agent = server.agent
        self.apis = server.apis

    def committed_image(self) -> MetadataImage:
        """The committed metadata, without records of a transaction that is open."""
        return self.server.image

    def check(self, values: Sequence[bytes], *, in_snapshot: bool = False) -> Sequence[Message]:
        """Decode the values. Raises the errors of `decode_records` for an unknown type or version."""
        return self.server.check(values)

    def check_snapshot(self, values: Iterable[bytes]) -> None:
        """Each record was decoded."""

    def on_snapshot(self, values: Iterable[bytes], end: OffsetAndEpoch) -> None:
        """Replace the image by that of a snapshot; `apply_more` completes this."""
        self.server.on_snapshot(values, end)

    def on_committed(self, batch: CommittedBatch) -> tuple[Committed, ...]:
        """Replay the first portion of a batch; `apply_more` replays the rest."""
        end = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        self.server.on_committed(batch.values, batch.base_offset, end, batch.records)
        return ()

    @property
    def is_applying(self) -> bool:
        """Whether the last batch or snapshot needs more turns."""
        return self.server.is_applying

    def apply_more(self) -> tuple[Committed, ...]:
        """Replay the next portion of the batch or the snapshot."""
        self.server.apply_more()
        return ()

    def on_request(self, request: WireRequest, now_ms: int) -> Outcome | None:
        """Answer the fetch of another broker, or the request of a client."""
        return self.server.on_request(request, now_ms)

    def take_denials(self) -> Sequence[Denial]:
        """What clients were denied."""
        return self.server.take_denials()

    def snapshot(self) -> Callable[[], Iterator[bytes]] | None:
        """The record values of the image; None while a transaction is open."""
        return self.server.snapshot()

    def on_gone(self, request_id: int) -> None:
        """The request waits no longer."""
        self.server.on_gone(request_id)

    def on_reply(self, reply_to: ReplyTo, response: Message | None, now_ms: int) -> None:
        """Pass the reply of the active controller or of another broker on."""
        self.server.on_reply(reply_to.key, response, now_ms)

    def on_begin_shutdown(self, now_ms: int) -> None:
        """Begin the controlled shutdown: the controller moves the leaderships of this broker."""
        self.server.begin_shutdown(now_ms)

    @property
    def may_stop(self) -> bool:
        """Whether the controller has confirmed the controlled shutdown."""
        return self.server.may_stop

    @property
    def has_data(self) -> bool:
        """Whether the replicas of this broker hold records."""
        return self.server.has_data

    def close_data(self) -> None:
        """Close the logs after a graceful shutdown."""
        self.server.close_data()

    def finalized_features(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """The feature levels in the metadata, and their offset."""
        return self.server.finalized_features()

    def supported_features(self) -> tuple[tuple[str, int, int], ...]:
        """The features that this software supports."""
        return SUPPORTED_FEATURES

    def deadline_ms(self) -> int:
        """The time of the next `on_tick`."""
        return self.server.deadline_ms()

    def on_tick(self, now_ms: int) -> list[Action]:
        """Send the requests and the answers that are due."""
        sent = (Send, Answer, Drop, LeaveUnanswered)
        return [one if isinstance(one, sent) else Noted(one) for one in self.server.poll(now_ms)]


def broker_settings(options: ReplicaOptions, cluster_id: str, rng: Random) -> BrokerSettings:
    """The settings of a broker's agent, with a new incarnation id."""
    assert options.broker is not None, "these are not the options of a broker"
    protocols = dict(options.security_protocols)
    return BrokerSettings(
        broker_id=options.node_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(rng),
        listeners=tuple(
            BrokerListener(one.name, one.host, one.port, protocols.get(one.name, PLAINTEXT))
            for one in options.endpoints.listeners
        ),
        features=SUPPORTED_FEATURES,
        options=options.broker,
    )


def broker_of(application: Application) -> BrokerHost | None:
    """The broker that an application is, or has beside a controller."""
    part = getattr(application, "broker", application)
    return part if isinstance(part, BrokerHost) else None
