"""`kraft reassign`: moves partitions to other brokers (Kafka: `ReassignPartitionsCommand`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio

from kraft.admin import AdminClient, Reassignment, TopicPartition, alter_reassignments, list_reassignments
from kraft.admin.plan import origin_of, plan_moves
from kraft.admin.throttles import throttle_moves, unthrottle
from kraft.cli.cluster.administration import Cluster, image_of, on_a_cluster, parse_brokers, parse_partition
from kraft.cli.near import unknown_broker, unknown_topic
from kraft.cli.progress import LongJob
from kraft.cli.reassignment_file import file_content, read_targets
from kraft.cli.text import count, echo, echo_text, table
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.image import MetadataImage, Partition

POLL_SECONDS: Final = 0.5
_THROTTLED: Final = "throttled to {} bytes/s; `kraft reassign unthrottle` ends that, once the moves are complete"
Targets = dict[TopicPartition, tuple[int, ...]]


class _StartByDefault(click.Group):
    """`kraft reassign FILE` means `kraft reassign start FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(
    "reassign",
    cls=_StartByDefault,
    short_help="Move partitions to other brokers.",
    epilog="Example: kraft reassign plan.json --wait --bootstrap-controller 127.0.0.1:9093",
)
def reassign_command() -> None:
    """Move partitions to other brokers. `kraft reassign FILE` and `kraft reassign --topic …` are short for start."""


# ------------------------------------------------------------------------------------------------------------- start


@reassign_command.command(
    "start",
    short_help="Begin to move partitions; --wait waits.",
    epilog="Example: kraft reassign start --topic orders --to 101,102,103 --wait --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("file", required=False, type=click.Path(dir_okay=False), metavar="[FILE]")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Spread this topic over --to. May be repeated.")
@click.option("--topic-partition", "word", metavar="T:P", help="This partition, to exactly --to, the first to lead.")
@click.option("--to", metavar="B,B,…", help="The brokers that get the replicas.")
@click.option("--save-before", type=click.Path(dir_okay=False), metavar="OUT", help="Save the current assignment.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="The most that each broker sends and takes for the moves in a second; `unthrottle` or --wait ends that.",
)
@click.option("--wait", is_flag=True, help="Until the brokers have copied everything.")
@on_a_cluster
def start_command(
    file: str | None,
    *,
    topics: tuple[str, ...],
    word: str | None,
    to: str | None,
    save_before: str | None,
    throttle: int | None,
    wait: bool,
    cluster: Cluster,
) -> None:
    """Move the partitions in FILE, which is a file of kafka-reassign-partitions or of `kraft reassign plan`, or the
    partitions in --topic or --topic-partition.

    The command returns once the controller has committed the reassignments; the brokers then copy. --throttle sets what
    `kafka-reassign-partitions --throttle` does: rates of the brokers, and the replicas that they hold back.
    """
    if (file is not None) + bool(topics) + (word is not None) != 1 or (file is None) != (to is not None):
        raise click.UsageError("Say which partitions to move: FILE, or --topic or --topic-partition with --to.")
    brokers = () if to is None else parse_brokers(to)
    if topics:
        image, targets = cluster.ask(partial(_plan, topics=topics, brokers=brokers))
    else:
        image = cluster.ask(image_of)
        targets = {parse_partition(word): brokers} if word is not None else _targets(file or "")
    before = {one: origin_of(_partition(image, one)) for one in targets}
    if save_before is not None:
        Path(save_before).write_text(file_content(before) + "\n")
    moved = [
        {"topic": one.topic, "partition": one.partition, "before": before[one], "replicas": targets[one]}
        for one in sorted(targets)
    ]
    lines = [f"{one}: {_ids(before[one])} → {_ids(targets[one])}" for one in sorted(targets)] or ["Nothing is to move."]
    if targets:
        try:
            if throttle is not None:
                cluster.ask(partial(throttle_moves, before=before, after=targets, bytes_per_second=throttle))
            cluster.ask(partial(alter_reassignments, wanted=targets))
            lines += [_wait(cluster, targets)] if wait else []
            if throttle is not None:
                lines += _end_of_throttle(cluster) if wait else [_THROTTLED.format(throttle)]
        except KeyboardInterrupt:
            hint = "see `kraft reassign list`, and `kraft reassign cancel` to stop it"
            click.echo(f"\nThe reassignments in progress continue: {hint}.", err=True)
            raise
    cluster.say({"reassignments": moved, "complete": wait or not targets}, lines)


def _end_of_throttle(cluster: Cluster) -> list[str]:
    """Remove all throttles; returns the lines that tell of it."""
    freed = cluster.ask(_unthrottle)
    return [f"no longer throttled: {', '.join(freed)}"] if freed else []


async def _unthrottle(admin: AdminClient) -> tuple[str, ...]:
    return await unthrottle(admin, await image_of(admin))


async def _plan(
    admin: AdminClient, *, topics: tuple[str, ...], brokers: tuple[int, ...], replication_factor: int | None = None
) -> tuple[MetadataImage, Targets]:
    image = await image_of(admin)
    _check_names(image, topics, brokers)
    return image, plan_moves(image, topics or image.topics, brokers, replication_factor=replication_factor)


def _check_names(image: MetadataImage, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Raise `CommandFailed` for an unknown topic or broker."""
    for name in topics:
        if name not in image.topics:
            raise unknown_topic(name, image.topics, hint="See `kraft topics list`.")
    known = {broker for broker, _ in image.brokers.by_id.items()}
    for broker in brokers:
        if broker not in known:
            raise unknown_broker(broker, known)


def _partition(image: MetadataImage, one: TopicPartition) -> Partition:
    """A partition to move; a failure if it does not exist."""
    _check_names(image, [one.topic], ())
    if one.partition not in range(len(image.topics[one.topic].partitions)):
        last = len(image.topics[one.topic].partitions) - 1
        raise CommandFailed(f"there is no partition {one}", hint=f"The last one is {one.topic}-{last}.")
    return image.topics[one.topic].partitions[one.partition]


def _targets(file: str) -> Targets:
    targets = {TopicPartition(*one): tuple(replicas) for one, replicas in read_targets(file).items()}
    if not targets:
        raise UsageError("the file names no partition", where=file)
    return targets


def _wait(cluster: Cluster, targets: Targets) -> str:
    """Wait until these reassignments are complete; returns the last line to print."""
    try:
        image = cluster.ask(partial(_until_done, targets=targets))
    except KeyboardInterrupt:
        click.echo(
            "\nThe brokers go on; see `kraft reassign list`, and `kraft reassign cancel` to stop them.", err=True
        )
        raise
    now = {one: _partition(image, one).replicas for one in targets}
    other = [one for one, replicas in targets.items() if now[one] != replicas]
    if other:
        raise CommandFailed(
            f"{count(len(other), 'partition')} went elsewhere: {other[0]} is on {_ids(now[other[0]])}",
            hint="Another client has cancelled or changed the reassignment.",
        )
    return f"complete: {count(len(targets), 'partition')}"


async def _until_done(admin: AdminClient, *, targets: Targets) -> MetadataImage:
    left = len(targets)
    with LongJob("Moving partitions", len(targets)) as job:
        while left:
            under_way = {each.of for each in await list_reassignments(admin)}
            still = sum(one in under_way for one in targets)
            job.advance(left - still)
            left = still
            if left:
                await trio.sleep(POLL_SECONDS)
    return await image_of(admin)


# ----------------------------------------------------------------------------------------------- plan, list, cancel


@reassign_command.command(
    "plan",
    short_help="Print a plan, as a file for start.",
    epilog="Example: kraft reassign plan --topic orders --to 101,102 --bootstrap-controller 127.0.0.1:9093 > plan.json",
)
@click.option("--topic", "topics", multiple=True, metavar="T", help="This topic; otherwise all. May be repeated.")
@click.option("--to", required=True, metavar="B,B,…", help="The brokers that get the replicas.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="How many replicas; otherwise as many as now.")
@on_a_cluster
def plan_command(topics: tuple[str, ...], *, to: str, replication_factor: int | None, cluster: Cluster) -> None:
    """Print a file that spreads topics evenly over some brokers with few moves; `kraft whatif --reassign` tests it.

    The command changes nothing. It prints the number of replicas to copy on stderr.
    """
    brokers = parse_brokers(to)
    image, targets = cluster.ask(partial(_plan, topics=topics, brokers=brokers, replication_factor=replication_factor))
    added = sum(len({*replicas} - {*_partition(image, one).replicas}) for one, replicas in targets.items())
    echo_text(file_content(targets))
    what = f"{count(len(targets), 'partition')} would change, {count(added, 'replica')} would be copied"
    echo(what if targets else "Nothing is to move.", err=True)


@reassign_command.command(
    "list",
    short_help="The reassignments in progress.",
    epilog="Example: kraft reassign list --bootstrap-controller 127.0.0.1:9093",
)
@on_a_cluster
def list_command(*, cluster: Cluster) -> None:
    """List the reassignments in progress."""
    reassignments = cluster.ask(list_reassignments)
    rows = [
        (each.of.topic, each.of.partition, _ids(each.replicas), _ids(each.adding), _ids(each.removing))
        for each in reassignments
    ]
    names = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING")
    cluster.say(
        {"reassignments": _json(reassignments)}, table(names, rows) if rows else ["No reassignment is under way."]
    )


@reassign_command.command(
    "unthrottle",
    short_help="End all throttles of replication.",
    epilog="Example: kraft reassign unthrottle --bootstrap-controller 127.0.0.1:9093",
)
@on_a_cluster
def unthrottle_command(*, cluster: Cluster) -> None:
    """Remove the throttles of replication from all topics and brokers, as kafka-reassign-partitions --verify does."""
    freed = cluster.ask(_unthrottle)
    cluster.say({"freed": freed}, [f"{one}: no longer throttled" for one in freed] or ["Nothing is throttled."])


@reassign_command.command(
    "cancel",
    short_help="Return to the former brokers.",
    epilog="Example: kraft reassign cancel --all --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("file", required=False, type=click.Path(dir_okay=False), metavar="[FILE]")
@click.option("--topic", "topics", multiple=True, metavar="T", help="All of this topic. May be repeated.")
@click.option("--all", "everything", is_flag=True, help="All that are under way.")
@on_a_cluster
def cancel_command(file: str | None, *, topics: tuple[str, ...], everything: bool, cluster: Cluster) -> None:
    """Cancel the reassignments of the partitions in FILE, of topics, or all: the partitions stay on their former
    brokers.
    """
    if (file is not None) + bool(topics) + everything != 1:
        raise click.UsageError("Say which reassignments to cancel: FILE, --topic or --all.")
    named = None if file is None else tuple(_targets(file))
    cancelled = cluster.ask(partial(_cancel, named=named, topics=topics))
    cluster.say(
        {"cancelled": [{"topic": one.topic, "partition": one.partition} for one in cancelled]},
        [f"{one}: cancelled" for one in cancelled] or ["No reassignment is under way."],
    )


async def _cancel(
    admin: AdminClient, *, named: Sequence[TopicPartition] | None, topics: tuple[str, ...]
) -> tuple[TopicPartition, ...]:
    """Cancel the given reassignments, else those of topics, else all; returns the cancelled ones."""
    if named is None:
        if topics:
            _check_names(await image_of(admin), topics, ())
        under_way = [each.of for each in await list_reassignments(admin)]
        named = [one for one in under_way if not topics or one.topic in topics]
    if named:
        nothing: Mapping[TopicPartition, Sequence[int] | None] = dict.fromkeys(named)
        await alter_reassignments(admin, nothing)
    return tuple(sorted(named))


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _json(found: Iterable[Reassignment]) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.of.topic,
            "partition": each.of.partition,
            "replicas": each.replicas,
            "adding": each.adding,
            "removing": each.removing,
        }
        for each in found
    ]
