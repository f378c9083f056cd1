"""`kraft topics`: manages topics and partitions through the controllers (Kafka: `TopicCommand`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

import click

from kraft.admin import (
    AdminClient,
    CreatedTopic,
    RequestRefused,
    ResourceType,
    SomeRefused,
    create_topic,
    delete_topics,
    describe_configs,
    grow_topic,
)
from kraft.admin.topics import AS_CONFIGURED
from kraft.cli.cluster.administration import (
    Cluster,
    add_near_names,
    as_failure,
    image_of,
    on_a_cluster,
    parse_assignment,
    parse_settings,
)
from kraft.cli.near import did_you_mean, unknown_topic
from kraft.cli.text import count, table
from kraft.config.errors import CommandFailed
from metadata_log.image import MetadataImage, Partition, TopicImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.topics import NO_LEADER
from metadata_log.records.redact import shown_config
from metadata_log.types import Uuid
from transport.protocol.errors import Error

MIN_ISR: Final = "min.insync.replicas"
ALL: Final = "*"
Judge = Callable[[Partition, int], bool]
"""Whether to show a partition, given the min.insync.replicas of its topic."""


class Trouble(StrEnum):
    """The unhealthy states of a partition, with the names of kafka-topics."""

    UNAVAILABLE = "unavailable"
    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"


_JUDGES: Final[dict[Trouble, Judge]] = {
    Trouble.UNAVAILABLE: lambda partition, min_isr: partition.leader == NO_LEADER,
    Trouble.UNDER_REPLICATED: lambda partition, min_isr: is_under_replicated(partition),
    Trouble.UNDER_MIN_ISR: lambda partition, min_isr: len(partition.isr) < min_isr,
    Trouble.AT_MIN_ISR: lambda partition, min_isr: len(partition.isr) == min_isr,
}


@click.group(
    "topics",
    short_help="List, describe, create, delete and grow topics.",
    epilog="Example: kraft topics list --bootstrap-controller 127.0.0.1:9093",
)
def topics_command() -> None:
    """Manage topics without a broker, like kafka-topics, through this program's or Apache Kafka's controllers."""


# ------------------------------------------------------------------------------------------------- list and describe


@topics_command.command(
    "list",
    short_help="All topics, one a line.",
    epilog="Example: kraft topics list 'orders*' --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("pattern", required=False, default=ALL)
@on_a_cluster
def list_command(pattern: str, *, cluster: Cluster) -> None:
    """List the topics with names that match PATTERN, such as 'orders*', or all: how many partitions and replicas they
    have, how many partitions have no leader, and how many lack replicas in sync.
    """
    image = cluster.ask(image_of)
    listed = [image.topics[name] for name in image.topics if fnmatchcase(name, pattern)]
    if pattern != ALL and not listed:
        raise CommandFailed(f"no topic matches {pattern}", hint=did_you_mean(pattern.strip("*"), image.topics))
    cluster.say({"topics": [_summary(topic) for topic in listed]}, _list_lines(listed))


def _summary(topic: TopicImage) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topicId": str(topic.id),
        "partitions": len(topic.partitions),
        "replicationFactor": replication_factor(topic),
        "unavailable": sum(partition.leader == NO_LEADER for partition in topic.partitions),
        "underReplicated": sum(map(is_under_replicated, topic.partitions)),
    }


def _list_lines(topics: list[TopicImage]) -> list[str]:
    if not topics:
        return ["No topic."]
    rows = [
        (each["name"], each["partitions"], each["replicationFactor"], each["unavailable"], each["underReplicated"])
        for each in map(_summary, topics)
    ]
    return table(("TOPIC", "PARTITIONS", "REPLICAS", "UNAVAILABLE", "UNDER-REPLICATED"), rows)


def replication_factor(topic: TopicImage) -> int:
    """The number of replicas of the first partition without those being added, as in kafka-topics."""
    return _settled(topic.partitions[0]) if topic.partitions else 0


def is_under_replicated(partition: Partition) -> bool:
    """Whether fewer replicas are in sync than exist, without those being added."""
    return len(partition.isr) < _settled(partition)


def _settled(partition: Partition) -> int:
    return len(partition.replicas) - len(partition.adding_replicas)


@topics_command.command(
    "describe",
    short_help="Partitions with leaders, replicas, ISR.",
    epilog="Example: kraft topics describe orders --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--only", type=click.Choice([each.value for each in Trouble]), help="Only partitions in this state.")
@on_a_cluster
def describe_command(names: tuple[str, ...], *, only: str | None, cluster: Cluster) -> None:
    """Describe these topics, or all: every partition with its leader, replicas, ISR, and, where there are any, eligible
    leader replicas (ELR), those last known to be, and replicas that a reassignment adds or removes.
    """
    trouble = None if only is None else Trouble(only)
    image, min_isr = cluster.ask(partial(_described, names=names, trouble=trouble))
    shown: list[dict[str, Any]] = []
    for name in names or image.topics:
        topic = image.topics[name]
        numbers = [
            number
            for number, partition in enumerate(topic.partitions)
            if trouble is None or _JUDGES[trouble](partition, min_isr.get(name, 1))
        ]
        if numbers or trouble is None:
            shown.append(_topic(image, topic, numbers))
    cluster.say({"topics": shown}, _describe_lines(shown, only))


async def _described(
    admin: AdminClient, *, names: tuple[str, ...], trouble: Trouble | None
) -> tuple[MetadataImage, dict[str, int]]:
    """The image, with all these topics present, and their min.insync.replicas if needed."""
    image = await image_of(admin)
    missing = next((name for name in names if name not in image.topics), None)
    if missing is not None:
        raise unknown_topic(missing, image.topics, hint="See `kraft topics list`.")
    if trouble not in (Trouble.UNDER_MIN_ISR, Trouble.AT_MIN_ISR):
        return image, {}
    settings = await describe_configs(admin, ResourceType.TOPIC, names or tuple(image.topics), keys=[MIN_ISR])
    return image, {name: int(values[0].value or 1) for name, values in settings.items() if values}


def _topic(image: MetadataImage, topic: TopicImage, numbers: list[int]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topicId": str(topic.id),
        "partitionCount": len(topic.partitions),
        "replicationFactor": replication_factor(topic),
        "configs": _shown(dict(in_key_order(image.configs.of((ResourceType.TOPIC, topic.name))))),
        "partitions": [_partition(number, topic.partitions[number]) for number in numbers],
    }


def _shown(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    """The settings of a topic, without secrets."""
    return {key: shown_config(ResourceType.TOPIC, key, value, show_secrets=False) for key, value in configs.items()}


def _partition(number: int, partition: Partition) -> dict[str, Any]:
    return {
        "partition": number,
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "lastKnownElr": partition.last_known_elr,
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
    }


_COLUMNS: Final = {
    "PARTITION": "partition",
    "LEADER": "leader",
    "REPLICAS": "replicas",
    "ISR": "isr",
    "ELR": "elr",
    "LAST KNOWN ELR": "lastKnownElr",
    "ADDING": "adding",
    "REMOVING": "removing",
}
_ALWAYS: Final = 4
"""The first columns are always present; the others only if a partition has values in them."""


def _describe_lines(topics: list[dict[str, Any]], only: str | None) -> Iterator[str]:
    if not topics:
        yield "No topic." if only is None else f"No partition is {only.replace('-', ' ')}."
    for index, topic in enumerate(topics):
        if index:
            yield ""
        partitions = topic["partitions"]
        configs = ", ".join(f"{key}={value}" for key, value in topic["configs"].items())
        yield (
            f"{topic['name']}: {count(topic['partitionCount'], 'partition')}, replication factor "
            f"{topic['replicationFactor']}, id {topic['topicId']}" + (f", {configs}" if configs else "")
        )
        columns = [
            (title, key)
            for place, (title, key) in enumerate(_COLUMNS.items())
            if place < _ALWAYS or any(partition[key] for partition in partitions)
        ]
        rows = [[_cell(partition[key]) for _, key in columns] for partition in partitions]
        yield from table([title for title, _ in columns], rows)


def _cell(value: int | tuple[int, ...] | None) -> str:
    if value is None or value == ():
        return "none" if value is None else "-"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


# ----------------------------------------------------------------------------------------------------------- changes

_assignment_option = click.option(
    "--assignment",
    metavar="B:B,B:B…",
    help="The brokers of each partition, such as 1:2,2:3; the first of each is the preferred leader.",
)
_validate_option = click.option("--validate-only", is_flag=True, help="Only check the request.")


@topics_command.command(
    "create",
    short_help="Create a topic.",
    epilog="Example: kraft topics create orders --partitions 6 --replication-factor 3 --config retention.ms=86400000 "
    "--bootstrap-controller 127.0.0.1:9093",
)
@click.argument("name")
@click.option("--partitions", type=int, default=AS_CONFIGURED, help="Otherwise num.partitions of the controllers.")
@click.option(
    "--replication-factor", type=int, default=AS_CONFIGURED, help="Otherwise default.replication.factor of them."
)
@_assignment_option
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting. May be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if a topic of this name exists already.")
@_validate_option
@on_a_cluster
def create_command(
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    cluster: Cluster,
) -> None:
    """Create the topic NAME; the controller places the replicas, unless --assignment does."""
    assigned = parse_assignment(assignment)
    if assigned and (partitions, replication_factor) != (AS_CONFIGURED, AS_CONFIGURED):
        raise click.UsageError("--assignment determines the partitions and replicas: omit the other options.")
    settings = parse_settings(configs, "--config")

    async def create(admin: AdminClient) -> CreatedTopic | None:
        try:
            return await create_topic(
                admin,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                assignment=assigned,
                configs=settings,
                validate_only=validate_only,
            )
        except SomeRefused as failed:
            if if_not_exists and _only(failed, Error.TOPIC_ALREADY_EXISTS):
                return None
            raise

    made = cluster.ask(create, is_forwarded=True)
    if made is None:
        cluster.say({"name": name, "created": False}, [f"{name} is there already"])
        return
    facts = {
        "name": made.name,
        "created": not validate_only,
        "topicId": None if made.id == Uuid.ZERO else str(made.id),
        "partitions": made.partitions,
        "replicationFactor": made.replication_factor,
        "configs": _shown(made.configs),
    }
    what = "would create" if validate_only else "created"
    size = f"{count(made.partitions, 'partition')}, replication factor {made.replication_factor}"
    cluster.say(facts, [f"{what} {name}: {size}" + ("" if validate_only else f", id {made.id}")])


@topics_command.command(
    "delete",
    short_help="Delete topics with everything in them.",
    epilog="Example: kraft topics delete orders --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
@on_a_cluster
def delete_command(names: tuple[str, ...], *, if_exists: bool, cluster: Cluster) -> None:
    """Delete topics, each separately. Their records are gone for good; there is no confirmation prompt."""
    refused = cluster.ask(partial(_delete, names=names), is_forwarded=True)
    passed_over = {
        name for name, failed in refused.items() if if_exists and failed.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    }
    deleted = [name for name in dict.fromkeys(names) if name not in refused]
    lines = [f"deleted {name}" for name in deleted] + [f"there is no topic {name}" for name in sorted(passed_over)]
    cluster.say({"deleted": deleted, "failed": sorted(refused.keys() - passed_over)}, lines)
    if refused.keys() != passed_over:
        raise as_failure(failed for name, failed in refused.items() if name not in passed_over)


async def _delete(admin: AdminClient, *, names: tuple[str, ...]) -> dict[str, RequestRefused]:
    try:
        await delete_topics(admin, dict.fromkeys(names))
    except SomeRefused as failed:
        await add_near_names(admin, failed.refused.values())
        return failed.refused
    return {}


@topics_command.command(
    "grow",
    short_help="Give a topic more partitions.",
    epilog="Example: kraft topics grow orders --partitions 12 --bootstrap-controller 127.0.0.1:9093",
)
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="The number of partitions afterwards.")
@_assignment_option
@_validate_option
@on_a_cluster
def grow_command(name: str, *, partitions: int, assignment: str | None, validate_only: bool, cluster: Cluster) -> None:
    """Add partitions to the topic NAME; --assignment gives the brokers of the new ones.

    Keys map to other partitions from then on. This cannot be undone.
    """
    assigned = parse_assignment(assignment)
    cluster.ask(
        lambda admin: grow_topic(admin, name, partitions, assignment=assigned, validate_only=validate_only),
        is_forwarded=True,
    )
    what = "would grow" if validate_only else "grew"
    cluster.say(
        {"name": name, "partitions": partitions, "grown": not validate_only},
        [f"{what} {name} to {partitions} partitions"],
    )


def _only(failed: SomeRefused, error: Error) -> bool:
    return all(each.error is error for each in failed.refused.values())
