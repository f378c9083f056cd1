"""Configurations shown to administrators, this node's own among them (Kafka: `ConfigHelper`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import structs

from kraft.config.described import DescribedSetting, counts_for_all, kafka_setting
from kraft.config.topic_synonyms import TOPIC_SYNONYMS, inherited
from kraft.controller.deciding import Deciding
from kraft.controller.group_config_keys import GROUP_KEYS
from kraft.controller.result import ApiError, ControllerResult
from kraft.controller.topic_config_keys import TOPIC_KEYS, TopicKey
from kraft.controller.topic_names import check_name
from metadata_log.image import Resource, ResourceType
from metadata_log.image.persistent_map import in_key_order
from transport.protocol.errors import Error
from transport.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT: Final = 3
STATIC: Final = 4
DEFAULT: Final = 5
CLIENT_METRICS: Final = 7
GROUP: Final = 8
TYPES: Final = {
    name: code
    for code, name in enumerate(
        ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
    )
}
TYPES_SINCE: Final = 3
"""The version of the API that tells types."""
_INT: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
Value = tuple[str | None, int]
"""What a setting is, and where that comes from."""
Described = tuple[Mapping[str, DescribedSetting], dict[str, list[Value]]]
"""What is known of settings, and their values, the one that holds first."""
_METRICS_KEYS: Final = {
    "interval.ms": TopicKey("INT", "300000"),
    "match": TopicKey("LIST", ""),
    "metrics": TopicKey("LIST", ""),
}


def describe_configs(deciding: Deciding, request: DescribeConfigsRequest) -> ControllerResult:
    """Describe every resource by itself."""
    results = []
    for resource in request.resources:
        error, text, configs = Error.NONE, "", list[DescribeConfigsResourceResult]()
        try:
            configs = list(_configs(deciding, resource, request))
        except ApiError as refused:
            error, text = refused.error, refused.text or ""
        results.append(
            DescribeConfigsResult(
                error_code=error,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return ControllerResult(response=DescribeConfigsResponse(results=results))


def refuse_describe_configs(
    request: DescribeConfigsRequest, error: Error, text: str | None = None
) -> DescribeConfigsResponse:
    """The same error for every resource."""
    results = [
        DescribeConfigsResult(
            error_code=error,
            error_message=text,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return DescribeConfigsResponse(results=results)


def _configs(
    deciding: Deciding, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Iterator[DescribeConfigsResourceResult]:
    """The settings that are asked for by name, or all of them; raises `ApiError` for what is not described here."""
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.BROKER:
            settings, found = _of_brokers(deciding, name)
        case ResourceType.TOPIC:
            settings, found = _of_topic(deciding, name)
        case ResourceType.GROUP if name:
            settings, found = _of_keys(deciding, GROUP_KEYS, (ResourceType.GROUP, name), GROUP)
        case ResourceType.CLIENT_METRICS if name:
            resource_key = (ResourceType.CLIENT_METRICS, name)
            settings, found = _of_keys(deciding, _METRICS_KEYS, resource_key, CLIENT_METRICS)
        case ResourceType.BROKER_LOGGER:
            # This software has no levels of logging that a request could change.
            _check_own_id(deciding, name)
            return
        case ResourceType.GROUP:
            raise ApiError(Error.INVALID_REQUEST, "Group name must not be empty")
        case ResourceType.CLIENT_METRICS:
            raise ApiError(Error.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        case _:
            raise ApiError(Error.INVALID_REQUEST, f"Resources of type {resource.resource_type} cannot be described.")
    wanted = frozenset(resource.configuration_keys or ())
    for key, values in found.items():
        if not wanted or key in wanted:
            known = settings.get(key) or kafka_setting(key)
            yield _config(deciding, resource, known, key, values, with_synonyms=request.include_synonyms)


def _of_brokers(deciding: Deciding, name: str) -> Described:
    """Of this node, or with the empty name what is set for all brokers."""
    configs = deciding.committed.configs
    for_all = [
        (key, (value, DYNAMIC_DEFAULT))
        for key, value in in_key_order(configs.of((ResourceType.BROKER, "")))
        if counts_for_all(key, value)
    ]
    settings = {one.name: one for one in deciding.own_settings}
    if not name:
        return settings, {key: [value] for key, value in for_all}
    _check_own_id(deciding, name, " or empty string,")
    own = [(key, (value, DYNAMIC_BROKER)) for key, value in in_key_order(configs.of((ResourceType.BROKER, name)))]
    found: dict[str, list[Value]] = {}
    for key, value in (*own, *for_all):
        found.setdefault(key, []).append(value)
    for key, setting in settings.items():
        values = found.setdefault(key, [])
        if setting.is_set:
            values.append((setting.value, STATIC))
        elif setting.value is not None or not values:
            values.append((setting.value, DEFAULT))
    return settings, found


def _of_topic(deciding: Deciding, name: str) -> Described:
    """Of a topic: its own settings, then those of this node and of all brokers under the names that these have."""
    check_name(name)
    image = deciding.committed
    if name not in image.topics:
        # Kafka has no words for it.
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, "")
    static = {one.name: one.value for one in deciding.own_settings if one.is_set and one.value is not None}
    node = image.configs.of((ResourceType.BROKER, str(deciding.defaults.node_id)))
    cluster = image.configs.of((ResourceType.BROKER, ""))
    settings, found = _of_keys(deciding, TOPIC_KEYS, (ResourceType.TOPIC, name), TOPIC)
    for key, values in found.items():
        layers = ((node, DYNAMIC_BROKER), (cluster, DYNAMIC_DEFAULT), (static, STATIC))
        values[-1:-1] = [(value, source) for layer, source in layers if (value := inherited(key, layer)) is not None]
    return settings, found


def _of_keys(deciding: Deciding, keys: Mapping[str, TopicKey], resource: Resource, source: int) -> Described:
    """Of a resource whose keys are in a table: what is set, and the default behind it."""
    own = deciding.committed.configs.of(resource)
    settings = {
        name: DescribedSetting(name, key.type, key.default, is_set=name in own, is_dynamic=True)
        for name, key in keys.items()
    }
    found: dict[str, list[Value]] = {
        name: [*([(own[name], source)] if name in own else ()), (key.default, DEFAULT)] for name, key in keys.items()
    }
    return settings, found


def _config(
    deciding: Deciding,
    resource: DescribeConfigsResource,
    known: DescribedSetting,
    key: str,
    values: list[Value],
    *,
    with_synonyms: bool,
) -> DescribeConfigsResourceResult:
    shown = [(None if known.is_sensitive else value, source) for value, source in values]
    value, source = shown[0]
    result = DescribeConfigsResourceResult(
        name=key,
        value=value,
        read_only=not known.is_dynamic,
        config_source=source,
        is_sensitive=known.is_sensitive,
        synonyms=_synonyms(resource, key, shown) if with_synonyms else [],
    )
    if deciding.version < TYPES_SINCE:
        return result
    return structs.replace(result, config_type=TYPES[known.type], documentation=None)


def _synonyms(resource: DescribeConfigsResource, key: str, values: list[Value]) -> list[DescribeConfigsSynonym]:
    """Where else a setting has a value, under the name that it has there; brokers have names of their own for some."""
    if resource.resource_type not in (ResourceType.BROKER, ResourceType.TOPIC):
        return []
    of_brokers = key
    if resource.resource_type == ResourceType.TOPIC and key in TOPIC_SYNONYMS:
        of_brokers = TOPIC_SYNONYMS[key][0].name
    return [
        DescribeConfigsSynonym(name=key if source == TOPIC else of_brokers, value=value, source=source)
        for value, source in values
        if value is not None or source != DEFAULT
    ]


def _check_own_id(deciding: Deciding, name: str, otherwise: str = "") -> None:
    """Every node describes itself alone."""
    if not name:
        raise ApiError(Error.INVALID_REQUEST, "Broker id must not be empty")
    if not _INT.fullmatch(name):
        raise ApiError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    own = deciding.defaults.node_id
    if int(name) != own:
        text = f"Unexpected broker id, expected {own}{otherwise} but received {name}"
        raise ApiError(Error.INVALID_REQUEST, text)
