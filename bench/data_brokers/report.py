"""Figures of several clusters, repetition by repetition, and how benches of brokers print them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from msgspec import Struct, to_builtins
from spread import Spread, spread

NAME_WIDTH: Final = 58


class Figure(Struct, frozen=True):
    """One value of one repetition."""

    name: str
    brokers: int
    target: str
    value: float


class Line(Struct, frozen=True):
    """One figure over all repetitions; `ratio` is that of the first target to this one, repetition by repetition."""

    name: str
    brokers: int
    target: str
    value: Spread
    ratio: Spread


def summarise(figures: list[Figure], first: str) -> list[Line]:
    """The medians with their spread, and the ratios of the first target to the others."""
    values: dict[tuple[str, int, str], list[float]] = {}
    for each in figures:
        values.setdefault((each.name, each.brokers, each.target), []).append(each.value)
    lines = []
    for (name, brokers, target), found in values.items():
        ratios = [a / b for a, b in zip(values[name, brokers, first], found, strict=True) if b]
        lines.append(Line(name, brokers, target, spread(found), spread(ratios or [0.0])))
    return lines


def end_with_cleanup(number: int, _: FrameType | None) -> NoReturn:
    """Leave by an exception, so that each process is ended and each directory removed."""
    raise SystemExit(128 + number)


def use_compiled_modules(root: Path) -> None:
    """Let the processes keep compiled modules, as every installation does, even where the environment forbids them.

    Otherwise each process of Python would first compile some seven hundred modules, for half a second.
    """
    if sys.dont_write_bytecode:
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(root / "bytecode"))


def parse_options(parser: argparse.ArgumentParser, targets: Sequence[str], what: Sequence[str]) -> argparse.Namespace:
    """Parse the options of a bench, with those that every bench of brokers has."""
    parser.add_argument("--targets", type=_names, default=list(targets), help="the first one is compared")
    parser.add_argument("--what", type=_names, default=list(what), help=f"of {', '.join(what)}")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--heap", default="1g", help="the largest heap of each JVM")
    parser.add_argument("--session", type=float, default=9.0, help="seconds of broker.session.timeout.ms")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the brokers keep files")
    parser.add_argument("--json", action="store_true", help="print one object in place of the tables")
    options = parser.parse_args()
    _check_names(parser, "--what", options.what, what)
    _check_names(parser, "--targets", options.targets, targets)
    return options


def _names(text: str) -> list[str]:
    """The values of an option, between commas."""
    return text.split(",")


def _check_names(parser: argparse.ArgumentParser, option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """End with an error, if a value of an option is unknown."""
    if unknown := set(given) - set(known):
        parser.error(f"{option}: there is no {', '.join(sorted(unknown))}")


def report(
    options: argparse.Namespace,
    more: dict[str, object],
    measure: Callable[[argparse.Namespace, Path, Callable[[str], None]], list[Figure]],
) -> None:
    """Measure in a directory of its own, and print the conditions, each figure and the table."""
    signal.signal(signal.SIGTERM, end_with_cleanup)

    def out(line: str) -> None:
        if not options.json:
            print(line, flush=True)

    conditions = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "jvm_flags": f"-Xmx{options.heap}",
        **more,
    }
    out(", ".join(f"{name} {value}" for name, value in conditions.items()))
    with tempfile.TemporaryDirectory(prefix="bench-brokers-", dir=options.dir) as scratch:
        use_compiled_modules(Path(scratch))
        figures = measure(options, Path(scratch), out)
    lines = summarise(figures, options.targets[0])
    out(f"\nmedian (least-most) of {options.reps}; ratio: {options.targets[0]} / that row, of the same repetition")
    for line in lines:
        out(f"{line.brokers} {line.target:8}{line.name:{NAME_WIDTH}}{line.value!s:>30}{line.ratio!s:>26}")
    if options.json:
        print(json.dumps({"conditions": conditions, "lines": to_builtins(lines)}, indent=2))
