"""Plans reassignments with few moves, an even load and distinct racks. Kafka's `ReassignPartitionsCommand --generate`
places all replicas anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kraft.admin.errors import AdminError
from kraft.admin.partitions import TopicPartition
from metadata_log.image import MetadataImage, Partition


def plan_moves(
    image: MetadataImage, topics: Iterable[str], brokers: Sequence[int], *, replication_factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """The new replicas of topics that are spread evenly over exactly these brokers.

    Returns only partitions that change. A replica stays unless its broker is not in the list or has more than its
    share. A new replica goes to a rack that the partition is not in yet, if there is one. Within the rack it goes to
    the broker with the fewest replicas, so racks may prevent an even load. Each partition keeps its replication factor
    unless `replication_factor` is given. Raises `AdminError` for an unknown topic or broker, and for fewer brokers than
    replicas.
    """
    names = list(dict.fromkeys(topics))
    _check(image, names, brokers)
    now = {
        TopicPartition(name, number): target_of(partition)
        for name in names
        for number, partition in enumerate(image.topics[name].partitions)
    }
    wanted = {one: replication_factor or len(replicas) for one, replicas in now.items()}
    most = max(wanted.values(), default=0)
    if most > len(brokers):
        raise AdminError(f"{most} replicas cannot be on {len(brokers)} brokers", hint="Name more brokers.")
    plan = _leaders_spread(_placed(image, now, wanted, brokers), brokers)
    return {one: replicas for one, replicas in plan.items() if replicas != now[one]}


def target_of(partition: Partition) -> tuple[int, ...]:
    """The replicas of a partition, or those after its reassignment."""
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def origin_of(partition: Partition) -> tuple[int, ...]:
    """The replicas of a partition, or those before its reassignment."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def _check(image: MetadataImage, topics: Iterable[str], brokers: Sequence[int]) -> None:
    for name in topics:
        if name not in image.topics:
            raise AdminError(f"there is no topic {name}", hint="See `kraft topics list`.")
    if len(set(brokers)) < len(brokers):
        raise AdminError("a broker is named twice")
    for broker in brokers:
        if broker not in image.brokers.by_id:
            raise AdminError(f"broker {broker} is not registered", hint="See `kraft brokers list`.")


def _placed(
    image: MetadataImage,
    now: dict[TopicPartition, tuple[int, ...]],
    wanted: dict[TopicPartition, int],
    brokers: Sequence[int],
) -> dict[TopicPartition, list[int]]:
    """The replicas of each partition: those that stay, in their order, then the new ones."""
    share = -(-sum(wanted.values()) // len(brokers))
    load = Counter(dict.fromkeys(brokers, 0))
    plan: dict[TopicPartition, list[int]] = {}
    for one, replicas in now.items():
        plan[one] = []
        for replica in replicas:
            if replica in load and load[replica] < share and len(plan[one]) < wanted[one]:
                plan[one].append(replica)
                load[replica] += 1
    rack_of = {broker: image.brokers.by_id[broker].rack for broker in brokers}
    for one, placed in plan.items():
        while len(placed) < wanted[one]:
            racks = {rack_of[replica] for replica in placed}
            free = [broker for broker in brokers if broker not in placed]
            chosen = min(
                free, key=lambda broker: (rack_of[broker] in racks, load[broker], broker not in now[one], broker)
            )
            placed.append(chosen)
            load[chosen] += 1
    _even_out(plan, now, load, rack_of)
    return plan


def _even_out(
    plan: dict[TopicPartition, list[int]],
    now: dict[TopicPartition, tuple[int, ...]],
    load: Counter[int],
    rack_of: dict[int, str | None],
) -> None:
    """Move single replicas from the broker with the most to the broker with the fewest, while that helps.

    Replicas that are copied in any case move first. No replica moves into a rack that its partition is already in.
    """
    while True:
        most, fewest = max(load, key=lambda broker: load[broker]), min(load, key=lambda broker: load[broker])
        if load[most] - load[fewest] <= 1:
            return
        movable = (
            (most in now[one], fewest not in now[one], one)
            for one, placed in plan.items()
            if most in placed
            and fewest not in placed
            and (rack_of[fewest] == rack_of[most] or rack_of[fewest] not in {rack_of[replica] for replica in placed})
        )
        chosen = min(movable, default=None)
        if chosen is None:
            return
        placed = plan[chosen[-1]]
        placed[placed.index(most)] = fewest
        load[most] -= 1
        load[fewest] += 1


def _leaders_spread(
    plan: dict[TopicPartition, list[int]], brokers: Sequence[int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Reorder the replicas: if a broker would be preferred more often than its share, another broker goes first."""
    share = -(-len(plan) // len(brokers))
    preferred = Counter[int]()
    spread: dict[TopicPartition, tuple[int, ...]] = {}
    for one, replicas in plan.items():
        first = replicas[0]
        if preferred[first] >= share:
            first = min(replicas, key=lambda broker: (preferred[broker], replicas.index(broker)))
        preferred[first] += 1
        spread[one] = (first, *(replica for replica in replicas if replica != first))
    return spread
