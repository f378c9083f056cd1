"""GetTelemetrySubscriptions and PushTelemetry (Kafka: `ClientMetricsManager`; KIP-714)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Final

from msgspec import Struct

from kraft.access.caller import host_of_peer
from kraft.access.errors import ApiError
from kraft.broker.telemetry.instances import Connection, Instance, Instances
from kraft.broker.telemetry.payload import BadPayload, Points, TooManyMetrics, points_of, shown
from kraft.broker.telemetry.pushed import PushedTable
from kraft.broker.telemetry.subscriptions import Client, Subscriptions
from kraft.config.telemetry_settings import TelemetryConfig
from kraft.handling.steps import Handling
from kraft.limits import SOFTWARE_CHARACTERS, SOFTWARE_NOTED, TELEMETRY_UNPACKED_BYTES
from kraft.wire import Answer, WireRequest
from metadata_log.compression import BadCompression, Compression, inflating
from metadata_log.image import MetadataImage
from metadata_log.types import Uuid, random_uuid
from transport.protocol.errors import Error
from transport.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

ACCEPTED: Final = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]
"""The first one is what clients use."""
_KNOWN: Final = frozenset(map(int, Compression))
_RESERVED: Final = frozenset((Uuid.ZERO, Uuid.METADATA_TOPIC))
_ASKS_AGAIN: Final = frozenset((Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE))
"""After these errors a client may ask before its interval is over."""
_UNKNOWN: Final = ("unknown", "unknown")
"""The software of a client that has not told it (`ClientInformation.EMPTY`)."""


class TelemetryCounts(Struct):
    """The events since the start (Kafka: `ClientMetricsStats`, which counts by the client)."""

    throttled: int = 0
    unknown_subscriptions: int = 0
    exported: int = 0
    failed: int = 0
    left_out: int = 0
    """The numbers of pushes that were taken without them."""


class TelemetryHandler:
    """Tells clients what to push, and takes what they push.

    Args:
        settings: The most bytes of a push.
        rng: The randomness of the ids of clients.
        report: Takes a finding for the log of the node.
    """

    def __init__(self, settings: TelemetryConfig, rng: Random, report: Callable[[str], None]) -> None:
        self._max_bytes = settings.max_bytes
        self._rng = rng
        self.instances = Instances()
        self.subscriptions = Subscriptions(report)
        self.pushed = PushedTable()
        self.counts = TelemetryCounts()
        self._software: OrderedDict[Connection, tuple[str, str]] = OrderedDict()
        """The name and the version that the client of a connection has told."""
        self._unpacked_bytes = 0
        """The bytes that pushes under way may have unpacked."""

    def on_software(self, connection: Connection, name: str, version: str) -> None:
        """A client tells what it is, in its ApiVersions request."""
        told = (name[:SOFTWARE_CHARACTERS] or _UNKNOWN[0], version[:SOFTWARE_CHARACTERS] or _UNKNOWN[1])
        self._software[connection] = told
        if len(self._software) > SOFTWARE_NOTED:
            self._software.popitem(last=False)

    def on_closed(self, connection: Connection) -> None:
        """A connection is gone. What its client has pushed stays until it expires."""
        self._software.pop(connection, None)
        self.instances.on_closed(connection)

    # What to push

    def get(
        self, request: WireRequest[GetTelemetrySubscriptionsRequest], image: MetadataImage, now_ms: int
    ) -> Handling[Answer]:
        """Tell a client what to push, and give it an id if it has none."""
        client_id = request.message.client_instance_id
        if client_id == Uuid.ZERO:
            client_id = random_uuid(self._rng)
        instance = yield from self._instance(client_id, request, image, now_ms)
        if not instance.may_get(now_ms) and instance.last_error not in _ASKS_AGAIN:
            self.counts.throttled += 1
            refused = GetTelemetrySubscriptionsResponse(error_code=Error.THROTTLING_QUOTA_EXCEEDED)
            return Answer(request.request_id, refused)
        instance.last_error = Error.NONE
        answer = GetTelemetrySubscriptionsResponse(
            client_instance_id=client_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(one) for one in ACCEPTED],
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )
        return Answer(request.request_id, answer)

    @staticmethod
    def refuse_get(request: WireRequest[GetTelemetrySubscriptionsRequest], refused: ApiError) -> Answer:
        """The answer to a request that has failed as a whole."""
        return Answer(request.request_id, GetTelemetrySubscriptionsResponse(error_code=refused.error))

    # What is pushed

    def push(self, request: WireRequest[PushTelemetryRequest], image: MetadataImage, now_ms: int) -> Handling[Answer]:
        """Take the metrics of a client."""
        message = request.message
        client_id = message.client_instance_id
        if client_id in _RESERVED:
            return _pushed(request, Error.INVALID_REQUEST)
        instance = yield from self._instance(client_id, request, image, now_ms)
        error = self._judge(instance, message, now_ms)
        instance.is_terminating = message.terminating
        if error is Error.NONE and message.metrics:
            try:
                points = yield from self._points(message)
            except TooManyMetrics:
                error = Error.TELEMETRY_TOO_LARGE
            except (BadCompression, BadPayload):
                # Too much when unpacked, too: Kafka 4.4.0 has the one code for all that its receiver does not get.
                error = Error.INVALID_RECORD
            else:
                self.pushed.put(client_id, _labels_of(instance.client), points.found, instance.expires_ms)
                self.counts.left_out += points.left_out
            if error is Error.NONE:
                self.counts.exported += 1
            else:
                self.counts.failed += 1
        instance.last_error = error
        return _pushed(request, error)

    @staticmethod
    def refuse_push(request: WireRequest[PushTelemetryRequest], refused: ApiError) -> Answer:
        """The answer to a request that has failed as a whole."""
        return _pushed(request, refused.error)

    def _judge(self, instance: Instance, message: PushTelemetryRequest, now_ms: int) -> Error:
        """Why a push is not taken (`ClientMetricsManager.validatePushRequest`)."""
        if instance.is_terminating:
            return Error.INVALID_REQUEST
        if not instance.may_push(now_ms) and not message.terminating:
            self.counts.throttled += 1
            return Error.THROTTLING_QUOTA_EXCEEDED
        if message.subscription_id != instance.subscription_id:
            self.counts.unknown_subscriptions += 1
            return Error.UNKNOWN_SUBSCRIPTION_ID
        if message.compression_type not in _KNOWN:
            return Error.UNSUPPORTED_COMPRESSION_TYPE
        return Error.TELEMETRY_TOO_LARGE if len(message.metrics) > self._max_bytes else Error.NONE

    def _points(self, message: PushTelemetryRequest) -> Handling[Points]:
        """The numbers of a push, unpacked to as many bytes as a push may have at most."""
        while self._unpacked_bytes and self._unpacked_bytes + self._max_bytes > TELEMETRY_UNPACKED_BYTES:
            yield None
        self._unpacked_bytes += self._max_bytes
        try:
            pieces = []
            for piece in inflating(Compression(message.compression_type), message.metrics, self._max_bytes):
                pieces.append(piece)
                yield None
            return (yield from points_of(b"".join(pieces)))
        finally:
            self._unpacked_bytes -= self._max_bytes

    # Clients

    def _instance(self, client_id: Uuid, request: WireRequest, image: MetadataImage, now_ms: int) -> Handling[Instance]:
        """The instance with this id, made or renewed by the subscriptions of now, in steps."""
        yield from self.subscriptions.using(image)
        instance = self.instances.get(client_id, now_ms)
        while instance is None or instance.version < self.subscriptions.version:
            version = self.subscriptions.version
            client = self._client(client_id, request) if instance is None else instance.client
            wanted = yield from self.subscriptions.of(client)
            connection = request.listener, request.peer
            made = Instance(client, wanted, wanted.subscription_id(client_id), version, connection)
            # Another request of the client may have been faster.
            instance = self.instances.get(client_id, now_ms)
            if instance is None or instance.version < version:
                made.keep(now_ms)
                self.instances.put(client_id, made)
                instance = made
        instance.keep(now_ms)
        self.pushed.keep(client_id, instance.expires_ms)
        return instance

    def _client(self, client_id: Uuid, request: WireRequest) -> Client:
        name, version = self._software.get((request.listener, request.peer), _UNKNOWN)
        told = request.client_id
        return Client(
            str(client_id),
            None if told is None else told[:SOFTWARE_CHARACTERS],
            name,
            version,
            host_of_peer(request.peer),
            request.peer.rpartition(":")[2],
        )


def _pushed(request: WireRequest, error: Error) -> Answer:
    return Answer(request.request_id, PushTelemetryResponse(error_code=error))


def _labels_of(client: Client) -> tuple[tuple[str, str], ...]:
    return (
        ("client_instance_id", client.client_instance_id),
        ("client_id", shown(client.client_id or "")),
        ("client_software_name", shown(client.client_software_name)),
        ("client_software_version", shown(client.client_software_version)),
    )
