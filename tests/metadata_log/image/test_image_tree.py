"""The tree of an image as Kafka's shell shows it, with lines and numbers as Java sees them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metadata_log import java_text
from metadata_log.disk import OsDisk
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.image.java_text import double_text, time_text
from metadata_log.image.tree import Directory, Leaf, Provenance, absolute, find_lines, image_tree, matches, tree_lines
from metadata_log.reading.damage import Damage
from metadata_log.reading.entries import read_entries
from metadata_log.reading.reader import read_file
from metadata_log.records.redact import REDACTED
from metadata_log.types import OffsetAndEpoch, Uuid
from support.real_data import archive

CASES: list[dict[str, str]] = json.loads(archive("shell")["cases.json"])
TREES = [case for case in CASES if "tree" in case]
FINDS = [case for case in CASES if "find" in case]


def name(case: dict[str, str]) -> str:
    return case["path"].rpartition("/")[2]


def told(file: str) -> list[str]:
    """The output of Kafka's shell."""
    return archive("shell")[file].decode().splitlines()


def load(case: dict[str, str], directory: Path) -> tuple[MetadataImage, Provenance]:
    """A snapshot as Kafka's shell reads it: like a log of its own, with its local offsets and times."""
    path = directory / name(case)
    path.write_bytes(archive(case["archive"])[case["path"]])
    delta = MetadataDelta(MetadataImage())
    provenance = Provenance()
    for batch in read_file(OsDisk(), str(path)):
        assert not isinstance(batch, Damage)
        if batch.is_control:
            continue
        for entry in read_entries(batch, str(path)):
            assert not isinstance(entry, Damage)
            assert entry.record is not None
            delta.replay(entry.record, entry.offset)
        provenance = Provenance(offset=batch.last_offset, epoch=batch.epoch, timestamp_ms=batch.max_timestamp)
    return delta.apply(OffsetAndEpoch(epoch=provenance.epoch, offset=provenance.offset + 1)), provenance


def image_node(case: dict[str, str], directory: Path, *, show_secrets: bool = True) -> Directory:
    image, provenance = load(case, directory)
    root = image_tree(image, provenance, version="1.0", commit_id="unknown", show_secrets=show_secrets)
    node = root.child("image")
    assert isinstance(node, Directory)
    return node


def quota_blocks(lines: list[str]) -> tuple[list[str], list[tuple[str, tuple[str, ...]]], list[str]]:
    """A tree in three parts: before the client quotas, each entity's block, and after them."""
    first = lines.index("clientQuotas:") + 1
    last = lines.index("cluster:")
    blocks: list[tuple[str, tuple[str, ...]]] = []
    for line in lines[first:last]:
        if line.startswith("   "):
            entity, below = blocks[-1]
            blocks[-1] = (entity, (*below, line))
        else:
            blocks.append((line.strip().removesuffix(":"), ()))
    return lines[:first], blocks, lines[last:]


@pytest.mark.parametrize("case", TREES, ids=name)
def test_a_tree_is_what_kafkas_shell_printed(case: dict[str, str], tmp_path: Path) -> None:
    ours = list(tree_lines(image_node(case, tmp_path)))
    theirs = told(case["tree"])
    before, our_quotas, behind = quota_blocks(ours)
    their_before, their_quotas, their_behind = quota_blocks(theirs)
    assert before == their_before
    assert behind == their_behind
    named = [block for block in our_quotas if "<default>" not in block[0]]
    # Kafka calls a default by what is left of its name: by nothing, or by the name of another entity.
    assert named == list(dict.fromkeys(block for block in their_quotas if block[0]))
    assert len(our_quotas) == len(their_quotas)


@pytest.mark.parametrize("case", FINDS, ids=name)
def test_find_equals_kafkas_shell_and_continues_where_that_fails(case: dict[str, str], tmp_path: Path) -> None:
    ours = list(find_lines(image_node(case, tmp_path), "image"))
    theirs = told(case["find"])
    if theirs[-1].startswith("# exit code 1"):
        assert ours[: len(theirs) - 1] == theirs[:-1]
        assert ours[-1].startswith("image/topics/byName/")
    else:
        assert ours == theirs


def test_secrets_are_hidden_unless_asked_for(tmp_path: Path) -> None:
    case = next(case for case in TREES if case["archive"] == "brokers")
    open_lines = set(tree_lines(image_node(case, tmp_path)))
    hidden_lines = list(tree_lines(image_node(case, tmp_path, show_secrets=False)))
    secret = open_lines - set(hidden_lines)
    assert {line.split("(")[0].split("Data")[0].strip() for line in secret} == {"ScramCredential", "DelegationToken"}
    redacted = [line for line in hidden_lines if REDACTED in line]
    assert len(redacted) == len(secret)
    assert redacted[-1].strip() == (
        "ScramCredentialData(salt=(redacted), storedKey=(redacted), serverKey=(redacted), iterations=(redacted))"
    )


@cache
def small() -> Directory:
    """A tree of three levels with awkward names."""

    def directory(**children: Any) -> Directory:
        return Directory(children, lambda child: directory(**child) if isinstance(child, dict) else Leaf(child))

    return directory(
        topics={"a-1": "one", "a-2": "two", "b.1": "three", "{x}": "four", "\U0001f600": "astral", "\uff21": "wide"},
        empty={},
        text="leaf",
    )


@pytest.mark.parametrize(
    ("path", "at", "expected"),
    [
        ("/", ("a",), ()),
        (".", ("a", "b"), ("a", "b")),
        ("../c", ("a", "b"), ("a", "c")),
        ("../../..", ("a",), ()),
        ("//x///y/", ("a",), ("x", "y")),
        ("/x/./y/../z", (), ("x", "z")),
    ],
)
def test_paths(path: str, at: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert absolute(path, at) == expected


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("/", ["/"]),
        ("/text", ["/text"]),
        ("/text/below", []),
        ("/nothing", []),
        ("/topics/a-*", ["/topics/a-1", "/topics/a-2"]),
        ("/topics/?.1", ["/topics/b.1"]),
        ("/topics/?-1", ["/topics/a-1"]),
        ("/*/{a-1,b.1}", ["/topics/a-1", "/topics/b.1"]),
        (r"/topics/\{x\}", ["/topics/{x}"]),
        ("/topics/{x}", []),
        ("/topics/{x", []),
        ("/{topics,empty}/*", [f"/topics/{each}" for each in ("a-1", "a-2", "b.1", "{x}", "\U0001f600", "\uff21")]),
        ("/t*", ["/text", "/topics"]),
    ],
)
def test_globs(glob: str, expected: list[str]) -> None:
    assert ["/" + "/".join(path) for path, _ in matches(small(), absolute(glob))] == expected


def test_names_are_sorted_as_java_sorts_them() -> None:
    topics = small().child("topics")
    assert isinstance(topics, Directory)
    assert topics.names()[-2:] == ["\U0001f600", "\uff21"]
    assert sorted(topics.names())[-2:] == ["\uff21", "\U0001f600"]


def test_find_and_tree_of_a_leaf_and_of_an_empty_directory() -> None:
    assert list(find_lines(Leaf("x"), "/text")) == ["/text"]
    assert list(tree_lines(Leaf("x"))) == ["x"]
    empty = small().child("empty")
    assert empty is not None
    assert list(tree_lines(empty)) == []
    assert list(find_lines(small(), "/"))[:3] == ["/", "/empty", "/text"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1000.0, "1000.0"),
        (1048576.0, "1048576.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (-2.5e10, "-2.5E10"),
        (1e300, "1.0E300"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_as_java_prints_them(value: float, expected: str) -> None:
    assert double_text(value) == expected


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (-1, "1969-12-31T23:59:59.999Z[UTC]"),
        (0, "1970-01-01T00:00:00Z[UTC]"),
        (1795249205480, "2026-11-21T08:20:05.48Z[UTC]"),
    ],
)
def test_times_as_java_prints_them(timestamp_ms: int, expected: str) -> None:
    assert time_text(timestamp_ms) == expected


def test_an_empty_image_prints_as_kafkas_shell_before_loading() -> None:
    root = image_tree(MetadataImage(), Provenance(), version="1.2.3", commit_id="abc")
    image, local = root.child("image"), root.child("local")
    assert image is not None
    assert local is not None
    assert list(tree_lines(image)) == told("empty.tree.txt")
    assert list(find_lines(image, "image")) == told("empty.find.txt")
    assert list(tree_lines(local)) == ["commitId:", "  abc", "version:", "  1.2.3"]


# Lines, blanks and numbers as Java sees them; each case is what Kafka 4.3.1's own readers made of it.


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\rc\n", ["a", "b", "c"]),
        ("a\n\n", ["a", ""]),
        ("a\x0bb\x0cc\x1cd\x85e\u2028f", ["a\x0bb\x0cc\x1cd\x85e\u2028f"]),
    ],
)
def test_lines(text, lines):
    assert java_text.lines(text) == lines


def test_only_blanks_and_control_characters_are_trimmed():
    assert java_text.trim("\x00\t\x1c a\xa0b \x1f\r\n") == "a\xa0b"
    assert java_text.trim("\xa0a\x85") == "\xa0a\x85"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("+12", 12),
        ("-0", 0),
        ("0000000000000000000000012", 12),
        ("\u0661\u0662", 12),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648", None),
        ("-2147483649", None),
        ("", None),
        ("-+5", None),
        (" 1", None),
        ("1_0", None),
        ("\xb2", None),
        ("1.0", None),
        pytest.param("1" * 5000, None, id="thousands of digits"),
        pytest.param("-" + "0" * 5000 + "12", -12, id="thousands of zeros"),
        pytest.param("0" * 5000, 0, id="thousands of zeros alone"),
    ],
)
def test_whole_numbers(text, number):
    assert java_text.whole_number(text) == number


def test_whole_numbers_of_64_bits():
    assert java_text.whole_number("09223372036854775807", bits=64) == 2**63 - 1
    assert java_text.whole_number("9223372036854775808", bits=64) is None


def test_the_text_of_a_uuid():
    assert str(Uuid.parse("FAtJ3q8rQ_6k7y3bJ5h1-A==")) == "FAtJ3q8rQ_6k7y3bJ5h1-A"
    for text in (
        "FAtJ3q8rQ/6k7y3bJ5h1+A",
        "FAtJ3q8rQ_6k7y3bJ5h1-A=",
        "FAtJ3q8rQ_6k7y3bJ5h1-A\n",
        "FAtJ3 8rQ_6k7y3bJ5h1-A",
    ):
        with pytest.raises(ValueError, match="not a Kafka uuid"):
            Uuid.parse(text)
