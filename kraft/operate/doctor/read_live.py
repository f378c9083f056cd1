"""Asks a live quorum: its leader, each controller directly, and the metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from kraft.admin.client import AdminClient, open_admin
from kraft.admin.conditions import Condition, EpochReport, conditions_without_leader, voter_conditions
from kraft.admin.descriptions import ReplicaDescription
from kraft.admin.errors import AdminError, CannotConnect, NoController
from kraft.observer import read_image
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import LiveAnswer, LiveFacts, LiveReplica
from metadata_log.errors import MetadataLogError
from transport.interface import Endpoint, Transport

SAMPLE_SECONDS: Final = 1.0
LONGEST_RETRY_MS: Final = 200


async def read_live(
    bootstrap: Sequence[Endpoint],
    *,
    timeout_ms: int,
    clock_ms: Callable[[], int],
    watch_seconds: float = 0.0,
    transport: Transport | None = None,
) -> tuple[LiveFacts, ImageFacts | None]:
    """Ask a running quorum about its state.

    Args:
        bootstrap: The addresses of some controllers.
        timeout_ms: The limit of each request with its retries, in milliseconds.
        clock_ms: The clock of this host, in milliseconds since 1970, to compare with the leader's.
        watch_seconds: For how long the epoch is watched, once a second; 0 for one look.
        transport: The transport to run, with TLS and a login where the cluster needs them; None for TCP in the clear.

    Returns:
        The facts; and the committed metadata, None without a leader. A quorum without a leader is a fact, not an error.

    Raises:
        CannotConnect: No controller can be asked, for a cause that time does not cure.
        AdminError: A controller refuses the questions.
    """
    text = ",".join(map(str, bootstrap))
    async with open_admin(
        bootstrap, transport=transport, timeout_ms=timeout_ms, longest_retry_ms=LONGEST_RETRY_MS
    ) as admin:
        try:
            cluster = await admin.describe_cluster()
            quorum = await admin.describe_quorum()
            now_ms = clock_ms()
        except CannotConnect:
            raise
        except NoController as failed:
            answers = await conditions_without_leader(admin)
            return LiveFacts(bootstrap=text, answers=_answers(answers), problem=str(failed)), None
        conditions = await voter_conditions(admin, cluster, quorum)
        epochs = [quorum.leader_epoch, *await _watch(admin, watch_seconds)]
        leader = next((one for one in quorum.voters if one.id == quorum.leader_id), None)
        leader_ms = -1 if leader is None else leader.last_caught_up_ms
        live = LiveFacts(
            bootstrap=text,
            cluster_id=cluster.cluster_id,
            leader_id=quorum.leader_id,
            leader_epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            voters=_replicas(quorum.voters, leader_ms),
            observers=_replicas(quorum.observers, leader_ms),
            answers=_answers(conditions),
            epochs_seen=tuple(epochs),
            clock_ms=None if leader_ms < 0 else now_ms - leader_ms,
        )
        return live, await _image(admin, text, leader_ms)


async def _watch(admin: AdminClient, seconds: float) -> list[int]:
    """The epoch of the leader once a second."""
    epochs = []
    with trio.move_on_after(seconds):
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            try:
                epochs.append((await admin.describe_quorum()).leader_epoch)
            except NoController:
                continue
    return epochs


async def _image(admin: AdminClient, where: str, end_ms: int) -> ImageFacts | None:
    try:
        return ImageFacts(where=where, image=await read_image(admin), end_ms=end_ms)
    except (AdminError, MetadataLogError):
        return None  # the checks that need the metadata are listed as skipped


def _replicas(replicas: Sequence[ReplicaDescription], leader_ms: int) -> tuple[LiveReplica, ...]:
    return tuple(
        LiveReplica(
            id=one.id,
            directory_id=one.directory_id,
            log_end_offset=one.log_end_offset,
            caught_up_ms_ago=_ago(leader_ms, one.last_caught_up_ms),
            fetched_ms_ago=_ago(leader_ms, one.last_fetch_ms),
        )
        for one in replicas
    )


def _ago(now_ms: int, then_ms: int) -> int | None:
    return None if min(now_ms, then_ms) < 0 else max(now_ms - then_ms, 0)


def _answers(conditions: Sequence[Condition]) -> tuple[LiveAnswer, ...]:
    result = []
    for one in conditions:
        address = "an unknown address" if one.endpoint is None else str(one.endpoint)
        match one.report:
            case EpochReport(epoch=epoch, leader_id=leader_id):
                result.append(LiveAnswer(id=one.id, address=address, epoch=epoch, leader_id=leader_id))
            case str(problem):
                result.append(LiveAnswer(id=one.id, address=address, problem=problem.removeprefix(f"{address}: ")))
    return tuple(result)
