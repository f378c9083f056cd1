"""Rules for the words of the Python files: each sentence names its subject, and no former name comes back."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest
from test_tidy import sources

FOLDERS = ("kraft", "metadata_log", "transport", "pyspark_kraft", "bench", "tests")
VAGUE = re.compile(
    r"(?<![\w-])(?:who|whoever|whom|whose|someone|anyone|everyone|no one)(?![\w-])"
    r"|(?:nobody|somebody|everybody|anybody|whoever)",
    re.IGNORECASE,
)
"""Words for a subject without a name. The longer ones also count within identifiers."""
OF_OTHERS = re.compile(
    r"allow\.everyone\.if\.no\.acl\.found"  # Kafka's key
    r"|sessions[-_]for[-_]anybody|nobody[-_]needs[-_]a[-_]snapshot"  # names of mutants that users type
    r"|string\(\"anyone\"\)"  # ZooKeeper's identity of every client
    r"|a batch whose last offset delta is"  # a line of traces, which digests cover
    r"|restart leaders until controller 3, whose log start has moved, leads"  # recorded data
)
CHECKS = {"tests/test_words.py", "tests/test_docs.py"}
"""Files that hold the words as patterns and samples."""

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


def vague_words(text: str) -> list[tuple[int, str]]:
    """Each line with a word for a subject without a name, by its number."""
    return [
        (number, line.strip()[:100])
        for number, line in enumerate(text.splitlines(), 1)
        if VAGUE.search(OF_OTHERS.sub("", line))
    ]


def former_names(text: str) -> Iterator[tuple[int, str]]:
    """Each former name that the code uses as an identifier, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in FORMER:
            yield token.start[0], token.string


def test_sentences_name_their_subjects() -> None:
    """In comments, docstrings, messages and identifiers alike."""
    found = [
        f"{name}:{number}: {line}"
        for name, text in texts().items()
        if name not in CHECKS
        for number, line in vague_words(text)
    ]
    assert not found, "name the subject (the leader, a voter, the caller):\n" + "\n".join(found)


def test_no_former_name_comes_back() -> None:
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
def test_a_word_that_is_put_back_is_found(line: str) -> None:
    assert [number for number, _ in vague_words(f"x = 1\n{line}\n")] == [2]


@pytest.mark.parametrize("line", ["allow.everyone.if.no.acl.found=true", "# see who-led-a-partition.md", "wholesale"])
def test_other_words_may_stay(line: str) -> None:
    assert vague_words(line) == []


@pytest.mark.parametrize("former", sorted(FORMER))
def test_a_name_that_is_put_back_is_found(former: str) -> None:
    assert list(former_names(f"x = 1\ny = {former}(x)  # `{former}`\n")) == [(2, former)]
