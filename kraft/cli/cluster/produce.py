"""`kraft produce`: writes lines to a topic (Kafka: `kafka-console-producer`)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, Final

import click
import trio
from msgspec import Struct

from kraft.cli.cluster.brokers_of import (
    Brokers,
    Interrupted,
    command_config_option,
    servers_option,
    timeout_option,
)
from kraft.cli.cluster.record_lines import BadLine, header_of, record_of_json, record_of_line
from kraft.cli.progress import LongJob
from kraft.cli.text import LINES_AT_ONCE, count, echo, joined
from kraft.client import Client, ClientError, Compression, Delivered, Delivery, Producer, ProducerSettings
from kraft.client.state.batches import NewRecord
from kraft.config import UsageError
from kraft.config.errors import INTERRUPTED, CommandFailed
from metadata_log.times import json_time
from transport.causes import one_cause

ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
CHUNK_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 64 << 20
STANDARD_INPUT: Final = "-"


@click.command("produce", short_help="Write lines to a topic.")
@click.argument("topic")
@click.argument(
    "file", required=False, default=STANDARD_INPUT, type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@servers_option
@command_config_option
@click.option("--key", metavar="TEXT", help="The key of every record.")
@click.option("--key-separator", metavar="TEXT", help=r"A line is key, this text, value: ':' or '\t'.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record. May be repeated."
)
@click.option(
    "--partition", type=click.IntRange(0), metavar="N", help="Write to this partition; else the key selects it."
)
@click.option(
    "--acks", type=click.Choice(list(ACKS)), default="all", show_default=True, help="The replicas to wait for."
)
@click.option(
    "--compression",
    type=click.Choice([one.name.lower() for one in Compression]),
    default="none",
    show_default=True,
    help="The codec of the batches.",
)
@click.option(
    "--no-idempotence", is_flag=True, help="Write without a producer id: a repetition may duplicate a record."
)
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Read JSON lines, and print one for each acknowledged record.")
def produce_command(
    *,
    topic: str,
    file: str,
    servers: str,
    command_config: str | None,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    compression: str,
    no_idempotence: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Write each line of FILE, or of standard input, to TOPIC as one record. The order of lines is the order of records
    of a partition, also when leaders fail; with acks=all each record is written once.

    With --json a line is an object: {"key": "k", "value": "v", "headers": {"h": "1"}, "partition": 0, "timestamp":
    "2026-11-24T00:00:00Z"}. Each field may be missing, and {"base64": "…"} stands for bytes that are no text. The
    output of `kraft consume --json` is such input.

    The first refused record ends the command with exit code 1. Ctrl-C ends the reading; records that were read are
    still written.

    \b
    Example:
        kraft produce orders --bootstrap-server 127.0.0.1:9092 < orders.txt
        kraft produce orders orders.txt --key-separator : --compression zstd --bootstrap-server 127.0.0.1:9092
        kraft produce orders orders.json --json --bootstrap-server 127.0.0.1:9092
    """
    if key is not None and key_separator is not None:
        raise UsageError("give either --key or --key-separator", where="--key-separator")
    if as_json and key_separator is not None:
        raise UsageError("a JSON line names its key itself", where="--key-separator", hint='Write {"key": …}.')
    settings = ProducerSettings(
        acks=ACKS[acks],
        compression=Compression[compression.upper()],
        is_idempotent=ACKS[acks] == -1 and not no_idempotence,
        timeout_ms=int(timeout * 1000),
    )
    try:
        every = tuple(map(header_of, headers))
    except ValueError as bad:
        raise UsageError(str(bad), where="--header", hint="For example --header source=import.") from bad
    fixed = None if key is None else key.encode()
    if as_json:
        parse: Callable[[bytes], NewRecord] = partial(record_of_json, key=fixed, headers=every, partition=partition)
    else:
        separator = None if key_separator is None else key_separator.replace(r"\t", "\t").encode()
        parse = partial(record_of_line, separator=separator, key=fixed, headers=every, partition=partition)
    brokers = Brokers.of(servers, command_config)
    job = _Job(topic=topic, file=file, brokers=brokers, settings=settings, parse=parse, as_json=as_json)
    code = brokers.run(job.run)
    if code:
        raise CommandFailed(exit_code=code)


class _Job(Struct, frozen=True):
    """One run of the command."""

    topic: str
    file: str
    brokers: Brokers
    settings: ProducerSettings
    parse: Callable[[bytes], NewRecord]
    as_json: bool

    async def run(self, client: Client, scope: trio.CancelScope, interrupted: Interrupted) -> int:
        """Write all lines; returns the exit code."""
        began = time.monotonic()
        outcomes = _Outcomes(self.topic, as_json=self.as_json)
        is_stdin = self.file == STANDARD_INPUT
        name = "standard input" if is_stdin else self.file
        try:
            with (
                _opened(self.file) as source,
                LongJob(
                    f"Writing to {self.topic}", None if is_stdin else os.fstat(source.fileno()).st_size
                ) as progress,
            ):
                async with client.producer(self.topic, self.settings) as producer:
                    with scope, one_cause():
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(producer.wait_for_failure)
                            await self._read(source, name, producer, outcomes, progress)
                            nursery.cancel_scope.cancel()
                    await producer.flush()
                    if self.settings.acks == 0:
                        await producer.confirm_reading()
                    outcomes.take()
        except ClientError as failed:
            outcomes.take()
            failed.hint = _with_count(self.brokers.hint_for(failed), outcomes)
            raise
        finally:
            outcomes.show()
        if not self.as_json:
            echo(outcomes.summary(time.monotonic() - began, is_acknowledged=self.settings.acks != 0))
        return INTERRUPTED if interrupted.is_set else 0

    async def _read(
        self, source: BinaryIO, name: str, producer: Producer, outcomes: _Outcomes, progress: LongJob
    ) -> None:
        number = 0
        async for line in _lines(source, name, progress):
            number += 1
            if self.as_json and not line.strip():
                continue
            try:
                record = self.parse(line)
            except BadLine as bad:
                hint = _with_count("See `kraft produce --help` for the forms of a line.", outcomes)
                raise CommandFailed(f"{bad} ({name}:{number})", hint=hint) from bad
            outcomes.add(
                await producer.send(
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
            )
            outcomes.take()


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with open(file, "rb") as source:
        yield source


def _with_count(hint: str | None, outcomes: _Outcomes) -> str:
    done = f"{count(outcomes.done, 'record was', 'records were')} acknowledged before."
    return f"{hint} {done}" if hint else done


class _Outcomes:
    """The outcomes of the records, in the order of the lines."""

    def __init__(self, topic: str, *, as_json: bool) -> None:
        self.done = 0
        """How many records are acknowledged."""
        self._topic = topic
        self._as_json = as_json
        self._pending: deque[Delivery] = deque()
        self._lines: list[str] = []
        self._partitions: dict[int, tuple[int, int]] = {}

    def add(self, delivery: Delivery) -> None:
        """Note a record on its way."""
        self._pending.append(delivery)

    def take(self) -> None:
        """Take the outcomes so far; raises the `ClientError` of the first record that failed."""
        pending = self._pending
        while pending and pending[0].outcome is not None:
            outcome = pending.popleft().outcome
            if not isinstance(outcome, Delivered):
                assert outcome is not None
                pending.clear()
                raise outcome.error.copy()
            self.done += 1
            written, _ = self._partitions.get(outcome.partition, (0, 0))
            self._partitions[outcome.partition] = written + 1, outcome.offset + 1
            if self._as_json:
                self._lines.append(self._line(outcome))
                if len(self._lines) >= LINES_AT_ONCE:
                    self.show()

    def show(self) -> None:
        """Print the lines that wait."""
        if self._lines:
            click.echo(joined(self._lines))
            self._lines.clear()

    def _line(self, done: Delivered) -> str:
        facts = {
            "topic": self._topic,
            "partition": done.partition,
            "offset": done.offset if done.offset >= 0 else None,
            "timestamp": json_time(done.timestamp_ms),
        }
        return json.dumps(facts, ensure_ascii=False)

    def summary(self, seconds: float, *, is_acknowledged: bool) -> str:
        """A sentence about the whole run."""
        if not self.done:
            return f"No record was written to {self._topic}."
        ends = ", ".join(
            f"{number}: {written:,}" + (f" up to offset {end - 1:,}" if is_acknowledged else "")
            for number, (written, end) in sorted(self._partitions.items())
        )
        verb = "written to" if is_acknowledged else "sent, without acknowledgement, to"
        return f"{count(self.done, 'record')} {verb} {self._topic} in {seconds:.2f} s (by partition: {ends})"


async def _lines(source: BinaryIO, name: str, progress: LongJob) -> AsyncIterator[bytes]:
    """The lines without their ends; the last one may lack its end. A thread reads, so that Ctrl-C ends the wait."""
    rest = b""
    read = partial(os.read, source.fileno(), CHUNK_BYTES)
    while chunk := await trio.to_thread.run_sync(read, abandon_on_cancel=True):
        progress.advance(len(chunk))
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > MAX_LINE_BYTES:
            raise CommandFailed(f"a line has more than {MAX_LINE_BYTES:,} bytes ({name})")
    if rest:
        yield rest.removesuffix(b"\r")
