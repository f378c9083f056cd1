"""Checks the permissions of requests with items, such as topics and configurations (Kafka: `ControllerApis`,
`ConfigHelper`).

Each item needs its own permission. Items without permission are removed before the decision on the request, and get
their errors in the response afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, structs

from kraft.access.authorizer import AclOperation, AclResource
from kraft.access.permissions import Asker
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.serde import Message
from metadata_log.types import METADATA_TOPIC, Uuid
from transport.protocol.errors import Error

if TYPE_CHECKING:
    # A controller loads the messages with the first such request.
    from transport.protocol.messages import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from transport.protocol.messages.create_topics import CreatableTopicResult

_NOT_TOLD: Final = -1
T = TypeVar("T")


class AuthorizedRequest(Struct, frozen=True):
    """The permitted part of a request; `finish` adds the errors of the other items to the response."""

    request: Message
    finish: Callable[[Any], Message] = lambda response: response


Permitting = Generator[None, None, AuthorizedRequest]
"""The steps of a decision. Each step checks one permission, which examines each prefix of a name."""


def authorize_items(asker: Asker, image: MetadataImage, request: Message) -> Permitting:
    """The part of a request that the caller may use. It is the whole request if its API has no items with permissions.

    Raises `ApiError` until the ACLs are loaded.
    """
    permit = _AUTHORIZE.get(type(request).__name__)
    return AuthorizedRequest(request) if permit is None else (yield from permit(asker, image, request))


def _once(things: Iterable[T]) -> list[T]:
    """The elements without repetitions: duplicates are refused as such, regardless of permissions."""
    return [thing for thing, count in Counter(things).items() if count == 1]


# Topics


def _refused_topics(
    asker: Asker, operation: AclOperation, names: Iterable[str], *, is_asked: bool = True
) -> Generator[None, None, dict[str, None]]:
    """The topics on which the caller may not perform the operation, in request order."""
    refused: dict[str, None] = {}
    for name in names:
        if not asker.may(operation, AclResource.TOPIC, name, is_asked=is_asked):
            refused[name] = None
        yield None
    return refused


def _authorize_creations(asker: Asker, _: MetadataImage, request: CreateTopicsRequest) -> Permitting:
    """Creation needs CREATE on the topic or on the cluster. The topic's configuration needs DESCRIBE_CONFIGS."""
    from transport.protocol.messages.create_topics import CreatableTopicResult

    names = [name for name in _once(topic.name for topic in request.topics) if name != METADATA_TOPIC]
    refused: dict[str, None] = {}
    if not asker.may(AclOperation.CREATE, AclResource.CLUSTER, is_asked=False):
        refused = yield from _refused_topics(asker, AclOperation.CREATE, names)
    hidden = yield from _refused_topics(asker, AclOperation.DESCRIBE_CONFIGS, names, is_asked=False)

    def finish(response: CreateTopicsResponse) -> Message:
        created = [_without_configs(topic) if topic.name in hidden else topic for topic in response.topics]
        answers = [
            CreatableTopicResult(
                name=name, error_code=Error.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed."
            )
            for name in refused
        ]
        return structs.replace(response, topics=[*created, *answers])

    allowed = [topic for topic in request.topics if topic.name not in refused]
    return AuthorizedRequest(structs.replace(request, topics=allowed), finish)


def _without_configs(topic: CreatableTopicResult) -> CreatableTopicResult:
    if topic.error_code != Error.NONE:
        return topic
    return structs.replace(
        topic,
        topic_config_error_code=Error.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=_NOT_TOLD,
        replication_factor=_NOT_TOLD,
        configs=[],
    )


def _authorize_deletions(asker: Asker, image: MetadataImage, request: DeleteTopicsRequest) -> Permitting:
    """Deletion needs DELETE on the topic or on the cluster. The response reveals a topic's name or absence only with
    DESCRIBE on the topic.
    """
    from transport.protocol.messages.delete_topics import DeletableTopicResult

    if asker.may(AclOperation.DELETE, AclResource.CLUSTER, is_asked=False):
        return AuthorizedRequest(request)
    topics = image.topics
    by_name = [*request.topic_names, *(one.name for one in request.topics if one.topic_id == Uuid.ZERO)]
    names, ids = _once(by_name), _once(one.topic_id for one in request.topics if one.name is None)
    refused: list[tuple[str | None, Uuid]] = []
    for topic_id in ids:
        yield None
        topic = topics.by_id.get(topic_id)
        if topic is not None and not asker.may(AclOperation.DELETE, AclResource.TOPIC, topic.name):
            is_visible = asker.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name)
            refused.append((topic.name if is_visible else None, topic_id))
    for name in names:
        yield None
        if name is not None and not _may_delete(asker, image, name):
            refused.append((name, Uuid.ZERO))
    refused_names = {name for name, topic_id in refused if topic_id == Uuid.ZERO}
    refused_ids = {topic_id for _, topic_id in refused if topic_id != Uuid.ZERO}
    allowed = [
        one
        for one in request.topics
        if not (
            one.topic_id in refused_ids if one.name is None else one.topic_id == Uuid.ZERO and one.name in refused_names
        )
    ]

    def finish(response: DeleteTopicsResponse) -> Message:
        error = Error.TOPIC_AUTHORIZATION_FAILED
        answers = [
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=error.message)
            for name, topic_id in refused
        ]
        return structs.replace(response, responses=[*response.responses, *answers])

    allowed_names = [name for name in request.topic_names if name not in refused_names]
    return AuthorizedRequest(structs.replace(request, topics=allowed, topic_names=allowed_names), finish)


def _may_delete(asker: Asker, image: MetadataImage, name: str) -> bool:
    """Whether the caller may delete a topic by name. DESCRIBE lets the caller learn that a topic does not exist."""
    if not asker.may(AclOperation.DESCRIBE, AclResource.TOPIC, name):
        return False
    return name not in image.topics or asker.may(AclOperation.DELETE, AclResource.TOPIC, name)


def _authorize_growth(asker: Asker, _: MetadataImage, request: CreatePartitionsRequest) -> Permitting:
    """Adding partitions needs ALTER on the topic."""
    from transport.protocol.messages.create_partitions import CreatePartitionsTopicResult

    names = _once(topic.name for topic in request.topics)
    refused = yield from _refused_topics(asker, AclOperation.ALTER, names)

    def finish(response: CreatePartitionsResponse) -> Message:
        error = Error.TOPIC_AUTHORIZATION_FAILED
        answers = [CreatePartitionsTopicResult(name=name, error_code=error, error_message=None) for name in refused]
        return structs.replace(response, results=[*response.results, *answers])

    allowed = [topic for topic in request.topics if topic.name not in refused]
    return AuthorizedRequest(structs.replace(request, topics=allowed), finish)


# Configurations


def _authorize_changes(
    asker: Asker, _: MetadataImage, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
) -> Permitting:
    """Changing a configuration needs ALTER_CONFIGS on its resource."""
    from transport.protocol.messages import alter_configs, incremental_alter_configs

    is_legacy = isinstance(request, alter_configs.AlterConfigsRequest)
    module = alter_configs if is_legacy else incremental_alter_configs
    keys = _once((one.resource_type, one.resource_name) for one in request.resources)
    if is_legacy:
        # This API cannot change loggers at all.
        keys = [key for key in keys if key[0] != ResourceType.BROKER_LOGGER]
    refused: dict[tuple[int, str], Error] = {}
    for key in keys:
        yield None
        error = _refusal(asker, AclOperation.ALTER_CONFIGS, *key)
        if error is not None:
            refused[key] = error

    def finish(response: AlterConfigsResponse | IncrementalAlterConfigsResponse) -> Message:
        answers = [
            module.AlterConfigsResourceResponse(
                error_code=error, error_message=error.message, resource_type=kind, resource_name=name
            )
            for (kind, name), error in refused.items()
        ]
        return structs.replace(response, responses=[*response.responses, *answers])

    allowed = [one for one in request.resources if (one.resource_type, one.resource_name) not in refused]
    return AuthorizedRequest(structs.replace(request, resources=allowed), finish)


def _authorize_descriptions(asker: Asker, _: MetadataImage, request: DescribeConfigsRequest) -> Permitting:
    """Describing a configuration needs DESCRIBE_CONFIGS on its resource."""
    from transport.protocol.messages.describe_configs import DescribeConfigsResult

    allowed, refused = [], []
    for one in request.resources:
        yield None
        error = _refusal(asker, AclOperation.DESCRIBE_CONFIGS, one.resource_type, one.resource_name)
        if error is None:
            allowed.append(one)
        else:
            result = DescribeConfigsResult(
                error_code=error,
                error_message=error.message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            refused.append(result)

    def finish(response: DescribeConfigsResponse) -> Message:
        return structs.replace(response, results=[*response.results, *refused])

    return AuthorizedRequest(structs.replace(request, resources=allowed), finish)


def _refusal(asker: Asker, operation: AclOperation, kind: int, name: str) -> Error | None:
    """The error if the caller lacks the permission; None also for resource types without permissions."""
    match kind:
        case ResourceType.TOPIC:
            is_allowed, error = asker.may(operation, AclResource.TOPIC, name), Error.TOPIC_AUTHORIZATION_FAILED
        case ResourceType.GROUP:
            is_allowed, error = asker.may(operation, AclResource.GROUP, name), Error.GROUP_AUTHORIZATION_FAILED
        case ResourceType.BROKER_LOGGER if operation == AclOperation.ALTER_CONFIGS:
            is_allowed = asker.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
            error = Error.CLUSTER_AUTHORIZATION_FAILED
        case ResourceType.BROKER | ResourceType.CLIENT_METRICS | ResourceType.BROKER_LOGGER:
            is_allowed, error = asker.may(operation, AclResource.CLUSTER), Error.CLUSTER_AUTHORIZATION_FAILED
        case _:
            return None
    return None if is_allowed else error


_AUTHORIZE: Final[dict[str, Callable[[Asker, MetadataImage, Any], Permitting]]] = {
    "CreateTopicsRequest": _authorize_creations,
    "DeleteTopicsRequest": _authorize_deletions,
    "CreatePartitionsRequest": _authorize_growth,
    "AlterConfigsRequest": _authorize_changes,
    "IncrementalAlterConfigsRequest": _authorize_changes,
    "DescribeConfigsRequest": _authorize_descriptions,
}
"""By the name of the request."""
