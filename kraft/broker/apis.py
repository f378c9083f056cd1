"""The table of a broker's APIs: what serves each, what it waits for, what refuses it (Kafka: `KafkaApis.handle`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from kraft.access.authorizer import AclOperation
from kraft.access.errors import ApiError
from kraft.broker.groups import admin_handler, consumer_handler, members_handler, offsets_handler, streams_handler
from kraft.broker.groups.admin_handler import GroupAdminHandler
from kraft.broker.groups.consumer_handler import ConsumerGroupHandler
from kraft.broker.groups.members_handler import MembersHandler
from kraft.broker.groups.offsets_handler import OffsetsHandler
from kraft.broker.groups.streams_handler import StreamsGroupHandler
from kraft.broker.handling.steps import Handling, Result
from kraft.broker.metadata import answers as metadata
from kraft.broker.metadata.answers import MetadataHandler
from kraft.broker.metadata.forwarding import Forwarding, refused
from kraft.broker.request import refusals
from kraft.broker.request.delete_records import DeleteRecordsHandler
from kraft.broker.request.directories import DirectoriesHandler
from kraft.broker.request.epoch_ends import EpochEndHandler
from kraft.broker.request.fetch import FetchHandler, refuse_fetch
from kraft.broker.request.list_offsets import ListOffsetsHandler
from kraft.broker.request.markers import MarkersHandler
from kraft.broker.request.produce import ProduceHandler
from kraft.broker.request.producers import DescribeProducersHandler, InitProducerIdHandler
from kraft.broker.transactions import coordinator as transactions
from kraft.broker.transactions.coordinator import TransactionsHandler
from kraft.broker.transactions.offset_commits import TransactionOffsetsHandler
from kraft.limits import METADATA_STEPS_PER_TURN, REQUEST_STEPS_PER_TURN
from kraft.wire import Outcome, WireRequest
from metadata_log.image import MetadataImage
from transport.protocol.apis import APIS, ApiKey

FORWARDED: Final = frozenset(ApiKey(key) for key, api in APIS.items() if api.forwardable and "broker" in api.listeners)
"""The APIs that a broker forwards to the active controller."""
LOGGED_IN: Final = frozenset(
    (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)
)
"""Those of them for clients that have logged in, and not by a token (`KafkaApis.allowTokenRequests`)."""

Begin = Callable[[WireRequest, MetadataImage, int], Result | Handling[Result]]
Refuse = Callable[[WireRequest, ApiError], Outcome | Handling[Outcome] | None]


class Api(Struct, frozen=True, kw_only=True):
    """One API. The functions take the request or what waits of it, the metadata, and the time in ms since 1970."""

    begin: Begin
    """Handle a request: an outcome, a wait, or steps to one of these."""
    is_complete: Callable[[Any, MetadataImage], bool] | None = None
    """Whether a request that waits is to be answered; None for an API that never waits."""
    end: Callable[[Any, MetadataImage, int], Result | Handling[Result]] | None = None
    """Go on with a request that has waited long enough, or has no room to wait."""
    refuse: Refuse | None = None
    """The answer to a request that fails as a whole. None for an API, or a request, of which the handling may have
    changed something: a bug there ends the node.
    """
    needs: AclOperation | None = None
    """What a client must be allowed to do with the cluster. Rights to topics and groups are judged for each of them."""
    needs_login: bool = False
    """Whether the client must have logged in, and not by a token."""
    steps: int = REQUEST_STEPS_PER_TURN
    """How many steps a turn makes."""
    pauses: bool = True
    """Whether the steps of a further turn wait for a millisecond, in which others have their turns."""
    is_plain: bool = False
    """Whether the handling only reads and changes partitions: then no room has anything to send but for a request that
    waits for something else than partitions.
    """
    unpacks: bool = False
    """Whether a request may have megabytes of records unpacked, so that few of the kind go on at a time."""


class Rooms(Struct, frozen=True):
    """What handles the requests of a broker, one room for each family."""

    produce: ProduceHandler
    fetch: FetchHandler
    offsets: ListOffsetsHandler
    epochs: EpochEndHandler
    deletions: DeleteRecordsHandler
    producer_ids: InitProducerIdHandler
    markers: MarkersHandler
    producers: DescribeProducersHandler
    directories: DirectoriesHandler
    members: MembersHandler
    committed: OffsetsHandler
    consumers: ConsumerGroupHandler
    streams: StreamsGroupHandler
    groups: GroupAdminHandler
    transactions: TransactionsHandler
    transaction_offsets: TransactionOffsetsHandler
    metadata: MetadataHandler
    forwarding: Forwarding


def apis_of(rooms: Rooms) -> dict[int, Api]:
    """The table."""
    one = rooms
    table: dict[ApiKey, Api] = {
        ApiKey.PRODUCE: Api(
            begin=one.produce.begin,
            is_complete=one.produce.is_complete,
            end=one.produce.end,
            is_plain=True,
            unpacks=True,
        ),
        ApiKey.FETCH: Api(
            begin=one.fetch.begin,
            is_complete=one.fetch.is_complete,
            end=one.fetch.end,
            refuse=refuse_fetch,
            is_plain=True,
        ),
        ApiKey.LIST_OFFSETS: Api(begin=one.offsets.answer, refuse=refusals.refuse_list_offsets, unpacks=True),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(begin=one.epochs.answer, refuse=refusals.refuse_epoch_ends),
        ApiKey.DELETE_RECORDS: Api(
            begin=one.deletions.begin, is_complete=one.deletions.is_complete, end=one.deletions.end
        ),
        ApiKey.INIT_PRODUCER_ID: Api(
            begin=one.producer_ids.begin, is_complete=one.producer_ids.is_complete, end=one.producer_ids.end
        ),
        ApiKey.WRITE_TXN_MARKERS: Api(
            begin=one.markers.begin, is_complete=one.markers.is_complete, end=one.markers.end
        ),
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
        ApiKey.DESCRIBE_PRODUCERS: Api(begin=one.producers.answer, refuse=refusals.refuse_producers),
        ApiKey.DESCRIBE_LOG_DIRS: Api(
            begin=one.directories.describe, refuse=refusals.refuse_log_dirs, needs=AclOperation.DESCRIBE
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Api(begin=one.directories.alter),
        ApiKey.JOIN_GROUP: Api(begin=one.members.join, refuse=members_handler.refuse_join),
        ApiKey.SYNC_GROUP: Api(begin=one.members.sync, refuse=members_handler.refuse_sync),
        ApiKey.HEARTBEAT: Api(begin=one.members.heartbeat, refuse=members_handler.refuse_heartbeat),
        ApiKey.LEAVE_GROUP: Api(begin=one.members.leave, refuse=members_handler.refuse_leave),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(begin=one.consumers.heartbeat, refuse=consumer_handler.refuse_heartbeat),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Api(begin=one.consumers.describe, refuse=consumer_handler.refuse_describe),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Api(
            begin=one.streams.update_topology, refuse=streams_handler.refuse_topology
        ),
        ApiKey.OFFSET_COMMIT: Api(begin=one.committed.commit, refuse=offsets_handler.refuse_commit),
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
        ApiKey.METADATA: _read(one.metadata.topics, metadata.refuse_topics),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _read(one.metadata.topic_partitions, metadata.refuse_partitions),
        ApiKey.DESCRIBE_CLUSTER: _read(one.metadata.cluster, metadata.refuse),
        ApiKey.FIND_COORDINATOR: _read(one.metadata.coordinators, metadata.refuse_coordinators),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: _read(one.metadata.tokens, metadata.refuse, needs_login=True),
        ApiKey.LIST_CONFIG_RESOURCES: _read(
            one.metadata.config_resources, metadata.refuse_config_resources, AclOperation.DESCRIBE_CONFIGS
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _read(
            one.metadata.client_quotas, metadata.refuse_quotas, AclOperation.DESCRIBE_CONFIGS
        ),
        ApiKey.DESCRIBE_ACLS: _read(one.metadata.as_a_controller, metadata.refuse),
        ApiKey.DESCRIBE_CONFIGS: _read(one.metadata.as_a_controller, metadata.refuse),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _read(one.metadata.as_a_controller, metadata.refuse),
    }
    for key in FORWARDED:
        table[key] = Api(begin=one.forwarding.begin, refuse=refused, needs_login=key in LOGGED_IN)
    return {int(key): table[key] for key in sorted(table)}


def _read(begin: Begin, refuse: Refuse, needs: AclOperation | None = None, *, needs_login: bool = False) -> Api:
    """An API that is answered from the metadata."""
    return Api(
        begin=begin, refuse=refuse, needs=needs, needs_login=needs_login, steps=METADATA_STEPS_PER_TURN, pauses=False
    )
