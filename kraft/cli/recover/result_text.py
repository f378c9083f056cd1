"""What `kraft recover apply` and `verify` print for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from kraft.cli.text import count
from kraft.config import join_host_port
from kraft.operate.isolated_start import Started
from kraft.operate.recover.inventory import CONTROLLER
from kraft.operate.recover.recovery import CopiedFile, FileToWrite, NewFile, NewSnapshot, Recovery, recovery_json
from kraft.operate.recover.verify import Check
from metadata_log.log.snapshot import snapshot_name

_MOST_STRAYS = 12


def recovery_lines(recovery: Recovery, target: str, *, is_written: bool) -> Iterator[str]:
    """The files of a recovery, the records in them, and the configuration that fits."""
    plan = recovery.plan
    verb = "Written" if is_written else "Would write"
    for node in recovery.nodes:
        yield f"{verb}: {target}/{node.directory}, directory id {node.voter.directory_id}"
        for file in node.files:
            yield f"    {_file_line(file)}"
    appended: dict[str, int] = recovery_json(recovery)["appended"]
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
