"""Text chosen by others, such as names, values and hosts, is only shown by a terminal, and controls nothing there."""

from __future__ import annotations

import json
import logging
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from kraft.cli.run.log_output import log_to_stderr
from kraft.node.logging import NodeLog
from kraft.quorum.effects import PeerFault
from metadata_log.printable import printable
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from metadata_log.serde import Message
from metadata_log.serde.fields import schema_of
from metadata_log.types import Uuid
from support.kraft.command_line import run

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
FORGED = "x\nkraft: error: forged\r\u2028line"
TURNED = "\u202ecod.exe\u2066\u200b\x9b31m\x7f"
EVIL = f"{ESCAPE}{FORGED}{TURNED}\U000e0041é"
TOPIC_ID = Uuid.parse("AAAAAAAAAAAAAAAAAAAAZA")
RECORDS: tuple[Message, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name=f"feature{EVIL}", feature_level=1),
    RegisterBrokerRecord(
        broker_id=1,
        broker_epoch=2,
        incarnation_id=TOPIC_ID,
        rack=EVIL,
        fenced=False,
        end_points=(BrokerEndpoint(name=f"L{EVIL}", host=EVIL, port=1, security_protocol=0),),
        log_dirs=(TOPIC_ID,),
    ),
    TopicRecord(name=f"t{EVIL}", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1, directories=(TOPIC_ID,), leader_epoch=0
    ),
    ConfigRecord(resource_type=2, resource_name=f"t{EVIL}", name="cleanup.policy", value=EVIL),
    ConfigRecord(resource_type=2, resource_name=f"t{EVIL}", name=f"key{EVIL}", value=EVIL),
    ClientQuotaRecord(entity=(EntityData(entity_type="user", entity_name=EVIL),), key=f"quota{EVIL}", value=1.0),
    AccessControlEntryRecord(
        id=TOPIC_ID,
        resource_type=2,
        resource_name=EVIL,
        pattern_type=3,
        principal=f"User:{EVIL}",
        host=EVIL,
        operation=3,
        permission_type=3,
    ),
    UserScramCredentialRecord(
        name=EVIL, mechanism=1, salt=b"salt", stored_key=b"s" * 32, server_key=b"t" * 32, iterations=4096
    ),
    DelegationTokenRecord(owner=f"User:{EVIL}", requester=f"User:{EVIL}", token_id=EVIL, renewers=(f"User:{EVIL}",)),
)
LAST = len(RECORDS) - 1
TEXTS = {
    "replay": ["replay", "DIR", "--show-secrets"],
    "replay all": ["replay", "DIR", "--all", "--show-secrets"],
    "history": ["history", "DIR", "--show-secrets"],
    "history broker": ["history", "DIR", "--broker", "1"],
    "diff": ["diff", "DIR@0", f"@{LAST}", "--show-secrets"],
    "shell tree": ["shell", "DIR", "--show-secrets", "tree", "/"],
    "shell ls": ["shell", "DIR", "ls", "/image/topics/byName"],
    "shell find": ["shell", "DIR", "find", "/"],
    "shell cat": ["shell", "DIR", "--show-secrets", "cat", "/image/cluster/brokers/1"],
    "dump": ["dump", "DIR"],
    "dump records": ["dump", "--records", "--show-secrets", "DIR"],
    "dump hex": ["dump", "--hex", "--show-secrets", "DIR"],
    "dump verify": ["dump", "--verify", "DIR/00000000000000000000.log"],
    "whatif": ["whatif", "DIR", "--fail", "1"],
    "check": ["check", "DIR"],
    "archive": ["archive", "--from", "DIR", "--to", "OUT", "--verify"],
}
JSONS = {
    "replay": ["replay", "DIR", "--json", "--show-secrets"],
    "history": ["history", "DIR", "--json", "--show-secrets"],
    "diff": ["diff", "DIR@0", f"@{LAST}", "--json", "--show-secrets"],
    "dump": ["dump", "--records", "--json", "--show-secrets", "DIR"],
    "whatif": ["whatif", "DIR", "--fail", "1", "--json"],
    "check": ["check", "DIR", "--json"],
    "archive": ["archive", "--from", "DIR", "--to", "OUT", "--json"],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log in a directory with a hostile name, too."""
    path = tmp_path / f"log{ESCAPE}\n\u202e".replace("/", "")
    path.mkdir()
    batches = (
        build_batch(offset, 1, 1000 * (offset + 1), [encode_record(record, schema_of(type(record)).versions.highest)])
        for offset, record in enumerate(RECORDS)
    )
    (path / f"{0:020}.log").write_bytes(b"".join(batches))
    return path


def words_of(words: list[str], directory: Path) -> list[str]:
    return [word.replace("DIR", str(directory)).replace("OUT", f"{directory}-archive") for word in words]


def unseen(text: str) -> list[str]:
    """The characters in a text that a terminal obeys rather than shows, apart from the ends of lines."""
    return [each for each in text if each != "\n" and unicodedata.category(each) in {"Cc", "Cf", "Zl", "Zp", "Cs"}]


@pytest.mark.parametrize("words", TEXTS.values(), ids=list(TEXTS))
def test_terminal_output_escapes_control_characters(
    capsys: pytest.CaptureFixture[str], directory: Path, words: list[str]
) -> None:
    done = run(capsys, *words_of(words, directory))
    assert done.code == 0, done.err
    assert unseen(done.out + done.err) == []
    assert "\\u202e" in done.out + done.err or words[0] == "check"
    assert not any(line.startswith("kraft: error: forged") for line in (done.out + done.err).splitlines())


@pytest.mark.parametrize("words", JSONS.values(), ids=list(JSONS))
def test_json_output_escapes_control_characters_and_keeps_the_text(
    capsys: pytest.CaptureFixture[str], directory: Path, words: list[str]
) -> None:
    done = run(capsys, *words_of(words, directory))
    assert done.code == 0, done.err
    assert unseen(done.out + done.err) == []
    strings: list[str] = []
    for line in done.out.splitlines():
        collect(json.loads(line), strings)
    wanted = str(directory) if words[0] in {"whatif", "check", "archive"} else EVIL
    assert any(wanted in text for text in strings)


def collect(value: Any, strings: list[str]) -> None:
    if isinstance(value, str):
        strings.append(value)
    elif isinstance(value, dict):
        for name, one in value.items():
            strings.append(name)
            collect(one, strings)
    elif isinstance(value, list):
        for one in value:
            collect(one, strings)


@pytest.mark.parametrize("words", [["history", "DIR"], ["diff", "DIR@0", f"@{LAST}"]], ids=["history", "diff"])
def test_html_pages_escape_control_characters(
    capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path, words: list[str]
) -> None:
    out = tmp_path / "page.html"
    assert run(capsys, *words_of(words, directory), "--html", str(out)).code == 0
    page = out.read_text()
    assert unseen(page) == []
    assert "\\u202e" in page


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    for words in (["history", str(directory), "--topic", EVIL], ["shell", str(directory), "cat", f"/{EVIL}"]):
        done = run(capsys, *words)
        assert done.code == 1
        assert unseen(done.err) == []
        assert [line.partition(":")[0] for line in done.err.splitlines()] in (["kraft"], ["kraft", "hint"])


# -------------------------------------------------------------------------------------------------------- log lines


def test_log_lines_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger's principal, host, words and topic stand in the lines of a node."""
    log = NodeLog(1, lambda: 1000)
    with caplog.at_level(logging.INFO, "kraft.node"):
        log.write("advertised", {"host": EVIL})
        log.warn("dropped", {"peer": EVIL, "why": EVIL})  # noqa: PLE1205
        log.trace(PeerFault(7, EVIL))
    assert len(caplog.messages) == 3
    for message in caplog.messages:
        assert unseen(message) == []
        assert "\n" not in message
        assert "\\u202e" in message


def test_log_records_of_a_serving_node_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever logs it: the transport tells of strangers, too."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        log_to_stderr("info")
        logging.getLogger("transport").warning("a frame from %s was refused", EVIL)
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
    [line] = capsys.readouterr().err.splitlines()
    assert unseen(line) == []
    assert "\\u202e" in line


# -------------------------------------------------------------------------------------------------------- the escape


def test_printable_escapes_each_unprintable_character_of_unicode() -> None:
    """No character is shown raw that Unicode calls a control, a format, a separator of lines or a surrogate."""
    assert [hex(code) for code in range(0x110000) if unseen(printable(chr(code)))] == []


# ------------------------------------------------------------------------------------------------- files with secrets


def test_reports_with_secrets_are_private(capsys: pytest.CaptureFixture[str], directory: Path, tmp_path: Path) -> None:
    secret, plain, table = tmp_path / "secret.html", tmp_path / "plain.html", tmp_path / "rows"
    for out, more in ((secret, ["--show-secrets"]), (plain, [])):
        assert run(capsys, "history", str(directory), "--html", str(out), *more).code == 0
    assert run(capsys, "history", str(directory), "--parquet", str(table), "--show-secrets").code == 0
    assert secret.stat().st_mode & 0o777 == 0o600
    assert plain.stat().st_mode & 0o777 == 0o644
    assert table.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in table.iterdir()} == {0o600}
    assert run(capsys, "diff", f"{directory}@0", "@1", "--show-secrets", "--html", str(tmp_path / "d.html")).code == 0
    assert (tmp_path / "d.html").stat().st_mode & 0o777 == 0o600
