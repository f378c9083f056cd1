"""Serves AlterConfigs, which replaces a configuration (Kafka: `ConfigurationControlManager.legacyAlterConfigs`)."""

from __future__ import annotations

from collections import Counter

from kraft.access.errors import ApiError
from kraft.controller.configs import client_metrics
from kraft.controller.configs.incremental_configs import DELETE, SET, alter
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps
from kraft.limits import RECORDS_PER_OPERATION
from metadata_log.image import Resource, ResourceType
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import ClearElrRecord
from transport.protocol.errors import Error
from transport.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from transport.protocol.messages.incremental_alter_configs import AlterableConfig


def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> Steps:
    """Decide on each resource separately. A value that the request does not name is removed."""
    records: list[VersionedRecord] = []
    answers = []
    client_metrics.check_size(request.resources)
    times = Counter(_key(resource) for resource in request.resources)
    for key, resource in {_key(resource): resource for resource in request.resources}.items():
        yield None
        error = None
        try:
            if times[key] > 1:
                raise ApiError(Error.INVALID_REQUEST, "Duplicate resource.")
            if key[0] == ResourceType.BROKER_LOGGER:
                raise ApiError(Error.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER.")
            records += alter(context, key, _changes(context, resource))
        except ApiError as refused:
            error = refused
        answers.append(_answer(key, error))
    records.sort(key=lambda one: type(one.record) is ClearElrRecord)
    if len(records) > RECORDS_PER_OPERATION:
        raise ApiError(Error.POLICY_VIOLATION, f"Too many records: {len(records)}")
    return ControllerResult(() if request.validate_only else tuple(records), AlterConfigsResponse(responses=answers))


def _key(resource: AlterConfigsResource) -> Resource:
    return (resource.resource_type, resource.resource_name)


def _answer(key: Resource, error: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.text,
        resource_type=key[0],
        resource_name=key[1],
    )


def _changes(context: RequestContext, resource: AlterConfigsResource) -> list[AlterableConfig]:
    """The incremental changes that are equivalent to the replacement."""
    named = {config.name: config.value for config in resource.configs}
    gone = [name for name in context.image.configs.of(_key(resource)) if name not in named]
    return [
        *(AlterableConfig(name=name, config_operation=SET, value=value) for name, value in named.items()),
        *(AlterableConfig(name=name, config_operation=DELETE, value=None) for name in sorted(gone)),
    ]
