"""`kraft configs`: describes and changes settings of topics, brokers, groups and client metrics, quotas, and the log
levels of a controller (Kafka: `ConfigCommand`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import click
from msgspec import Struct

from kraft.admin import (
    AdminClient,
    ConfigChange,
    ConfigSource,
    Operation,
    ResourceType,
    Setting,
    alter_loggers,
    alter_quotas,
    describe_configs,
    describe_loggers,
    entity_name,
)
from kraft.cli.cluster.administration import Cluster, image_of, on_a_cluster, parse_settings
from kraft.cli.near import did_you_mean, unknown_broker, unknown_topic
from kraft.cli.text import table
from kraft.config.errors import CommandFailed
from metadata_log.image import Entity, MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.quotas import in_entity_order
from metadata_log.records.redact import REDACTED, is_secret_config, shown_config

QUOTA: Final = "quota"
LOGGER: Final = "broker-logger"
DEFAULT_BROKER: Final = "default"
_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
    LOGGER: ResourceType.BROKER_LOGGER,
}
_OF_A_LOGGER: Final = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG.name
_QUOTA_TYPES: Final = ("user", "client-id", "ip")
_KINDS: Final = (*_TYPES, QUOTA)


class Row(Struct, frozen=True, kw_only=True):
    """A setting of a resource; `value` is None for a secret."""

    kind: str
    name: str
    key: str
    value: str | float | None
    source: str
    secret: bool = False


@click.group(
    "configs",
    short_help="Describe and change settings and quotas.",
    epilog="Example: kraft configs set topic orders retention.ms=86400000 --bootstrap-controller 127.0.0.1:9093",
)
def configs_command() -> None:
    """Describe and change settings and quotas, like kafka-configs.

    \b KIND and NAME select the resource:
      topic NAME           a topic
      broker ID            a broker; the name 'default' is the default of all
      group NAME           a consumer, share or streams group
      client-metrics NAME  a subscription of client metrics
      broker-logger ID     the log levels of a running controller, which
                           are neither in the metadata nor kept for long
      quota ENTITY         user=NAME, client-id=NAME, ip=NAME,
                           user=NAME,client-id=NAME;
                           a type without a name is the default of the type
    """


# ---------------------------------------------------------------------------------------------------------- describe


@configs_command.command(
    "describe",
    short_help="Show the set values, or all effective ones.",
    epilog="Example: kraft configs describe topic orders --all --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("kind", type=click.Choice(_KINDS), required=False)
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="All effective values, with defaults; needs KIND and NAME.")
@on_a_cluster
def describe_command(kind: str | None, name: str | None, *, everything: bool, cluster: Cluster) -> None:
    """Show the set values: of the cluster, of a KIND, or of one resource.

    With --all the active controller reports the effective values. It knows the file of its own node only, which it
    reports under its own id. The file of another broker is known to that broker alone.

    The kind broker-logger needs the id of a controller, which reports the level of each logger of its process itself.
    """
    if kind == LOGGER:
        node_id = _node_id(name)
        shown = [
            Row(kind=LOGGER, name=str(node_id), key=logger, value=level, source=_OF_A_LOGGER)
            for logger, level in cluster.ask(lambda admin: describe_loggers(admin, node_id)).items()
        ]
    elif everything:
        if kind is None or name is None or kind == QUOTA:
            raise click.UsageError("--all needs KIND and NAME of one resource with defaults.")
        shown = cluster.ask(lambda admin: _effective(admin, kind, name))
    else:
        wanted = None if name is None or kind is None else _canonical(kind, name)
        image = cluster.ask(image_of)
        rows = [row for row in _rows(image) if kind in (None, row.kind)]
        shown = [row for row in rows if wanted in (None, row.name)]
        if kind is not None and name is not None and not shown:
            _check_name(image, kind, name, {row.name for row in rows})
    lines = table(("KIND", "NAME", "KEY", "VALUE", "SOURCE"), map(_cells, shown)) if shown else ["Nothing is set."]
    cluster.say({"configs": [_json(row) for row in shown]}, lines)


def _node_id(name: str | None) -> int:
    """The id of the controller with the loggers; raises a usage error."""
    if name is None or not name.isdecimal():
        raise click.UsageError(f"{LOGGER} needs the id of a controller: `kraft quorum status` shows these.")
    return int(name)


def _check_name(image: MetadataImage, kind: str, name: str, configured: Collection[str]) -> None:
    """Raise `CommandFailed` for an unknown name. The controllers know no names of groups and of quota entities."""
    if kind == "topic" and name not in image.topics:
        raise unknown_topic(name, image.topics, hint="See `kraft topics list`.")
    if kind == "broker" and name != DEFAULT_BROKER:
        if not name.isdecimal():
            raise CommandFailed(f"{name} is no broker", hint=f"Give the id of one, or {DEFAULT_BROKER}.")
        known = {broker for broker, _ in image.brokers.by_id.items()}
        if int(name) not in known:
            raise unknown_broker(int(name), known)
    if kind == "client-metrics":
        raise CommandFailed(f"there is no subscription {name}", hint=did_you_mean(name, configured))


def _rows(image: MetadataImage) -> Iterator[Row]:
    """All values that are set in the cluster."""
    kinds: dict[int, str] = {number: kind for kind, number in _TYPES.items()}
    sources: dict[int, str] = {
        ResourceType.TOPIC: "DYNAMIC_TOPIC_CONFIG",
        ResourceType.BROKER: "DYNAMIC_BROKER_CONFIG",
        ResourceType.GROUP: "DYNAMIC_GROUP_CONFIG",
        ResourceType.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    }
    for (number, name), values in in_key_order(image.configs.by_resource):
        if number not in kinds:
            continue
        is_default = number == ResourceType.BROKER and not name
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.name if is_default else sources[number]
        for key, value in in_key_order(values):
            secret = is_secret_config(number, key, value)
            shown = None if secret else value
            resource = DEFAULT_BROKER if is_default else name
            yield Row(kind=kinds[number], name=resource, key=key, value=shown, source=source, secret=secret)
    for entity, quotas in in_entity_order(image.quotas):
        for key, quota in in_key_order(quotas):
            yield Row(kind=QUOTA, name=entity_name(entity), key=key, value=quota, source="QUOTA")


async def _effective(admin: AdminClient, kind: str, name: str) -> list[Row]:
    if kind == "broker" and name not in (DEFAULT_BROKER, str((await admin.describe_cluster()).controller_id)):
        raise CommandFailed(
            f"a controller knows of broker {name} only what is set in the cluster",
            hint="Leave --all out, or ask the broker itself with kafka-configs.",
        )
    described = await describe_configs(admin, _TYPES[kind], [_resource_name(kind, name)])
    return [_row(kind, name, setting) for settings in described.values() for setting in settings]


def _row(kind: str, name: str, setting: Setting) -> Row:
    return Row(
        kind=kind,
        name=name,
        key=setting.key,
        value=setting.value,
        source=setting.source.name,
        secret=setting.is_sensitive,
    )


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    value = REDACTED if row.secret else "none" if row.value is None else _number_text(row.value)
    return row.kind, row.name, row.key, value, row.source


def _number_text(value: str | float) -> str:
    return value if isinstance(value, str) else repr(value).removesuffix(".0")


def _json(row: Row) -> dict[str, Any]:
    facts = {"kind": row.kind, "name": row.name, "key": row.key, "value": row.value, "source": row.source}
    return facts | {"sensitive": True} if row.secret else facts


# ------------------------------------------------------------------------------------------------------------ change

Changing = Callable[..., None]


def _changing(name: str, summary: str, example: str) -> Callable[[Changing], click.Command]:
    """A subcommand that changes settings of one resource."""

    def make(command: Changing) -> click.Command:
        validate = click.option("--validate-only", is_flag=True, help="Only check the request.")
        words = click.argument(
            "words", nargs=-1, required=True, metavar="KEY..." if name == "delete" else "KEY=VALUE..."
        )
        named = click.argument("name")
        kind = click.argument("kind", type=click.Choice(_KINDS))
        epilog = f"Example: kraft configs {name} {example} --bootstrap-controller 127.0.0.1:9093"
        made = configs_command.command(name, short_help=summary, epilog=epilog)
        return made(kind(named(words(validate(on_a_cluster(command))))))

    return make


@_changing("set", "Set keys to values.", "topic orders retention.ms=86400000")
def set_command(kind: str, name: str, words: tuple[str, ...], *, validate_only: bool, cluster: Cluster) -> None:
    """Set settings of one resource, all or none.

    Log levels are TRACE, DEBUG, INFO, WARN, ERROR and FATAL; `configs describe broker-logger ID` shows the loggers.
    """
    _change(cluster, kind, name, Operation.SET, parse_settings(words, "KEY=VALUE"), validate_only)


@_changing("delete", "Return keys to their defaults.", "topic orders retention.ms")
def delete_command(kind: str, name: str, words: tuple[str, ...], *, validate_only: bool, cluster: Cluster) -> None:
    """Delete settings of one resource, so that their defaults apply again. A logger gets the level of its parent."""
    wrong = next((word for word in words if "=" in word), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r}: name the key alone", param_hint="KEY")
    _change(cluster, kind, name, Operation.DELETE, dict.fromkeys(words), validate_only)


@_changing("append", "Add to values that are lists.", "topic orders cleanup.policy=compact")
def append_command(kind: str, name: str, words: tuple[str, ...], *, validate_only: bool, cluster: Cluster) -> None:
    """Append elements to settings that are lists."""
    _change(cluster, kind, name, Operation.APPEND, parse_settings(words, "KEY=VALUE"), validate_only)


@_changing("subtract", "Take from values that are lists.", "topic orders cleanup.policy=compact")
def subtract_command(kind: str, name: str, words: tuple[str, ...], *, validate_only: bool, cluster: Cluster) -> None:
    """Remove elements from settings that are lists."""
    _change(cluster, kind, name, Operation.SUBTRACT, parse_settings(words, "KEY=VALUE"), validate_only)


_DONE: Final = {
    Operation.SET: ("set", "would set"),
    Operation.DELETE: ("deleted", "would delete"),
    Operation.APPEND: ("appended", "would append"),
    Operation.SUBTRACT: ("subtracted", "would subtract"),
}


def _change(
    cluster: Cluster,
    kind: str,
    name: str,
    operation: Operation,
    values: dict[str, str] | dict[str, str | None],
    validate_only: bool,
) -> None:
    if kind == QUOTA:
        quotas = _quotas(operation, values.items())
        entity = parse_entity(name)
        cluster.ask(lambda admin: alter_quotas(admin, entity, quotas, validate_only=validate_only), is_forwarded=True)
    else:
        resource = str(_node_id(name)) if kind == LOGGER else _resource_name(kind, name)
        changes = [
            ConfigChange(resource_type=_TYPES[kind], resource_name=resource, key=key, value=value, operation=operation)
            for key, value in values.items()
        ]
        if kind == LOGGER:
            cluster.ask(lambda admin: alter_loggers(admin, int(resource), changes, validate_only=validate_only))
        else:
            cluster.ask(lambda admin: admin.alter_configs(changes, validate_only=validate_only), is_forwarded=True)
    shown = {key: _shown(kind, key, value) for key, value in values.items()}
    facts = {"kind": kind, "name": name, "operation": operation.name, "values": shown, "changed": not validate_only}
    words = [key if value is None else f"{key}={value}" for key, value in shown.items()]
    cluster.say(facts, [f"{_DONE[operation][validate_only]} {word} ({kind} {name})" for word in words])


def _shown(kind: str, key: str, value: str | None) -> str | None:
    """A value for the confirmation, without secrets; a quota and a log level are never secrets."""
    return value if kind in (QUOTA, LOGGER) else shown_config(_TYPES[kind], key, value, show_secrets=False)


def _quotas(operation: Operation, values: Iterable[tuple[str, str | None]]) -> dict[str, float | None]:
    """Parse quotas, which are numbers and never lists."""
    if operation not in (Operation.SET, Operation.DELETE):
        raise click.UsageError("A quota is a number: it can be set and deleted, nothing else.")
    try:
        return {key: None if text is None else float(text) for key, text in values}
    except ValueError as bad:
        raise click.BadParameter(f"a quota is a number: {bad}", param_hint="KEY=VALUE") from bad


def parse_entity(text: str) -> Entity:
    """Parse `user=alice,client-id`, where a type without a name is its default; raises a usage error."""
    entity: dict[str, str | None] = {}
    for part in text.split(","):
        kind, equals, name = part.partition("=")
        if kind not in _QUOTA_TYPES or kind in entity or (equals and not name):
            raise click.BadParameter(
                f"{text!r} is no entity such as user=alice,client-id=app or, for a default, user", param_hint="NAME"
            )
        entity[kind] = name if equals else None
    return tuple(sorted(entity.items()))


def _canonical(kind: str, name: str) -> str:
    """A name in the form used in rows."""
    return entity_name(parse_entity(name)) if kind == QUOTA else name


def _resource_name(kind: str, name: str) -> str:
    return "" if kind == "broker" and name == DEFAULT_BROKER else name
