"""The APIs of the coordinators of groups and transactions: further rows of the table of a broker's APIs.

They are apart because a broker loads them with the first such request, or when it becomes a coordinator: they are a
tenth of what it would import to start.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.coordinators.groups import admin_handler, consumer_handler, members_handler, offsets_handler, streams_handler
from kraft.coordinators.groups.admin_handler import GroupAdminHandler
from kraft.coordinators.groups.consumer_handler import ConsumerGroupHandler
from kraft.coordinators.groups.members_handler import MembersHandler
from kraft.coordinators.groups.offsets_handler import OffsetsHandler
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.groups.streams_handler import StreamsGroupHandler
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.transactions import coordinator as transactions
from kraft.coordinators.transactions.coordinator import TransactionsHandler
from kraft.coordinators.transactions.marker_sender import MarkerSender
from kraft.coordinators.transactions.offset_commits import TransactionOffsetsHandler
from kraft.coordinators.transactions.producer_ids import ProducerIds
from kraft.coordinators.transactions.shard import Transactions
from kraft.coordinators.transactions.transaction_guards import TransactionGuards
from kraft.coordinators.transactions.verification import Verifier
from kraft.handling.api import Api
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings
from transport.protocol.apis import ApiKey


class CoordinatorRooms(Struct, frozen=True):
    """The handlers of requests to coordinators, one room for each family."""

    members: MembersHandler
    committed: OffsetsHandler
    consumers: ConsumerGroupHandler
    streams: StreamsGroupHandler
    groups: GroupAdminHandler
    transactions: TransactionsHandler
    transaction_offsets: TransactionOffsetsHandler


def coordinator_rooms(
    settings: RequestSettings,
    rights: Rights,
    groups: CoordinatorRuntime[GroupsState],
    ids_in_transactions: CoordinatorRuntime[Transactions],
    *,
    sender: MarkerSender,
    ids: ProducerIds,
    guards: TransactionGuards,
    verifier: Verifier,
) -> CoordinatorRooms:
    """Make the rooms."""
    config = settings.groups
    return CoordinatorRooms(
        members=MembersHandler(groups, config, rights),
        committed=OffsetsHandler(groups, config, rights),
        consumers=ConsumerGroupHandler(groups, config.consumer, rights),
        streams=StreamsGroupHandler(is_enabled="streams" in config.consumer.protocols, rights=rights),
        groups=GroupAdminHandler(groups, rights),
        transactions=TransactionsHandler(
            ids_in_transactions, sender, ids, rights, settings.transactions, config.topic_partitions
        ),
        transaction_offsets=TransactionOffsetsHandler(groups, settings, rights, guards, verifier),
    )


def coordinator_apis_of(rooms: CoordinatorRooms) -> dict[ApiKey, Api]:
    """The rows."""
    one = rooms
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: Api(begin=one.transactions.add_partitions),
        ApiKey.ADD_OFFSETS_TO_TXN: Api(begin=one.transactions.add_offsets),
        ApiKey.TXN_OFFSET_COMMIT: Api(
            begin=one.transaction_offsets.begin,
            is_complete=one.transaction_offsets.is_complete,
            end=one.transaction_offsets.end,
        ),
        ApiKey.END_TXN: Api(begin=one.transactions.end),
        ApiKey.DESCRIBE_TRANSACTIONS: Api(begin=one.transactions.describe, refuse=transactions.refuse_describe),
        ApiKey.LIST_TRANSACTIONS: Api(begin=one.transactions.list, refuse=transactions.refuse_list),
        ApiKey.JOIN_GROUP: Api(begin=one.members.join, refuse=members_handler.refuse_join, is_plain=True),
        ApiKey.SYNC_GROUP: Api(begin=one.members.sync, refuse=members_handler.refuse_sync, is_plain=True),
        ApiKey.HEARTBEAT: Api(begin=one.members.heartbeat, refuse=members_handler.refuse_heartbeat, is_plain=True),
        ApiKey.LEAVE_GROUP: Api(begin=one.members.leave, refuse=members_handler.refuse_leave, is_plain=True),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(
            begin=one.consumers.heartbeat, refuse=consumer_handler.refuse_heartbeat, is_plain=True
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Api(begin=one.consumers.describe, refuse=consumer_handler.refuse_describe),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Api(
            begin=one.streams.update_topology, refuse=streams_handler.refuse_topology
        ),
        ApiKey.OFFSET_COMMIT: Api(begin=one.committed.commit, refuse=offsets_handler.refuse_commit, is_plain=True),
        ApiKey.OFFSET_FETCH: Api(
            begin=one.committed.fetch,
            is_complete=one.committed.is_fetched,
            end=one.committed.end_fetch,
            refuse=offsets_handler.refuse_fetch,
        ),
        ApiKey.OFFSET_DELETE: Api(begin=one.committed.delete, refuse=offsets_handler.refuse_delete),
        ApiKey.DESCRIBE_GROUPS: Api(begin=one.groups.describe, refuse=admin_handler.refuse_describe),
        ApiKey.LIST_GROUPS: Api(begin=one.groups.list, refuse=admin_handler.refuse_list),
        ApiKey.DELETE_GROUPS: Api(begin=one.groups.delete, refuse=admin_handler.refuse_delete),
    }
