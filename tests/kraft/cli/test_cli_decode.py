"""`kraft decode` on everything that Kafka encoded: JSON, the same bytes again, and errors with a position."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kraft.cli.files.decode import answer, decode_command
from support.kafka_json import with_sizes
from support.real_data import json_lines
from support.serde_golden import FAMILIES, golden


def ask(**question: Any) -> dict[str, Any]:
    return answer(json.dumps(question), show_secrets=True)


def decode(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(decode_command, list(words), input=stdin)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_vector(family: str) -> None:
    kind = "record" if family.endswith("records") else "message"
    for line in golden(family):
        found = ask(kind=kind, name=line["name"], version=line["version"], hex=line["hex"])
        assert found == {"ok": True, "json": line["json"], "hex": line["hex"]}, (line["name"], line["version"])


def test_every_record_value() -> None:
    for line in golden("records"):
        value = line["frame"] + line["hex"]
        expected = {"ok": True, "json": line["json"], "hex": value, "name": line["name"], "version": line["version"]}
        assert ask(kind="frame", hex=value) == expected


def test_every_batch() -> None:
    lines = json_lines("batches", "batches.jsonl")
    assert len(lines) == 150
    for line in lines:
        found = ask(kind="batch", hex=line["hex"])
        assert found["json"] == line["batches"][0]
        if found["json"]["compression"] == "none":
            assert found["hex"] == line["hex"]


def test_damaged_messages() -> None:
    """Bytes that Kafka refuses are refused with a place; those that it reads are read, and the rest is named."""
    for line in golden("invalid_messages"):
        found = ask(kind="message", name=line["name"], version=line["version"], hex=line["hex"])
        assert found["ok"] == line["ok"], line
        if line["ok"]:
            assert found.get("bytes_left", 0) == line["bytes_left"]
            assert with_sizes(found["json"]) == line["json"]
        else:
            assert found["error"] in {"DecodeError", "UnsupportedVersion"}
            assert 0 <= found["position"] <= len(line["hex"]) // 2
            assert found["field"] in found["detail"]
            assert found["detail"]


def test_damaged_record_values() -> None:
    """The default stops where a controller of Kafka stops."""
    for line in golden("record_frames"):
        found = ask(kind="frame", hex=line["hex"])
        assert found["ok"] == line["ok"], line
        if line["ok"]:
            assert (found["json"], found["name"], found["version"]) == (line["json"], line["name"], line["version"])
        else:
            assert found["position"] is not None


def test_damaged_batches() -> None:
    refused = 0
    for line in json_lines("batches", "invalid_batches.jsonl"):
        found = ask(kind="batch", hex=line["hex"])
        if not line["ok"]:
            assert found["ok"] is False, line["damage"]
        if not found["ok"]:
            assert found["error"] in {"CorruptBatch", "IncompleteBatch", "UnsupportedVersion", "DecodeError"}
            assert found["position"] is not None, line["damage"]
            refused += 1
    assert refused >= 296


def test_an_unknown_record_type_survives_if_asked() -> None:
    strict = answer(json.dumps({"kind": "frame", "hex": "016300"}))
    assert (strict["ok"], strict["error"], strict["position"]) == (False, "UnsupportedVersion", 1)
    found = answer(json.dumps({"kind": "frame", "hex": "016300"}), tolerant=True)
    assert found == {"ok": True, "json": {"hex": "016300"}, "hex": "016300", "name": "record type 99", "version": 0}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("", "not a line of JSON"),
        ("[" * 100_000, "not a line of JSON"),
        ("[]", "must be a JSON object"),
        ('{"kind": "thing"}', "kind is 'thing'"),
        ('{"kind": "frame"}', "hex is missing"),
        ('{"kind": "frame", "hex": "0"}', "not hexadecimal"),
        ('{"kind": "message", "hex": "00"}', "needs a name and a version"),
        ('{"kind": "message", "name": "VoteRequest", "version": "2", "hex": "00"}', "needs a name and a version"),
        ('{"kind": "message", "name": "VoteReqest", "version": 2, "hex": "00"}', "no message or record is called"),
        ('{"kind": "message", "name": "VoteRequest", "version": -1, "hex": "00"}', "has no version -1"),
    ],
)
def test_invalid_lines_are_answered_with_an_error_each(line: str, what: str) -> None:
    """One bad line must not end a run over a million good ones."""
    found = answer(line)
    assert found["ok"] is False
    assert what in found["detail"]


def test_tagged_fields_in_any_order_are_read_and_not_written() -> None:
    """Kafka reads unknown tagged fields in any order and refuses to write them so."""
    assert ask(kind="record", name="TopicRecord", version=0, hex="01" + "00" * 16 + "02" + "0501ff" + "0401ff") == {
        "ok": True,
        "json": {"name": "", "topicId": "AAAAAAAAAAAAAAAAAAAAAA"},
        "hex": None,
    }


def test_lines_in_lines_out() -> None:
    result = decode("--batch", stdin='{"kind": "frame", "hex": "01140000"}\nnonsense\n')
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["name"], first["json"], second["ok"], result.exit_code) == ("NoOpRecord", {}, False, 0)


def test_a_single_message_is_decoded_from_an_argument() -> None:
    printed = json.loads(decode("TopicRecord", "0", "04666f6fca2cf8e1f34a4abca66e2f2a5d1d1e1f00").stdout)
    assert printed == {"name": "foo", "topicId": "yiz44fNKSrymbi8qXR0eHw"}
    assert json.loads(decode("frame", "-", stdin="01 14 00 00\n").stdout)["type"] == "NoOpRecord"
