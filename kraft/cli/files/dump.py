"""`kraft dump`: decodes the files of a node, by batch or by record (Kafka: `DumpLogSegments`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click
from msgspec import Struct

from kraft.cli.moments import MOMENT
from kraft.cli.near import end_words, type_names
from kraft.cli.progress import LongJob, progress_option
from kraft.cli.text import echo
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.disk import OsDisk
from metadata_log.errors import DirectoryError, MetadataLogError
from metadata_log.log.indexes import NO_TIMESTAMP
from metadata_log.printable import printable, printable_lines
from metadata_log.reading.annotate import Span, annotate
from metadata_log.reading.annotate_file import annotate_file, unknown_bytes
from metadata_log.reading.damage import Damage, DamagedFile, OnDamage, stops
from metadata_log.reading.dump_records import Range, RecordLines, RecordsWanted
from metadata_log.reading.entries import Entry, read_entries
from metadata_log.reading.file_kinds import FileKind, files_in, kind_of
from metadata_log.reading.log_end import LogEnd
from metadata_log.reading.missing import (
    check_metadata_log,
    has_log,
    is_log_directory,
    is_of_a_topic,
    missing_parts,
    of_topics,
)
from metadata_log.reading.pieces import Zeros, pieces_of
from metadata_log.reading.reader import read_file
from metadata_log.reading.small_files import read_index, read_small_file
from metadata_log.reading.timeline import WHAT_TO_NAME, At, moment_text
from metadata_log.reading.verify import Verdict, small_file_damage, verify_file
from metadata_log.reading.verify_directory import verify_directory
from metadata_log.records.batch import RecordBatch
from metadata_log.records.redact import MAY_HOLD_SECRETS, REDACTED, secret_fields
from metadata_log.times import iso_time, when_text
from metadata_log.types import PARTITION_DIRECTORY

_NOT_OURS: Final = "this is not a file of a metadata log"


class Reach(Struct):
    """The offsets in the files, and whether a requested one is among them."""

    is_met: bool = True
    start: int | None = None
    end: int = 0
    last_ms: int = NO_TIMESTAMP

    def note(self, batch: RecordBatch, span: Range) -> None:
        """Account for a batch."""
        if self.start is None:
            self.is_met = False
        self.start = batch.base_offset if self.start is None else min(self.start, batch.base_offset)
        self.end = max(self.end, batch.next_offset)
        self.last_ms = max(self.last_ms, batch.max_timestamp)
        self.is_met |= span.overlaps(batch)

    def is_beyond(self, until: At) -> bool:
        """Whether a moment is after the last record of the files, if they hold any."""
        return self.start is not None and not LogEnd(self.end - 1, self.last_ms).reaches(until)

    def complaint(self, span: Range) -> str:
        """The message if no requested record is in the files."""
        if span.first_offset >= self.end:
            asked = f"no record has offset {span.first_offset} or a later one"
        elif span.first_ms is None and span.last_ms is None:
            asked = f"no record has an offset from {span.first_offset} to {span.last_offset}"
        else:
            asked = "no record has a time in the requested range"
        held = f"the files hold offsets {self.start} to {self.end - 1}"
        last = iso_time(self.last_ms)
        return f"{asked}: {held}" + ("" if last is None else f", the last of {last}")


class Wanted(Struct, frozen=True, kw_only=True):
    """The user's selection."""

    show_records: bool
    records: RecordsWanted
    as_json: bool
    hex: bool
    on_damage: OnDamage
    reach: Reach
    job: LongJob


@click.command("dump", short_help="Decode the files of a node.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="PATH...")
@click.option("--records", "show_records", is_flag=True, help="Print the records, not only the batches.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="T",
    help="Only records of this type: a name such as PartitionRecord, or a number. May be repeated.",
)
@click.option("--since", type=MOMENT, help="Only what is at this offset or time, or later.")
@click.option("--until", type=MOMENT, help="Only what is up to this offset or time.")
@click.option("--verify", is_flag=True, help="Check every field of every file and print a verdict for each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line; records in Kafka's own JSON form.")
@progress_option
@click.option("--hex", "as_hex", is_flag=True, help="Print every byte with the field that it belongs to.")
@click.option(
    "--offsets-decoder", "decoder", flag_value="__consumer_offsets", help="Decode records of __consumer_offsets."
)
@click.option(
    "--transaction-log-decoder",
    "decoder",
    flag_value="__transaction_state",
    help="Decode records of __transaction_state.",
)
@click.option(
    "--share-group-state-decoder",
    "decoder",
    flag_value="__share_group_state",
    help="Decode records of __share_group_state.",
)
@click.option(
    "--remote-log-metadata-decoder",
    "decoder",
    flag_value="__remote_log_metadata",
    help="Decode records of __remote_log_metadata.",
)
@click.option("--noop", is_flag=True, help="Print NoOp records, too.")
@click.option(
    "--on-damage",
    type=click.Choice([each.value for each in OnDamage]),
    default=OnDamage.SKIP.value,
    show_default=True,
    help="Whether damage, or with strict an unknown record, ends the command, ends the file, or is skipped.",
)
@click.option("--show-secrets", is_flag=True, help="Print credentials and passwords as they are.")
@click.pass_context
def dump_command(
    context: click.Context,
    paths: tuple[str, ...],
    *,
    show_records: bool,
    types: tuple[str, ...],
    since: At | None,
    until: At | None,
    verify: bool,
    as_json: bool,
    as_hex: bool,
    decoder: str | None,
    noop: bool,
    on_damage: str,
    show_secrets: bool,
) -> None:
    """Decode segments, snapshots, indexes, quorum-state, meta.properties and the other files of a node.

    PATH is a file, a partition directory or a log directory; it may belong to a running node. Each damage is reported
    with its file and byte, and the exit code is then 1. The range of --since and --until includes both ends. The
    partition directory of a topic is shown in the lines of Kafka's own tool, with the state of groups, transactions,
    share groups and tiered storage decoded in those of __consumer_offsets, __transaction_state, __share_group_state
    and __remote_log_metadata; for files elsewhere one of the options with "decoder" says so. With --verify the files of
    a partition are compared with one another, for a log directory those of all its partitions.

    \b
    Example:
        kraft dump --records --type ConfigRecord /var/lib/kafka/metadata
        kraft dump --records --since 2026-11-20T22:00:00Z --until 2026-11-20T23:00:00Z /var/lib/kafka/metadata
        kraft dump --records /var/lib/kafka/data/orders-0
        kraft dump --records /var/lib/kafka/data/__consumer_offsets-12
        kraft dump --verify /var/lib/kafka/data
    """
    span = Range.of(since, until)
    is_for_metadata = bool(as_hex or types or noop)
    if span.is_empty:
        raise UsageError("the range ends before it begins", where="--since, --until")
    if as_hex and as_json:
        raise UsageError("--hex has no JSON form", where="--hex, --json")
    if decoder is not None and is_for_metadata:
        raise UsageError("an internal topic has no records of the metadata log", where="--hex, --type, --noop")
    if verify and (as_hex or show_records or types):
        raise UsageError(
            "--verify prints a verdict, and no content", where="--verify", hint="Leave out --records, --type and --hex."
        )
    wanted = Wanted(
        show_records=show_records or bool(types),
        records=RecordsWanted(
            types=type_names(types),
            span=span,
            as_json=as_json,
            noop=noop,
            show_secrets=show_secrets,
        ),
        as_json=as_json,
        hex=as_hex,
        on_damage=OnDamage(on_damage),
        reach=Reach(),
        job=LongJob("Reading", None, unit="bytes", prints=True),
    )
    disk = OsDisk()
    try:
        with wanted.job:
            sound = _each_path(disk, paths, wanted, decoder, verify=verify)
    except DamagedFile as bad:
        sound = _report(bad.damage, as_json)
    if sound and not verify and not wanted.reach.is_met:
        raise CommandFailed(wanted.reach.complaint(wanted.records.span))
    if sound and not verify and until is not None and wanted.reach.is_beyond(until):
        end = end_words(wanted.reach.end - 1, wanted.reach.last_ms)
        raise CommandFailed(f"--until {moment_text(until)} is beyond the end: {end}")
    context.exit(0 if sound else 1)


def _each_path(disk: OsDisk, paths: Sequence[str], wanted: Wanted, decoder: str | None, *, verify: bool) -> bool:
    """Print what each path names, or the verdicts on it; returns whether all is sound."""
    is_for_metadata = bool(wanted.hex or wanted.records.types or wanted.records.noop)
    sound = True
    for named in paths:
        try:
            if decoder is not None or (is_of_a_topic(disk, named) and not is_for_metadata):
                sound &= _of_a_topic(disk, named, wanted, {}) if verify else _dump_topic(disk, named, wanted, decoder)
            else:
                check_metadata_log(disk, named)
                sound &= _each_file(disk, named, wanted, verify=verify)
        except DirectoryError as bad:  # of this path: the others are shown all the same
            sound = _complain(bad)
    return sound


def _complain(bad: DirectoryError) -> bool:
    """Report an error of a path; returns that it is not sound."""
    echo(f"kraft: error: {bad}", err=True)
    if bad.hint:
        echo(f"hint: {bad.hint}", err=True)
    return False


def _each_file(disk: OsDisk, named: str, wanted: Wanted, *, verify: bool) -> bool:
    """Print the files of a metadata log or log directory, or the verdicts on them; returns whether all are sound."""
    sound = True
    for path in files_in(disk, named):
        try:
            kind = kind_of(disk, path)
            if kind is FileKind.OTHER:
                expected = "a segment, a snapshot or another file of a node"
                sound &= _report_or_raise(Damage(where=path, what=_NOT_OURS, expected=expected), wanted)
            elif verify:
                sound &= _verify(disk, path, kind, as_json=wanted.as_json)
            else:
                sound &= _dump(disk, path, kind, wanted)
        except FileNotFoundError:
            if os.path.islink(path):
                what, expected = f"this is a link to {os.readlink(path)}, which is not there", "a readable file"
                sound &= _report_or_raise(Damage(where=path, what=what, expected=expected), wanted)
                continue
            # A running node deletes old segments and snapshots.
            echo(f"kraft: warning: the file was removed while the directory was read ({path})", err=True)
        except BrokenPipeError:  # standard output is closed, the file is intact
            raise
        except OSError as bad:
            what = f"the file cannot be read: {bad.strerror or bad}"
            sound &= _report_or_raise(Damage(where=path, what=what, expected="a readable file"), wanted)
    if not verify:
        for damage in _missing(disk, named):
            sound &= _report_or_raise(damage, wanted)
        return sound
    for damage in verify_directory(disk, named):
        sound &= _report(damage, wanted.as_json)
    ends: dict[str, int] = {}
    for each in of_topics(disk, named):
        sound &= _of_a_topic(disk, each, wanted, ends)
    return _verify_log_directory(disk, named, ends, as_json=wanted.as_json) and sound


def _verify_log_directory(disk: OsDisk, named: str, ends: dict[str, int], *, as_json: bool) -> bool:
    """Print the verdicts on what stands beside the partitions of a log directory; returns whether all is sound."""
    if not is_log_directory(disk, named):
        return True
    # As slow to load as the rest of this command.
    from kraft.partitions.log.verify_log_directory import verify_log_directory

    sound = True
    for each in verify_log_directory(disk, named.rstrip("/") or "/", ends):
        sound &= _print_verdict(each.path, each.kind, each.verdict, as_json=as_json)
    return sound


def _dump_topic(disk: OsDisk, path: str, wanted: Wanted, decoder: str | None) -> bool:
    """Print a partition of a topic; returns whether all files are sound. `decoder` names an internal topic."""
    # The rooms of the broker take as long to load as the rest of this command.
    from kraft.cli.files.coordinator_lines import decoder_of
    from kraft.cli.files.dump_topic import TopicDump, dump_topic_path

    topic = TopicDump(
        show_records=wanted.show_records,
        span=wanted.records.span,
        as_json=wanted.as_json,
        on_damage=wanted.on_damage,
        decoder=None if decoder is None else decoder_of(decoder),
        advance=wanted.job.advance,
    )
    return dump_topic_path(disk, path, topic)


def _of_a_topic(disk: OsDisk, path: str, wanted: Wanted, ends: dict[str, int]) -> bool:
    """As `_verify_topic`, and a file that cannot be read is damage: the other partitions are checked all the same."""
    try:
        return _verify_topic(disk, path, wanted, ends)
    except BrokenPipeError:
        raise
    except OSError as bad:
        what = f"the file cannot be read: {bad.strerror or bad}"
        return _report(Damage(where=str(bad.filename or path), what=what, expected="a readable file"), wanted.as_json)


def _verify_topic(disk: OsDisk, path: str, wanted: Wanted, ends: dict[str, int]) -> bool:
    """Print the verdicts on a partition of a topic, or on one of its files; returns whether all are sound.

    `ends` gets the end of the log by the name of its directory.
    """
    from kraft.partitions.log.verify_partition import verify_partition

    is_directory = os.path.isdir(path)
    sound = True
    for each in verify_partition(disk, path.rstrip("/") if is_directory else os.path.dirname(path) or "."):
        if is_directory or os.path.basename(path) == os.path.basename(each.path):
            sound &= _print_verdict(each.path, each.kind, each.verdict, as_json=wanted.as_json)
        if each.verdict.end_offset is not None:
            ends[os.path.basename(path)] = each.verdict.end_offset
    return sound


def _report_or_raise(damage: Damage, wanted: Wanted) -> bool:
    """Report damage; raises `DamagedFile` in strict mode."""
    stops(damage, wanted.on_damage)
    return _report(damage, wanted.as_json)


def _missing(disk: OsDisk, named: str) -> Iterator[Damage]:
    """The files missing from the partition directory of a path; none if the path is a file."""
    if not os.path.isdir(named):
        return iter(())
    base = named.rstrip("/") or "/"
    inner = f"{base}/{PARTITION_DIRECTORY}"
    directory = inner if os.path.isdir(inner) else base
    return missing_parts(disk, directory) if has_log(disk, directory) else iter(())


def _dump(disk: OsDisk, path: str, kind: FileKind, wanted: Wanted) -> bool:
    """Print one file; returns whether it is sound."""
    has_batches = kind in {FileKind.SEGMENT, FileKind.SNAPSHOT}
    if wanted.records.types and not has_batches:
        return True
    title = "" if wanted.as_json else f"# {printable(path)}: {kind}\n"
    if has_batches:
        return _dump_batches(disk, path, wanted, title)
    click.echo(title, nl=False)
    if wanted.hex:
        _echo_spans(annotate_file(kind, disk.read(path)))
        return True
    if kind in {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX}:
        _dump_index(disk, path, kind, wanted)
        return True
    try:
        facts = read_small_file(disk, path, kind)
    except MetadataLogError as bad:
        damage = small_file_damage(path, kind, bad)
        stops(damage, wanted.on_damage)
        return _report(damage, wanted.as_json, bad.hint)
    if wanted.as_json:
        echo(json.dumps({"file": path, "kind": kind, "json": facts}))
    else:
        for name, value in facts.items():
            echo(f"{name}: {json.dumps(value)}")
    return True


def _dump_index(disk: OsDisk, path: str, kind: FileKind, wanted: Wanted) -> None:
    names = ("offset", "position") if kind is FileKind.OFFSET_INDEX else ("timestamp", "offset")
    for entry in read_index(disk, path, kind):
        fields = dict(zip(names, entry, strict=True))
        if wanted.as_json:
            echo(json.dumps({"file": path, "kind": kind, **fields}))
        elif kind is FileKind.OFFSET_INDEX:
            echo(f"offset {entry[0]} at byte {entry[1]}")
        else:
            echo(f"{when_text(entry[0])} offset {entry[1]}")


def _dump_batches(disk: OsDisk, path: str, wanted: Wanted, title: str) -> bool:
    """Print the batches after the title. A file without a record of the requested types prints nothing."""
    sound = True
    if not wanted.records.types:
        click.echo(title, nl=False)
        title = ""
    shown_to = 0
    record_lines = RecordLines(wanted.records)
    for item in read_file(disk, path, on_damage=wanted.on_damage):
        if isinstance(item, Damage):
            sound &= _report(item, wanted.as_json)
            continue
        if wanted.hex:
            _echo_damaged(disk, path, shown_to, item.position, show_secrets=wanted.records.show_secrets)
            shown_to = item.end_position
        wanted.job.advance(item.size_bytes)
        wanted.reach.note(item, wanted.records.span)
        if not wanted.records.span.overlaps(item):
            continue
        lines, damages = _batch_lines(item, path, wanted, record_lines)
        if lines:
            # One call for the whole batch, since each call flushes. Click does not search bytes for colours.
            text = title + "\n".join(lines)
            title = ""
            click.echo(text.replace("\x7f", "\\u007f").encode() if wanted.as_json else printable_lines(text))
        for damage in damages:
            sound &= _report(damage, wanted.as_json)
        if any(stops(damage, wanted.on_damage) for damage in damages):
            return sound
    if wanted.hex and wanted.on_damage is OnDamage.SKIP:
        _echo_damaged(disk, path, shown_to, None, show_secrets=wanted.records.show_secrets)
    return sound


def _echo_damaged(disk: OsDisk, path: str, start: int, end: int | None, *, show_secrets: bool) -> None:
    """Print the bytes between two batches, or after the last one, that belong to no batch.

    They may belong to a damaged secret. Without `show_secrets`, only zero bytes are printed, and the number of the
    other bytes. A long run of zeros is one line.
    """
    file = disk.open(path, writable=False)
    try:
        for piece in pieces_of(file, start, file.size() if end is None else end):
            if isinstance(piece, Zeros):
                echo(f"  {piece.position:>8}  {piece.size} zero bytes  damaged")
            elif show_secrets or not any(piece.data):
                _echo_spans(unknown_bytes(piece.data, piece.position, "damaged"))
            else:
                echo(f"  {piece.position:>8}  {REDACTED}  damaged, {len(piece.data)} bytes")
    finally:
        file.close()


def _echo_spans(spans: Iterator[Span]) -> None:
    for span in spans:
        echo(f"  {span.position:>8}  {span.data.hex()}  {span.field}")


def _batch_lines(
    batch: RecordBatch, path: str, wanted: Wanted, record_lines: RecordLines
) -> tuple[list[str], list[Damage]]:
    """The lines for a batch, and the damage if its records cannot be decoded."""
    if not wanted.show_records and not wanted.hex:
        return [json.dumps({"file": path, **_batch_facts(batch)}) if wanted.as_json else _batch_text(batch)], []
    lines, damages = None if wanted.hex else record_lines.quickly(batch, path), []
    if lines is None:
        entries = list(read_entries(batch, path, on_damage=wanted.on_damage))
        damages = [entry for entry in entries if isinstance(entry, Damage)]
        shown = wanted.records.of(batch, [entry for entry in entries if isinstance(entry, Entry)])
        if wanted.hex and (shown or not wanted.records.types):
            return [_batch_text(batch), *_hex_lines(batch, entries, wanted)], damages
        lines = [record_lines.line(batch, entry, path) for entry in shown]
    return lines if wanted.as_json or not lines else [_batch_text(batch), *lines], damages


def _batch_facts(batch: RecordBatch) -> dict[str, object]:
    return {
        "position": batch.position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "size_in_bytes": batch.size_bytes,
        "partition_leader_epoch": batch.epoch,
        "magic": batch.magic,
        "crc": batch.crc,
        "compression": batch.codec,
        "is_control": batch.is_control,
        "is_transactional": batch.is_transactional,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "count": batch.record_count,
    }


def _batch_text(batch: RecordBatch) -> str:
    count = "1 record" if batch.record_count == 1 else f"{batch.record_count} records"
    kind = f"{count}, control" if batch.is_control else count
    packed = f", {batch.codec}" if batch.is_compressed else ""
    return (
        f"offset {batch.base_offset}..{batch.last_offset} at byte {batch.position}, {batch.size_bytes} bytes, "
        f"epoch {batch.epoch}, {when_text(batch.max_timestamp)}, crc {batch.crc:#010x}, {kind}{packed}"
    )


def _hex_lines(batch: RecordBatch, entries: list[Entry | Damage], wanted: Wanted) -> Iterator[str]:
    hides = _hides_nothing if wanted.records.show_secrets else _hides(batch, entries)
    for span in annotate(batch):
        shown = REDACTED if hides(span.field) else span.data.hex()
        yield f"  {batch.position + span.position:>8}  {shown}  {span.field}"


_RECORD: Final = re.compile(r"record (\d+) (\w+)")
_UNREAD: Final = ("records, ", "not decoded: ", "behind the last record")
"""The prefixes of names of spans with undecoded records."""
_SECRET_TYPES: Final = frozenset(cls.__name__ for cls in MAY_HOLD_SECRETS)


def _hides_nothing(field: str) -> bool:
    return False


def _hides(batch: RecordBatch, entries: list[Entry | Damage]) -> Callable[[str], bool]:
    """A predicate for the hidden fields of a batch: those that hold secrets or might hold one."""
    secrets: set[str] = set()
    unread: set[str] = set()
    for index, entry in enumerate(entries):
        if isinstance(entry, Damage):
            unread.add(str(index))
        elif entry.record is not None:
            secrets |= {f"record {index} {entry.name} {name}" for name in secret_fields(entry.record)}
    any_hidden = bool(secrets or unread) or len(entries) != batch.record_count

    def hides(field: str) -> bool:
        if field in secrets or (any_hidden and field.startswith(_UNREAD)):
            return True
        record = _RECORD.match(field)
        return record is not None and record[1] in unread and record[2] in {"value", *_SECRET_TYPES}

    return hides


def _verify(disk: OsDisk, path: str, kind: FileKind, *, as_json: bool) -> bool:
    """Print the verdict on one file; returns whether it is sound."""
    return _print_verdict(path, kind, verify_file(disk, path, kind), as_json=as_json)


def _print_verdict(path: str, kind: str, verdict: Verdict, *, as_json: bool) -> bool:
    """Print the damage of a file and one line about the file; returns whether the file is sound."""
    for damage in verdict.damages:
        _report(damage, as_json)
    ok = not verdict.damages
    if as_json:
        facts = {name: getattr(verdict, name) for name in ("batches", "records", "first_offset", "end_offset")}
        echo(json.dumps({"file": path, "kind": kind, "ok": ok, **facts}))
        return ok
    words = "ok" if ok else f"{len(verdict.damages)} damaged"
    if verdict.batches:
        words += f", {verdict.batches} batches, {verdict.records} records"
        words += f", offsets {verdict.first_offset}..{(verdict.end_offset or 0) - 1}"
    echo(f"{path}: {kind}: {words}")
    return ok


def _report(damage: Damage, as_json: bool, hint: str | None = None) -> bool:
    """Report damage. Returns whether the file counts as sound, as does the growing log of a running node."""
    if as_json:
        place = {"position": damage.position, "offset": damage.offset, "unfinished": damage.unfinished}
        echo(json.dumps({"file": damage.where, "damage": damage.what, "expected": damage.expected, **place}))
    echo(f"kraft: {'warning' if damage.unfinished else 'error'}: {damage}", err=True)
    if damage.what == _NOT_OURS:
        hint = WHAT_TO_NAME
    if damage.unfinished:
        hint = "A running node may be writing this batch; a node that starts on this file cuts it off."
    if hint:
        echo(f"hint: {hint}", err=True)
    return damage.unfinished
