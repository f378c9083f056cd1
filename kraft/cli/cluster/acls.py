"""`kraft acls`: lists, adds and removes ACLs (Kafka: `AclCommand`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, Final

import click

from kraft.access.authorizer import CLUSTER_NAME
from kraft.admin import AclFilter, create_acls, delete_acls, describe_acls
from kraft.admin.acls import ANY, LITERAL
from kraft.cli.cluster.administration import Cluster, on_a_cluster
from kraft.cli.text import count, table
from metadata_log.image import Acl
from metadata_log.image.java_text import name_of
from metadata_log.image.names import OPERATIONS, PATTERN_TYPES, PERMISSION_TYPES, RESOURCE_TYPES

_NAMED: Final = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "delegation_token": "DELEGATION_TOKEN",
    "user_principal": "USER",
}
"""The options that name a resource, and the resource's type."""
_PRODUCER: Final = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
_CONSUMER: Final = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
Resource = tuple[str, str]
"""A resource type, and a resource name."""


def _words(names: Sequence[str], first: int) -> list[str]:
    """The names of an enum from index `first` on, as option values."""
    return [name.lower().replace("_", "-") for name in names[first:]]


def _code(names: Sequence[str], word: str | None) -> int:
    """The code of an option value; the code of ANY without a value."""
    return ANY if word is None else names.index(word.upper().replace("-", "_"))


def _resource_options(*, multiple: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that name resources: several, or a single one for a filter."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        command = click.option("--cluster", "whole_cluster", is_flag=True, help="The cluster itself.")(command)
        for name, kind in reversed(_NAMED.items()):
            option = "--" + name.replace("_", "-")
            text = f"A resource of type {kind}." + (" May be repeated." if multiple else "")
            command = click.option(option, metavar="NAME", multiple=multiple, help=text)(command)
        return command

    return add


def _filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that filter ACLs."""
    for option in (
        click.option("--permission", type=click.Choice(_words(PERMISSION_TYPES, ANY + 1))),
        click.option(
            "--operation", type=click.Choice(_words(OPERATIONS, ANY + 1)), metavar="NAME", help="Of this operation."
        ),
        click.option("--host", help="From this host."),
        click.option("--principal", metavar="TYPE:NAME", help="Of this principal, such as User:alice."),
        click.option(
            "--pattern",
            type=click.Choice(_words(PATTERN_TYPES, ANY)),
            default="any",
            show_default=True,
            help="The pattern type of the rule; match: all rules that apply to a resource of this name.",
        ),
        click.option(
            "--type", "kind", type=click.Choice(_words(RESOURCE_TYPES, ANY + 1)), help="On any resource of this type."
        ),
        _resource_options(multiple=False),
    ):
        command = option(command)
    return command


@click.group(
    "acls",
    short_help="List, add and remove access rules.",
    epilog="Example: kraft acls list --bootstrap-controller 127.0.0.1:9093",
)
def acls_command() -> None:
    """List and change access rules, like kafka-acls. The controllers need an authorizer (authorizer.class.name)."""


@acls_command.command(
    "list",
    short_help="The rules, or some of them.",
    epilog="Example: kraft acls list --topic orders --pattern match --bootstrap-controller 127.0.0.1:9093",
)
@_filter_options
@on_a_cluster
def list_command(*, cluster: Cluster, **sought: Any) -> None:
    """List the rules that match all options, or all rules."""
    wanted = _filter(**sought)
    acls = cluster.ask(lambda admin: describe_acls(admin, wanted), is_forwarded=True)
    cluster.say({"acls": [_json(acl) for acl in acls]}, _lines(acls) if acls else ["No rule."])


@acls_command.command(
    "add",
    short_help="Allow or deny an operation.",
    epilog="Example: kraft acls add --principal User:alice --operation read --topic orders "
    "--bootstrap-controller 127.0.0.1:9093",
)
@click.option("--principal", "principals", multiple=True, required=True, metavar="TYPE:NAME", help="May be repeated.")
@click.option("--host", "hosts", multiple=True, default=("*",), help="From this host only. May be repeated.")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice(_words(OPERATIONS, ANY + 1)),
    metavar="NAME",
    help="Such as read or write; all means every one. May be repeated.",
)
@click.option("--producer", is_flag=True, help="What a producer needs on a topic and a transactional id.")
@click.option("--consumer", is_flag=True, help="What a consumer needs on a topic and a group.")
@click.option("--deny", is_flag=True, help="Deny, which wins over every rule that allows.")
@click.option("--prefixed", is_flag=True, help="All resources with names that begin with the given ones.")
@_resource_options(multiple=True)
@on_a_cluster
def add_command(
    *,
    principals: tuple[str, ...],
    hosts: tuple[str, ...],
    operations: tuple[str, ...],
    producer: bool,
    consumer: bool,
    deny: bool,
    prefixed: bool,
    cluster: Cluster,
    **named: Any,
) -> None:
    """Add rules: each principal may, from each host, perform each operation on each named resource."""
    resources = _resources(**named)
    granted = _granted(resources, operations, producer=producer, consumer=consumer)
    acls = [
        Acl(
            resource_type=RESOURCE_TYPES.index(kind),
            resource_name=name,
            pattern_type=PATTERN_TYPES.index("PREFIXED") if prefixed and kind != "CLUSTER" else LITERAL,
            principal=principal,
            host=host,
            operation=OPERATIONS.index(operation),
            permission_type=PERMISSION_TYPES.index("DENY" if deny else "ALLOW"),
        )
        for (kind, name), operation in granted
        for principal, host in product(principals, hosts)
    ]
    cluster.ask(lambda admin: create_acls(admin, acls), is_forwarded=True)
    cluster.say({"added": [_json(acl) for acl in acls]}, [f"added {count(len(acls), 'rule')}", *_lines(acls)])


@acls_command.command(
    "remove",
    short_help="Remove the rules that match all options.",
    epilog="Example: kraft acls remove --principal User:alice --topic orders --dry-run "
    "--bootstrap-controller 127.0.0.1:9093",
)
@_filter_options
@click.option("--all", "everything", is_flag=True, help="Remove every rule that there is.")
@click.option("--dry-run", is_flag=True, help="Only show the rules that would be removed.")
@on_a_cluster
def remove_command(*, everything: bool, dry_run: bool, cluster: Cluster, **sought: Any) -> None:
    """Remove the rules that match all options."""
    wanted = _filter(**sought)
    if everything == (wanted != AclFilter()):
        raise click.UsageError("Say which rules: by their resource, principal, operation and so on, or --all.")
    remove = describe_acls if dry_run else delete_acls
    acls = cluster.ask(lambda admin: remove(admin, wanted), is_forwarded=True)
    verb = "would remove" if dry_run else "removed"
    facts = {"removed": [_json(acl) for acl in acls], "changed": bool(acls) and not dry_run}
    cluster.say(facts, [f"{verb} {count(len(acls), 'rule')}", *(_lines(acls) if acls else ())])


# ------------------------------------------------------------------------------------------------ options and output


def _resources(*, whole_cluster: bool, **named: tuple[str, ...]) -> list[Resource]:
    resources = [(kind, name) for option, kind in _NAMED.items() for name in named[option]]
    resources += [("CLUSTER", CLUSTER_NAME)] if whole_cluster else []
    if not resources:
        raise click.UsageError("Say on what: --topic, --group, --cluster, and so on.")
    return resources


def _granted(
    resources: Iterable[Resource], operations: tuple[str, ...], *, producer: bool, consumer: bool
) -> list[tuple[Resource, str]]:
    """Each resource with each operation to grant on it."""
    if not (operations or producer or consumer):
        raise click.UsageError("Say which operations to allow: --operation, --producer or --consumer.")
    grants: list[tuple[Resource, str]] = []
    for resource in resources:
        words = [word.upper().replace("-", "_") for word in operations]
        words += _PRODUCER.get(resource[0], ()) if producer else ()
        words += _CONSUMER.get(resource[0], ()) if consumer else ()
        grants += [(resource, word) for word in dict.fromkeys(words)]
    if not grants:
        raise click.UsageError("A producer needs a --topic, a consumer a --topic and a --group.")
    return grants


def _filter(
    *,
    kind: str | None,
    pattern: str,
    principal: str | None,
    host: str | None,
    operation: str | None,
    permission: str | None,
    whole_cluster: bool,
    **named: str | None,
) -> AclFilter:
    resources = [(_NAMED[option], name) for option, name in named.items() if name is not None]
    resources += [("CLUSTER", CLUSTER_NAME)] if whole_cluster else []
    if len(resources) + (kind is not None) > 1:
        raise click.UsageError("Name one resource, or one type of resources.")
    resource_type, name = resources[0] if resources else (kind, None)
    return AclFilter(
        resource_type=_code(RESOURCE_TYPES, resource_type),
        resource_name=name,
        pattern_type=_code(PATTERN_TYPES, pattern),
        principal=principal,
        host=host,
        operation=_code(OPERATIONS, operation),
        permission_type=_code(PERMISSION_TYPES, permission),
    )


def _json(acl: Acl) -> dict[str, str]:
    """An ACL with the names of Kafka's enums."""
    return {
        "permission": name_of(PERMISSION_TYPES, acl.permission_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": name_of(OPERATIONS, acl.operation),
        "resourceType": name_of(RESOURCE_TYPES, acl.resource_type),
        "resourceName": acl.resource_name,
        "patternType": name_of(PATTERN_TYPES, acl.pattern_type),
    }


def _lines(acls: Iterable[Acl]) -> list[str]:
    names = ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "NAME", "PATTERN")
    return table(names, [tuple(_json(acl).values()) for acl in acls])
