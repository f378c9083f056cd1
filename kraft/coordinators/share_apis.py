"""The APIs of share groups (KIP-932): further rows of the table of a broker's APIs. Their rooms load by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kraft.handling.api import Api, row
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey

if TYPE_CHECKING:
    from kraft.coordinators.share_rooms import ShareRooms

ROWS: Final[Mapping[ApiKey, Callable[[ShareRooms], Api[Any]]]] = MappingProxyType(
    {
        ApiKey.SHARE_FETCH: row(
            lambda one: Api(
                m.ShareFetchRequest, one.fetch.fetch, one.fetch.is_complete, one.fetch.end, one.fetch.refuse_fetch
            )
        ),
        ApiKey.SHARE_ACKNOWLEDGE: row(
            lambda one: Api(
                m.ShareAcknowledgeRequest,
                one.fetch.acknowledge,
                one.fetch.is_written,
                one.fetch.end_acknowledge,
                one.fetch.refuse_acknowledge,
            )
        ),
        ApiKey.SHARE_GROUP_HEARTBEAT: row(
            lambda one: Api(m.ShareGroupHeartbeatRequest, one.groups.heartbeat, refuse=one.groups.refuse_heartbeat)
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: row(
            lambda one: Api(m.ShareGroupDescribeRequest, one.groups.describe, refuse=one.groups.refuse_describe)
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: row(
            lambda one: Api(
                m.DescribeShareGroupOffsetsRequest,
                one.offsets.describe,
                one.offsets.is_described,
                one.offsets.end_description,
                one.offsets.refuse_describe,
            )
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: row(
            lambda one: Api(m.AlterShareGroupOffsetsRequest, one.offsets.alter, refuse=one.offsets.refuse_alter)
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: row(
            lambda one: Api(m.DeleteShareGroupOffsetsRequest, one.offsets.delete, refuse=one.offsets.refuse_delete)
        ),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: row(lambda one: Api(m.InitializeShareGroupStateRequest, one.states.begin)),
        ApiKey.READ_SHARE_GROUP_STATE: row(lambda one: Api(m.ReadShareGroupStateRequest, one.states.begin)),
        ApiKey.WRITE_SHARE_GROUP_STATE: row(lambda one: Api(m.WriteShareGroupStateRequest, one.states.begin)),
        ApiKey.DELETE_SHARE_GROUP_STATE: row(lambda one: Api(m.DeleteShareGroupStateRequest, one.states.begin)),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: row(
            lambda one: Api(m.ReadShareGroupStateSummaryRequest, one.states.begin, refuse=one.states.refuse)
        ),
    }
)
