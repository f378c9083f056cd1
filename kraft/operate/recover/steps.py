"""The steps of a recovery as commands, from the procedures that were proven on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.operate.recover.inventory import BROKER, CONTROLLER
from kraft.operate.recover.plan import Plan

_NEW_ID = "ID=HOST:PORT"


def steps_of(plan: Plan) -> Iterator[str]:
    """The steps for the operator, in order."""
    if plan.is_quorum_possible:
        yield from _without_recovery(plan)
        return
    is_dynamic = plan.seed.quorum.kraft_version > 0
    is_by_broker = plan.best.role == BROKER
    yield "Stop every controller that still runs, and keep it stopped."
    if plan.is_behind or plan.partial_ids:
        yield (
            "Stop every broker: a running broker that knows more records than the seed ends with a fatal error"
            " ('truncation to offset … below the current high watermark')."
        )
    copies = "; ".join(f"cp -a {one.path} {one.path}.aside" for one in plan.inventory.dirs)
    yield f"Copy every directory aside: {copies}"
    yield (
        " ".join(["kraft recover apply PLAN.json --into NEW", *_apply_options(plan)]) + "   (shows what it would write)"
    )
    yield "The same command again with --execute."
    brokers = [one.path for one in plan.inventory.dirs if one.role == BROKER]
    against = f" --brokers {' '.join(brokers)}" if brokers else ""
    yield f"kraft recover verify NEW{against}"
    if is_dynamic:
        yield "Point log.dirs of the controller at NEW/node-ID (or move that directory into its place), and start it."
    else:
        yield (
            "Set controller.quorum.voters to the voters that apply printed, on the controller and on every broker."
            " In a static quorum the voters are in the configuration alone."
        )
        yield "Point log.dirs of the controller at NEW/node-ID (or move that directory into its place), and start it."
    if is_by_broker:
        key = "controller.quorum.bootstrap.servers" if is_dynamic else "controller.quorum.voters"
        yield f"Point {key} of every broker at the new controller."
    yield (
        "Start the brokers. The registration of each one may be refused for up to broker.session.timeout.ms (9 s):"
        " the image believes that the broker still lives."
    )
    if is_dynamic:
        yield (
            "Grow back to three: format each other controller with --no-initial-controllers, start it, and add it with"
            " kraft quorum add (kafka-metadata-quorum add-controller), one by one."
        )
    else:
        yield (
            "Grow back to three: apply again with --voters naming all three, while everything is stopped, or give each"
            " new controller a clone of the repaired directory with a node.id and directory.id of its own."
        )
    for one in plan.inventory.dirs:
        if one.role == CONTROLLER:
            yield f"Never start a controller on {one.path} again: its voters are those from before the recovery."
    if plan.security:
        newest = ", ".join(f"{one.type} at offset {one.offset}" for one in plan.security)
        yield f"Check access rules, credentials and tokens, and rotate them where they were revoked later: {newest}."


def _without_recovery(plan: Plan) -> Iterator[str]:
    ids = plan.voters.ids or ()
    there = sorted({one.meta.node_id for one in plan.inventory.dirs if one.role == CONTROLLER})
    lost = [voter for voter in ids if voter not in there]
    yield f"Start the controllers {', '.join(map(str, there))}: they are a majority of the voters and elect a leader."
    if plan.seed.quorum.kraft_version > 0 and not lost:
        yield (
            "If they cannot reach each other, because their addresses have changed and all of their disks survive:"
            " kraft recover apply PLAN.json --into NEW --endpoint ID=HOST:PORT for each one."
        )
    for voter in lost:
        if plan.seed.quorum.kraft_version > 0:
            yield (
                f"Controller {voter}: format its empty disk with the cluster id {plan.inventory.cluster_id} and"
                " --no-initial-controllers, and start it; then remove the voter with its old directory id, and add it"
                " again. To add first ends with DuplicateVoterException."
            )
        else:
            yield (
                f"Controller {voter}: wait until the others have a leader; then format its empty disk with the cluster"
                f" id {plan.inventory.cluster_id}, and start it."
            )


def _apply_options(plan: Plan) -> Iterator[str]:
    if plan.best.role == BROKER:
        yield f"--voters {_NEW_ID}"
    elif plan.seed.quorum.kraft_version == 0:
        yield f"--voters {plan.best.meta.node_id}=HOST:PORT"
    topics = sorted({stray.files.topic for stray in plan.hazards.strays if stray.why == "unknown topic"})
    if topics:
        yield f"--rescue-topics {','.join(topics)}"
    if plan.options.gone:
        yield f"--brokers-gone {','.join(map(str, plan.options.gone))}"
