"""`kraft diff`: compares two clusters, or two moments of one, by resource and field."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from kraft.cli.files.image_at import (
    ImageAt,
    damage_json,
    image_at,
    reading_options,
    report_damages,
    show_secrets_option,
)
from kraft.cli.moments import MOMENT, moment_of
from kraft.cli.progress import progress_option
from kraft.cli.text import count, echo, echo_lines, make_private
from kraft.config.errors import CommandFailed
from metadata_log.image.diff import Difference, differences, resource_type_of
from metadata_log.image.java_text import (
    name_of,
)
from metadata_log.image.names import (
    LEADER_RECOVERY_STATES,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    listener_text,
)
from metadata_log.image.topics import NO_LEADER
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At, moment_text
from metadata_log.records.metadata import BrokerEndpoint, ControllerEndpoint
from metadata_log.records.redact import REDACTED, is_secret_config
from metadata_log.times import iso_time
from metadata_log.types import Uuid

KINDS: Final = (
    "features",
    "controllers",
    "brokers",
    "topics",
    "configs",
    "quotas",
    "producer_ids",
    "acls",
    "scram",
    "tokens",
)
_BY_KEY: Final = frozenset({"features", "configs", "quotas", "producer_ids"})
"""The kinds with fields that come and go separately; resources of the other kinds appear and vanish as a whole."""
_SECRETS: Final = (".salt", ".stored_key", ".server_key")
_ADDRESS: Final = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d{1,5}")


@click.command(
    "diff",
    short_help="What differs between two clusters or moments.",
    epilog="Example: kraft diff /var/lib/kafka/metadata@2026-11-21T08:00:00Z /var/lib/kafka/metadata --only topics",
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--only", metavar="KIND,…", help=f"Only some kinds of resources: {', '.join(KINDS)}.")
@click.option("--at-a", type=MOMENT, help="The moment of A; A@OFFSET and A@TIME say the same.")
@click.option("--at-b", type=MOMENT, help="The moment of B.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@progress_option
@click.option("--html", type=click.Path(dir_okay=False), metavar="OUT", help="Write a page to this file.")
@click.option("--title", metavar="TEXT", help="The title of that page; the default is Difference.")
@click.option("--exit-code", is_flag=True, help="End with 1 if anything differs, and with 0 if nothing does.")
@reading_options
@show_secrets_option
@click.pass_context
def diff_command(
    context: click.Context,
    a: str,
    b: str,
    *,
    only: str | None,
    at_a: At | None,
    at_b: At | None,
    as_json: bool,
    html: str | None,
    title: str | None,
    exit_code: bool,
    on_damage: str,
    show_secrets: bool,
) -> None:
    """Compare the metadata in A and B: two directories, one at two moments, a snapshot and a directory.

    A and B are log directories, directories of the metadata partition, segments or snapshots. The moment follows an @;
    the default is the end. B may be @OFFSET or @TIME alone, for another moment of A.
    """
    if title is not None and html is None:
        raise click.UsageError("--title is the title of a page: add --html OUT")
    kinds = _kinds(only)
    asked = _page_command(a, b, at_a, at_b)
    path_a, at_a = _operand(a, at_a, "--at-a")
    path_b, at_b = _operand(path_a + b if b.startswith("@") else b, at_b, "--at-b")
    before, after = (
        image_at(path, at, OnDamage(on_damage), "@MOMENT") for path, at in ((path_a, at_a), (path_b, at_b))
    )
    changes = [
        _named(one if show_secrets else _redacted(one))
        for one in differences(before.image, after.image)
        if one.kind in kinds
    ]
    if html is not None:
        shown = [
            Difference(one.kind, one.name, one.field, _optional(one.before), _optional(one.after)) for one in changes
        ]
        if show_secrets:
            make_private(Path(html))
        import_module("metadata_log.report").render_diff(
            shown,
            Path(html),
            before=before.where,
            after=after.where,
            title="Difference" if title is None else title,
            commands={kind: f"{asked} --only {kind}" for kind in kinds},
        )
        echo(f"{html}: {count(len(changes), 'difference')}")
    elif as_json:
        echo(json.dumps(_json(before, after, changes), ensure_ascii=False))
    else:
        echo_lines(_lines(before, after, changes))
    damaged = report_damages((*before.damages, *after.damages), hint=before.hint or after.hint)
    context.exit(1 if damaged or (exit_code and changes) else 0)


def _page_command(a: str, b: str, at_a: At | None, at_b: At | None) -> str:
    """The command that prints the differences of the page."""
    options = (("--at-a", at_a), ("--at-b", at_b))
    moments = [
        word
        for option, at in options
        if at is not None
        for word in (option, moment_text(at) if at.offset is None else str(at.offset))
    ]
    return shlex.join(("kraft", "diff", a, b, *moments))


def _kinds(only: str | None) -> frozenset[str]:
    names = frozenset(KINDS if only is None else (name.strip() for name in only.split(",")))
    if unknown := sorted(names - set(KINDS)):
        raise click.UsageError(f"there is no kind {unknown[0]!r}: there are {', '.join(KINDS)}")
    return names


def _operand(text: str, at: At | None, option: str) -> tuple[str, At | None]:
    """A path and its moment, from the text after the @ or from the option."""
    if os.path.exists(text):
        return text, at
    path, mark, moment = text.rpartition("@")
    if mark and os.path.exists(path):
        if at is not None:
            raise click.UsageError(f"{text} and {option} both give a moment")
        try:
            return path, moment_of(moment)
        except ValueError as bad:
            raise click.UsageError(str(bad)) from bad
    if _ADDRESS.fullmatch(text):
        raise CommandFailed(
            f"a running controller cannot be compared yet ({text})",
            hint="Name its log directory, even while the node runs, or a snapshot.",
        )
    raise click.UsageError(f"path {path if mark else text!r} does not exist")


def _redacted(one: Difference) -> Difference:
    """A difference without secret values; the fact that they differ is visible."""
    secret = one.kind == "configs" and any(
        is_secret_config(resource_type_of(one.name), one.field, _optional(value)) for value in (one.before, one.after)
    )
    if not secret and not (one.kind == "scram" and one.field.endswith(_SECRETS)):
        return one
    hidden = (None if value is None else REDACTED for value in (one.before, one.after))
    return Difference(one.kind, one.name, one.field, *hidden)


_NAMES: Final[dict[tuple[str, str], Callable[[Any], object]]] = {
    ("acls", "resource_type"): partial(name_of, RESOURCE_TYPES),
    ("acls", "pattern_type"): partial(name_of, PATTERN_TYPES),
    ("acls", "operation"): partial(name_of, OPERATIONS),
    ("acls", "permission_type"): partial(name_of, PERMISSION_TYPES),
    ("tokens", "issue_timestamp"): iso_time,
    ("tokens", "max_timestamp"): iso_time,
    ("tokens", "expiration_timestamp"): iso_time,
    ("topics", "leader_recovery_state"): lambda state: LEADER_RECOVERY_STATES.get(state, state),
}
"""The names of the numbers in some fields."""


def _named(one: Difference) -> Difference:
    """A difference with the names of Kafka's enums instead of their codes, and with formatted times."""
    name = _NAMES.get((one.kind, one.field))
    if name is None:
        return one
    values = (None if value is None else name(value) for value in (one.before, one.after))
    return Difference(one.kind, one.name, one.field, *values)


def _lines(before: ImageAt, after: ImageAt, found: list[Difference]) -> Iterator[str]:
    yield f"--- {before.where}"
    yield f"+++ {after.where}"
    if not found:
        yield "No difference."
    for kind, of_kind in groupby(found, key=lambda one: one.kind):
        yield ""
        yield kind.replace("_", " ")
        if kind in _BY_KEY:
            yield from (f"  {_mark([one])} {one.name}: {_field(one)}" for one in of_kind)
            continue
        for name, fields in groupby(of_kind, key=lambda one: one.name):
            of_thing = list(fields)
            yield f"  {_mark(of_thing)} {name}: {', '.join(_field(one) for one in of_thing)}"


def _mark(fields: list[Difference]) -> str:
    """+ for a new resource, - for a removed one, ~ for a changed one."""
    if all(one.before is None for one in fields):
        return "+"
    return "-" if all(one.after is None for one in fields) else "~"


def _field(one: Difference) -> str:
    before, after = (_leader(value) if one.field == "leader" else value for value in (one.before, one.after))
    if before is None or after is None:
        return f"{one.field} {_text(after if before is None else before)}"
    return f"{one.field} {_text(before)} → {_text(after)}"


def _leader(value: object) -> object:
    return "none" if value == NO_LEADER else value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


def _text(value: object) -> str:
    """A value of an image as readable text."""
    match value:
        case Uuid():
            return str(value)
        case bytes():
            return value.hex()
        case bool():
            return "yes" if value else "no"
        case BrokerEndpoint() | ControllerEndpoint():
            return listener_text(value.name, value.host, value.port)
        case (str() as name, int() as lowest, int() as highest):
            return f"{name} {lowest}-{highest}"
        case tuple():
            return f"[{', '.join(map(_text, value))}]"
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return str(value)


def _json(before: ImageAt, after: ImageAt, found: Iterable[Difference]) -> dict[str, Any]:
    return {
        "before": _side(before),
        "after": _side(after),
        "differences": [
            {
                "kind": one.kind,
                "name": one.name,
                "field": one.field,
                "before": _plain(one.before),
                "after": _plain(one.after),
            }
            for one in found
        ],
    }


def _side(found: ImageAt) -> dict[str, Any]:
    return {
        "path": found.path,
        "offset": found.provenance.offset,
        "epoch": found.provenance.epoch,
        "time": iso_time(found.provenance.timestamp_ms),
        "damage": [damage_json(damage) for damage in found.damages],
    }


def _plain(value: object) -> object:
    """A value of an image in JSON form."""
    match value:
        case Uuid():
            return str(value)
        case bytes():
            return value.hex()
        case tuple():
            return [_plain(one) for one in value]
        case Struct():
            return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            return value
