"""`kraft replay`: shows a cluster at an offset or a time, from its metadata log alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import click

from kraft.cli.files.image_at import (
    ImageAt,
    at_option,
    damage_json,
    image_at,
    reading_options,
    report_damages,
    show_secrets_option,
)
from kraft.cli.files.partition_at import partitions_at, table_lines
from kraft.cli.progress import progress_option
from kraft.cli.text import count, echo, echo_lines, table
from metadata_log.image import METADATA_VERSION, MetadataImage
from metadata_log.image.brokers import Broker
from metadata_log.image.image_json import image_json, metadata_version, resource_type_name
from metadata_log.image.java_text import (
    name_of,
)
from metadata_log.image.names import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    SCRAM_MECHANISMS,
    SECURITY_PROTOCOLS,
    listener_text,
)
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.quotas import Entity, in_entity_order
from metadata_log.image.topics import Partition, TopicImage
from metadata_log.reading.damage import OnDamage
from metadata_log.reading.timeline import At
from metadata_log.records.redact import shown_config
from metadata_log.times import iso_time, when_text

MOST_LINES: Final = 20
"""The limit on lines of one section, without --all."""


@click.command(
    "replay",
    short_help="The cluster as it was at an offset or a time.",
    epilog="Example: kraft replay /var/lib/kafka/metadata --at 2026-11-21T08:17:00Z",
)
@click.argument("path", type=click.Path(exists=True), metavar="DIR")
@at_option
@click.option(
    "--topic", metavar="T[-P]", help="Only this topic, or this partition of it, with the causes of its state."
)
@click.option("--all", "everything", is_flag=True, help="Print every topic with its partitions, and all of the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@progress_option
@reading_options
@show_secrets_option
@click.pass_context
def replay_command(
    context: click.Context,
    path: str,
    *,
    at: At | None,
    topic: str | None,
    everything: bool,
    as_json: bool,
    on_damage: str,
    show_secrets: bool,
) -> None:
    """Print brokers, topics, configurations, access rules, features and quotas from DIR, as of a given moment.

    DIR is a log directory, the directory of the metadata partition, a segment or a snapshot; a running node's may be
    read. Without --at the moment is the end of the log.

    With --topic orders-3: the leader and the replicas of the partition, and the records that made it so, with causes.
    """
    replayed = image_at(path, at, OnDamage(on_damage))
    if topic is not None:
        _show_topic(replayed, topic, at, OnDamage(on_damage), as_json=as_json)
    elif as_json:
        content = image_json(replayed.image, show_secrets=show_secrets)
        echo(json.dumps(_facts(replayed, content), ensure_ascii=False))
    else:
        echo_lines(_lines(replayed, MOST_LINES if not everything else None, show_secrets))
    context.exit(1 if report_damages(replayed.damages, hint=replayed.hint) else 0)


def _show_topic(found: ImageAt, topic: str, at: At | None, on_damage: OnDamage, *, as_json: bool) -> None:
    partitions = partitions_at(found, topic, at, on_damage)
    if as_json:
        facts = _facts(found, {"partitions": [one.facts() for one in partitions]})
        echo(json.dumps(facts, ensure_ascii=False))
        return
    is_one = topic not in found.image.topics
    echo_lines([found.where, "", *(partitions[0].lines() if is_one else table_lines(partitions))])


def _facts(found: ImageAt, content: Mapping[str, object]) -> dict[str, object]:
    return {
        "path": found.path,
        "offset": found.provenance.offset,
        "epoch": found.provenance.epoch,
        "time": iso_time(found.provenance.timestamp_ms),
        **content,
        "damage": [damage_json(damage) for damage in found.damages],
    }


def _lines(found: ImageAt, most: int | None, show_secrets: bool) -> Iterator[str]:
    image = found.image
    yield found.where
    yield from _section("features", _features(image), None)
    yield from _section(*_brokers(image), None)
    yield from _section(*_controllers(image), None)
    yield from _topics(image, most)
    yield from _section(*_configs(image, show_secrets), most)
    yield from _section(*_acls(image), most)
    yield from _section(*_quotas(image), most)
    yield from _section(*_scram(image), most)
    yield from _section(*_tokens(image), most)
    if image.producer_ids.next_producer_id >= 0:
        yield from _section("producer ids", [f"next {image.producer_ids.next_producer_id}"], None)


def _section(title: str, lines: Sequence[str], most: int | None) -> Iterator[str]:
    """A title and the first `most` lines of a section; no output without lines."""
    if not lines:
        return
    yield ""
    yield title
    yield from (f"  {line}" for line in islice(lines, most))
    if most is not None and len(lines) > most:
        yield f"  … and {len(lines) - most:,} more: --all prints them"


def _features(image: MetadataImage) -> list[str]:
    if image.features.metadata_version is None:
        return ["none: no record has set a metadata.version"]
    return [
        f"{name} {level}" + (f" ({metadata_version(image.features)})" if name == METADATA_VERSION else "")
        for name, level in image.features.all_levels()
    ]


def _brokers(image: MetadataImage) -> tuple[str, list[str]]:
    brokers = [broker for _, broker in in_key_order(image.brokers.by_id)]
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    for _, _, partition in _partitions(image):
        leads[partition.leader] += 1
        holds.update(partition.replicas)
    rows = [
        (
            broker.id,
            broker.epoch,
            _state(broker),
            broker.rack or "-",
            leads[broker.id],
            holds[broker.id],
            _listen(broker),
        )
        for broker in brokers
    ]
    fenced = sum(broker.fenced for broker in brokers)
    title = count(len(brokers), "broker") + (f", {fenced} fenced" if fenced else "")
    names = ("id", "epoch", "state", "rack", "leads", "replicas", "endpoints")
    return title, table(names, rows) if rows else []


def _state(broker: Broker) -> str:
    state = "fenced" if broker.fenced else "unfenced"
    return f"{state}, shutting down" if broker.in_controlled_shutdown else state


def _listen(broker: Broker) -> str:
    return " ".join(
        listener_text(one.name, one.host, one.port)
        + (
            ""
            if SECURITY_PROTOCOLS.get(one.security_protocol) == one.name
            else f" ({_protocol(one.security_protocol)})"
        )
        for one in broker.endpoints
    )


def _protocol(code: int) -> str:
    return SECURITY_PROTOCOLS.get(code, str(code))


def _controllers(image: MetadataImage) -> tuple[str, list[str]]:
    controllers = [controller for _, controller in in_key_order(image.controllers.by_id)]
    lines = [
        f"{one.id}  {' '.join(listener_text(each.name, each.host, each.port) for each in one.endpoints)}"
        for one in controllers
    ]
    return count(len(controllers), "controller"), lines


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, Partition]]:
    for name in image.topics:
        topic = image.topics[name]
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition


def _troubles(partitions: Iterable[Partition]) -> tuple[int, int, int]:
    """The numbers of partitions without a leader, with replicas out of sync, and in reassignment."""
    leaderless = under_replicated = reassigning = 0
    for partition in partitions:
        leaderless += partition.leader < 0
        under_replicated += len(partition.isr) < len(partition.replicas)
        reassigning += bool(partition.adding_replicas or partition.removing_replicas)
    return leaderless, under_replicated, reassigning


def _topics(image: MetadataImage, most: int | None) -> Iterator[str]:
    names = list(image.topics)
    if not names:
        return
    partitions = sum(len(image.topics[name].partitions) for name in names)
    whole = _troubles(partition for _, _, partition in _partitions(image))
    words = (("without a leader", whole[0]), ("under-replicated", whole[1]), ("being reassigned", whole[2]))
    troubles = ", ".join(f"{number:,} {word}" for word, number in words if number)
    title = f"{count(len(names), 'topic')}, {count(partitions, 'partition')}{': ' + troubles if troubles else ''}"
    if most is None:
        yield from _section(title, table(("partition", *_COLUMNS), _partition_rows(image)), None)
        return
    rows = []
    for name in islice(names, most):
        topic = image.topics[name]
        replication = len(topic.partitions[0].replicas) if topic.partitions else 0
        rows.append((name, len(topic.partitions), replication, *_troubles(topic.partitions), topic.id))
    columns = ("topic", "partitions", "replicas", "leaderless", "under-replicated", "reassigning", "id")
    yield from _section(title, table(columns, rows), None)
    if len(names) > most:
        yield f"  … and {len(names) - most:,} more: --all prints them, partition by partition"


_COLUMNS: Final = ("leader", "epoch", "replicas", "isr", "elr", "adding", "removing")


def _partition_rows(image: MetadataImage) -> Iterator[tuple[object, ...]]:
    for topic, number, partition in _partitions(image):
        sets = (
            partition.replicas,
            partition.isr,
            partition.elr,
            partition.adding_replicas,
            partition.removing_replicas,
        )
        leader = "none" if partition.leader < 0 else partition.leader
        yield (
            f"{topic.name}-{number}",
            leader,
            partition.leader_epoch,
            *(",".join(map(str, each)) or "-" for each in sets),
        )


def _configs(image: MetadataImage, show_secrets: bool) -> tuple[str, list[str]]:
    lines = []
    for (type_, name), values in in_key_order(image.configs.by_resource):
        for key, value in in_key_order(values):
            shown = shown_config(type_, key, value, show_secrets=show_secrets)
            lines.append(f"{resource_type_name(type_)} {name or '<default>'}: {key}={shown}")
    return count(len(lines), "configuration value"), lines


def _acls(image: MetadataImage) -> tuple[str, list[str]]:
    lines = sorted(
        f"{acl.principal}: {name_of(PERMISSION_TYPES, acl.permission_type)} {name_of(OPERATIONS, acl.operation)} on "
        f"{name_of(RESOURCE_TYPES, acl.resource_type)} {acl.resource_name} "
        f"({name_of(PATTERN_TYPES, acl.pattern_type)}) from host {acl.host}"
        for _, acl in in_key_order(image.acls.by_id)
    )
    return count(len(lines), "access rule"), lines


def _quotas(image: MetadataImage) -> tuple[str, list[str]]:
    lines = [
        f"{_entity(entity)}: {key}={repr(value).removesuffix('.0')}"
        for entity, quotas in in_entity_order(image.quotas)
        for key, value in in_key_order(quotas)
    ]
    return count(len(lines), "client quota"), lines


def _entity(entity: Entity) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def _scram(image: MetadataImage) -> tuple[str, list[str]]:
    lines = [
        f"{user}: {SCRAM_MECHANISMS.get(mechanism, mechanism)}, {credential.iterations} iterations"
        for user, credentials in in_key_order(image.scram.by_user)
        for mechanism, credential in in_key_order(credentials)
    ]
    return count(len(lines), "SCRAM credential"), lines


def _tokens(image: MetadataImage) -> tuple[str, list[str]]:
    lines = [
        f"{token_id}: owner {token.owner}, requester {token.requester}, expires {when_text(token.expiration_timestamp)}"
        for token_id, token in in_key_order(image.tokens.by_id)
    ]
    return count(len(lines), "delegation token"), lines
