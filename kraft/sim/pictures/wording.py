"""The words of a space-time diagram: changes of state, values and violated invariants as sentences."""

from __future__ import annotations

import re
from typing import Final

from kraft.sim.pictures.execution import Moment
from kraft.sim.search.schedule import check_of, function_of
from kraft.sim.world.actions import WORLD

INVARIANTS: Final = {
    "_check_elected": "a leader has the votes of a majority",
    "_check_election": "the epoch of a node never falls",
    "_check_fenced": "a fenced broker leads nothing",
    "_check_high_watermark": "committed records never change",
    "_check_leader": "an epoch has one leader",
    "_check_leading": "a leader has every committed record",
    "_check_log": "logs with the same offset and epoch are equal",
    "_check_majority": "a committed record is on the disks of a majority",
    "_check_not_removed": "a removed voter does not lead",
    "_check_own_epoch_first": "a leader commits a record of its own epoch first",
    "_check_progress": "the cluster makes progress",
    "_check_promise": "flushed records and votes survive a crash",
    "_check_snapshots": "a snapshot holds only committed records",
    "_check_unclean": "only an eligible replica leads",
    "_check_vote": "a node votes once in an epoch",
    "_check_voters": "the voters change one at a time",
    "_cut": "committed records are never removed",
    "_check_committer": "only a present member of a group commits",
    "_check_generation": "a partition has one owner in a generation",
    "_check_members": "a partition has one owner in a group",
    "_decide": "a transaction has one outcome",
    "_effect": "committed offsets never go back",
    "_resolve": "a transaction is visible as a whole or not at all",
    "acknowledged": "an acknowledged commit is committed",
    "appended": "partitions learn only committed outcomes",
    "ended_by": "a producer is told the outcome of the log",
    "fetched": "no acknowledged commit is lost",
    "initialized": "each producer has an epoch of its own",
    "stepped": "the state of a node agrees with its quorum-state",
    "told": "a partition has one owner in an epoch",
}
"""By the function that fails: the invariant as a sentence. Other invariants have the name of their function."""
LONGEST: Final = 100
"""The most characters of a label; the panel has the whole text."""
_RECORDS: Final = re.compile(r"<offsets (\d+) to (\d+) of epoch (\d+), (\d+) bytes, the last b(?:'.*?'|\".*?\")>")
_ELECTION: Final = re.compile(r"ElectionState\(epoch=(\d+), leader_id=(-?\d+), voted=(\w+)[^)]*voters=\(([^)]*)\)\)")
_DIRECTORY: Final = re.compile(r"(\d+)@[\w-]{22}\b")
_SETS: Final = re.compile(r"\['(\{[^']*\}(?:', '\{[^']*\})*)'\]")
_CHANGE: Final = re.compile(r"^(?:(node \d+): )?(\w+)->(\w+) (.*)$")


def readable(text: str) -> str:
    """A message of a check without the forms of Python: records as offsets and bytes, states with their names."""
    text = _RECORDS.sub(_records, text)
    text = _ELECTION.sub(_election, text)
    text = _SETS.sub(lambda found: found[1].replace("', '", ", then "), text)
    return _DIRECTORY.sub(r"node \1", text)


def _records(found: re.Match[str]) -> str:
    first, last, epoch, size = found.groups()
    offsets = f"record at offset {first}" if first == last else f"records at offsets {first} to {last}"
    return f"{offsets} of epoch {epoch} ({size} bytes)"


def _election(found: re.Match[str]) -> str:
    epoch, leader, voted, voters = found.groups()
    known = "no leader" if leader == "-1" else f"leader {leader}"
    vote = "no vote" if voted == "None" else "a vote"
    return f"its quorum-state has epoch {epoch}, {known}, {vote}, voters {voters}"


def change_text(detail: str) -> str:
    """A change of state as a phrase: `Voted->Follower told-by-3` is `becomes Follower (told by 3)`."""
    match = _CHANGE.match(detail)
    if match is None:
        return detail
    node, before, after, why = match.groups()
    subject = f"{node} " if node else ""
    reason = re.sub(r"(?<![-\d])-(?=\w)|(?<=[a-z])-(?=-?\d)", " ", why)
    verb = "starts as" if before == "Start" else "stays" if before == after else "becomes"
    return f"{subject}{verb} {after}" + (f" ({reason})" if reason != "start" else "")


def label_of(moment: Moment) -> str:
    """The label of a moment: its node, the event, and the last change of state of that node."""
    own = [detail for detail in moment.details if not detail.startswith("node ")]
    subject = "" if moment.node == WORLD else f"node {moment.node} "
    label = "; ".join((f"{subject}{moment.what}", *(change_text(detail) for detail in own[-1:])))
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


def violated_invariant(failure: BaseException) -> str:
    """The violated invariant: a sentence, and the name of the check as in docs/reference/mutants.md."""
    function = function_of(check_of(failure))
    if not function:
        return type(failure).__name__
    return f"{INVARIANTS[function]} ({function})" if function in INVARIANTS else function
