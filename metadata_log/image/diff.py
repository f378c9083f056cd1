"""The differences between two images of one cluster, field by field (Kafka's brokers use a `MetadataDelta`).

Two images share unchanged parts as one object, and the comparison skips these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import compress, count
from operator import is_not
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, astuple

from metadata_log.image.configs import Resource, ResourceType
from metadata_log.image.image import MetadataImage
from metadata_log.image.persistent_map import Map
from metadata_log.image.quotas import Entity, entity_order
from metadata_log.image.topics import Partition, TopicImage, TopicsImage

DEFAULT: Final = "<default>"
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PARTITION: Final = Partition.__struct_fields__
_FIELDS: Final = range(len(_PARTITION))
_NOTHING: Final = (None,) * len(_PARTITION)


class Difference(Struct, frozen=True, gc=False):
    """One field of one object. None stands for a missing object or key on this side.

    `kind` is the family, `name` the object, such as "orders", "orders-3", "broker 101" or "topic orders". Values are
    unredacted; the caller must hide secrets (`metadata_log.records.redact`).
    """

    kind: str
    name: str
    field: str
    before: object
    after: object


def differences(before: MetadataImage, after: MetadataImage) -> Iterator[Difference]:
    """Every differing field: families in Kafka's order, in each the objects by name or id.

    Of a new or removed object, every non-empty field is a difference.
    """
    yield from _features(before, after)
    yield from _family("controllers", before.controllers.by_id, after.controllers.by_id, asdict, "controller {}".format)
    yield from _family("brokers", before.brokers.by_id, after.brokers.by_id, asdict, "broker {}".format)
    yield from _topics(before.topics, after.topics)
    yield from _family("configs", before.configs.by_resource, after.configs.by_resource, _keys, resource_name)
    yield from _family("quotas", before.quotas.by_entity, after.quotas.by_entity, _keys, entity_name, entity_order)
    if before.producer_ids != after.producer_ids:
        old, new = before.producer_ids.next_producer_id, after.producer_ids.next_producer_id
        yield Difference(
            "producer_ids", "producer ids", "next_producer_id", *(None if one < 0 else one for one in (old, new))
        )
    yield from _family("acls", before.acls.by_id, after.acls.by_id, asdict, "acl {}".format)
    yield from _family("scram", before.scram.by_user, after.scram.by_user, _credentials, "user {}".format)
    yield from _family("tokens", before.tokens.by_id, after.tokens.by_id, asdict, "token {}".format)


def resource_name(resource: Resource) -> str:
    """The name of a configuration resource: "topic orders", "broker 1", "broker <default>"."""
    kind, name = resource
    known = kind in ResourceType.__members__.values()
    return f"{ResourceType(kind).name.lower() if known else f'resource of type {kind}'} {name or DEFAULT}"


def resource_type_of(name: str) -> int:
    """The type in a name of `resource_name`; `ResourceType.UNKNOWN` for a type without a name."""
    return ResourceType.__members__.get(name.partition(" ")[0].upper(), ResourceType.UNKNOWN)


def entity_name(entity: Entity) -> str:
    """The name of a quota entity: "client-id <default>, user alice"."""
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)


def changed_partitions(
    before: TopicsImage, after: TopicsImage
) -> Iterator[tuple[TopicImage, int, Partition | None, Partition | None]]:
    """Every partition that is not the same object in both: its topic, its number, its old and its new state.

    The order is that of the topic names. A topic that was removed and created anew counts as two topics.
    """
    for topic, old, new in _changed_topics(before, after):
        for number, one, other in _pairs(old, new):
            yield topic, number, one, other


def _features(before: MetadataImage, after: MetadataImage) -> Iterator[Difference]:
    if before.features is after.features:
        return
    old, new = dict(before.features.all_levels()), dict(after.features.all_levels())
    for name in sorted({**old, **new}):
        if old.get(name) != new.get(name):
            yield Difference("features", name, "level", old.get(name), new.get(name))


def _family(
    kind: str,
    before: Map[Any, Any],
    after: Map[Any, Any],
    fields: Callable[[Any], Mapping[str, object]],
    name_of: Callable[[Any], str],
    order: Callable[[Any], Any] | None = None,
) -> Iterator[Difference]:
    """The differences of one map."""
    if before is after:
        return
    changed = [key for key, new in after.items() if before.get(key) is not new]
    changed += [key for key in before if key not in after]
    changed.sort(key=order)
    for key in changed:
        old, new = before.get(key), after.get(key)
        was, became = {} if old is None else fields(old), {} if new is None else fields(new)
        for field in {**was, **became}:
            yield from _field(kind, name_of(key), field, was.get(field), became.get(field))


def _is_empty(before: object, after: object) -> bool:
    """Whether a field of a new or removed object is empty."""
    return (before is None and after == ()) or (after is None and before == ())


def _field(kind: str, name: str, field: str, before: object, after: object) -> Iterator[Difference]:
    if before != after and not _is_empty(before, after):
        yield Difference(kind, name, field, before, after)


def _keys(values: Map[str, Any]) -> Mapping[str, object]:
    return dict(sorted(values.items()))


def _credentials(credentials: Map[int, Any]) -> Mapping[str, object]:
    return {
        f"{MECHANISMS.get(mechanism, mechanism)}.{field}": value
        for mechanism, credential in sorted(credentials.items())
        for field, value in asdict(credential).items()
    }


# Topics: a cluster has up to a million partitions, and two images share nearly all of them.

Partitions = tuple[Partition, ...]


def _changed_topics(
    before: TopicsImage, after: TopicsImage
) -> Iterator[tuple[TopicImage, Partitions | None, Partitions | None]]:
    """Topics that are not the same object in both, with both sides' partitions, by name; removed topics first."""
    if before.by_id is after.by_id:
        return
    was = before.by_id.get
    changed = [topic for topic in after.by_id.values() if was(topic.id) is not topic]
    new = sum(topic.id not in before.by_id for topic in changed)
    is_gone = len(before.by_id) - (len(after.by_id) - new) > 0
    gone = [topic for topic in before.by_id.values() if topic.id not in after.by_id] if is_gone else []
    sides = [(topic.name, 0, topic) for topic in gone] + [(topic.name, 1, topic) for topic in changed]
    sides.sort()  # no two topics of one side have the same name, so no comparison reaches the topics
    for _, is_there, topic in sides:
        old = before.by_id.get(topic.id)
        yield topic, None if old is None else old.partitions, topic.partitions if is_there else None


def _pairs(old: Partitions | None, new: Partitions | None) -> Iterator[tuple[int, Partition | None, Partition | None]]:
    """The partitions of one topic that are not the same object on both sides."""
    left, right = old or (), new or ()
    for number in compress(count(), map(is_not, left, right)):
        yield number, left[number], right[number]
    common = min(len(left), len(right))
    for number in range(common, len(left)):
        yield number, left[number], None
    for number in range(common, len(right)):
        yield number, None, right[number]


def _topics(before: TopicsImage, after: TopicsImage) -> Iterator[Difference]:
    for topic, old, new in _changed_topics(before, after):
        name = topic.name
        if old is None or new is None:
            yield Difference("topics", name, "id", None if old is None else topic.id, None if new is None else topic.id)
        counts = None if old is None else len(old), None if new is None else len(new)
        if counts[0] != counts[1]:
            yield Difference("topics", name, "partitions", *counts)
        for number, one, other in _pairs(old, new):
            was, is_now = _values(one), _values(other)
            for at in compress(_FIELDS, map(is_not, was, is_now)):
                if was[at] != is_now[at] and not _is_empty(was[at], is_now[at]):
                    yield Difference("topics", f"{name}-{number}", _PARTITION[at], was[at], is_now[at])


def _values(partition: Partition | None) -> tuple[object, ...]:
    return _NOTHING if partition is None else astuple(partition)
