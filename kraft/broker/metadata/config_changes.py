"""Judges changes of the dynamic configuration of brokers before they are forwarded (Kafka: `ConfigAdminManager`).

A controller takes any value for a broker; the broker that has the request from a client judges it, and answers for the
resources that it refuses. Brokers ignore what they cannot use of the metadata (`DynamicBrokerConfig`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.broker.metadata.settings_together import check_together, effective
from kraft.config.definitions import CORDONED, NODE, OF_QUOTAS, elements, whole_number
from kraft.config.described import DescribedSetting, of_file
from kraft.config.kafka_keys import (
    DYNAMIC_FOR_ALL,
    KAFKA_DYNAMIC,
    LISTENER_PREFIX,
    REFUSED,
    definition_of,
    is_refused,
    why_unusable,
)
from kraft.config.tls_settings import RELOADABLE
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.serde import Message
from transport.protocol.errors import Error
from transport.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    alter_configs,
    incremental_alter_configs,
)

_FIXED: Final = "Cannot update these configs dynamically"
_ONLY_OF_LISTENERS: Final = (
    "These security configs can be dynamically updated only per-listener using the listener prefix"
)
_ONLY_OF_ONE: Final = "Cannot update these configs at default cluster level, broker id must be specified"
_FOR_ALL_LISTENERS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""The settings of listeners that a default of all brokers may have (`CLUSTER_LEVEL_LISTENER_CONFIGS`)."""


AnyResource = incremental_alter_configs.AlterConfigsResource | alter_configs.AlterConfigsResource
Changes = IncrementalAlterConfigsRequest | AlterConfigsRequest
_DELETE: Final = 1
_VERBS: Final = {2: "append", 3: "subtract"}


class Refusals(Struct, frozen=True):
    """The resources of a request that this broker refuses: the answer to each, and their places in the request."""

    message: Changes
    answers: dict[int, ApiError]

    @property
    def kept(self) -> Changes:
        """The request without these resources."""
        left = [one for place, one in enumerate(self.message.resources) if place not in self.answers]
        match self.message:
            case IncrementalAlterConfigsRequest() as request:
                return replace(request, resources=cast("list[incremental_alter_configs.AlterConfigsResource]", left))
            case AlterConfigsRequest() as legacy:
                return replace(legacy, resources=cast("list[alter_configs.AlterConfigsResource]", left))

    def merged(self, answer: Message | None = None) -> Message:
        """The answer of a controller to the kept resources, with the answers to the others at their places."""
        assert answer is None or isinstance(answer, IncrementalAlterConfigsResponse | AlterConfigsResponse), answer
        is_incremental = isinstance(self.message, IncrementalAlterConfigsRequest)
        of_one = incremental_alter_configs if is_incremental else alter_configs
        responses: list[Any] = [] if answer is None else list(answer.responses)
        is_whole = len(responses) == len(self.message.resources)  # the refusal of a request that has failed as a whole
        for place, refused in sorted(self.answers.items()):
            resource = self.message.resources[place]
            one = of_one.AlterConfigsResourceResponse(
                error_code=refused.error,
                error_message=refused.text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            responses[place : place + is_whole] = [one]
        if is_incremental:
            return IncrementalAlterConfigsResponse(responses=responses)
        return AlterConfigsResponse(responses=responses)


def judged(
    message: Message, broker_id: int, own: Iterable[DescribedSetting] = (), image: MetadataImage | None = None
) -> Refusals | None:
    """The resources that this broker refuses; None for a request that is forwarded as it is.

    Args:
        message: The request of a client.
        broker_id: The id of this broker.
        own: The settings of its file.
        image: The metadata, with the dynamic configurations before the change.
    """
    if not isinstance(message, IncrementalAlterConfigsRequest | AlterConfigsRequest):
        return None
    answers = {}
    resources: Sequence[AnyResource] = message.resources
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    for place, resource in enumerate(resources):
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            changed = _changed(resource)
            if resource.resource_type == ResourceType.BROKER:
                _check_name(resource.resource_name, broker_id)
                _check_lists(resource)
                validate(resource.resource_name, changed)
                _check_cordoned(changed.get(CORDONED), own)
                _check_together(resource, changed, broker_id, of_file(own), image or MetadataImage())
        except ApiError as refused:
            answers[place] = refused
    return Refusals(message, answers) if answers else None


def _changed(resource: AnyResource) -> dict[str, str | None]:
    """The new values by key; None for one that goes. What is appended to a list is judged like a list."""
    if len({one.name for one in resource.configs}) < len(resource.configs):
        raise ApiError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    changed: dict[str, str | None] = {}
    for one in resource.configs:
        goes = isinstance(one, incremental_alter_configs.AlterableConfig) and one.config_operation == _DELETE
        if one.value is None and not goes:
            raise ApiError(Error.INVALID_REQUEST, f"Null value not supported for : {one.name}")
        changed[one.name] = None if goes else one.value
    return changed


def _check_lists(resource: AnyResource) -> None:
    """Refuse to append to what is no list, or to subtract from it (`ConfigAdminManager.prepareIncrementalConfigs`)."""
    for one in resource.configs:
        verb = _VERBS.get(one.config_operation) if isinstance(one, incremental_alter_configs.AlterableConfig) else None
        definition = definition_of(one.name) or OF_QUOTAS.get(one.name)
        if verb is not None and definition is None:
            raise ApiError(Error.INVALID_CONFIG, f"Unknown config name: {one.name}")
        if verb is not None and definition is not None and definition.type != "LIST":
            raise ApiError(Error.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {one.name}")


def _check_cordoned(value: str | None, own: Iterable[DescribedSetting]) -> None:
    """Refuse directories that this broker does not have (KIP-1066)."""
    named = elements(value or "")
    if named == ("*",):
        return
    file = of_file(own)
    known = elements(file.get("log.dirs") or file.get("log.dir") or "")
    if missing := [one for one in named if one not in known]:
        text = (
            f"All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries : {','.join(missing)}"
        )
        raise ApiError(Error.INVALID_REQUEST, f"requirement failed: {text}")


def _check_together(
    resource: AnyResource,
    changed: Mapping[str, str | None],
    broker_id: int,
    file: Mapping[str, str],
    image: MetadataImage,
) -> None:
    """Refuse what the settings of the broker would come to."""
    for_all, own = (image.configs.of((ResourceType.BROKER, one)) for one in ("", str(broker_id)))
    # A whole configuration that is replaced begins without any key.
    is_whole = isinstance(resource, alter_configs.AlterConfigsResource)
    new = {} if is_whole else dict(own if resource.resource_name else for_all)
    new |= {key: value for key, value in changed.items() if value is not None}
    for key, value in changed.items():
        if value is None:
            new.pop(key, None)
    before = effective((file, for_all, own))
    after = effective((file, for_all, new) if resource.resource_name else (file, new, own))
    check_together(before, after)


def _check_name(name: str, broker_id: int) -> None:
    """A broker judges its own settings, and those of all brokers (`validateResourceNameIsCurrentNodeId`)."""
    if not name:
        return
    number = whole_number(name, 32)
    if number is None:
        raise ApiError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != broker_id:
        raise ApiError(Error.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")


def validate(name: str, changed: Mapping[str, str | None]) -> None:
    """Refuse changes that a broker refuses; raises `ApiError` with Kafka's code and words.

    As at a start, a setting is refused, too, that restricts what this software does not have. Kafka takes it.

    Args:
        name: The id of the broker; empty for the default of all brokers.
        changed: The new values by key; None for a value that goes.
    """
    given = {key: value for key, value in changed.items() if value is not None}
    _refuse(_FIXED, (key for key in given if key in NODE and key not in KAFKA_DYNAMIC))
    _refuse(_ONLY_OF_LISTENERS, (key for key in given if key in RELOADABLE))
    for key, value in given.items():
        definition = definition_of(key) or OF_QUOTAS.get(key)
        if definition is not None and (why := why_unusable(definition, value)):
            raise ApiError(Error.INVALID_REQUEST, why)
        if definition is not None and is_refused(definition, value):
            raise ApiError(Error.INVALID_REQUEST, f"{key} is not supported. {REFUSED[definition.name]}")
    if not name:
        _refuse(_ONLY_OF_ONE, filter(_is_of_one, given))


def _is_of_one(key: str) -> bool:
    """Whether a setting has a value for single brokers only."""
    if key.startswith(LISTENER_PREFIX):
        definition = definition_of(key)
        return definition is None or definition.name not in _FOR_ALL_LISTENERS
    return key in KAFKA_DYNAMIC and key not in DYNAMIC_FOR_ALL


def _refuse(why: str, keys: Iterable[str]) -> None:
    if named := sorted(keys):
        raise ApiError(Error.INVALID_REQUEST, f"{why}: [{', '.join(named)}]")
