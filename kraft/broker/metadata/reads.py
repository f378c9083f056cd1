"""The reads of metadata that brokers and controllers answer by the same functions (Kafka: `KafkaApis`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraft.access.items import authorize_items
from kraft.access.permissions import check_cluster
from kraft.handling.rights import Permissions
from kraft.handling.settings import RequestSettings
from kraft.reads.acls import describe_acls
from kraft.reads.configs import describe_configs
from kraft.reads.reading import Reading
from kraft.reads.scram import describe_scram_credentials
from kraft.steps import Answering
from kraft.wire import WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.apis import ApiKey

_READS: Final[dict[int, Callable[[Reading, Any], Answering]]] = {
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_scram_credentials,
}


def read_as_a_controller(
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
    return permitted.finish((yield from _READS[request.api_key](reading, permitted.request)))
