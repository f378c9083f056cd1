"""A mistyped command gets the right one as a hint; examples of help can be copied; a reader may close the output."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from threading import Timer

import click
import pytest

from kraft.cli.kafka_tools import translate_command
from kraft.cli.main import kraft
from support.kraft.cli_serving import COMMANDS, formatted, serving
from support.kraft.command_line import Done, run
from support.real_data import unpack

WIDTHS = (50, 64, 80, 110)
PATIENCE_SECONDS = 60
"""A command that has not ended after so long is ended, which fails its test."""
AT = "--bootstrap-controller 127.0.0.1:1"

# ------------------------------------------------------------------------------------------------------ slips and hints


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("topis", "Did you mean `kraft topics` or `kraft top`? See `kraft --help`."),
        ("hist", "Did you mean `kraft history`? See `kraft --help`."),
        ("quorum statu", "Did you mean `kraft quorum status`? See `kraft quorum --help`."),
        ("dump --recods x", "Did you mean `--records`? See `kraft dump --help`."),
        ("serve --overide x", "Did you mean `--override`? See `kraft serve --help`."),
        ("xyzzy", "See `kraft --help`."),
        ("dump --xyzzy x", "See `kraft dump --help`."),
    ],
)
def test_a_misspelled_word_gets_the_nearest_name_as_hint(
    capsys: pytest.CaptureFixture[str], typed: str, hint: str
) -> None:
    done = run(capsys, *typed.split())
    assert done.code == 2
    error, said = done.err.splitlines()
    assert said == f"hint: {hint}"
    assert "did you mean" not in error.lower(), "only once"


HABITS = {
    f"topics --list {AT}": f"topics list {AT}",
    f"topics {AT} --list": f"topics list {AT}",
    f"topics {AT} list": f"topics list {AT}",
    f"topics --topic foo {AT}": f"topics describe foo {AT}",
    f"topics --describe --topic foo {AT}": f"topics describe foo {AT}",
    f"topics describe --topic=foo {AT}": f"topics describe foo {AT}",
    f"topics --describe --under-replicated-partitions {AT}": f"topics describe --only under-replicated {AT}",
    f"topics --create --topic foo --partitions 3 --replication-factor=2 --config a=b {AT}": (
        f"topics create foo --partitions 3 --replication-factor 2 --config a=b {AT}"
    ),
    f"topics --create --topic foo --replica-assignment 1:2 {AT}": f"topics create foo --assignment 1:2 {AT}",
    f"topics --alter --topic foo --partitions 6 {AT}": f"topics grow foo --partitions 6 {AT}",
    f"topics --delete --topic foo --if-exists {AT}": f"topics delete foo --if-exists {AT}",
    f"kafka-topics.sh --list {AT}": f"topics list {AT}",
    f"quorum describe --status {AT}": f"quorum status {AT}",
    f"quorum {AT} describe --replication --human-readable": f"quorum replication {AT} --human-readable",
    f"metadata-quorum {AT} describe --status": f"quorum status {AT}",
    f"quorum {AT} remove-controller --controller-id 3 --controller-directory-id pg3mKBxfeN4_YYsakj8Duw": (
        f"quorum remove 3 --directory-id pg3mKBxfeN4_YYsakj8Duw {AT}"
    ),
    f"configs --describe --entity-type topics --entity-name foo --all {AT}": f"configs describe topic foo --all {AT}",
    f"configs --describe --topic foo {AT}": f"configs describe topic foo {AT}",
    f"configs --alter --topic foo --add-config a=1,b=[x,y] {AT}": f"configs set topic foo a=1 b=x,y {AT}",
    f"configs --describe --broker-logger 1 {AT}": f"configs describe broker-logger 1 {AT}",
    f"configs --alter --entity-type broker-loggers --entity-name 1 --add-config root=WARN {AT}": (
        f"configs set broker-logger 1 root=WARN {AT}"
    ),
    f"configs --alter --entity-type brokers --entity-default --delete-config a,b {AT}": (
        f"configs delete broker default a b {AT}"
    ),
    f"configs --alter --entity-type users --entity-name al --add-config producer_byte_rate=1 {AT}": (
        f"configs set quota user=al producer_byte_rate=1 {AT}"
    ),
    f"acls --list --topic foo {AT}": f"acls list --topic foo {AT}",
    f"acls --add --allow-principal User:a --operation Read --topic foo {AT}": (
        f"acls add --principal User:a --operation read --topic foo {AT}"
    ),
    f"acls --add --deny-principal User:a --deny-host h --operation All --topic f {AT}": (
        f"acls add --deny --principal User:a --host h --operation all --topic f {AT}"
    ),
    f"acls --remove --resource-pattern-type prefixed --topic foo --force {AT}": (
        f"acls remove --pattern prefixed --topic foo {AT}"
    ),
    f"elect --election-type PREFERRED --all-topic-partitions {AT}": f"elect preferred --all {AT}",
    f"elect --election-type unclean --topic foo --partition 3 {AT}": f"elect unclean --topic-partition foo:3 {AT}",
    f"reassign --execute --reassignment-json-file f.json {AT}": f"reassign start f.json {AT}",
    f"reassign --generate --topics-to-move-json-file f.json --broker-list 1,2 {AT}": (
        f"reassign plan --topic TOPIC --to 1,2 {AT}"
    ),
    f"reassign --cancel --reassignment-json-file f.json {AT}": f"reassign cancel f.json {AT}",
    f"features {AT} upgrade --metadata 4.3-IV0": f"features upgrade --feature metadata.version=4.3-IV0 {AT}",
    f"features {AT} disable --feature share.version": f"features downgrade --feature share.version=0 {AT}",
    f"brokers --list {AT}": f"brokers list {AT}",
    "kafka-console-producer.sh --bootstrap-server h:1 --topic t": "produce t --bootstrap-server h:1",
    "kafka-console-consumer.sh --topic t --from-beginning --bootstrap-server h:1": (
        "consume t --from beginning --bootstrap-server h:1"
    ),
    "consume --topic t --partition 0 --offset earliest --bootstrap-server h:1": (
        "consume t --from beginning --partition 0 --bootstrap-server h:1"
    ),
    "dump --cluster-metadata-decoder --files a.log,b.log": "dump --records a.log b.log",
    "dump --offsets-decoder --files a.log": "dump --records --offsets-decoder a.log",
    "dump --print-data-log --transaction-log-decoder --files a.log": "dump --records --transaction-log-decoder a.log",
    "dump --share-group-state-decoder --files a.log": "dump --records --share-group-state-decoder a.log",
    "dump --remote-log-metadata-decoder --files a.log": "dump --records --remote-log-metadata-decoder a.log",
    "shell --directory d": "shell d",
    "storage format -c f -t x": "format -c f -t x",
    "storage random-uuid": "random-uuid",
    "server-start f": "serve f",
}
"""What is typed out of habit, and what is hinted at."""


@pytest.mark.parametrize(("typed", "ours"), HABITS.items())
def test_a_command_line_of_kafkas_tools_gets_our_command_as_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, ours: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(capsys, *shlex.split(typed))
    assert done.code == 2
    assert done.err.splitlines()[1:] == [f"hint: Type `kraft {ours}`."]
    assert is_understood(ours), f"kraft {ours}"


def is_understood(line: str) -> bool:
    """Whether the command line is one of ours, down to its last option; nothing is run. Files need not be there."""
    command: click.Command = kraft
    words, context = shlex.split(line), click.Context(kraft)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    try:
        command.make_context(command.name, words)
    except click.BadParameter as bad:
        return "does not exist" in bad.message
    return True


WITH_SERVERS = (
    *("topics list", "topics create t", "topics delete t", "topics describe", "topics grow t --partitions 2"),
    *("quorum status", "quorum replication", "configs describe", "configs set topic t a=b"),
    *("brokers list", "acls list", "reassign list", "elect preferred --all", "features describe", "users list"),
    *("watch", "top --once", "doctor examine"),
)


@pytest.mark.parametrize("command", WITH_SERVERS)
def test_a_command_takes_the_address_of_a_broker(capsys: pytest.CaptureFixture[str], command: str) -> None:
    more = () if command.startswith("doctor") else ("--timeout", "0.2")
    done = run(capsys, *command.split(), "--bootstrap-server", "127.0.0.1:1", *more)
    assert done.code == 1, done.err
    assert "the brokers name no controllers: 127.0.0.1:1: Connection refused" in done.err
    assert done.err.endswith("hint: Asked: 127.0.0.1:1. Does a broker run there?\n")
    both = run(capsys, *command.split(), "--bootstrap-server", "h:1", "--bootstrap-controller", "h:1")
    assert "give either --bootstrap-controller or --bootstrap-server" in both.err


@pytest.mark.parametrize(
    "ours",
    [line for line in sorted(set(HABITS.values())) if "TOPIC" not in line]
    + ["", "--help", "topics describe foo --xyzzy", "elect preferred --topic t --xyzzy", "reassign list --topic x"],
)
def test_our_commands_are_not_taken_for_those_of_kafkas_tools(ours: str) -> None:
    assert translate_command(shlex.split(ours)) is None


# ----------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_examples_can_be_copied_from_help_of_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Without what a shell takes for the continuation of a line, each is the command that was meant, word by word."""
    monkeypatch.setitem(kraft.context_settings, "max_content_width", 1000)
    monkeypatch.setenv("COLUMNS", "1000")
    meant = examples(run(capsys, *command.split(), "--help").out)
    assert meant
    assert all(line.startswith(f"kraft {command}".strip()) and "\\" not in line for line in meant)
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        shown = run(capsys, *command.split(), "--help").out
        assert examples(shown) == meant
        for line in shown.partition("Example:")[2].partition("\n\n")[0].splitlines():
            assert len(line) <= width or len(line.removesuffix(" \\").split()) <= 2, line


def examples(text: str) -> list[str]:
    """The commands behind `Example:`, as a shell reads them."""
    behind = text.partition("Example:")[2].partition("\n\n")[0]
    lines = re.sub(r" \\\n +", " ", behind).splitlines()
    return [line.strip() for line in lines if line.strip()]


# -------------------------------------------------------------------------------------------------------- closed output


def head(*words: str, lines: int = 1, stdin: bytes = b"") -> Done:
    """Run a command, and close its output after some lines, before the command has ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kraft", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    patience = Timer(PATIENCE_SECONDS, process.kill)
    patience.start()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    read = b"".join(process.stdout.readline() for _ in range(lines))
    process.stdout.close()
    try:
        process.stdin.write(stdin)
        process.stdin.close()
    except BrokenPipeError:
        pass
    said = process.stderr.read().decode()
    process.stderr.close()
    patience.cancel()
    return Done(process.wait(), read.decode(), said)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(unpack("static3", "nodes/c1", tmp_path_factory.mktemp("node")))


@pytest.mark.parametrize(
    "words",
    [
        ["dump", "--records", "--noop"],
        ["dump", "--records", "--noop", "--json"],
        ["dump", "--hex"],
        ["history"],
        ["history", "--json"],
        ["replay", "--all"],
        ["replay", "--json"],
        ["shell", "find", "/image"],
        ["check", "--json"],
    ],
)
def test_directory_commands_end_quietly_on_a_closed_pipe(node: str, words: list[str]) -> None:
    command = [*words[:1], node, *words[1:]]
    whole = subprocess.run([sys.executable, "-m", "kraft", *command], capture_output=True, text=True, check=False)
    for lines in (0, 1):
        done = head(*command, lines=lines)
        assert done.err == whole.stderr if whole.stderr == "" else "rror" not in done.err.replace(whole.stderr, "")
        assert done.code == 0
        assert whole.stdout.startswith(done.out)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["dump", "--help"], ["random-uuid"], ["sim", "mutants"]])
def test_short_outputs_end_quietly_on_a_closed_pipe(words: list[str]) -> None:
    assert head(*words, lines=0) == Done(0, "", "")


def test_streaming_commands_end_quietly_on_a_closed_pipe() -> None:
    done = head("sim", "run", "--seeds", "0..9", "--jobs", "1", "--members", "core", "--chaos-ms", "500", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["seed"] == 0
    question = b'{"kind": "message", "name": "VoteRequest", "version": 0, "hex": ""}\n'
    assert head("decode", "--batch", lines=0, stdin=question * 10_000)[::2] == (0, "")


def test_cluster_commands_end_quietly_on_a_closed_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = formatted(capsys, tmp_path, controller_quorum_election_timeout_ms="100")
    with serving(config) as node:
        address = node.said("listening").split("on=")[1].strip()
        node.said("to=Leader")
        for words in (["watch", "--since", "beginning", "--noop"], ["quorum", "status", "--watch"]):
            done = head(*words, "--bootstrap-controller", address, lines=2)
            assert (done.code, done.err) == (0, "")
            assert len(done.out.splitlines()) == 2


def test_output_to_a_full_device_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kraft", "random-uuid"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "kraft: error: No space left on device")


def test_a_closed_standard_output_is_no_error() -> None:
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m kraft random-uuid >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
