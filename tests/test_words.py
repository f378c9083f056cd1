"""Rules for the words of the Python files: each sentence names its subject, and no former name comes back."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest
from plain_words import vague_words
from test_tidy import sources

FOLDERS = ("kraft", "metadata_log", "transport", "pyspark_kraft", "bench", "tests")
CHECKS = {"tests/plain_words.py", "tests/test_words.py", "tests/test_docs.py"}
"""Files that hold the words as patterns and samples."""
FORMER_VALUES = "kraft/sim/mutants/former_names.py"
"""The file with the names that users typed until the last release."""

FORMER = {
    "Deciding": "RequestContext",
    "Permitted": "AuthorizedRequest",
    "Gathered": "PendingBatch",
    "Asks": "OutboundRequests",
    "hand_over": "submit_pending",
    "may_stand": "can_campaign",
    "_is_heir": "_may_grant_prevote_after_leader_exit",
    "hasten": "cap_deadlines",
    "commit_news_delay_ms": "high_watermark_propagation_delay_ms",
    "Suspicious": "PeerFault",
    "Known": "ObservedNode",
    "Contacts": "CheckQuorum",
    "Hunt": "SeedSearch",
    "Trial": "WorkloadSpec",
    "trial_of": "workload_spec_of",
    "SteadyCore": "CanonicalCore",
    "without_collector": "gc_paused",
    "MachineHost": "StateMachineHost",
    "MachineNode": "StateMachineNode",
    "MachineMember": "StateMachineMember",
    "InvariantBroken": "InvariantViolated",
    "Story": "Execution, HistoryLines, ReportData or HistoryPass",
}
"""Names that were neither Raft's nor Kafka's nor of general engineering, and the names in their place."""
FORWARDERS = ("kraft/__init__.py", "kraft/sim/__init__.py", "kraft/sim/hunt.py", "kraft/sim/story.py")
"""Files that give users the former names for one release."""


@cache
def texts() -> dict[str, str]:
    """The Python files of this repository, by their path from the root."""
    return dict(sources(*FOLDERS))


def former_names(text: str) -> Iterator[tuple[int, str]]:
    """Each former name that the code uses as an identifier, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in FORMER:
            yield token.start[0], token.string


RIDDLE = re.compile(
    r"^\s*(?:async )?def (test_(?:"
    r"(?:what|whatever|it|there|these|those|which|else)_\w+"
    r"|\w*_(?:says?_so|whatever|as_ever)(?:_\w+)?"
    r"|\w+_(?:cannot_be|is_said|is_told|are_said|are_told)))\(",
    re.MULTILINE,
)
"""Names of tests without a subject, condition or result."""


def riddling_names(text: str) -> list[str]:
    """The names of tests that do not state what is checked."""
    return RIDDLE.findall(text)


def test_names_of_tests_state_what_is_checked() -> None:
    found = [f"{name}: {test}" for name, text in texts().items() if name not in CHECKS for test in riddling_names(text)]
    assert not found, "name the subject, the condition and the result:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "name",
    [
        "test_what_is_refused",
        "test_it_follows_the_leader",
        "test_a_log_that_lacks_a_segment_says_so",
        "test_no_ops_come_whatever_else_is_written",
        "test_states_that_cannot_be",
    ],
)
def test_a_riddling_name_is_found(name: str) -> None:
    assert riddling_names(f"x = 1\n\nasync def {name}() -> None:\n") == [name]


@pytest.mark.parametrize(
    "name", ["test_iterators_are_copied", "test_whatif_prints_json", "test_files_that_cannot_be_read"]
)
def test_a_plain_name_is_allowed(name: str) -> None:
    assert riddling_names(f"def {name}() -> None:\n") == []


def test_sentences_name_their_subjects() -> None:
    """In comments, docstrings, messages and identifiers alike."""
    found = [
        f"{name}:{number}: {line}"
        for name, text in texts().items()
        if name not in CHECKS | {FORMER_VALUES}
        for number, line in vague_words(text)
    ]
    assert not found, "name the subject (the leader, a voter, the caller):\n" + "\n".join(found)


def test_no_former_name_is_used() -> None:
    """Renamed identifiers are used nowhere but where they are forwarded."""
    found = [
        f"{name}:{number}: {former} is {FORMER[former]} now"
        for name, text in texts().items()
        if name not in FORWARDERS
        for number, former in former_names(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "# refused, as by who hears a leader, it would wait",
        '"""Whoever asks is answered."""',
        "def nobody_is_asked() -> None:",
        'raise ValueError("nobody listens there")',
        "voters = everybody",
    ],
)
def test_a_vague_word_is_found(line: str) -> None:
    assert [number for number, _ in vague_words(f"x = 1\n{line}\n")] == [2]


@pytest.mark.parametrize("line", ["allow.everyone.if.no.acl.found=true", "# see who-led-a-partition.md", "wholesale"])
def test_similar_words_are_allowed(line: str) -> None:
    assert vague_words(line) == []


@pytest.mark.parametrize("former", sorted(FORMER))
def test_a_former_name_is_found(former: str) -> None:
    assert list(former_names(f"x = 1\ny = {former}(x)  # `{former}`\n")) == [(2, former)]
