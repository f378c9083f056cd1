"""Changes to configurations (Kafka: `ConfigurationControlManager`, `handleIncrementalAlterConfigs`; KIP-339).

So far one kind of resource is served, the metrics subscriptions of clients: all others belong to brokers and topics.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kraft.controller import client_metrics
from kraft.controller.result import RECORDS_PER_OPERATION, ApiError, ControllerResult, VersionedRecord
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


def incremental_alter_configs(image: ConfigsImage, request: IncrementalAlterConfigsRequest) -> ControllerResult:
    """Decide on every resource by itself, all or nothing in each; the records of all stand in one atomic batch."""
    records: list[VersionedRecord] = []
    answers: list[AlterConfigsResourceResponse] = []
    resources = request.resources
    by_key = {(resource.resource_type, resource.resource_name): resource for resource in resources}
    duplicates = _duplicates(resources) if len(by_key) < len(resources) else ()
    for key, resource in by_key.items():
        error, text = Error.NONE, None
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


def refusal(
    request: IncrementalAlterConfigsRequest, error: Error, text: str | None = None
) -> IncrementalAlterConfigsResponse:
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
    return frozenset(key for key, count in Counter(keys).items() if count > 1)


def _alter(image: ConfigsImage, resource: Resource, changes: list[AlterableConfig]) -> list[VersionedRecord]:
    """The records that change one resource; raises `ApiError` if any of its changes is refused."""
    _check_type(resource)
    before = image.of(resource)
    after = dict(before)
    # The last operation on a key wins, as the changes are gathered by key first.
    wanted = {change.name: change for change in changes}
    for name, change in wanted.items():
        value = _new_value(change)
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    client_metrics.validate(resource[1], after)
    return [
        VersionedRecord(
            ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=after.get(name))
        )
        for name in wanted
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


def _new_value(change: AlterableConfig) -> str | None:
    """The value of a key after one operation; None if it is not set any more, as also a SET of null has it."""
    operation = change.config_operation
    if operation in (APPEND, SUBTRACT):
        # Kafka knows the types of these keys only where it validates them, not where it takes lists apart.
        verb = "APPEND" if operation == APPEND else "SUBTRACT"
        raise ApiError(Error.INVALID_CONFIG, f"Can't {verb} to key {change.name} because its type is not LIST.")
    if operation not in (SET, DELETE):
        # Kafka's active controller fails on this and gives up its leadership; a client must not be able to do that.
        raise ApiError(Error.INVALID_REQUEST, f"Unknown operation {operation} on {change.name}.")
    return change.value if operation == SET else None
