"""The rooms of the coordinators of groups and transactions.

They are apart because a broker loads them with the first such request, or when it becomes a coordinator: they are a
tenth of what it would import to start.
"""

from __future__ import annotations

from msgspec import Struct

from kraft.coordinators.groups.admin_handler import DeleteShareGroup, GroupAdminHandler
from kraft.coordinators.groups.consumer_handler import ConsumerGroupHandler
from kraft.coordinators.groups.members_handler import MembersHandler
from kraft.coordinators.groups.offsets_handler import OffsetsHandler
from kraft.coordinators.groups.state import GroupsState
from kraft.coordinators.groups.streams_handler import CreateTopics, StreamsGroupHandler
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.transactions.admin_handler import TransactionAdminHandler
from kraft.coordinators.transactions.coordinator import TransactionsHandler
from kraft.coordinators.transactions.marker_sender import MarkerSender
from kraft.coordinators.transactions.offset_commits import TransactionOffsetsHandler
from kraft.coordinators.transactions.producer_ids import ProducerIds
from kraft.coordinators.transactions.shard import Transactions
from kraft.coordinators.transactions.transaction_guards import TransactionGuards
from kraft.coordinators.transactions.verification import Verifier
from kraft.handling.rights import Rights
from kraft.handling.settings import RequestSettings


class CoordinatorRooms(Struct, frozen=True):
    """The handlers of requests to coordinators, one room for each family."""

    members: MembersHandler
    committed: OffsetsHandler
    consumers: ConsumerGroupHandler
    streams: StreamsGroupHandler
    groups: GroupAdminHandler
    transactions: TransactionsHandler
    transaction_admin: TransactionAdminHandler
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
    delete_share_group: DeleteShareGroup,
    create_topics: CreateTopics,
) -> CoordinatorRooms:
    """Make the rooms."""
    config = settings.groups
    return CoordinatorRooms(
        members=MembersHandler(groups, config, rights),
        committed=OffsetsHandler(groups, config, rights),
        consumers=ConsumerGroupHandler(groups, config, rights),
        streams=StreamsGroupHandler(groups, config, rights, create_topics),
        groups=GroupAdminHandler(groups, config, rights, delete_share_group),
        transactions=TransactionsHandler(
            ids_in_transactions, sender, ids, rights, settings.transactions, config.topic_partitions
        ),
        transaction_admin=TransactionAdminHandler(ids_in_transactions, rights),
        transaction_offsets=TransactionOffsetsHandler(groups, settings, rights, guards, verifier),
    )
