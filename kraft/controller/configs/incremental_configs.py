"""Alters configurations (Kafka: `ConfigurationControlManager`, `handleIncrementalAlterConfigs`; KIP-339).

The resources are topics, brokers, groups and client metrics subscriptions. Log levels of a node are not in the
metadata log: the node changes them itself (`kraft.node.loggers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kraft.access.errors import ApiError
from kraft.access.refusals import refuse_incremental_configs
from kraft.access.topic_names import check_name
from kraft.config.definitions import CORDONED, NODE, TOPIC, Definition, elements, whole_number
from kraft.config.described import of_file
from kraft.controller.configs import client_metrics, tiered_topics, topic_config_keys
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import ControllerResult, Steps, answered_with
from kraft.controller.decision.topic_configs import MIN_ISR
from kraft.limits import KEYS_AT_ONCE, RECORDS_PER_OPERATION
from kraft.supported_features import ELIGIBLE_LEADER_REPLICAS
from metadata_log.image import MetadataImage, Resource, ResourceType
from metadata_log.image.features import CORDONED_SINCE
from metadata_log.records.frame import VersionedRecord
from metadata_log.records.metadata import ClearElrRecord, ConfigRecord
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
LONGEST_VALUE: Final = 32_767
"""The first metadata.version with directories that take no new replicas, 4.3-IV0."""
_TOPIC: Final = int(ResourceType.TOPIC)
_BROKER: Final = int(ResourceType.BROKER)
_CLIENT_METRICS: Final = int(ResourceType.CLIENT_METRICS)
"""Numbers, which are found and compared faster than members of an enum."""
_KEYS: Final[Mapping[int, Mapping[str, Definition]]] = {ResourceType.BROKER: NODE, ResourceType.TOPIC: TOPIC}


def incremental_alter_configs(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Steps:
    """Decide on each resource separately, all or nothing in each; one atomic batch holds the records of all."""
    records: list[VersionedRecord] = []
    answers: list[AlterConfigsResourceResponse] = []
    resources = request.resources
    client_metrics.check_size(resources)
    by_key = {(resource.resource_type, resource.resource_name): resource for resource in resources}
    duplicates = _duplicates(resources) if len(by_key) < len(resources) else ()
    for key, resource in by_key.items():
        yield None
        written, answer = _altered(context, key, resource, is_duplicate=key in duplicates)
        records.extend(written)
        answers.append(answer)
    if len(answers) > 1:
        # The records that end an eligibility follow the changes of all resources.
        records.sort(key=lambda one: type(one.record) is ClearElrRecord)
    if len(records) > RECORDS_PER_OPERATION:
        text = f"Too many records: {len(records)}"
        return (yield from answered_with(refuse_incremental_configs(request, Error.POLICY_VIOLATION, text)))
    response = IncrementalAlterConfigsResponse(responses=answers)
    return ControllerResult(() if request.validate_only else tuple(records), response)


def alter_one_at_once(context: RequestContext, request: IncrementalAlterConfigsRequest) -> ControllerResult | None:
    """Decide as `incremental_alter_configs` on one resource with few keys; None for any other request.

    A record about the partitions of topics takes the time that its replay takes, so that it is not small either.
    """
    resources = request.resources
    if len(resources) != 1 or len(resources[0].configs) > KEYS_AT_ONCE:
        return None
    resource = resources[0]
    if resource.resource_type == _CLIENT_METRICS:
        client_metrics.check_size(resources)
    records, answer = _altered(context, (resource.resource_type, resource.resource_name), resource)
    if records and type(records[-1].record) is ClearElrRecord:
        return None
    response = IncrementalAlterConfigsResponse(responses=[answer])
    return ControllerResult(() if request.validate_only else tuple(records), response)


def _altered(
    context: RequestContext, key: Resource, resource: AlterConfigsResource, *, is_duplicate: bool = False
) -> tuple[list[VersionedRecord], AlterConfigsResourceResponse]:
    """The records for one resource, and its part of the answer."""
    error, text = Error.NONE, None
    records: list[VersionedRecord] = []
    try:
        if is_duplicate:
            raise ApiError(Error.INVALID_REQUEST, "Duplicate resource.")
        records = alter(context, key, resource.configs)
    except ApiError as refused:
        error, text = refused.error, refused.text
    return records, AlterConfigsResourceResponse(error, text, key[0], key[1])


def _duplicates(resources: list[AlterConfigsResource]) -> frozenset[Resource]:
    """The resources that the request names more than once. The result serves membership tests only, never iteration."""
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    return frozenset(key for key, count in Counter(keys).items() if count > 1)


def alter(
    context: RequestContext, resource: Resource, changes: Sequence[AlterableConfig], *, is_new: bool = False
) -> list[VersionedRecord]:
    """The records that change one resource; raises `ApiError` if one of its changes is invalid.

    `is_new` marks a topic that the same request creates. A change to min.insync.replicas empties the ELR of the
    affected partitions (KIP-966).
    """
    kind, own_name = resource
    if kind not in _VALIDATORS:
        raise _wrong_kind(kind)
    is_broker, is_topic, clears_elr = kind == _BROKER, kind == _TOPIC, False
    before = context.image.configs.of(resource)
    after = dict(before)
    # The changes are grouped by key first, so the last operation on a key wins.
    wanted = {changes[0].name: changes[0]} if len(changes) == 1 else {change.name: change for change in changes}
    for name, change in wanted.items():
        value = _new_value(resource, change, before.get(name))
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    if is_broker and MIN_ISR in wanted:
        _check_eligibility(context, resource, after)
    _validate(context, resource, after, before)
    if (is_topic or is_broker) and not is_new:
        _check_exists(context.image, resource)
    if is_broker and CORDONED in wanted and (context.image.features.metadata_version or 0) < CORDONED_SINCE:
        raise ApiError(Error.INVALID_CONFIG, f"{CORDONED} needs a metadata.version of {CORDONED_SINCE} or above.")
    if is_broker and CORDONED in wanted and not context.forwarded:
        _check_cordoned(before.get(CORDONED, ""), after.get(CORDONED, ""))
    records = []
    for name in wanted:
        value = after.get(name)
        # Brokers reload each value that is written, even an unchanged one.
        if is_broker or before.get(name) != value:
            records.append(VersionedRecord(ConfigRecord(kind, own_name, name, value)))
            if (is_topic or is_broker) and name == MIN_ISR and _elr_enabled(context):
                clears_elr = True
    if clears_elr:
        records.append(VersionedRecord(ClearElrRecord(topic_name=own_name if is_topic else "")))
    return records


def _elr_enabled(context: RequestContext) -> bool:
    return context.image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0


def _wrong_kind(kind: int) -> ApiError:
    """The error for a resource type that is configured elsewhere or does not exist."""
    if kind in list(ResourceType) and kind != ResourceType.UNKNOWN:
        text = f"Resources of type {ResourceType(kind).name} are not served by this controller."
        return ApiError(Error.UNSUPPORTED_VERSION, text)
    return ApiError(Error.UNSUPPORTED_VERSION, f"Unknown resource type {kind}.")


def _check_exists(image: MetadataImage, resource: Resource) -> None:
    """Refuse a topic or a broker that does not exist. As in Kafka, the validation of the values precedes this check."""
    kind, name = resource
    if kind == _TOPIC and name not in image.topics:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == _BROKER and name:
        broker_id = whole_number(name, 32)
        if broker_id not in image.brokers.by_id and broker_id not in image.controllers.by_id:
            raise ApiError(Error.BROKER_ID_NOT_REGISTERED, f"No node with id {broker_id} found.")


def _validate(
    context: RequestContext, resource: Resource, values: Mapping[str, str], before: Mapping[str, str]
) -> None:
    """Refuse an invalid name, and values that the resource type forbids; `before` holds the current values."""
    for name, value in values.items():
        if len(value) > LONGEST_VALUE:
            raise ApiError(Error.INVALID_CONFIG, f"The value of {name} is longer than {LONGEST_VALUE} characters.")
    _VALIDATORS[resource[0]](context, resource[1], values, before)


def _validate_topic(context: RequestContext, name: str, values: Mapping[str, str], before: Mapping[str, str]) -> None:
    if not name:
        raise ApiError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    topic_config_keys.validate_topic(values)
    tiered_topics.validate(values, before, lambda: of_file(context.own_settings))


def _validate_group(context: RequestContext, name: str, values: Mapping[str, str], _: Mapping[str, str]) -> None:
    if not name:
        raise ApiError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
    topic_config_keys.validate_group(values, of_file(context.own_settings))


def _validate_metrics(_: RequestContext, name: str, values: Mapping[str, str], before: Mapping[str, str]) -> None:
    client_metrics.validate(name, values, before)


def _validate_broker(_: RequestContext, name: str, __: Mapping[str, str], ___: Mapping[str, str]) -> None:
    """Check the name of a broker resource. The broker that has a request from a client judges its values."""
    if name:
        broker_id = whole_number(name, 32)
        if broker_id is None:
            text = "Unable to parse broker name as a base 10 number."
            raise ApiError(Error.INVALID_REQUEST, text)
        if broker_id < 0:
            raise ApiError(Error.INVALID_REQUEST, "Invalid negative broker ID.")


_VALIDATORS: Final[dict[int, Callable[[RequestContext, str, Mapping[str, str], Mapping[str, str]], None]]] = {
    ResourceType.TOPIC: _validate_topic,
    ResourceType.BROKER: _validate_broker,
    ResourceType.CLIENT_METRICS: _validate_metrics,
    ResourceType.GROUP: _validate_group,
}


def _check_eligibility(context: RequestContext, resource: Resource, after: Mapping[str, str]) -> None:
    """While ELR is enabled, refuse to change min.insync.replicas of one broker, or to remove that of the cluster."""
    if not _elr_enabled(context):
        return
    if resource[1]:
        text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise ApiError(Error.INVALID_CONFIG, text)
    if MIN_ISR not in after:
        text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        raise ApiError(Error.INVALID_CONFIG, text)


def _check_cordoned(before: str, after: str) -> None:
    """Permit only the removal of elements: a controller does not know the broker's directories."""
    known = frozenset(elements(before))
    if any(path not in known for path in elements(after)):
        text = f"When updating {CORDONED} via controllers,  the new value must be a subset of the current "
        raise ApiError(Error.INVALID_CONFIG, text + "configuration value.")


def _new_value(resource: Resource, change: AlterableConfig, before: str | None) -> str | None:
    """The value of a key after one operation; None if the key becomes unset, as after SET with null."""
    operation = change.config_operation
    if operation == SET:
        return change.value
    if operation in (APPEND, SUBTRACT):
        default = _list_default(resource, change.name)
        if default is None:
            verb = "APPEND" if operation == APPEND else "SUBTRACT"
            raise ApiError(Error.INVALID_CONFIG, f"Can't {verb} to key {change.name} because its type is not LIST.")
        return _joined(operation, elements(default if before is None else before), change.value)
    if operation != DELETE:
        # Kafka's active controller fails on this and resigns; a client must not be able to cause that.
        raise ApiError(Error.INVALID_REQUEST, f"Unknown operation {operation} on {change.name}.")
    return None


def _list_default(resource: Resource, name: str) -> str | None:
    """The default of a list key without a value; None if the key is not a list."""
    key = _KEYS.get(resource[0], {}).get(name)
    return key.default or "" if key is not None and key.type == "LIST" else None


def _joined(operation: int, now: Sequence[str], value: str | None) -> str:
    """A list after elements were appended or subtracted."""
    named = elements(value or "")
    left, right = (named, now) if operation == APPEND else (now, named)
    known = frozenset(right)
    kept = [element for element in left if element not in known]
    return ",".join([*now, *kept] if operation == APPEND else kept)
