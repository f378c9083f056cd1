"""Changes to configurations (Kafka: `ConfigurationControlManager`, `handleIncrementalAlterConfigs`; KIP-339).

So far one kind of resource is served, the metrics subscriptions of clients: all others belong to brokers and topics.
"""

from __future__ import annotations

from typing import Final

from kraft.controller import client_metrics
from kraft.controller.result import ApiError, ControllerResult, VersionedRecord
from metadata_log.image import ConfigsImage, Resource, ResourceType
from metadata_log.records.metadata import ConfigRecord
from transport.protocol.errors import Error
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
LONGEST_VALUE: Final = 32767
"""In bytes: a longer string cannot be written in a record. Kafka counts characters, and then fails to write."""
RECORDS_PER_OPERATION: Final = 10_000
"""More records than this are refused for the whole request (`MAX_RECORDS_PER_USER_OP`)."""


def incremental_alter_configs(image: ConfigsImage, request: IncrementalAlterConfigsRequest) -> ControllerResult:
    """Decide on every resource by itself, all or nothing in each; the records of all stand in one atomic batch."""
    records: list[VersionedRecord] = []
    answers: list[AlterConfigsResourceResponse] = []
    resources = request.resources
    duplicates = _duplicates(resources) if len(resources) > 1 else ()
    for resource in resources:
        error, text = Error.NONE, None
        key = (resource.resource_type, resource.resource_name)
        try:
            if key in duplicates:
                raise ApiError(Error.INVALID_REQUEST, "Duplicate resource.")
            records.extend(_alter(image, key, resource.configs))
        except ApiError as refused:
            error, text = refused.error, refused.text
        answers.append(
            AlterConfigsResourceResponse(
                error_code=error, error_message=text, resource_type=key[0], resource_name=key[1]
            )
        )
    if len(records) > RECORDS_PER_OPERATION:
        return refuse(request, Error.POLICY_VIOLATION, f"Too many records: {len(records)}")
    response = IncrementalAlterConfigsResponse(responses=answers)
    return ControllerResult(() if request.validate_only else tuple(records), response)


def refuse(request: IncrementalAlterConfigsRequest, error: Error, text: str) -> ControllerResult:
    """The same error for every resource of a request."""
    return ControllerResult(response=refusal(request, error, text))


def refusal(request: IncrementalAlterConfigsRequest, error: Error, text: str) -> IncrementalAlterConfigsResponse:
    """The response that refuses every resource of a request: it has no place for an error of its own."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _duplicates(resources: list[AlterConfigsResource]) -> frozenset[Resource]:
    """The resources that are named more than once. Only asked for membership, never iterated."""
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    if len(set(keys)) == len(keys):
        return frozenset()
    return frozenset(key for key in keys if keys.count(key) > 1)


def _alter(image: ConfigsImage, resource: Resource, changes: list[AlterableConfig]) -> list[VersionedRecord]:
    """The records that change one resource; raises `ApiError` if any of its changes is refused."""
    _check_type(resource)
    before = image.of(resource)
    after = dict(before)
    # The last operation on a key wins, as the changes are gathered by key first.
    for name, change in {change.name: change for change in changes}.items():
        value = _new_value(before.get(name), change)
        if value is None:
            after.pop(name, None)
        elif len(value.encode()) > LONGEST_VALUE:
            raise ApiError(
                Error.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{LONGEST_VALUE} bytes.",
            )
        else:
            after[name] = value
    client_metrics.validate(resource[1], after)
    names = dict.fromkeys(change.name for change in changes)
    return [
        VersionedRecord(
            ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=after.get(name))
        )
        for name in names
        if before.get(name) != after.get(name)
    ]


def _check_type(resource: Resource) -> None:
    kind = resource[0]
    if kind == ResourceType.CLIENT_METRICS:
        return
    if kind in list(ResourceType) and kind != ResourceType.UNKNOWN:
        raise ApiError(
            Error.UNSUPPORTED_VERSION,
            f"Resources of type {ResourceType(kind).name} need brokers, which this controller does not serve.",
        )
    raise ApiError(Error.UNSUPPORTED_VERSION, f"Unknown resource type {kind}.")


def _new_value(current: str | None, change: AlterableConfig) -> str | None:
    """The value of a key after one operation; None if it is not set any more."""
    operation, value = change.config_operation, change.value
    if operation == DELETE:
        return None
    if value is None:
        raise ApiError(Error.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if operation == SET:
        return value
    if operation not in (APPEND, SUBTRACT):
        # Kafka's active controller fails on this and gives up its leadership; a client must not be able to do that.
        raise ApiError(Error.INVALID_REQUEST, f"Unknown operation {operation} on {change.name}.")
    if change.name not in client_metrics.LISTS:
        verb = "APPEND" if operation == APPEND else "SUBTRACT"
        raise ApiError(Error.INVALID_CONFIG, f"Can't {verb} to key {change.name} because its type is not LIST.")
    parts = client_metrics.split(current or "")
    for part in value.split(","):
        if operation == APPEND and part not in parts:
            parts.append(part)
        elif operation == SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)
