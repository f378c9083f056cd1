"""The reads of metadata that brokers and controllers answer by the same functions (Kafka: `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.access.items import authorize_items
from kraft.access.permissions import check_cluster
from kraft.handling.rights import Permissions
from kraft.handling.settings import RequestSettings
from kraft.reads.reading import Reading
from kraft.steps import Answering
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.apis import ApiKey


def read_as_a_controller(
    read: Callable[[Reading, Any], Answering],
    request: WireRequest,
    image: MetadataImage,
    settings: RequestSettings,
    permissions: Permissions,
) -> Answering:
    """The answer to a read that controllers serve, too, made by the same function; raises `ApiError`."""
    check_cluster(permissions, ApiKey(request.api_key))
    permitted = yield from authorize_items(permissions, image, request.message)
    reading = Reading(
        image, request.version, settings.broker_id, settings.own_settings, permissions.rights.settings is not None
    )
    return permitted.finish((yield from read(reading, permitted.request)))
