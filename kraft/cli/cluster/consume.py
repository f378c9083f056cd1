"""`kraft consume`: prints the records of a topic (Kafka: `kafka-console-consumer`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Final

import click
import trio
from msgspec import Struct

from kraft.cli.cluster.brokers_of import (
    Brokers,
    Interrupted,
    command_config_option,
    servers_option,
    timeout_option,
)
from kraft.cli.cluster.record_lines import PLACES, formatter, json_line
from kraft.cli.moments import moment_of
from kraft.cli.progress import LongJob
from kraft.cli.text import echo
from kraft.client import (
    AtOffset,
    AtTime,
    Beginning,
    Client,
    ConsumedRecord,
    Consumer,
    ConsumerSettings,
    End,
    GroupConsumer,
    GroupProtocol,
    GroupSettings,
    Isolation,
)
from kraft.client.state.positions import Start
from kraft.config import UsageError
from kraft.config.errors import INTERRUPTED, CommandFailed
from metadata_log.printable import printable

BEGINNING: Final = ("beginning", "earliest")
END: Final = ("end", "latest")
VALUE: Final = "{value}"
_ISOLATION: Final = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}


@click.command("consume", short_help="Print the records of a topic.")
@click.argument("topic")
@servers_option
@command_config_option
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only this partition. May be repeated.",
)
@click.option(
    "--from",
    "start",
    default=BEGINNING[0],
    show_default=True,
    metavar="beginning|end|OFFSET|TIME",
    help="Where to begin in each partition; a time such as 2026-11-24T00:00:00Z, yesterday or -10m.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Share the topic with the other members of this group, from its committed offsets on, and commit.",
)
@click.option(
    "--group-protocol",
    type=click.Choice([each.value for each in GroupProtocol]),
    default=GroupProtocol.CLASSIC.value,
    show_default=True,
    help="Who divides the partitions: the members, or the coordinator (KIP-848).",
)
@click.option("--follow", is_flag=True, help="Wait for further records at the end, until Ctrl-C.")
@click.option(
    "--idle",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="With --follow: end after this time without a record.",
)
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="End after this many records.")
@click.option(
    "--isolation",
    type=click.Choice(list(_ISOLATION)),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@timeout_option
@click.option(
    "--format",
    "template",
    default=VALUE,
    show_default=True,
    metavar="TEXT",
    help=rf"The line of a record, with {PLACES}, \n and \t.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each record, with all of its fields.")
def consume_command(
    *,
    topic: str,
    servers: str,
    command_config: str | None,
    partitions: tuple[int, ...],
    start: str,
    group: str | None,
    group_protocol: str,
    follow: bool,
    idle: float | None,
    max_messages: int | None,
    isolation: str,
    timeout: float,
    template: str,
    as_json: bool,
) -> None:
    """Print the records of TOPIC up to its present end, or with --follow those that are still to come. Without --group
    the command changes nothing in the cluster. With it, the offsets of what was printed are committed, and --from
    (beginning or end) is for partitions of which the group has committed nothing.

    The records of a partition come in order, also when leaders fail. On a terminal, control characters of a record are
    escaped; a pipe or a file gets the bytes as they are. In JSON, {"base64": "…"} stands for bytes that are no text.

    \b
    Example:
        kraft consume orders --bootstrap-server 127.0.0.1:9092
        kraft consume orders --from 2026-11-24T00:00:00Z --json --bootstrap-server 127.0.0.1:9092
        kraft consume orders --follow --format "{key} {value}" --bootstrap-server 127.0.0.1:9092
        kraft consume orders --group billing --follow --bootstrap-server 127.0.0.1:9092
    """
    if idle is not None and not follow:
        raise UsageError("the command ends at the end of the topic anyway", where="--idle", hint="Add --follow.")
    if as_json and template != VALUE:
        raise UsageError("give either --format or --json", where="--format")
    try:
        line: Callable[[str, ConsumedRecord], bytes] = json_line if as_json else formatter(template)
    except ValueError as bad:
        raise UsageError(str(bad), where="--format") from bad
    begin = _start(start)
    if group == "":
        raise UsageError("a group has a name", where="--group")
    if group is not None and partitions:
        raise UsageError("the group divides the partitions", where="--partition, --group")
    if group is not None and not isinstance(begin, Beginning | End):
        raise UsageError("a group goes on at its offsets", where="--from", hint="`kraft groups reset` changes them.")
    settings = ConsumerSettings(
        start=begin,
        partitions=tuple(dict.fromkeys(partitions)) or None,
        follows=follow,
        isolation=_ISOLATION[isolation],
        timeout_ms=int(timeout * 1000),
    )
    member = None if group is None else (group, _of_group(settings, GroupProtocol(group_protocol)))
    job = _Job(topic=topic, settings=settings, group=member, line=line, most=max_messages, idle=idle)
    code = Brokers.of(servers, command_config).run(job.run)
    if code:
        raise CommandFailed(exit_code=code)


def _of_group(settings: ConsumerSettings, protocol: GroupProtocol) -> GroupSettings:
    """The same for a member of a group."""
    assert isinstance(settings.start, Beginning | End), settings.start
    return GroupSettings(
        protocol=protocol,
        reset=settings.start,
        follows=settings.follows,
        isolation=settings.isolation,
        timeout_ms=settings.timeout_ms,
    )


def _start(text: str) -> Start:
    if text in BEGINNING:
        return Beginning()
    if text in END:
        return End()
    try:
        at = moment_of(text)
    except ValueError as bad:
        raise UsageError(
            f"{text!r} is no start: {bad}", where="--from", hint=f"Give {BEGINNING[0]}, {END[0]}, an offset or a time."
        ) from bad
    if at.offset is not None:
        return AtOffset(at.offset)
    assert at.timestamp_ms is not None
    return AtTime(at.timestamp_ms)


class _Job(Struct, frozen=True):
    """One run of the command."""

    topic: str
    settings: ConsumerSettings
    group: tuple[str, GroupSettings] | None
    line: Callable[[str, ConsumedRecord], bytes]
    most: int | None
    idle: float | None

    async def run(self, client: Client, scope: trio.CancelScope, interrupted: Interrupted) -> int:
        """Print the records; returns the exit code."""
        with scope:
            if self.group is None:
                async with client.consumer(self.topic, self.settings) as consumer:
                    await self._print(consumer)
            else:
                async with client.group(self.topic, *self.group) as member:
                    await self._print(member)
        # To follow until Ctrl-C is the purpose of --follow.
        return INTERRUPTED if interrupted.is_set and not self.settings.follows else 0

    async def _print(self, consumer: Consumer | GroupConsumer) -> None:
        left = self.most
        is_seen = sys.stdout.isatty()
        with LongJob(f"Reading {self.topic}", None) as progress:
            while True:
                with trio.move_on_after(float("inf") if self.idle is None else self.idle) as patience:
                    records = await consumer.batch()
                for notice in consumer.take_notices():
                    echo(f"kraft: warning: {notice}", err=True)
                if patience.cancelled_caught or not records:
                    return
                records = records if left is None else records[:left]
                lines = map(partial(self.line, self.topic), records)
                if is_seen:
                    click.echo("\n".join(printable(line.decode("utf-8", "replace")) for line in lines))
                else:
                    click.echo(b"".join(line + b"\n" for line in lines), nl=False)
                if isinstance(consumer, GroupConsumer):
                    consumer.finish(records)
                progress.advance(len(records))
                if left is not None:
                    left -= len(records)
                    if not left:
                        return
