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
    Acknowledged,
    AcquireMode,
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
    ShareConsumer,
    ShareSettings,
)
from kraft.client.state.positions import Start
from kraft.config import UsageError
from kraft.config.errors import INTERRUPTED, CommandFailed
from metadata_log.printable import printable

BEGINNING: Final = ("beginning", "earliest")
END: Final = ("end", "latest")
VALUE: Final = "{value}"
ACCEPT: Final = "accept"
_SAID: Final = {
    ACCEPT: ShareConsumer.accept,
    "release": ShareConsumer.release,
    "reject": ShareConsumer.reject,
}
"""The word about each record, by the value of `--acknowledge`."""
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
@click.option(
    "--share",
    metavar="NAME",
    help="Take records as jobs, as a member of this share group (KIP-932), until Ctrl-C.",
)
@click.option(
    "--acknowledge",
    type=click.Choice(list(_SAID)),
    help="With --share: what becomes of a printed record; accept by default. A released one comes again.",
)
@click.option("--follow", is_flag=True, help="Wait for further records at the end, until Ctrl-C.")
@click.option(
    "--idle",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="With --follow or --share: end after this time without a record.",
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
    share: str | None,
    acknowledge: str | None,
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
    (beginning or end) is for partitions of which the group has committed nothing. With --share each record is taken
    once by one of the members; a new share group begins at the end, unless share.auto.offset.reset says otherwise.

    The records of a partition come in order, also when leaders fail. On a terminal, control characters of a record are
    escaped; a pipe or a file gets the bytes as they are. In JSON, {"base64": "…"} stands for bytes that are no text.

    \b
    Example:
        kraft consume orders --bootstrap-server 127.0.0.1:9092
        kraft consume orders --from 2026-11-24T00:00:00Z --json --bootstrap-server 127.0.0.1:9092
        kraft consume orders --follow --format "{key} {value}" --bootstrap-server 127.0.0.1:9092
        kraft consume orders --group billing --follow --bootstrap-server 127.0.0.1:9092
        kraft consume jobs --share workers --bootstrap-server 127.0.0.1:9092
        kraft consume jobs --share workers --acknowledge release --max-messages 3 --bootstrap-server 127.0.0.1:9092
    """
    if idle is not None and not follow and share is None:
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
    if share is None and acknowledge is not None:
        raise UsageError(
            "only the records of a share group are acknowledged", where="--acknowledge", hint="Add --share."
        )
    if share is not None:
        _check_share(share, group=group, partitions=partitions, start=start, isolation=isolation)
    settings = ConsumerSettings(
        start=begin,
        partitions=tuple(dict.fromkeys(partitions)) or None,
        follows=follow or share is not None,
        isolation=_ISOLATION[isolation],
        timeout_ms=int(timeout * 1000),
    )
    member = None if group is None else (group, _of_group(settings, GroupProtocol(group_protocol)))
    queue = None if share is None else _Queue(share, acknowledge or ACCEPT)
    job = _Job(topic=topic, settings=settings, group=member, queue=queue, line=line, most=max_messages, idle=idle)
    code = Brokers.of(servers, command_config).run(job.run)
    if code:
        raise CommandFailed(exit_code=code)


def _check_share(share: str, *, group: str | None, partitions: tuple[int, ...], start: str, isolation: str) -> None:
    """Raise `UsageError` for what a member of a share group has no say in."""
    if share == "":
        raise UsageError("a group has a name", where="--share")
    if group is not None:
        raise UsageError("a member is one of a group or of a share group", where="--share, --group")
    if partitions:
        raise UsageError("the group divides the partitions", where="--partition, --share")
    if start != BEGINNING[0]:
        hint = f"`kraft configs set group {share} share.auto.offset.reset=earliest`, `kraft groups reset`"
        raise UsageError("a share group begins where its settings say", where="--from, --share", hint=f"{hint}.")
    if isolation != "read_uncommitted":
        hint = f"`kraft configs set group {share} share.isolation.level={isolation}`"
        raise UsageError("all members of a share group read the same", where="--isolation, --share", hint=f"{hint}.")


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


class _Queue(Struct, frozen=True):
    """The share group, and what becomes of a record that was printed."""

    group: str
    acknowledge: str


class _Job(Struct, frozen=True):
    """One run of the command."""

    topic: str
    settings: ConsumerSettings
    group: tuple[str, GroupSettings] | None
    queue: _Queue | None
    line: Callable[[str, ConsumedRecord], bytes]
    most: int | None
    idle: float | None

    async def run(self, client: Client, scope: trio.CancelScope, interrupted: Interrupted) -> int:
        """Print the records; returns the exit code."""
        with scope:
            if self.queue is not None:
                settings = self._share_settings()
                async with client.share(self.topic, self.queue.group, settings, on_acknowledged=self._warn) as worker:
                    await self._print(worker)
            elif self.group is None:
                async with client.consumer(self.topic, self.settings) as consumer:
                    await self._print(consumer)
            else:
                async with client.group(self.topic, *self.group) as member:
                    await self._print(member)
        # To follow until Ctrl-C is the purpose of --follow.
        return INTERRUPTED if interrupted.is_set and not self.settings.follows else 0

    def _share_settings(self) -> ShareSettings:
        """One leader at a time if only so many records are to be locked."""
        if self.most is None:
            return ShareSettings(explicit=True, timeout_ms=self.settings.timeout_ms)
        most = min(self.most, ShareSettings().max_records)
        return ShareSettings(
            explicit=True, mode=AcquireMode.RECORD_LIMIT, max_records=most, timeout_ms=self.settings.timeout_ms
        )

    def _warn(self, outcome: Acknowledged) -> None:
        """Say that records which were printed may come again."""
        if outcome.failure is not None:
            place = f"{self.topic}-{outcome.partition}"
            count = f"{len(outcome.offsets)} acknowledgements from offset {outcome.offsets[0]} on were not taken"
            echo(f"kraft: warning: {place}: {count}: {outcome.failure}", err=True)

    async def _print(self, consumer: Consumer | GroupConsumer | ShareConsumer) -> None:
        left = self.most
        is_seen = sys.stdout.isatty()
        with LongJob(f"Reading {self.topic}", None) as progress:
            while True:
                with trio.move_on_after(float("inf") if self.idle is None else self.idle) as patience:
                    records = await consumer.batch()
                for notice in () if isinstance(consumer, ShareConsumer) else consumer.take_notices():
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
                elif isinstance(consumer, ShareConsumer):
                    assert self.queue is not None
                    for record in records:
                        _SAID[self.queue.acknowledge](consumer, record)
                progress.advance(len(records))
                if left is not None:
                    left -= len(records)
                    if not left:
                        return
