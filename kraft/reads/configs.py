"""Describes configurations, this node's own included (Kafka: `ConfigHelper`)."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from itertools import dropwhile
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kraft.access.errors import ApiError
from kraft.access.topic_names import check_name
from kraft.config import definitions
from kraft.config.definitions import NODE, Definition
from kraft.config.described import DescribedSetting, counts_for_all, kafka_setting, of_file
from kraft.config.group_synonyms import group_synonym
from kraft.config.topic_synonyms import TOPIC_SYNONYMS, broker_synonyms, inherited
from kraft.limits import CONFIGS_PER_STEP
from kraft.reads.reading import Reading
from kraft.steps import Answering
from metadata_log.image import ResourceType
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
"""The first version of the API that reports types."""
_INT: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_KINDS: Final[Mapping[int, str]] = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.BROKER: "broker",
}
"""The names of the tables of texts."""
Value = tuple[str | None, int]
"""A setting and its source."""
_TABLES: Final[Mapping[int, tuple[Mapping[str, Definition], int]]] = {
    ResourceType.TOPIC: (definitions.TOPIC, TOPIC),
    ResourceType.GROUP: (definitions.GROUP, GROUP),
    ResourceType.CLIENT_METRICS: (definitions.CLIENT_METRICS, CLIENT_METRICS),
}
"""For each resource type its keys, and the source of the resource's own values."""


def describe_configs(reading: Reading, request: DescribeConfigsRequest) -> Answering:
    """Describe each resource separately."""
    results = []
    describing = _Describing(reading, request)
    for resource in request.resources:
        yield None
        error, text, configs = Error.NONE, "", list[DescribeConfigsResourceResult]()
        try:
            configs = yield from describing.configs(resource)
            if request.include_documentation and reading.version >= TYPES_SINCE:
                configs = yield from _documented(configs, resource.resource_type)
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
    return DescribeConfigsResponse(results=results)


def _documented(configs: list[DescribeConfigsResourceResult], kind: int) -> Described:
    """The settings with Kafka's texts about them."""
    # Loaded here, because nearly no client asks for it.
    from kraft.config.documentation import documentation

    of = _KINDS.get(kind)
    found = []
    for number, one in enumerate(configs, 1):
        found.append(one if of is None else replace(one, documentation=documentation(of, one.name)))
        if number % CONFIGS_PER_STEP == 0:
            yield None
    return found


Described = Generator[None, None, list[DescribeConfigsResourceResult]]
"""The settings of one resource; the generator yields after every few settings."""


class _Describing:
    """The description for one request. Resources share the results that are equal for all of them."""

    def __init__(self, reading: Reading, request: DescribeConfigsRequest) -> None:
        self._reading = reading
        self._with_synonyms = request.include_synonyms
        self._tables: dict[int, _Table] = {}
        self._of_node: tuple[tuple[Mapping[str, str | None], int], ...] = ()
        self._of_brokers: dict[str, tuple[Mapping[str, DescribedSetting], dict[str, list[Value]]]] = {}

    def configs(self, resource: DescribeConfigsResource) -> Described:
        """The requested settings, or all of them; raises `ApiError` for a resource that is not described here."""
        name, wanted = resource.resource_name, frozenset(resource.configuration_keys or ())
        match resource.resource_type:
            case ResourceType.BROKER:
                return (yield from self._broker(name, wanted))
            case ResourceType.TOPIC:
                check_name(name)
                if name not in self._reading.image.topics:
                    # Kafka has no message for this error.
                    raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, "")
                return (yield from self._in_table(ResourceType.TOPIC, name, wanted))
            case ResourceType.GROUP if name:
                return (yield from self._in_table(ResourceType.GROUP, name, wanted))
            case ResourceType.CLIENT_METRICS if name:
                return (yield from self._in_table(ResourceType.CLIENT_METRICS, name, wanted))
            case ResourceType.BROKER_LOGGER:
                # The node adds its loggers (`kraft.node.loggers`): they are no part of the metadata.
                _check_own_id(self._reading, name)
                return []
            case ResourceType.GROUP:
                raise ApiError(Error.INVALID_REQUEST, "Group name must not be empty")
            case ResourceType.CLIENT_METRICS:
                raise ApiError(Error.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            case other:
                raise ApiError(Error.INVALID_REQUEST, f"Resources of type {other} cannot be described.")

    def _broker(self, name: str, wanted: frozenset[str]) -> Described:
        if name not in self._of_brokers:
            self._of_brokers[name] = _of_brokers(self._reading, name)
        settings, dynamic = self._of_brokers[name]
        configs = []
        for key, values in dynamic.items():
            if not wanted or key in wanted:
                known = settings.get(key) or kafka_setting(key)
                configs.append(self._of_broker(known, key, values, name))
                if len(configs) % CONFIGS_PER_STEP == 0:
                    yield None
        return configs

    def _of_broker(
        self, known: DescribedSetting, key: str, values: list[Value], name: str
    ) -> DescribeConfigsResourceResult:
        """A setting of a broker, or of all. Its synonyms may have other names, and end with the default."""
        if name:
            found = self._of_nodes(key, is_sensitive=known.is_sensitive)
        else:
            found = [DescribeConfigsSynonym(key, None if known.is_sensitive else one, at) for one, at in values]
        return self._config(known, key, values[0][0], found)

    def _of_nodes(self, key: str, *, is_sensitive: bool = False) -> list[DescribeConfigsSynonym]:
        """The values of a node's setting and of its synonyms by precedence, from the first one with its own name."""
        found = [
            DescribeConfigsSynonym(one, None if is_sensitive else layer[one], source)
            for layer, source in self._layers()
            for one in broker_synonyms(key)
            if one in layer
        ]
        return list(dropwhile(lambda one: one.name != key, found))

    def _layers(self) -> tuple[tuple[Mapping[str, str | None], int], ...]:
        """The settings of this broker by precedence: its own at run time, those of all, its file, and the defaults."""
        if not self._of_node:
            reading, configs = self._reading, self._reading.image.configs
            for_all = {
                key: value
                for key, value in in_key_order(configs.of((ResourceType.BROKER, "")))
                if counts_for_all(key, value)
            }
            defaults = {name: key.default for name, key in NODE.items()}
            defaults |= {
                one.name: one.value for one in reading.own_settings if not one.is_set and one.value is not None
            }
            self._of_node = (
                (dict(in_key_order(configs.of((ResourceType.BROKER, str(reading.node_id))))), DYNAMIC_BROKER),
                (for_all, DYNAMIC_DEFAULT),
                ({one.name: one.value for one in reading.own_settings if one.is_set}, STATIC),
                ({key: value for key, value in defaults.items() if value is not None}, DEFAULT),
            )
        return self._of_node

    def _in_table(self, kind: ResourceType, name: str, wanted: frozenset[str]) -> Described:
        """The settings of a resource with keys from a table: the resource's own values, and the defaults."""
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = self._table(kind)
            yield None
        own = self._reading.image.configs.of((kind, name))
        if not own and not wanted:
            return table.unset_in_order
        configs = []
        for key, settings in table.settings.items():
            if wanted and key not in wanted:
                continue
            if key in own:
                value = None if settings.is_sensitive else own[key]
                found = [DescribeConfigsSynonym(key, value, table.source), *self._inherited(kind, key)]
                configs.append(self._config(settings, key, own[key], found))
                yield None
            elif key in table.unset:
                configs.append(table.unset[key])
        return configs

    def _table(self, kind: ResourceType) -> _Table:
        keys, source = _TABLES[kind]
        settings = {
            name: DescribedSetting(name, key.type, key.default, is_set=False, is_dynamic=True)
            for name, key in keys.items()
        }
        behind = {name: _behind(self._reading, kind, key) for name, key in keys.items()}
        unset = {
            name: self._config(settings[name], name, values[0], self._inherited(kind, name))
            for name, values in behind.items()
            if values and not (kind == ResourceType.GROUP and keys[name].is_internal)
        }
        return _Table(source, settings, unset, list(unset.values()))

    def _inherited(self, kind: ResourceType, key: str) -> list[DescribeConfigsSynonym]:
        """The values that count where a resource sets none, by precedence (`configSynonyms`)."""
        match kind:
            case ResourceType.TOPIC if key in TOPIC_SYNONYMS:
                return self._of_nodes(TOPIC_SYNONYMS[key][0].name)
            case ResourceType.GROUP if (name := group_synonym(key)) != key:
                return self._of_nodes(name)
            case ResourceType.GROUP if (default := definitions.GROUP[key].default) is not None:
                return [DescribeConfigsSynonym(key, default, DEFAULT)]
            case _:
                return []

    def _config(
        self, known: DescribedSetting, key: str, value: str | None, found: list[DescribeConfigsSynonym]
    ) -> DescribeConfigsResourceResult:
        """A setting, whose source is that of the first of its synonyms."""
        # Versions without types carry defaults in these fields.
        typed = self._reading.version >= TYPES_SINCE
        return DescribeConfigsResourceResult(
            name=key,
            value=None if known.is_sensitive else value,
            read_only=not known.is_dynamic,
            config_source=found[0].source if found else DEFAULT,
            is_sensitive=known.is_sensitive,
            synonyms=found if self._with_synonyms else [],
            config_type=TYPES[known.type] if typed else 0,
            documentation=None if typed else "",  # The texts are added where a client asks for them.
        )


class _Table(Struct, frozen=True):
    """The shared parts of resources of one type, by key: the settings, and the result for a resource without a value of
    its own, if the key has one then.
    """

    source: int
    settings: Mapping[str, DescribedSetting]
    unset: Mapping[str, DescribeConfigsResourceResult]
    unset_in_order: list[DescribeConfigsResourceResult]


def _of_brokers(reading: Reading, name: str) -> tuple[Mapping[str, DescribedSetting], dict[str, list[Value]]]:
    """The settings of this node, or of all brokers if the name is empty."""
    configs = reading.image.configs
    for_all = [
        (key, (value, DYNAMIC_DEFAULT))
        for key, value in in_key_order(configs.of((ResourceType.BROKER, "")))
        if counts_for_all(key, value)
    ]
    settings = {one.name: one for one in reading.own_settings}
    if not name:
        return settings, {key: [value] for key, value in for_all}
    _check_own_id(reading, name, " or empty string,")
    own = [(key, (value, DYNAMIC_BROKER)) for key, value in in_key_order(configs.of((ResourceType.BROKER, name)))]
    dynamic: dict[str, list[Value]] = {}
    for key, value in (*own, *for_all):
        dynamic.setdefault(key, []).append(value)
    for key, setting in settings.items():
        values = dynamic.setdefault(key, [])
        if setting.is_set:
            values.append((setting.value, STATIC))
        elif setting.value is not None or not values:
            values.append((setting.value, DEFAULT))
    return settings, dynamic


def _behind(reading: Reading, kind: ResourceType, key: Definition) -> list[str | None]:
    """The values that hold for a key where a resource sets none, by precedence: the first one counts."""
    configs, file = reading.image.configs, of_file(reading.own_settings)
    dynamic = [configs.of((ResourceType.BROKER, one)) for one in (str(reading.node_id), "")]
    match kind:
        case ResourceType.TOPIC:
            of_node = [inherited(key.name, layer) for layer in (*dynamic, file)]
            return [one for one in of_node if one is not None] + ([] if key.is_internal else [key.default])
        case ResourceType.GROUP if (name := group_synonym(key.name)) != key.name:
            usable = [value for one in dynamic if (value := one.get(name)) is not None and counts_for_all(name, value)]
            return [*usable, file.get(name, NODE[name].default)]
        case _:
            return [key.default]


def _check_own_id(reading: Reading, name: str, otherwise: str = "") -> None:
    """Refuse a broker id other than this node's, since each node describes only itself."""
    if not name:
        raise ApiError(Error.INVALID_REQUEST, "Broker id must not be empty")
    if not _INT.fullmatch(name):
        raise ApiError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    own = reading.node_id
    if int(name) != own:
        text = f"Unexpected broker id, expected {own}{otherwise} but received {name}"
        raise ApiError(Error.INVALID_REQUEST, text)
