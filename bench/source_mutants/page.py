"""The page of the outcomes."""

from __future__ import annotations

from collections import Counter
from typing import Final

from source_mutants.changes import Source, SourceMutant
from source_mutants.trials import Outcome

HEAD: Final = """\
# Mutants of the source

`bench/mutate_source.py` changes one function of the consensus core, of the log or of the replica in memory. It runs the
tests and the simulated seeds that reach the changed lines
([decision 0042](../decisions/0042-source-mutants-in-memory.md)).
This page is written by `python bench/mutate_source.py --report` from the outcomes of all runs,
`bench/source_mutants/outcomes.jsonl`. An outcome counts as long as the source of the changed function stays the same.

A seed puts the mutants of each package into an order, and the runs try the first ones of that order.
"""
RESULTS: Final = """\
What the columns say:

- *a test*: the fastest check that fails is a test; *a seed*: a run of the simulator, with the profiles by turns. A run
  of the tool with `--tests` leaves the seeds out;
- *timed out*: a check took over eight times its usual processor time, as in an endless loop; this counts as found;
- *not planted*: the compiler makes the same code of both, or the function no longer uses a variable around it;
- *equivalent*: a reviewed mutant of `bench/equivalent_mutants.toml`: no test can tell it from the sound code;
- *survived*: no check within the budget failed, or none reaches the lines. By default the budget is 20 s of checks for
  each mutant, so that a slower check may still find a survivor.
"""


def page(
    mutants: dict[str, list[tuple[Source, SourceMutant]]],
    outcomes: dict[str, dict[str, Outcome]],
    reviewed: dict[str, str],
    seed: int,
) -> str:
    """The page as Markdown.

    Args:
        mutants: All mutants of each package, in the order of the seed.
        outcomes: The outcomes of each package, by the key of the mutant.
        reviewed: The reason of each equivalent mutant, by its key.
        seed: What determined the order.
    """
    rows = ["| package | mutants | tried | a test | a seed | timed out | not planted | equivalent | survived |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    total: Counter[str] = Counter()
    untried: dict[str, int] = {}
    survivors: list[Outcome] = []
    for package, pairs in mutants.items():
        counts = Counter(_kind(one, reviewed) for one in outcomes[package].values())
        counts["equivalent"] = sum(mutant.key in reviewed for _, mutant in pairs)
        counts["tried"] = len(outcomes[package].keys() | ({mutant.key for _, mutant in pairs} & reviewed.keys()))
        counts["mutants"] = len(pairs)
        total += counts
        untried[package] = counts["mutants"] - counts["tried"]
        rows.append(_row(f"`{package}`", counts))
        survivors += [one for one in outcomes[package].values() if _kind(one, reviewed) == "survived"]
    lines = [
        HEAD + _untried(untried),
        "",
        *rows,
        _row("all", total),
        "",
        f"The order is that of seed {seed}.",
        "",
        RESULTS,
    ]
    lines += _equivalents(reviewed)
    lines += ["## Survivors", ""]
    if not survivors:
        return "\n".join([*lines, "Of the mutants that were tried, none is left.", ""])
    lines += ["No test kills these yet, and no review has shown that they are equivalent:", "", "| mutant | checks |"]
    lines += ["| --- | --- |", *(f"| {_cell(one.mutant)} | {one.checks} |" for one in sorted(survivors, key=_key))]
    return "\n".join([*lines, ""])


def _untried(untried: dict[str, int]) -> str:
    """The sentence about the mutants that no run has tried."""
    left = [f"{count:,} of `{package}`" for package, count in untried.items() if count]
    if not left:
        return "All mutants have been tried or reviewed:"
    return f"These have been neither tried nor reviewed: {', '.join(left)}."


def _equivalents(reviewed: dict[str, str]) -> list[str]:
    rows = [f"| {_cell(key)} | {because} |" for key, because in sorted(reviewed.items())]
    return ["## Equivalent mutants", "", "| mutant | why no test can find it |", "| --- | --- |", *rows, ""]


def _key(outcome: Outcome) -> str:
    return outcome.mutant


def _kind(outcome: Outcome, reviewed: dict[str, str]) -> str:
    if outcome.mutant in reviewed:
        return "reviewed"
    match outcome.result:
        case "killed":
            return "a seed" if outcome.by.startswith("kraft sim run") else "a test"
        case "not reached":
            return "survived"
        case result:
            return result


def _row(name: str, counts: Counter[str]) -> str:
    columns = ("mutants", "tried", "a test", "a seed", "timed out", "not planted", "equivalent", "survived")
    return f"| {name} | {' | '.join(f'{counts[column]:,}' for column in columns)} |"


def _cell(key: str) -> str:
    where, _, change = key.partition(": ")
    before, _, after = change.partition(" => ")
    return " ".join((f"`{where}`:", f"`{before}`", "→", f"`{after}`")).replace("|", "\\|")
