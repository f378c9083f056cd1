"""Kafka's ducktape tests judge clusters of `kraft serve`, on namespaces of this machine.

    uv run poe judge ducktape --source ~/kafka                        # all parametrizations of the manifest
    uv run poe judge ducktape --source ~/kafka test_bounce            # those with this in their names
    uv run poe judge ducktape --source ~/kafka --jvm test_bounce      # the same at Kafka's own brokers
    uv run poe judge ducktape --source ~/kafka --mixed test_bounce    # node 2 of each cluster is Kafka's
    uv run poe judge ducktape --print --save                          # run nothing, keep what was found for the page

`~/kafka` is a source tree of Apache Kafka, 4.2 or later: `git clone --depth 1 -b 4.2.0 https://github.com/apache/kafka`.
It needs root, a JDK, Maven (which fetches Kafka's jars once), uv, iproute2 and util-linux. A node is a set of
namespaces, no packet leaves the machine, and all processes end with the command. Results are kept one by one: after an
interruption the same command goes on where it stopped, and --afresh begins anew. The manifest says which tests fail,
and why; the command returns 1 if one is otherwise. Kafka's tests wait for seconds: a loaded machine fails them.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from support import ROOT
from support.judges import ducktape_lab as lab
from support.judges import ducktape_table as table
from support.judges.ducktape_table import Parametrization, Result, Side
from support.judges.junit import revision
from support.judges.table import keep

OUT: Final = ROOT / "out" / "judges" / "ducktape"
RESULTS: Final = OUT / "results.jsonl"
HEAD: Final = "| test | parameters | result | time | why |\n| --- | --- | --- | --- | --- |"
INTERRUPTED: Final = 130


def judge(place: lab.Lab, one: Parametrization, side: Side) -> Result:
    """Run a parametrization and say what it came to."""
    began, start = datetime.now(UTC), time.monotonic()
    folder = OUT / "sessions" / f"{side}-{hashlib.sha256(one.label.encode()).hexdigest()[:10]}"
    passed, why = table.read_report(lab.run(place, one, side, folder))
    if not passed:
        why = f"{why} ({folder.relative_to(ROOT)})"
    seconds = round(time.monotonic() - start, 1)
    return Result(one.label, side, revision(), began.isoformat(timespec="seconds"), passed, seconds, why)


def report(known: Sequence[Parametrization], found: dict[str, Result]) -> int:
    """Print the sum, and what is otherwise than the manifest says; returns how much that is."""
    results = [found[one.label] for one in known if one.label in found]
    others = [said for one in known if one.label in found and (said := table.verdict(one, found[one.label]))]
    passed = sum(one.passed for one in results)
    print(f"\n{passed} passed, {len(results) - passed} failed, {len(known) - len(results)} not run", *others, sep="\n")
    return len(others)


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    about, _, rest = (__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(
        prog="judge ducktape", description=about, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("tests", nargs="*", metavar="TEST", help="a part of a parametrization's name; all without one")
    made.add_argument("--source", type=Path, metavar="PATH", help="a source tree of Apache Kafka, with tests/kafkatest")
    made.add_argument("--jvm", action="store_const", dest="side", const="jvm", help="judge Kafka's own brokers")
    made.add_argument("--mixed", action="store_const", dest="side", const="mixed", help="let node 2 be Kafka's")
    made.add_argument("--afresh", action="store_true", help="run also what has a result of this commit")
    made.add_argument(
        "--print", action="store_true", dest="prints", help="run nothing, print the last results, of whatever commit"
    )
    made.add_argument("--save", action="store_true", help="keep all results for the page")
    made.add_argument("--conditions", default="", help="on what kind of machine, for the page")
    made.add_argument("--list", action="store_true", help="print the names of the parametrizations, and run nothing")
    made.set_defaults(side="ours")
    return made


def run(known: Sequence[Parametrization], source: Path, side: Side, *, afresh: bool) -> int:
    """Run what has no result yet, and print each line of the table as it comes."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.default_int_handler)
    place = lab.prepare(OUT / "lab", source.resolve())
    found = {} if afresh else table.newest(table.read_results(RESULTS), side, revision())
    print(HEAD, flush=True)
    try:
        for one in known:
            if one.label not in found:
                found[one.label] = judge(place, one, side)
                table.keep(RESULTS, found[one.label])
            print(table.row(one, found[one.label]), flush=True)
    except KeyboardInterrupt:
        report(known, found)
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return min(report(known, found), 1)


def main(arguments: Sequence[str]) -> int:
    """Run the named parametrizations, or all; returns 1 if something is otherwise than the manifest says."""
    options = parser()
    asked = options.parse_args(arguments)
    try:
        known = table.chosen(table.manifest(), asked.tests)
    except KeyError as unknown:
        options.error(f"in no name of {table.MANIFEST.relative_to(ROOT)}: {unknown.args[0]}")
    if asked.list:
        print(*(one.label for one in known), sep="\n")
        return 0
    if not asked.prints:
        if asked.source is None:
            options.error("--source PATH is needed: a source tree of Apache Kafka")
        if without := lab.missing(asked.source):
            options.error(without)
        status = run(known, asked.source, asked.side, afresh=asked.afresh)
    else:
        found = table.newest(table.read_results(RESULTS), asked.side)
        print(HEAD, *(table.row(one, found[one.label]) for one in known if one.label in found), sep="\n")
        status = min(report(known, found), 1)
    if asked.save:
        sitting = table.sitting(
            table.manifest(), table.read_results(RESULTS), asked.side, lab.version(OUT / "lab"), asked.conditions
        )
        print(keep(sitting).relative_to(ROOT))
    return status
