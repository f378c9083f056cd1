"""The APIs of the coordinators of groups and transactions: further rows of the table of a broker's APIs.

The table names no module of a handler: those load with the first such request (`kraft.coordinators.rooms`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kraft.handling.api import Api, row
from transport.protocol import messages as m
from transport.protocol.apis import ApiKey

if TYPE_CHECKING:
    from kraft.coordinators.rooms import CoordinatorRooms

ROWS: Final[Mapping[ApiKey, Callable[[CoordinatorRooms], Api[Any]]]] = MappingProxyType(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN: row(
            lambda one: Api(m.AddPartitionsToTxnRequest, one.transactions.add_partitions)
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: row(lambda one: Api(m.AddOffsetsToTxnRequest, one.transactions.add_offsets)),
        ApiKey.TXN_OFFSET_COMMIT: row(
            lambda one: Api(
                m.TxnOffsetCommitRequest,
                one.transaction_offsets.begin,
                one.transaction_offsets.is_complete,
                one.transaction_offsets.end,
            )
        ),
        ApiKey.END_TXN: row(lambda one: Api(m.EndTxnRequest, one.transactions.end)),
        ApiKey.DESCRIBE_TRANSACTIONS: row(
            lambda one: Api(
                m.DescribeTransactionsRequest,
                one.transaction_admin.describe,
                refuse=one.transaction_admin.refuse_describe,
            )
        ),
        ApiKey.LIST_TRANSACTIONS: row(
            lambda one: Api(
                m.ListTransactionsRequest, one.transaction_admin.list, refuse=one.transaction_admin.refuse_list
            )
        ),
        ApiKey.JOIN_GROUP: row(lambda one: Api(m.JoinGroupRequest, one.members.join, refuse=one.members.refuse_join)),
        ApiKey.SYNC_GROUP: row(lambda one: Api(m.SyncGroupRequest, one.members.sync, refuse=one.members.refuse_sync)),
        ApiKey.HEARTBEAT: row(
            lambda one: Api(m.HeartbeatRequest, one.members.heartbeat, refuse=one.members.refuse_heartbeat)
        ),
        ApiKey.LEAVE_GROUP: row(
            lambda one: Api(m.LeaveGroupRequest, one.members.leave, refuse=one.members.refuse_leave)
        ),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: row(
            lambda one: Api(
                m.ConsumerGroupHeartbeatRequest,
                one.consumers.heartbeat,
                refuse=one.consumers.refuse_heartbeat,
            )
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: row(
            lambda one: Api(
                m.ConsumerGroupDescribeRequest, one.consumers.describe, refuse=one.consumers.refuse_describe
            )
        ),
        ApiKey.STREAMS_GROUP_HEARTBEAT: row(
            lambda one: Api(m.StreamsGroupHeartbeatRequest, one.streams.heartbeat, refuse=one.streams.refuse_heartbeat)
        ),
        ApiKey.STREAMS_GROUP_DESCRIBE: row(
            lambda one: Api(m.StreamsGroupDescribeRequest, one.streams.describe, refuse=one.streams.refuse_describe)
        ),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: row(
            lambda one: Api(
                m.StreamsGroupTopologyDescriptionUpdateRequest,
                one.streams.update_topology,
                refuse=one.streams.refuse_topology,
            )
        ),
        ApiKey.OFFSET_COMMIT: row(
            lambda one: Api(m.OffsetCommitRequest, one.committed.commit, refuse=one.committed.refuse_commit)
        ),
        ApiKey.OFFSET_FETCH: row(
            lambda one: Api(
                m.OffsetFetchRequest,
                one.committed.fetch,
                one.committed.is_fetched,
                one.committed.end_fetch,
                one.committed.refuse_fetch,
            )
        ),
        ApiKey.OFFSET_DELETE: row(
            lambda one: Api(m.OffsetDeleteRequest, one.committed.delete, refuse=one.committed.refuse_delete)
        ),
        ApiKey.DESCRIBE_GROUPS: row(
            lambda one: Api(m.DescribeGroupsRequest, one.groups.describe, refuse=one.groups.refuse_describe)
        ),
        ApiKey.LIST_GROUPS: row(lambda one: Api(m.ListGroupsRequest, one.groups.list, refuse=one.groups.refuse_list)),
        ApiKey.DELETE_GROUPS: row(
            lambda one: Api(m.DeleteGroupsRequest, one.groups.delete, refuse=one.groups.refuse_delete)
        ),
    }
)
"""The rows, which `kraft.broker.requests` makes with the first request of each API."""
