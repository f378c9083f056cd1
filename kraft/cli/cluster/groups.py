"""`kraft groups`: shows groups of consumers and repairs their offsets (Kafka: `kafka-consumer-groups`)."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from kraft.cli.cluster.on_brokers import EXAMPLE, AnyCase, BrokerCluster, on_brokers, partitions_of
from kraft.cli.moments import MOMENT
from kraft.cli.near import did_you_mean, unknown_topic
from kraft.cli.text import count, table
from kraft.client.groups import (
    DEAD,
    EARLIEST,
    IDLE,
    LATEST,
    STATES,
    TYPES,
    CommittedOffset,
    GroupDescription,
    alter_offsets,
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
    list_offsets,
)
from kraft.client.questions import ClusterView, Questions, TopicPartition
from kraft.client.share_groups import SHARE, alter_start_offsets, delete_start_offsets, start_offsets
from kraft.client.state.errors import ClientError
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.reading.timeline import At
from metadata_log.types import NO_EPOCH, NO_OFFSET
from transport.protocol.errors import Error

SEE_LIST: Final = "See `kraft groups list`."
_HINTS: Final = {
    Error.NON_EMPTY_GROUP: "The group has members: stop them first.",
    Error.GROUP_ID_NOT_FOUND: SEE_LIST,
    Error.GROUP_SUBSCRIBED_TO_TOPIC: "A member of the group reads that topic: stop it first.",
    Error.LEADER_NOT_AVAILABLE: "No replica in sync runs: start its broker, or name the other partitions (T:N,N).",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "See `kraft topics list`.",
    Error.UNKNOWN_MEMBER_ID: "The group has members: stop them first.",
    Error.GROUP_AUTHORIZATION_FAILED: "The access rules do not permit that to this user: see `kraft acls list`.",
}
_ISO_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SHORT_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


@click.group(
    "groups",
    short_help="List, describe and delete groups; reset offsets.",
    epilog=f"Example: kraft groups list {EXAMPLE}",
)
def groups_command() -> None:
    """Look at groups of consumers and repair their offsets, like kafka-consumer-groups, on this program's or Apache
    Kafka's brokers.
    """


# ------------------------------------------------------------------------------------------------- list and describe


@groups_command.command("list", short_help="All groups.", epilog=f"Example: kraft groups list --state Empty {EXAMPLE}")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=AnyCase(STATES),
    metavar="STATE",
    help="Only groups in this state. May be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=AnyCase(TYPES),
    metavar="TYPE",
    help="Only groups of this type. May be repeated.",
)
@on_brokers
def list_command(states: tuple[str, ...], types: tuple[str, ...], *, cluster: BrokerCluster) -> None:
    """List the groups of all brokers: classic, consumer, share and streams groups."""
    listed = cluster.ask(partial(list_groups, states=states, types=types))
    facts = [
        {"group": one.group, "type": one.type, "state": one.state, "protocolType": one.protocol_type} for one in listed
    ]
    rows = [(one.group, one.type, one.state or "-", one.protocol_type or "-") for one in listed]
    lines = table(("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE"), rows) if rows else ["No group."]
    cluster.say({"groups": facts}, lines)


class _Row(Struct, frozen=True):
    """A partition that a group has committed or is assigned."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    end: int | None
    """None if no leader has named it."""
    owner: int | None
    """The place of the member among the members; None for a share group, of which several may read a partition."""
    told_lag: int | None = None
    """The lag of a share group, which counts the records that are consumed behind its first offset."""

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read; negative for an offset past the end, as after an unclean election."""
        if self.told_lag is not None:
            return self.told_lag
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


@groups_command.command(
    "describe", short_help="Offsets, lag and members.", epilog=f"Example: kraft groups describe billing {EXAMPLE}"
)
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--members", "shows_members", is_flag=True, help="Show the members, not the offsets.")
@on_brokers
def describe_command(groups: tuple[str, ...], *, shows_members: bool, cluster: BrokerCluster) -> None:
    """Describe these groups, or all: for each partition the committed offset, the end of the log, the lag, and the
    member that reads it.
    """
    described = cluster.ask(partial(_described, groups=groups))
    facts: list[dict[str, Any]] = []
    lines: list[str] = []
    for group, rows in described:
        facts.append(_group_json(group, rows))
        lines += [*([""] if lines else []), *_head_lines(group, rows)]
        lines += _member_lines(group) if shows_members else _row_lines(group, rows)
    cluster.say({"groups": facts}, lines or ["No group."])


async def _described(ask: Questions, *, groups: tuple[str, ...]) -> list[tuple[GroupDescription, list[_Row]]]:
    view = await ask.cluster()
    names = groups or tuple(one.group for one in await list_groups(ask))
    described = []
    for name in names:
        group = await describe_group(ask, name)
        if group.type == SHARE:
            described.append((group, await _shared_rows(ask, name)))
            continue
        offsets = await committed_offsets(ask, name, view)
        if group.state == DEAD and not offsets:
            raise await _unknown_group(ask, name)
        described.append((group, await _rows(ask, group, offsets)))
    return described


async def _unknown_group(ask: Questions, name: str) -> CommandFailed:
    """The error for a group that no coordinator has, with similar names."""
    try:
        near = did_you_mean(name, [one.group for one in await list_groups(ask)])
    except ClientError:  # the missing group is what matters
        near = None
    return CommandFailed(f"there is no group {name}", hint=near or SEE_LIST)


async def _rows(
    ask: Questions, group: GroupDescription, offsets: Mapping[TopicPartition, CommittedOffset]
) -> list[_Row]:
    owners = {
        (topic, number): at
        for at, member in enumerate(group.members)
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    wanted = sorted({*offsets, *owners})
    ends = await list_offsets(ask, dict.fromkeys(wanted, LATEST)) if wanted else {}
    return [
        _Row(
            *one,
            committed=offsets.get(one),
            end=ends[one][1] if ends[one][0] is Error.NONE else None,
            owner=owners.get(one),
        )
        for one in wanted
    ]


async def _shared_rows(ask: Questions, group: str) -> list[_Row]:
    """The partitions of a share group. The end of a log is not asked for where the lag tells it."""
    rows = []
    for place, one in (await start_offsets(ask, group)).items():
        committed = None if one.offset is None else CommittedOffset(one.offset, NO_EPOCH, "")
        rows.append(_Row(*place, committed=committed, end=None, owner=None, told_lag=one.lag))
    return rows


def _head_lines(group: GroupDescription, rows: list[_Row]) -> list[str]:
    lags = [row.lag for row in rows if row.committed is not None]
    lag = f"lag {sum(max(0, one) for one in lags if one is not None)}"
    if unknown := lags.count(None):
        lag += f", not known of {count(unknown, 'partition')}"
    if past := sum(one is not None and one < 0 for one in lags):
        lag += f", {count(past, 'offset')} past the end of the log"
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    members = count(len(group.members), "member")
    return [f"Group {group.group}: {group.type}, {group.state}{epoch}{assignor}, {members}, {lag}"]


def _row_lines(group: GroupDescription, rows: list[_Row]) -> list[str]:
    if not rows:
        return ["The group has no offsets."]
    if group.type == SHARE:
        starts = [None if one.committed is None else one.committed.offset for one in rows]
        shared = [
            (one.topic, one.partition, _or_dash(start), _or_dash(one.lag))
            for one, start in zip(rows, starts, strict=True)
        ]
        return table(("TOPIC", "PARTITION", "START-OFFSET", "LAG"), shared)
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
    cells = []
    for row in rows:
        member = None if row.owner is None else group.members[row.owner]
        where = ("-", "-", "-") if member is None else (member.id, member.host, member.client_id)
        current = None if row.committed is None else row.committed.offset
        cells.append((row.topic, row.partition, _or_dash(current), _or_dash(row.end), _or_dash(row.lag), *where))
    return table(columns, cells)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _member_lines(group: GroupDescription) -> list[str]:
    if not group.members:
        return ["The group has no members."]
    columns = ("CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "EPOCH", "PARTITIONS")
    return table(
        columns,
        [
            (one.id, one.instance or "-", one.host, one.client_id, _or_dash(one.epoch), _assigned(one.assignment))
            for one in group.members
        ],
    )


def _assigned(assignment: Mapping[str, tuple[int, ...]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in assignment.items()) or "-"


def _group_json(group: GroupDescription, rows: list[_Row]) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "epoch": group.epoch,
        "assignor": group.assignor,
        "members": [
            {
                "memberId": one.id,
                "instanceId": one.instance,
                "clientId": one.client_id,
                "host": one.host,
                "epoch": one.epoch,
                "assignment": one.assignment,
            }
            for one in group.members
        ],
        "offsets": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "currentOffset": None if row.committed is None else row.committed.offset,
                "metadata": None if row.committed is None else row.committed.metadata,
                "logEndOffset": row.end,
                "lag": row.lag,
                "memberId": None if row.owner is None else group.members[row.owner].id,
            }
            for row in rows
        ],
    }


# ------------------------------------------------------------------------------------------------------------- reset


class _Plan(Struct, frozen=True, kw_only=True):
    """The offset that each partition gets; exactly one of the targets is given."""

    topics: Mapping[str, tuple[int, ...] | None] | None
    """None for all topics that the group has offsets for."""
    time: int | None = None
    """A time in ms since 1970, or `EARLIEST`, `LATEST`."""
    offset: int | None = None
    shift: int | None = None
    is_current: bool = False
    ago_ms: int | None = None
    listed: Mapping[TopicPartition, int] | None = None


@groups_command.command(
    "reset",
    short_help="Give a group without members other offsets.",
    epilog=f"Example: kraft groups reset billing --topic orders --to-earliest --execute {EXAMPLE}",
)
@click.argument("group")
@click.option("--topic", "topics", multiple=True, metavar="T[:N,N]", help="This topic, or these partitions of it.")
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets for.")
@click.option("--to-earliest", is_flag=True, help="To the first record that there still is.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-current", is_flag=True, help="To what is committed now, within the bounds of the log.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--to-datetime", type=MOMENT, metavar="TIME", help="To the first record of this time or later.")
@click.option("--by-duration", metavar="TIME", help="To the first record of so long ago or later: PT1H30M or 1h30m.")
@click.option("--shift-by", type=int, metavar="N", help="So many records on, or back with a minus.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="To the offsets in lines of TOPIC,PARTITION,OFFSET.",
)
@click.option("--execute", is_flag=True, help="Commit the offsets; without this they are only shown.")
@on_brokers
def reset_command(
    group: str,
    *,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: At | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: str | None,
    execute: bool,
    cluster: BrokerCluster,
) -> None:
    """Show the offsets that GROUP would get, and with --execute commit them. The group must have no members. An offset
    outside of the log becomes the nearest end.
    """
    targets = (to_earliest, to_latest, to_current, *(one is not None for one in (to_offset, to_datetime, by_duration)))
    if sum((*targets, shift_by is not None, from_file is not None)) != 1:
        raise UsageError("give exactly one target", where="kraft groups reset", hint="For example --to-earliest.")
    if from_file is None and bool(topics) is all_topics:
        raise UsageError("give either --topic or --all-topics", where="kraft groups reset")
    if from_file is not None and (topics or all_topics):
        raise UsageError("the file names the topics", where="--from-file, --topic, --all-topics")
    if to_datetime is not None and to_datetime.timestamp_ms is None:
        raise UsageError("an offset is no time", where="--to-datetime", hint="See --to-offset.")
    time = None if to_datetime is None else to_datetime.timestamp_ms
    plan = _Plan(
        topics=None if all_topics or from_file is not None else partitions_of(topics, "--topic"),
        time=EARLIEST if to_earliest else LATEST if to_latest else time,
        offset=to_offset,
        shift=shift_by,
        is_current=to_current,
        ago_ms=None if by_duration is None else _duration_ms(by_duration),
        listed=None if from_file is None else read_offsets(Path(from_file)),
    )
    offsets = cluster.ask(partial(_reset, group=group, plan=plan, executes=execute))
    facts = [
        {"topic": topic, "partition": number, "currentOffset": before, "newOffset": after}
        for (topic, number), (before, after) in offsets.items()
    ]
    rows = [(topic, number, _or_dash(before), after) for (topic, number), (before, after) in offsets.items()]
    lines = table(("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows) if rows else ["No partition."]
    note = [] if execute or not rows else ["Nothing was changed: add --execute to commit these offsets."]
    cluster.say({"group": group, "executed": execute, "offsets": facts}, [*lines, *note])


def _duration_ms(text: str) -> int:
    """Milliseconds of `PT1H30M` or `1h30m`; raises `UsageError`."""
    match = _ISO_DURATION.fullmatch(text) or _SHORT_DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"{text!r} is no duration", where="--by-duration", hint="For example PT1H30M or 1h30m.")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets of a file with lines of TOPIC,PARTITION,OFFSET; raises `CommandFailed`."""
    offsets: dict[TopicPartition, int] = {}
    with path.open(newline="") as file:
        for number, cells in enumerate(csv.reader(file), 1):
            if not cells:
                continue
            try:
                topic, partition, offset = cells
                offsets[topic.strip(), int(partition)] = int(offset)
            except ValueError:
                raise CommandFailed(
                    f"{path}, line {number}: {','.join(cells)!r} is not TOPIC,PARTITION,OFFSET",
                    hint="For example orders,0,1200.",
                ) from None
    return offsets


async def _reset(
    ask: Questions, *, group: str, plan: _Plan, executes: bool
) -> dict[TopicPartition, tuple[int | None, int]]:
    """Each partition with the committed and the new offset."""
    view = await ask.cluster()
    described = await describe_group(ask, group)
    if described.state not in IDLE:
        members = count(len(described.members), "member")
        raise CommandFailed(f"group {group} is {described.state}, with {members}", hint="Stop the members first.")
    is_share = described.type == SHARE
    before = await _offsets_now(ask, group, view, is_share=is_share)
    wanted = _partitions(view, plan, before)
    if not wanted and not before:
        if described.state == DEAD:
            raise await _unknown_group(ask, group)
        raise CommandFailed(f"group {group} has no offsets", hint="--topic names the topics that it will read.")
    offsets = await _new_offsets(ask, plan, wanted, before)
    if executes and offsets:
        altered = alter_start_offsets(ask, group, offsets) if is_share else alter_offsets(ask, group, offsets, view)
        _raise_first(await altered, f"group {group}")
    return {one: (before.get(one), offsets[one]) for one in sorted(offsets)}


async def _offsets_now(ask: Questions, group: str, view: ClusterView, *, is_share: bool) -> dict[TopicPartition, int]:
    """The offsets that a group has committed, or from which on a share group reads."""
    if is_share:
        return {one: at.offset for one, at in (await start_offsets(ask, group)).items() if at.offset is not None}
    return {one: committed.offset for one, committed in (await committed_offsets(ask, group, view)).items()}


def _partitions(view: ClusterView, plan: _Plan, before: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions of a plan, all of which exist; raises `CommandFailed`."""
    if plan.listed is not None:
        wanted = list(plan.listed)
    elif plan.topics is None:
        return [one for one in before if one[0] in view.topics and one[1] in view.topics[one[0]].partitions]
    else:
        wanted = []
        for topic, numbers in plan.topics.items():
            known = view.topics.get(topic)
            wanted += [(topic, one) for one in numbers or (known.partitions if known is not None else (0,))]
    for topic, number in wanted:
        if topic not in view.topics:
            raise unknown_topic(topic, view.topics, hint="See `kraft topics list`.")
        if number not in view.topics[topic].partitions:
            last = len(view.topics[topic].partitions) - 1
            raise CommandFailed(f"{topic} has no partition {number}", hint=f"The last one is {last}.")
    return wanted


async def _new_offsets(
    ask: Questions, plan: _Plan, wanted: Collection[TopicPartition], before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset of each partition, within the bounds of its log."""
    first = await _named(ask, wanted, EARLIEST)
    last = await _named(ask, wanted, LATEST)
    asked: Mapping[TopicPartition, int]
    time = ask.now_ms - plan.ago_ms if plan.ago_ms is not None else plan.time
    if time is not None:
        named = await _named(ask, wanted, time)
        asked = {one: last[one] if offset == NO_OFFSET else offset for one, offset in named.items()}
    elif plan.listed is not None:
        asked = plan.listed
    elif plan.offset is not None:
        asked = dict.fromkeys(wanted, plan.offset)
    elif plan.shift is not None:
        missing = next((one for one in wanted if one not in before), None)
        if missing is not None:
            raise CommandFailed(f"nothing is committed for {missing[0]}-{missing[1]}, from which to shift")
        asked = {one: before[one] + plan.shift for one in wanted}
    else:
        asked = {one: before.get(one, last[one]) for one in wanted}
    return {one: min(max(asked[one], first[one]), last[one]) for one in wanted}


async def _named(ask: Questions, wanted: Collection[TopicPartition], time: int) -> dict[TopicPartition, int]:
    """The offsets that the leaders name; raises `CommandFailed` if one does not."""
    offsets = await list_offsets(ask, dict.fromkeys(wanted, time))
    _raise_first({one: error for one, (error, _) in offsets.items()}, "the offsets of the log")
    return {one: offset for one, (_, offset) in offsets.items()}


def _raise_first(errors: Mapping[TopicPartition, Error], what: str) -> None:
    for (topic, number), error in errors.items():
        if error is not Error.NONE:
            raise CommandFailed(f"{what}: {topic}-{number}: {error.name}", hint=_HINTS.get(error))


# ------------------------------------------------------------------------------------------------------------ delete


@groups_command.command(
    "delete", short_help="Groups with their offsets.", epilog=f"Example: kraft groups delete billing {EXAMPLE}"
)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@on_brokers
def delete_command(groups: tuple[str, ...], *, cluster: BrokerCluster) -> None:
    """Delete these groups, which must have no members, with all of their offsets."""

    async def delete(ask: Questions) -> dict[str, Error]:
        return {group: await delete_group(ask, group) for group in groups}

    outcomes = cluster.ask(delete)
    done = [group for group, error in outcomes.items() if error is Error.NONE]
    cluster.say({"deleted": done}, [f"Deleted: {group}" for group in done])
    failures = [
        CommandFailed(f"group {group}: {error.name}", hint=_HINTS.get(error))
        for group, error in outcomes.items()
        if error is not Error.NONE
    ]
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("several groups were not deleted", failures)


@groups_command.command(
    "delete-offsets",
    short_help="Offsets of topics.",
    epilog=f"Example: kraft groups delete-offsets billing --topic orders {EXAMPLE}",
)
@click.argument("group")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="T[:N,N]", help="This topic, or partitions of it."
)
@on_brokers
def delete_offsets_command(group: str, *, topics: tuple[str, ...], cluster: BrokerCluster) -> None:
    """Delete the offsets of topics that no member of GROUP reads. A share group must have no members, and loses the
    offsets of whole topics.
    """

    chosen = partitions_of(topics, "--topic")

    async def delete(ask: Questions) -> tuple[dict[TopicPartition, Error], Collection[TopicPartition]]:
        view = await ask.cluster()
        if (await describe_group(ask, group)).type == SHARE:
            return await _delete_shared(ask, group, chosen)
        offsets = await committed_offsets(ask, group, view)
        wanted: list[TopicPartition] = []
        for topic, numbers in chosen.items():
            wanted += [(topic, one) for one in numbers] if numbers else [one for one in offsets if one[0] == topic]
        if not wanted:
            described = await describe_group(ask, group)
            if described.state == DEAD:
                raise await _unknown_group(ask, group)
            raise CommandFailed(f"group {group} has no offsets of {', '.join(topics)}")
        return await delete_offsets(ask, group, wanted), offsets

    outcomes, before = cluster.ask(delete)
    agreed = [one for one, error in outcomes.items() if error is Error.NONE]
    done = [one for one in agreed if one in before]
    without = [f"{topic}-{number}" for topic, number in agreed if (topic, number) not in before]
    without += [topic for topic in chosen if all(one[0] != topic for one in outcomes)]
    facts = [{"topic": topic, "partition": number} for topic, number in done]
    lines = [f"Deleted: {topic}-{number}" for topic, number in done] + [f"No offset: {one}" for one in without]
    cluster.say({"group": group, "deleted": facts}, lines)
    _raise_first(outcomes, f"group {group}")


async def _delete_shared(
    ask: Questions, group: str, chosen: Mapping[str, tuple[int, ...] | None]
) -> tuple[dict[TopicPartition, Error], Collection[TopicPartition]]:
    """Delete the offsets of topics of a share group; returns as those of others the outcome, and what there was."""
    if any(chosen.values()):
        raise CommandFailed(f"group {group} is a share group", hint="Its offsets are deleted by topic: leave out `:N`.")
    before = await start_offsets(ask, group)
    errors = await delete_start_offsets(ask, group, list(chosen))
    outcomes: dict[TopicPartition, Error] = {}
    for topic, error in errors.items():
        of_topic = [one for one in before if one[0] == topic]
        if of_topic:
            outcomes |= dict.fromkeys(of_topic, error)
        elif error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
            outcomes[topic, 0] = error
    return outcomes, before
