"""Kafka's metrics of the coordinators of groups, transactions and share partitions (Kafka: `GroupCoordinatorMetrics`,
`CoordinatorRuntimeMetricsImpl`, `TransactionStateManager`, `TransactionMarkerChannelManager`,
`ShareCoordinatorMetrics`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from math import nan
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from kraft.broker.requests import Requests
from kraft.coordinators.groups.classic_group import GroupState
from kraft.coordinators.groups.consumer.group import ConsumerGroup
from kraft.coordinators.groups.consumer.group import GroupState as ConsumerState
from kraft.coordinators.groups.shard import GroupShard
from kraft.coordinators.groups.shares.group import EMPTY, STABLE, ShareGroup
from kraft.coordinators.groups.state import NO_OFFSETS, GroupsState
from kraft.coordinators.groups.streams.group import GroupState as StreamsState
from kraft.coordinators.groups.streams.group import StreamsGroup
from kraft.coordinators.runtime.partition import CoordinatorPartition
from kraft.coordinators.runtime.runtime import CoordinatorRuntime
from kraft.coordinators.runtime.settings import Status
from kraft.metrics import kafka, own_names
from kraft.metrics.names import Mbean, Reading
from kraft.metrics.windows import WINDOW_S, WINDOWS

if TYPE_CHECKING:
    from kraft.coordinators.shares.share_fetch import ShareFetchHandler

PER_STEP: Final = 500
"""The groups and members that one step looks at: about a millisecond."""
CLASSIC: Final = {
    GroupState.PREPARING: kafka.PREPARING_GROUPS,
    GroupState.COMPLETING: kafka.COMPLETING_GROUPS,
    GroupState.STABLE: kafka.STABLE_GROUPS,
    GroupState.DEAD: kafka.DEAD_GROUPS,
    GroupState.EMPTY: kafka.EMPTY_GROUPS,
}


_UNCOUNTED: Final = "GAP"
"""The acknowledgements that Kafka does not count: a client tells that there is no record."""


class GroupCounts(Struct, frozen=True):
    """The groups of one moment, by their states."""

    classic: Counter[GroupState] = Counter()
    consumer: Counter[ConsumerState] = Counter()
    share: Counter[str] = Counter()
    streams: Counter[StreamsState] = Counter()
    offsets: int = 0


NO_GROUPS: Final = GroupCounts()


def counting(runtime: CoordinatorRuntime[GroupsState]) -> Generator[None, None, GroupCounts]:
    """Count the groups in steps. The records of a partition are those of one moment."""
    classic, consumer, share, offsets = Counter[GroupState](), Counter[ConsumerState](), Counter[str](), 0
    streams = Counter[StreamsState]()
    for one in list(runtime.partitions.values()):
        if one.status is not Status.ACTIVE:
            continue
        assert isinstance(one.shard, GroupShard), one.shard
        state, live = one.state, one.shard.classic.live
        left = PER_STEP
        for group_id, group in state.groups.items():
            offsets += len(state.offsets.get(group_id, NO_OFFSETS))
            left -= 1
            if isinstance(group, ConsumerGroup):
                left -= len(group.members)
                consumer[group.state] += 1
            elif isinstance(group, ShareGroup):
                share[group.state] += 1
            elif isinstance(group, StreamsGroup):
                left -= len(group.members)
                streams[group.state] += 1
            elif group_id not in live:
                classic[GroupState.STABLE if group.members else GroupState.EMPTY] += 1
            if left <= 0:
                yield
                left = PER_STEP
        classic.update(group.state for group in list(live.values()))
        yield
    return GroupCounts(classic, consumer, share, streams, offsets)


def coordinator_readings(requests: Requests, counts: GroupCounts, now_ms: int) -> Iterator[Reading]:
    """The metrics of the coordinators of a broker."""
    counted, sender = requests.groups_counted, requests.markers
    numbers: dict[Mbean, float] = {
        kafka.OFFSET_COMMITS: counted.commits,
        kafka.OFFSETS_EXPIRED: counted.expired,
        kafka.OFFSETS_DELETED: counted.deleted,
        kafka.REBALANCES: counted.rebalances,
        kafka.CONSUMER_REBALANCES: counted.epochs,
        kafka.SHARE_REBALANCES: counted.share_epochs,
        kafka.STREAMS_REBALANCES: counted.streams_epochs,
        kafka.CLASSIC_GROUPS: counts.classic.total(),
        kafka.OFFSETS: counts.offsets,
        kafka.OFFSET_COUNT: counts.offsets,
        kafka.MARKERS_HOMELESS: sender.homeless,
        kafka.MARKER_REQUESTS: sender.asked,
        kafka.MARKER_RESPONSES: sender.answered,
    }
    numbers |= {metric: counts.classic[state] for state, metric in CLASSIC.items()}
    for metric, value in numbers.items():
        yield Reading(metric, value)
    totals = {
        "classic": counts.classic.total(),
        "consumer": counts.consumer.total(),
        "share": counts.share.total(),
        "streams": counts.streams.total(),
    }
    for protocol, number in totals.items():
        yield Reading(kafka.GROUPS, number, (("protocol", protocol),))
    for name in (EMPTY, STABLE, GroupState.DEAD.value):
        yield Reading(kafka.SHARE_GROUPS, counts.share[name], (("state", name),))
    for kind_of_streams in StreamsState:
        yield Reading(kafka.STREAMS_GROUPS, counts.streams[kind_of_streams], (("state", kind_of_streams.value),))
    for kind in GroupState:
        yield Reading(kafka.CLASSIC_GROUP_STATES, counts.classic[kind], (("state", kind.value),))
    for state in ConsumerState:
        yield Reading(kafka.CONSUMER_GROUPS, counts.consumer[state], (("state", state.value),))
    yield Reading(kafka.CONSUMER_GROUPS, 0, (("state", GroupState.DEAD.value),))
    statuses = Counter(one.status for one in _partitions(requests.groups))
    for status in (Status.LOADING, Status.ACTIVE, Status.FAILED):
        yield Reading(kafka.GROUP_PARTITIONS, statuses[status], (("state", status.value),))
    yield Reading(own_names.LACKING, sum(one.lacking.count for one in _partitions(requests.groups)))
    for runtime, average, longest in (
        (requests.groups, kafka.GROUP_LOAD_AVG, kafka.GROUP_LOAD_MAX),
        (requests.transactions, kafka.TRANSACTION_LOAD_AVG, kafka.TRANSACTION_LOAD_MAX),
    ):
        yield from _times(runtime.loads, average, longest, now_ms)
    if requests.coordinates_shares:
        yield from _share_readings(requests, now_ms)
    if requests.members_of_shares is not None:
        yield from _member_readings(requests.members_of_shares)


def _member_readings(handler: ShareFetchHandler) -> Iterator[Reading]:
    """The metrics of the leader of partitions that share groups consume."""
    yield Reading(kafka.SHARE_SESSIONS, len(handler.sessions))
    yield Reading(kafka.SESSION_PARTITIONS, handler.sessions.partitions)
    for kind, count in handler.acks.counts.items():
        if kind.name != _UNCOUNTED:
            yield Reading(kafka.SHARE_ACKNOWLEDGEMENTS, count, (("ackType", kind.name.capitalize()),))


def _share_readings(requests: Requests, now_ms: int) -> Iterator[Reading]:
    """The metrics of the share coordinator."""
    runtime, counted = requests.share_states, requests.states_counted
    statuses = Counter(one.status for one in _partitions(runtime))
    for status in (Status.LOADING, Status.ACTIVE, Status.FAILED):
        yield Reading(kafka.SHARE_PARTITIONS, statuses[status], (("state", status.value),))
    yield from _times(runtime.loads, kafka.SHARE_LOAD_AVG, kafka.SHARE_LOAD_MAX, now_ms)
    yield Reading(kafka.SHARE_WRITES, counted.writes)
    yield from _times(counted.latencies, kafka.SHARE_WRITE_AVG, kafka.SHARE_WRITE_MAX, now_ms)
    for number, offset in sorted(counted.pruned.items()):
        yield Reading(kafka.SHARE_PRUNED, offset, (("topic", runtime.topic), ("partition", str(number))))


def _times(times: Iterable[tuple[int, int]], average: Mbean, longest: Mbean, now_ms: int) -> Iterator[Reading]:
    """The average and the longest of the times of the last minute, which come with when each has ended."""
    since_ms = now_ms - WINDOW_S * WINDOWS * 1000
    took_ms = [took for ended, took in times if ended >= since_ms]
    yield Reading(average, sum(took_ms) / len(took_ms) if took_ms else nan)
    yield Reading(longest, max(took_ms, default=nan))


def _partitions(runtime: CoordinatorRuntime[Any]) -> Iterable[CoordinatorPartition[Any]]:
    return runtime.partitions.values()
