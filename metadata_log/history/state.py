"""The rows of an image: the present state, in the columns of the histories (Kafka: `MetadataImage`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from metadata_log.history.open_rows import Row
from metadata_log.history.values import (
    acl_values,
    broker_values,
    config_values,
    controller_values,
    feature_values,
    partition_values,
    quota_values,
    replication_factor,
    scram_values,
    token_values,
)
from metadata_log.image.image import MetadataImage
from metadata_log.image.persistent_map import in_key_order
from metadata_log.image.quotas import in_entity_order


def state_rows(image: MetadataImage, view: str, *, show_secrets: bool = False) -> Iterator[Row]:
    """The rows of one `*_state` view without the cluster and the time columns, in the order of their keys.

    Raises `KeyError` for a view without a source in the image: voters and kraft.version are in control records.
    """
    if view == "configs_state":
        return _configs(image, show_secrets=show_secrets)
    return _STATES[view](image)


def _partitions(image: MetadataImage) -> Iterator[Row]:
    for name in image.topics:
        topic = image.topics[name]
        for number, partition in enumerate(topic.partitions):
            yield (name, str(topic.id), number, *partition_values(partition))


def _topics(image: MetadataImage) -> Iterator[Row]:
    for name in image.topics:
        topic = image.topics[name]
        factor = replication_factor(topic.partitions[0]) if topic.partitions else 0
        yield (name, str(topic.id), len(topic.partitions), factor)


def _configs(image: MetadataImage, *, show_secrets: bool) -> Iterator[Row]:
    for resource, values in in_key_order(image.configs.by_resource):
        for key, value in in_key_order(values):
            yield config_values(resource, key, value, show_secrets=show_secrets)


def _quotas(image: MetadataImage) -> Iterator[Row]:
    for entity, quotas in in_entity_order(image.quotas):
        for key, value in in_key_order(quotas):
            yield quota_values(entity, key, value)


def _scram(image: MetadataImage) -> Iterator[Row]:
    for user, credentials in in_key_order(image.scram.by_user):
        for mechanism, credential in in_key_order(credentials):
            yield scram_values(user, mechanism, credential.iterations)


def _producer_ids(image: MetadataImage) -> Iterator[Row]:
    if image.producer_ids.next_producer_id >= 0:
        yield (image.producer_ids.next_producer_id,)


_STATES: Final[dict[str, Callable[[MetadataImage], Iterator[Row]]]] = {
    "partitions_state": _partitions,
    "topics_state": _topics,
    "brokers_state": lambda image: (broker_values(one) for _, one in in_key_order(image.brokers.by_id)),
    "acls_state": lambda image: (acl_values(id_, acl) for id_, acl in in_key_order(image.acls.by_id)),
    "features_state": lambda image: (feature_values(name, level) for name, level in image.features.all_levels()),
    "quotas_state": _quotas,
    "scram_state": _scram,
    "tokens_state": lambda image: (token_values(token) for _, token in in_key_order(image.tokens.by_id)),
    "producer_ids_state": _producer_ids,
    "controllers_state": lambda image: (controller_values(one) for _, one in in_key_order(image.controllers.by_id)),
}
