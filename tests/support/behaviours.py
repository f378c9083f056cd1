"""Behaviours of `docs/protocol/Quorum.tla` that TLC has written while it walked through `QuorumWalk.tla` at random."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from support.kafka_jars import find_java
from support.tlc import MODULES, SECONDS, jar

_CONFIGURATION: Final = """SPECIFICATION WalkSpec
CONSTANTS
  None = None
  Replicas = {{n1, n2, n3}}
  First <- Everybody
  NoPreVotes = {{}}
  MaxEpoch = 5
  MaxEnd = 5
  MaxLives = 2
  Polite = {polite}
"""
_TOKENS: Final = re.compile(r'<<|>>|\|->|:>|@@|[{}\[\](),]|"[^"]*"|\w+')


class Step(Struct, frozen=True):
    """Who has taken which action of the module."""

    who: int
    what: str
    to: int
    """The candidate that gets a vote, the leader or the peer that is heard of; 0 if there is none."""
    end: int
    """The subject: an end of the log, or an epoch that is learned."""


class ModuleState(Struct, frozen=True):
    """One state of a behaviour; its variables are read when they are asked for, as most are not."""

    step: Step
    texts: dict[str, str]

    def __getitem__(self, name: str) -> Any:
        """The value of a variable."""
        return _value(self.texts[name])

    def ledger(self, epoch: int) -> dict[str, Any] | None:
        """What the leader of an epoch has written, as far as anybody could have read it; None without a leader."""
        known = self["ledger"]
        # A function of 1..n is written as a sequence.
        of_epochs = dict(enumerate(known, 1)) if isinstance(known, tuple) else {int(one): known[one] for one in known}
        found: dict[str, Any] | None = of_epochs.get(epoch)
        return found


def walk(directory: Path, *, count: int, depth: int, seed: int, polite: bool) -> list[list[ModuleState]]:
    """Let TLC write behaviours, and read them."""
    for source in MODULES.glob("Quorum*.tla"):
        shutil.copy(source, directory)
    (directory / "QuorumWalk.cfg").write_text(_CONFIGURATION.format(polite=str(polite).upper()))
    command = [find_java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx800m", "-Xss16m"]
    command += [f"-Djava.io.tmpdir={directory}", "-cp", str(jar()), "tlc2.TLC"]
    command += ["-workers", "1", "-deadlock", "-metadir", str(directory / "states")]
    command += ["-simulate", f"file={directory / 'walk'},num={count}", "-depth", str(depth), "-seed", str(seed)]
    command += ["-config", "QuorumWalk.cfg", "QuorumWalk.tla"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "Error:" not in done.stdout, done.stdout
    files = sorted(directory.glob("walk_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    assert len(files) == count, done.stdout
    return [read_behaviour(path.read_text()) for path in files]


def read_behaviour(text: str) -> list[ModuleState]:
    """The states of a file that TLC has written."""
    return [_state(part) for part in re.split(r"^STATE_\d+ == *$", text, flags=re.MULTILINE)[1:]]


def _state(text: str) -> ModuleState:
    parts = re.split(r"^/\\ (\w+) = ", text.rpartition("\n\n\n")[0], flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    step = _value(texts["step"])
    return ModuleState(Step(node_of(step["who"]), step["what"], node_of(step["to"]), step["end"]), texts)


def node_of(name: str | None) -> int:
    """The id of a replica; 0 for none."""
    return 0 if name is None else int(name.removeprefix("n"))


@lru_cache(10_000)
def _value(text: str) -> Any:
    value, rest = _parsed(_TOKENS.findall(text))
    assert not rest, (text, rest)
    return value


def _parsed(tokens: list[str]) -> tuple[Any, list[str]]:
    """A value of TLA+: a number, a text, a replica, a truth, or a set, a sequence, a record or a function of these."""
    first, rest = tokens[0], tokens[1:]
    match first:
        case "<<" | "{":
            members, rest = _members(rest, ">>" if first == "<<" else "}", ",", None)
            return tuple(members) if first == "<<" else members, rest
        case "[":
            fields, rest = _members(rest, "]", ",", "|->")
            return dict(fields), rest
        case "(":
            fields, rest = _members(rest, ")", "@@", ":>")
            return dict(fields), rest
        case "TRUE" | "FALSE":
            return first == "TRUE", rest
        case "None":
            return None, rest
    return int(first) if first.isdigit() else first.strip('"'), rest


def _members(tokens: list[str], end: str, between: str, arrow: str | None) -> tuple[list[Any], list[str]]:
    members: list[Any] = []
    while tokens[0] != end:
        if tokens[0] == between:
            tokens = tokens[1:]
        member, tokens = _parsed(tokens)
        if arrow is not None:
            assert tokens[0] == arrow, tokens
            value, tokens = _parsed(tokens[1:])
            member = member, value
        members.append(member)
    return members, tokens[1:]


__all__ = ["ModuleState", "Step", "node_of", "read_behaviour", "walk"]
