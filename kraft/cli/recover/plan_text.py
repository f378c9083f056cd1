"""A plan as text for people: the verdict first, then the copies, the losses, the hazards and the steps; a plan read
from the JSON that `kraft recover plan` has printed; and what `apply` and `verify` print.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from kraft.cli.text import count, table
from kraft.config import UsageError, join_host_port
from kraft.config.errors import CommandFailed
from kraft.operate.isolated_start import Started
from kraft.operate.recover.copies import MetadataCopy
from kraft.operate.recover.differences import Records
from kraft.operate.recover.inventory import CONTROLLER, LogDir
from kraft.operate.recover.plan import Plan, PlanOptions
from kraft.operate.recover.plan_json import directory_json
from kraft.operate.recover.recovery import CopiedFile, FileToWrite, NewFile, NewSnapshot, Recovery, describe
from kraft.operate.recover.steps import steps_of
from kraft.operate.recover.verify import Check
from metadata_log.log.snapshot import snapshot_name
from metadata_log.reading.timeline import At, moment_text

_COMPARED = ("nodeId", "directoryId", "logStart", "logEnd", "lastEpoch", "epochStarts", "quorumState")
_HINT = "Make one with `kraft recover plan --json DIR… --brokers DIR… > plan.json`."


class PlanFile(Struct, frozen=True, kw_only=True):
    """The parts of a plan that `apply` needs: the directories, the choices, and the facts to compare."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]
    options: PlanOptions
    directories: dict[str, dict[str, Any]]


class _Given(Struct, frozen=True):
    controllers: tuple[str, ...]
    brokers: tuple[str, ...]


class _Text(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a plan that are read."""

    given: _Given
    observers_may_seed: bool
    configured_voter_ids: tuple[int, ...] | None
    brokers_gone: tuple[int, ...]
    truncate_to: int | None
    directories: dict[str, dict[str, Any]]


def read_plan_file(path: str) -> PlanFile:
    """Read a plan; raises `UsageError` for any other content, and `OSError`."""
    try:
        plan = json.decode(Path(path).read_bytes(), type=_Text)
        return PlanFile(
            controllers=tuple(_path(plan, name) for name in plan.given.controllers),
            brokers=tuple(_path(plan, name) for name in plan.given.brokers),
            options=PlanOptions(
                observers=plan.observers_may_seed,
                voter_ids=plan.configured_voter_ids,
                gone=plan.brokers_gone,
                truncate_to=plan.truncate_to,
            ),
            directories=plan.directories,
        )
    except (ValueError, RecursionError) as bad:
        raise UsageError(f"this is no plan of kraft recover: {bad}", where=path, hint=_HINT) from bad


def _path(plan: _Text, name: str) -> str:
    path = plan.directories.get(name, {}).get("path")
    if not isinstance(path, str):
        raise ValueError(f"the directory {name!r} has no path - at `$.directories`")
    return path


def check_unchanged(planned: PlanFile, plan: Plan, path: str) -> None:
    """Raise `CommandFailed` if a directory differs from the plan: a node was started meanwhile."""
    for one in plan.inventory.dirs:
        now, before = directory_json(one), planned.directories.get(one.name, {})
        for key in _COMPARED:
            if now.get(key) != before.get(key):
                change = f"{key} was {before.get(key)} and is {now.get(key)}"
                raise CommandFailed(
                    f"{one.path} has changed since the plan was made: {change}",
                    hint=f"Stop the node that uses it, and make the plan in {path} again.",
                )


_MOST_STRAYS = 12


def recovery_lines(recovery: Recovery, target: str, *, is_written: bool) -> Iterator[str]:
    """The files of a recovery, the records in them, and the configuration that fits."""
    plan = recovery.plan
    verb = "Written" if is_written else "Would write"
    for node in recovery.nodes:
        yield f"{verb}: {target}/{node.directory}, directory id {node.voter.directory_id}"
        for file in node.files:
            yield f"    {_file_line(file)}"
    appended = describe(recovery).appended
    told = ", ".join(f"{number:,} × {name}" for name, number in appended.items())
    place = f"at offset {plan.append_at:,} in epoch {plan.recovery_epoch}"
    yield (
        f"Appended {place}: {told}." if told else f"Nothing is appended; quorum-state gets epoch {plan.recovery_epoch}."
    )
    yield f"Voters: {', '.join(_voters(recovery))}."
    if recovery.kraft_version == 0:
        with_address = [one for one in recovery.voters if one.endpoint is not None]
        voters = ",".join(
            f"{one.id}@{join_host_port(one.endpoint.host, one.endpoint.port)}"
            for one in with_address
            if one.endpoint is not None
        )
        yield (
            "Set on every controller and broker: controller.quorum.voters="
            + (voters or f"{recovery.voters[0].id}@HOST:PORT, the address of this controller")
        )
    if recovery.strays:
        yield (
            f"{count(len(recovery.strays), 'partition directory', 'partition directories')} will become stray when the"
            " brokers start; move them away first, or rescue their topics:"
        )
        for stray in islice(recovery.strays, _MOST_STRAYS):
            yield f"    broker {stray.broker}: {stray.files.name}, end {stray.files.log_end:,}, {stray.why}"
        if len(recovery.strays) > _MOST_STRAYS:
            yield f"    … {len(recovery.strays) - _MOST_STRAYS:,} more; --json has all"
    for one in plan.inventory.dirs:
        if one.role == CONTROLLER:
            yield f"Never start a controller on {one.path} again."
    if plan.best.role == CONTROLLER and plan.best.meta.node_id not in [voter.id for voter in recovery.voters]:
        yield (
            f"Controller {plan.best.meta.node_id}, the node of the seed, is no voter any more: make sure that no old"
            " voter can start, or old voters elect a leader of their own beside the new one."
        )
    if is_written:
        yield f"Next: kraft recover verify {target}"
    else:
        yield "Nothing was written: add --execute."


def _voters(recovery: Recovery) -> Iterator[str]:
    for one in recovery.voters:
        where = "" if one.endpoint is None else f" at {join_host_port(one.endpoint.host, one.endpoint.port)}"
        yield f"{one.id}{where}"


def _file_line(file: FileToWrite) -> str:
    match file:
        case CopiedFile(path=path, source=source, appended=appended):
            behind = f", and {len(appended):,} bytes behind it" if appended else ""
            return f"{path}: from {source}{behind}"
        case NewFile(path=path, content=content):
            return f"{path}: new, {len(content):,} bytes"
        case NewSnapshot(directory=directory, snapshot=snapshot):
            return f"{directory}/{snapshot_name(snapshot)}: new, the image"


def live_lines(checks: Sequence[Check], *, brokers: bool) -> Iterator[str]:
    """Each check of a running quorum, and the verdict last."""
    yield from _check_lines(checks)
    if not brokers:
        yield "The brokers' directories were not looked at for new -stray ones: give them with --brokers."
    failed = [one for one in checks if not one.is_passed]
    yield f"{count(len(failed), 'check')} failed." if failed else f"{count(len(checks), 'check')} passed."


def _check_lines(checks: Sequence[Check]) -> Iterator[str]:
    for one in checks:
        mark, problem = ("ok  ", "") if one.is_passed else ("FAIL", f": {one.problem}")
        yield f"{mark}  {one.name} ({one.subject}){problem}"


def verify_lines(checks: Sequence[Check], started: Started | None, *, offline: bool, brokers: bool) -> Iterator[str]:
    """Each check, and the verdict last."""
    yield from _check_lines(checks)
    if not brokers:
        yield "The brokers' files were not checked: give them with --brokers."
    failed = [one for one in checks if not one.is_passed]
    if started is not None:
        yield (
            f"Started in isolation: node {started.leader_id} led in epoch {started.epoch} and committed the whole log,"
            f" up to offset {started.log_end:,}."
        )
    elif not offline:
        yield "No node was started, because a check failed."
    if failed:
        yield f"{count(len(failed), 'check')} failed: do not start these directories."
    else:
        yield f"{count(len(checks), 'check')} passed."


MOST_LINES = 12
"""How many entries of a list the text shows; --json has all."""


def plan_lines(plan: Plan) -> Iterator[str]:
    """The lines of a plan."""
    yield _verdict(plan)
    yield ""
    yield from table(
        ("COPY", "ROLE", "NODE", "LAST EPOCH", "END", "QUORUM-STATE EPOCH", "REMARK"),
        [_row(plan, one, one.copy) for one in plan.inventory.dirs if one.copy is not None],
    )
    for one, copy in plan.inventory.copies:
        for damage in islice(copy.damages, MOST_LINES):
            yield f"{one.name}: {damage}"
        if copy.quorum_state_problem is not None:
            yield f"{one.name}: {copy.quorum_state_problem}"
    if plan.longest is not plan.best and plan.longest.copy is not None:
        longest = plan.longest.copy.end
        yield (
            f"The longest log, of {plan.longest.name}, is not the best: it ends at {longest.offset:,} in epoch"
            f" {longest.epoch}. {plan.best.name} has records of epoch {plan.seed.end.epoch}, and the leader of that"
            " epoch had replaced the end of such a log."
        )
    yield ""
    yield from _losses(plan)
    yield from _hazards(plan)
    yield ""
    yield "Steps:"
    for number, step in enumerate(steps_of(plan), 1):
        yield f"{number:>3}. {step}"


def _verdict(plan: Plan) -> str:
    end, best = plan.seed.end, plan.best
    ids = plan.voters.ids
    voters = "unknown" if ids is None else ", ".join(map(str, ids))
    known = f"voters {voters} according to {plan.voters.source}"
    if plan.is_quorum_possible:
        return f"No recovery is needed: the given controllers are a majority ({known})."
    problem = (
        "Whether a majority survives is unknown: give a controller's properties with -c"
        if plan.is_quorum_possible is None
        else f"The majority is lost ({known})"
    )
    return (
        f"{problem}. The best copy is {best.name}, of {best.role} {best.meta.node_id}: it ends at offset"
        f" {end.offset:,} of epoch {end.epoch}. The recovery writes epoch {plan.recovery_epoch} at offset"
        f" {plan.append_at:,}."
    )


def _row(plan: Plan, one: LogDir, copy: MetadataCopy) -> tuple[object, ...]:
    remark = "best" if one is plan.best else ""
    difference = next((other for other in (*plan.others, *plan.ahead) if other.name == one.name), None)
    if copy.unusable is not None:
        remark = copy.unusable
    elif difference is not None:
        if difference.is_diverged:
            remark = f"differs from offset {difference.common_end:,} on"
        elif difference.only_here is not None:
            remark = f"ahead of {plan.best.name}"
        else:
            behind = plan.seed.end.offset - difference.log_end
            remark = "equals the best" if behind == 0 else f"{count(behind, 'record')} behind"
    stored = "-" if copy.quorum_state is None else copy.quorum_state.leader_epoch
    return one.name, one.role, one.meta.node_id, copy.end.epoch, copy.end.offset, stored, remark


def _records(some: Records) -> str:
    epochs = (
        f"epoch {some.first_epoch}"
        if some.first_epoch == some.last_epoch
        else (f"epochs {some.first_epoch} to {some.last_epoch}")
    )
    types = ", ".join(f"{number:,} × {name}" for name, number in some.by_type.items())
    return f"{count(some.count, 'record')} of {epochs}, offsets {some.start:,} to {some.end - 1:,}: {types}"


def _losses(plan: Plan) -> Iterator[str]:
    dropped = [one for one in (*plan.others, *plan.ahead) if one.only_here is not None]
    for one in dropped:
        assert one.only_here is not None
        yield f"Dropped, only in {one.name}: {_records(one.only_here)}."
        yield from _some(one.only_here.named)
    if not dropped:
        yield f"No given copy holds a record that {plan.best.name} lacks."
    if plan.uncommitted is not None:
        yield f"Made true, though not proven to be committed: {_records(plan.uncommitted)}."
    if plan.unknown_loss is not None:
        loss = plan.unknown_loss
        seconds = (loss.newest_ms - loss.seed_ms) / 1000
        yield (
            f"The cluster lived at least {seconds:,.1f} s longer than the best copy, which ends at"
            f" {moment_text(At(timestamp_ms=loss.seed_ms))}: {loss.newest_in} has a newer record. Committed metadata of"
            " that time may be lost."
        )


def _hazards(plan: Plan) -> Iterator[str]:
    hazards = plan.hazards
    if hazards.strays:
        size = sum(stray.files.size_bytes for stray in hazards.strays)
        yield (
            f"{count(len(hazards.strays), 'partition directory', 'partition directories')} ({size:,} bytes) would"
            " become stray: the broker renames each one at its start, and the data leaves the cluster."
        )
        yield from _some(
            f"broker {stray.broker}: {stray.files.name}, end {stray.files.log_end:,}, {stray.why}"
            for stray in hazards.strays
        )
    if hazards.epochs_behind:
        number = count(len(hazards.epochs_behind), "replica")
        yield f"{number} with a leader epoch above the image's; apply raises them."
        yield from _some(
            f"broker {one.broker}: {one.name}, epoch {one.last_epoch}, image {one.image_epoch}"
            for one in hazards.epochs_behind
        )
    if hazards.missing:
        yield f"{count(len(hazards.missing), 'replica')} that the image assigns to a given directory is not there:"
        yield from _some(
            f"broker {one.broker}: {one.name} in {one.directory}"
            + (", the only in-sync replica" if one.is_only_isr else "")
            for one in hazards.missing
        )
    ids = hazards.producer_ids
    if ids.must_be_raised:
        yield (
            f"Producer ids would be handed out twice: the image continues with {ids.next_id}, and a log holds"
            f" {ids.highest_seen}; apply raises them."
        )
    if plan.not_given:
        named = ", ".join(map(str, plan.not_given))
        yield (
            f"The directories of brokers {named} were not given: they may know newer metadata, epochs and producer ids."
            " Give them, or name brokers that are lost with --brokers-gone."
        )
    for gone in islice(plan.gone, MOST_LINES):
        leader = "no leader" if gone.leader < 0 else f"leader {gone.leader}, ISR {list(gone.isr)}"
        yield f"Without brokers {', '.join(map(str, plan.options.gone))}: {gone.topic}-{gone.number} has {leader}."
    for text in islice(hazards.damages, MOST_LINES):
        yield f"Damage: {text}"
    strays = {one.name: one.strays for one in plan.inventory.dirs if one.strays}
    for name, renamed in strays.items():
        yield f"{name} has renamed strays already: {', '.join(islice(renamed, MOST_LINES))}"


def _some(entries: Iterator[str] | tuple[str, ...]) -> Iterator[str]:
    """At most `MOST_LINES` indented entries."""
    listed = list(entries)
    for entry in listed[:MOST_LINES]:
        yield f"    {entry}"
    if len(listed) > MOST_LINES:
        yield f"    … {len(listed) - MOST_LINES:,} more; --json has all"
