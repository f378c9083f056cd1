"""The resources with configurations, and the quotas of clients (Kafka: `KafkaApis.handleListConfigResources`,
`ClientQuotasImage.describe`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from kraft.access.errors import ApiError
from kraft.broker.metadata.brokers import reachable
from kraft.limits import ITEMS_PER_STEP
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.image.quotas import CLIENT_ID, IP, USER, Entity, in_entity_order
from transport.protocol.errors import Error
from transport.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from transport.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)
_DEFAULT: Final = 1


def list_config_resources(
    image: MetadataImage, request: ListConfigResourcesRequest, *, version: int, listener: str
) -> Generator[None, None, ListConfigResourcesResponse]:
    """The names of the resources of the requested types; of all types if the request names none.

    Version 0 lists the subscriptions of client metrics.
    """
    known: tuple[int, ...] = _LISTED if version >= 1 else (ResourceType.CLIENT_METRICS,)
    wanted = request.resource_types or known
    if any(one not in known for one in wanted):
        return ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
    config_resources: list[ConfigResource] = []
    for kind in _LISTED:
        if kind not in wanted:
            continue
        if kind is ResourceType.TOPIC:
            names = list(image.topics)
        elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            names = [str(broker.id) for broker, _ in reachable(image, listener, with_fenced=True)]
        else:
            names = sorted(name for of, name in image.configs.by_resource if of == kind)
        for number, name in enumerate(names):
            config_resources.append(ConfigResource(resource_name=name, resource_type=kind))
            if number % ITEMS_PER_STEP == 0:
                yield None
    return ListConfigResourcesResponse(config_resources=config_resources)


def describe_client_quotas(
    image: MetadataImage, request: DescribeClientQuotasRequest
) -> Generator[None, None, DescribeClientQuotasResponse]:
    """The quotas of the entities that match each component of the request; raises `ApiError` for a bad component."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for one in request.components:
        if not one.entity_type:
            raise ApiError(Error.INVALID_REQUEST, "Invalid empty entity type.")
        if one.entity_type in exact or one.entity_type in specified:
            text = f"Entity type {one.entity_type} cannot appear more than once in the filter."
            raise ApiError(Error.INVALID_REQUEST, text)
        if one.entity_type not in (IP, USER, CLIENT_ID):
            raise ApiError(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {one.entity_type}")
        match one.match_type:
            case 0 if one.match is None:
                text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
                raise ApiError(Error.INVALID_REQUEST, text)
            case 1 | 2 if one.match is not None:
                name = "DEFAULT" if one.match_type == _DEFAULT else "SPECIFIED"
                text = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
                raise ApiError(Error.INVALID_REQUEST, text)
            case 0 | 1:
                exact[one.entity_type] = one.match
            case 2:
                specified.add(one.entity_type)
            case other:
                raise ApiError(Error.INVALID_REQUEST, f"Unknown match type {other}")
    named = exact.keys() | specified
    if IP in named and len(named) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )
        raise ApiError(Error.INVALID_REQUEST, text)
    entries: list[EntryData] = []
    for entity, quotas in in_entity_order(image.quotas):
        if _matches(entity, exact, specified, is_strict=request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=quotas[key]) for key in sorted(quotas)],
                )
            )
        yield None
    return DescribeClientQuotasResponse(entries=entries)


def refuse_client_quotas(error: Error, text: str | None) -> DescribeClientQuotasResponse:
    """The answer with an error and without entries."""
    return DescribeClientQuotasResponse(error_code=error, error_message=text, entries=None)


def _matches(entity: Entity, exact: dict[str, str | None], specified: set[str], *, is_strict: bool) -> bool:
    parts = dict(entity)
    if is_strict and len(parts) != len(exact) + len(specified):
        return False
    if any(kind not in parts or parts[kind] != name for kind, name in exact.items()):
        return False
    return all(kind in parts for kind in specified)
