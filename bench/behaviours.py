"""Behaviours that the specification of the quorum allows, for real cores to follow: TLC walks through
`docs/protocol/QuorumWalk.tla` at random, and three cores are led through each walk, step by step.

    python bench/behaviours.py --count 100 --depth 120 --seed 1
    python bench/behaviours.py --count 100 --polite
    python bench/behaviours.py --count 200 --polite --depth 80 --keep tests/transcripts/behaviours

Without `--polite` a walk may take every step of the module; the cores follow it to the first step that a core never
takes, and the table has the reasons. With it a walk keeps to the manners that the module names, and the cores must take
every step. A step that a core refuses for no known reason ends the bench with an error and both states.
`--keep` writes twenty of the walks that were followed to their end as transcripts, those that show most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final

from planted_bugs.registry import Patches

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from protocol_bugs import OWN, PLANTED

from support.behaviours import ModuleState, walk
from support.played_behaviours import REASONS, Played, UnknownRefusal, play, transcript

MOST_KEPT: Final = 20
"""The most transcripts that are kept."""


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="how many behaviours")
    parser.add_argument("--depth", type=int, default=120, help="the most states of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--polite", action="store_true", help="only steps that a core takes")
    parser.add_argument("--bugs", action="store_true", help="which bugs of the protocol the behaviours find, if polite")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="write whole behaviours as transcripts")
    asked = parser.parse_args()
    sys.exit(_follow(asked))


def _follow(asked: argparse.Namespace) -> bool:
    """Let cores follow behaviours; returns whether one has refused a step for no known reason, or at all if polite."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        behaviours = walk(Path(scratch), count=asked.count, depth=asked.depth, seed=asked.seed, polite=asked.polite)
    if asked.bugs:
        return _hunt(behaviours)
    walked = time.perf_counter() - begin
    ended, unsaid, actions, unknown = Counter[str](), Counter[str](), Counter[str](), 0
    steps, whole = 0, dict[int, Played]()
    for at, states in enumerate(behaviours):
        steps += sum(state.step.what not in ("Init", "Wait") for state in states)
        try:
            played = play(states)
        except UnknownRefusal as refusal:
            unknown += 1
            print(f"behaviour {at}: {refusal}", flush=True)
            continue
        actions.update(played.taken)
        unsaid.update(played.unsaid)
        if played.refused:
            ended[played.refused] += 1
        elif not played.unsaid:
            whole[at] = played
    took = time.perf_counter() - begin
    followed = f"{len(whole)} followed to their end, {actions.total()} steps taken"
    print(f"{len(behaviours)} behaviours with {steps} steps, {followed}")
    print(f"{unknown} refused for no known reason; {walked:.0f} s for TLC, {took - walked:.0f} s for the cores")
    print("", *(f"{actions[name]:7} {name}" for name in sorted(actions)), sep="\n")
    for title, counts in (("messages that a core never sends:", unsaid), ("ended at a step never taken:", ended)):
        if counts:
            print("", title, *(f"{counts[one]:7} {one}" for one in REASONS if counts[one]), sep="\n")
    if asked.keep is not None:
        for at in _various(whole):
            title = f"A behaviour of Quorum.tla: number {at} of seed {asked.seed}, depth {asked.depth}."
            (asked.keep / f"{asked.seed}_{at:03}.txt").write_text(transcript(whole[at], title))
    return bool(unknown or (asked.polite and (ended or unsaid)))


def _hunt(behaviours: list[list[ModuleState]]) -> bool:
    """Plant each bug of a bare core, and tell the first behaviour that a core does not follow then."""
    missed = 0
    for bug in (*PLANTED, *OWN):
        if bug.members != "core":
            continue
        patches = Patches()
        try:
            bug.plant(patches)
            found = next((at for at, states in enumerate(behaviours) if not _is_followed(states)), None)
        finally:
            patches.undo()
        missed += found is None
        told = "not found" if found is None else f"found by behaviour {found}"
        print(f"{bug.name}: {told}", flush=True)
    return bool(missed)


def _is_followed(states: list[ModuleState]) -> bool:
    try:
        return not play(states).refused
    except AssertionError:  # of the bench, or of the core
        return False


def _various(whole: dict[int, Played]) -> list[int]:
    """The behaviours that show most: each adds the rarest pairs of actions that follow each other."""
    left = {at: set(pairwise(played.taken)) for at, played in whole.items()}
    often = Counter(pair for pairs in left.values() for pair in pairs)
    shown, kept = set[tuple[str, str]](), list[int]()
    while left and len(kept) < MOST_KEPT:
        best = max(left, key=lambda at: (sum(1 / often[pair] for pair in left[at] - shown), -at))
        shown |= left.pop(best)
        kept.append(best)
    return sorted(kept)


if __name__ == "__main__":
    main()
