"""`kraft archive`: keeps the complete metadata history of a cluster, and verifies that the history has no gap."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import click
import trio

from kraft.cli.cluster.administration import client_security, command_config_option, parse_bootstrap, told_by
from kraft.cli.cluster.quorum_why import NoLeaderReport
from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import echo
from kraft.config import UsageError
from kraft.observer import archive_committed
from kraft.operate.interrupts import run_tasks
from kraft.security.clients import ClientSecurity
from metadata_log.archive import (
    Added,
    Archive,
    ArchiveError,
    Source,
    Verified,
    open_archive,
    open_source,
    verify_archive,
)
from metadata_log.disk import OsDisk
from metadata_log.reading.damage import Damage
from metadata_log.times import when_text
from transport.causes import one_cause
from transport.interface import Endpoint

_ADDRESS: Final = r"(?:[\w.-]+|\[[0-9a-fA-F:]+\]):\d+"
_ADDRESSES: Final = re.compile(rf"{_ADDRESS}(?:,{_ADDRESS})*")
LOOK_SECONDS: Final = 10.0
LIVE_SECONDS: Final = 1.0


@click.command("archive", short_help="Keep a cluster's metadata history for good.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="DIR|H:P",
    help="A log directory, a partition directory or another archive, or H:P[,H:P], the address of controllers; "
    "may be repeated: controllers of one cluster.",
)
@click.option("--to", "target", required=True, metavar="DIR", help="The archive; made if it is not there.")
@click.option("--follow", is_flag=True, help="Repeat until Ctrl-C or SIGTERM; with H:P this is always so.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.05),
    metavar="SECONDS",
    help="With --follow: the pause between two passes (10). With H:P: how long records may wait until they are "
    "kept (1).",
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End after this time; 0 with H:P: once everything that is committed now has been archived.",
)
@click.option(
    "--timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="With H:P: seconds to look for a leader.",
)
@command_config_option
@click.option(
    "--allow-gap",
    is_flag=True,
    help="With H:P: continue after records that the leader has deleted; the manifest lists the gap.",
)
@click.option(
    "--verify", is_flag=True, help="Read the whole archive and prove it gap-free, after adding if --from is there."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line.")
@progress_option
@click.pass_context
def archive_command(
    context: click.Context,
    *,
    sources: tuple[str, ...],
    target: str,
    follow: bool,
    interval: float | None,
    seconds: float | None,
    timeout: float,
    command_config: str | None,
    allow_gap: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Keep segments and checkpoints of a metadata log, of a running node, too, with a digest of each file.

    Kafka deletes metadata after 7 days or 100 MiB. An archive is a partition directory: every command and Kafka's own
    dump tool read it. Run the command again to add new records. It adds only what continues the archive. A gap, another
    cluster, or a difference that no change of leader explains ends the command with exit code 1, without a change.

    From H:P, the address of controllers, it takes the committed records from the current leader, as they arrive.

    \b
    Example:
        kraft archive --from /var/lib/kafka/metadata --to /backup/prod-metadata --verify
        kraft archive --from 127.0.0.1:9093 --to /backup/prod-metadata --for 3600
    """
    if not sources and not verify:
        raise UsageError(
            "nothing to do", where="--from", hint="Give --from DIR or --from H:P to add, --verify to check, or both."
        )
    if follow and not sources:
        raise UsageError("--follow has no source", where="--follow", hint="Give --from DIR, too.")
    security = client_security(command_config)
    live = _addresses(sources, security)
    if seconds is not None and not (live or follow):
        raise UsageError("--for with a directory needs --follow", where="--for", hint="Give --follow, too.")
    if allow_gap and not live:
        raise UsageError(
            "--allow-gap does not apply to a directory",
            where="--allow-gap",
            hint="Begin another archive after the gap.",
        )
    sound = True
    if sources:
        if not live:
            for path in sources:
                _require_directory(path, target)
        archive = open_archive(OsDisk(), target)
        try:
            if live:
                with told_by(security):
                    run_tasks(
                        _add_live,
                        archive,
                        live,
                        int(timeout * 1000),
                        interval or LIVE_SECONDS,
                        seconds,
                        allow_gap,
                        as_json,
                        security,
                    )
            else:
                opened = [open_source(archive.disk, path) for path in sources]
                if follow:
                    sound = run_tasks(_follow, archive, opened, interval or LOOK_SECONDS, seconds, as_json)
                else:
                    sound = _add_each(archive, opened, as_json)
        finally:
            archive.close()
    if verify:
        sound &= _verify(target, as_json=as_json)
    context.exit(0 if sound else 1)


def _addresses(sources: Sequence[str], security: ClientSecurity) -> tuple[Endpoint, ...]:
    """The addresses of the controllers, if the sources are addresses rather than directories."""
    live = [text for text in sources if not Path(text).exists() and _ADDRESSES.fullmatch(text)]
    if live and len(live) < len(sources):
        raise UsageError(
            "directories and addresses cannot be archived together",
            where="--from",
            hint="Give the directories first, then run it again with the addresses.",
        )
    return tuple(endpoint for text in live for endpoint in parse_bootstrap(text, security))


def _require_directory(path: str, target: str) -> None:
    if Path(path).exists():
        if Path(target).resolve().is_relative_to(Path(path).resolve()):
            raise UsageError(
                "the archive would lie inside the source, where nothing is ever written",
                where=f"--to {target}",
                hint="Give a directory outside of it.",
            )
        return
    raise UsageError("there is no such directory", where=f"--from {path}", hint="Give a log directory of the cluster.")


def _add_each(archive: Archive, sources: Sequence[Source], as_json: bool) -> bool:
    """Archive each source once, even after failures; raises the failures together."""
    sound, failures = True, []
    for source in sources:
        try:
            sound &= _add(archive, source, as_json=as_json)
        except ArchiveError as failed:
            failures.append(failed)
    if failures:
        raise ExceptionGroup("some sources could not be archived", failures)
    return sound


async def _follow(
    archive: Archive, sources: Sequence[Source], interval: float, seconds: float | None, as_json: bool
) -> bool:
    """Archive the sources repeatedly until a signal or the end of the time; returns whether all passes succeeded."""
    async with ending(seconds) as scope:
        first = True
        with scope:
            while True:
                for source in sources:
                    if not _add(archive, source, as_json=as_json, quiet=not first):
                        return False
                first = False
                await trio.sleep(interval)
    return True


async def _add_live(
    archive: Archive,
    endpoints: Sequence[Endpoint],
    timeout_ms: int,
    interval: float,
    seconds: float | None,
    allow_gap: bool,
    as_json: bool,
    security: ClientSecurity,
) -> None:
    """Archive from controllers until a signal or the end of the time; 0 seconds mean all records committed now."""
    is_once = seconds == 0
    async with ending(seconds or None) as scope:
        with scope, _Progress(archive) if is_once else nullcontext():
            await archive_committed(
                archive,
                endpoints,
                partial(_say, as_json=as_json),
                timeout_ms=timeout_ms,
                interval_s=interval,
                is_once=is_once,
                allow_gap=allow_gap,
                on_notice=lambda what: echo(f"kraft: warning: {what}", err=True),
                transport=security.transport(),
                delays=NoLeaderReport(repeats=False),
            )


def _add(archive: Archive, source: Source, *, as_json: bool, quiet: bool = False) -> bool:
    """Archive one source once and report the result; with `quiet` only if there was one."""
    with _Progress(archive):
        added = archive.add(source, now_ms=time.time_ns() // 1_000_000)
    if not quiet or added.batches or added.checkpoints or added.superseded or added.damage:
        _say(added, as_json=as_json)
        for warning in added.warnings:
            echo(f"kraft: warning: {warning} ({added.source})", err=True)
    if added.superseded is not None:
        lost = added.superseded
        echo(
            f"kraft: warning: offsets {lost.base_offset} to {lost.end_offset - 1} of epoch {lost.epoch} were archived "
            f"before they were committed, and the leader of epoch {lost.by_epoch} has overwritten them: "
            f"they are kept aside ({lost.file})",
            err=True,
        )
    if added.damage is not None:
        _complain(added.damage, "Archive from another controller of the cluster: only what is whole is taken.")
    return added.damage is None


def _say(added: Added, *, as_json: bool) -> None:
    echo(_added_json(added) if as_json else _added_text(added))


def _added_text(added: Added) -> str:
    parts = [f"{added.records} records" if added.records else "nothing new"]
    if added.checkpoints:
        parts.append(f"{len(added.checkpoints)} checkpoint{'s' if len(added.checkpoints) > 1 else ''}")
    return f"{added.source}: {', '.join(parts)}; the archive holds {_range(added.start_offset, added.end_offset)}"


def _range(start: int, end: int) -> str:
    return f"offsets {start} to {end - 1}" if end > start else "no record"


def _added_json(added: Added) -> str:
    superseded = added.superseded
    return json.dumps(
        {
            "source": added.source,
            "batches": added.batches,
            "records": added.records,
            "startOffset": added.start_offset,
            "endOffset": added.end_offset,
            "checkpoints": [{"endOffset": each.offset, "epoch": each.epoch} for each in added.checkpoints],
            "superseded": None
            if superseded is None
            else {
                "file": superseded.file,
                "baseOffset": superseded.base_offset,
                "endOffset": superseded.end_offset,
                "epoch": superseded.epoch,
                "byEpoch": superseded.by_epoch,
            },
            "warnings": list(added.warnings),
            "damage": None if added.damage is None else str(added.damage),
        }
    )


def _verify(target: str, *, as_json: bool) -> bool:
    """Print the proof, or the damages."""
    with LongJob("Verifying", None):
        verification = verify_archive(OsDisk(), target.rstrip("/") or "/")
    if as_json:
        echo(_verified_json(target, verification))
    else:
        echo(_verified_text(target, verification))
    for damage in verification.damages:
        _complain(damage, None)
    return not verification.damages


def _verified_text(target: str, found: Verified) -> str:
    verdict = "sound, with gaps" if found.gaps else "gap-free"
    if found.damages:
        verdict = f"{len(found.damages)} damaged"
    return (
        f"{target}: {verdict}; cluster {found.cluster_id or 'unknown'}, "
        f"{_range(found.start_offset, found.end_offset)}, "
        f"{when_text(found.first_timestamp_ms)} to {when_text(found.last_timestamp_ms)}, epoch {found.last_epoch}; "
        f"{found.segments} segments, {found.checkpoints} checkpoints, {found.records} records, {found.size_bytes} bytes"
        + "".join(f"; {_range(gap.base_offset, gap.end_offset)} are missing" for gap in found.gaps)
        + (f"; {len(found.superseded)} superseded ends of the log kept aside" if found.superseded else "")
    )


def _verified_json(target: str, found: Verified) -> str:
    return json.dumps(
        {
            "archive": target,
            "ok": not found.damages,
            "clusterId": found.cluster_id,
            "startOffset": found.start_offset,
            "endOffset": found.end_offset,
            "firstTimestamp": found.first_timestamp_ms,
            "lastTimestamp": found.last_timestamp_ms,
            "lastEpoch": found.last_epoch,
            "segments": found.segments,
            "checkpoints": found.checkpoints,
            "batches": found.batches,
            "records": found.records,
            "bytes": found.size_bytes,
            "superseded": len(found.superseded),
            "gaps": [{"baseOffset": gap.base_offset, "endOffset": gap.end_offset} for gap in found.gaps],
            "damages": [str(damage) for damage in found.damages],
        }
    )


def _complain(damage: Damage, hint: str | None) -> None:
    echo(f"kraft: error: {damage}", err=True)
    if hint is not None:
        echo(f"hint: {hint}", err=True)


class _Progress(LongJob):
    """Tells the offset reached."""

    def __init__(self, archive: Archive) -> None:
        super().__init__("Archiving", None)
        self._offset = -1
        archive.on_progress = self._reach

    def _reach(self, offset: int) -> None:
        self._offset = offset

    def reached(self) -> str:
        """The last offset that the archive has."""
        return "" if self._offset < 0 else f"up to offset {self._offset}"


@asynccontextmanager
async def ending(seconds: float | None) -> AsyncIterator[trio.CancelScope]:
    """A scope for the work, which Ctrl-C, SIGTERM or the end of the time cancels; later cleanup is not cancelled."""
    scope = trio.CancelScope(deadline=float("inf") if seconds is None else trio.current_time() + seconds)
    with one_cause():
        async with trio.open_nursery() as nursery:
            await nursery.start(_cancel_on_signal, scope)
            yield scope
            nursery.cancel_scope.cancel()


async def _cancel_on_signal(
    scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
