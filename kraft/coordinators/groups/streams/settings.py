"""The settings of a streams group: its own, or those of the broker (Kafka: `GroupConfig`, `GroupCoordinatorConfig`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.config.group_settings import StreamsGroupConfig
from kraft.coordinators.groups.consumer.groups import of_group
from metadata_log.image import MetadataImage, ResourceType

STANDBYS: Final = "num.standby.replicas"
RACK_TAGS: Final = "rack.aware.assignment.tags"


class StreamsSettings:
    """The settings by group.

    Args:
        config: Those of the broker.
    """

    def __init__(self, config: StreamsGroupConfig) -> None:
        self._config = config

    def session_ms(self, group_id: str, image: MetadataImage) -> int:
        """The time for which a member may be silent, in ms."""
        return of_group(image, group_id, "streams.session.timeout.ms", self._config.session_timeout_ms)

    def heartbeat_ms(self, group_id: str, image: MetadataImage) -> int:
        """The time between two heartbeats of a member, in ms."""
        return of_group(image, group_id, "streams.heartbeat.interval.ms", self._config.heartbeat_interval_ms)

    def assignment_ms(self, group_id: str, image: MetadataImage) -> int:
        """The least time between two targets, in ms."""
        return of_group(image, group_id, "streams.assignment.interval.ms", self._config.assignment_interval_ms)

    def initial_delay_ms(self, group_id: str, image: MetadataImage) -> int:
        """How long the first targets of a group wait for further members, in ms."""
        key = "streams.initial.rebalance.delay.ms"
        return of_group(image, group_id, key, self._config.initial_rebalance_delay_ms)

    def offset_interval_ms(self, group_id: str, image: MetadataImage) -> int:
        """How often members tell the offsets of their tasks, in ms."""
        return of_group(image, group_id, "streams.task.offset.interval.ms", self._config.task_offset_interval_ms)

    def recovery_lag(self, group_id: str, image: MetadataImage) -> int:
        """How many records a task may lag behind and still become active."""
        return of_group(image, group_id, "streams.acceptable.recovery.lag", self._config.acceptable_recovery_lag)

    def of_assignor(self, group_id: str, image: MetadataImage) -> dict[str, str]:
        """The settings of the assignor, as the records of a group have them, in ascending order."""
        standbys = of_group(image, group_id, "streams.num.standby.replicas", self._config.num_standby_replicas)
        tags = image.configs.of((ResourceType.GROUP, group_id)).get("streams.rack.aware.assignment.tags")
        given = ",".join(self._config.rack_aware_tags) if tags is None else tags
        return {STANDBYS: str(standbys), **({RACK_TAGS: given} if given else {})}


def missing_tags(configs: Mapping[str, str], tags: Mapping[str, str]) -> list[str]:
    """The tags that the assignor needs and a member lacks."""
    wanted = configs.get(RACK_TAGS, "").strip()
    return [one for each in wanted.split(",") if (one := each.strip()) not in tags] if wanted else []
