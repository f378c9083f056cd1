"""Which test files run in one process, and which start first, where pytest-xdist runs them in several.

A run that ends at its first failure (`-x`, `--maxfail`) begins with what says best what is wrong: a whole cluster that
fails says little, and takes long to say it.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from support.kafka_jars import are_there
from support.tiers import KINDS, REST, kind_of

TOGETHER = {
    "the Spark session": ("tests/spark/",),
    "a quorum of each make": (
        "tests/interop/quorum/test_kafka_hostile.py",
        "tests/interop/files/test_kafka_tools.py",
    ),
}
"""What is there once and takes long to start, with the files that use it: one process runs all of them."""

FIRST = (
    *TOGETHER,
    "tests/interop/",
    "tests/metadata_log/reading/test_fuzz_files.py",
    "tests/metadata_log/serde/test_serde_fuzz.py",
    "tests/metadata_log/arrow/test_arrow.py",
    "tests/kraft/sim/test_mutants.py",
    "tests/kraft/sim/test_sim.py",
    "tests/kraft/controller/test_articles.py",
    "tests/test_processes.py",
    "tests/test_quickstart.py",
    "tests/test_docs.py",
    "tests/test_bench.py",
)
"""What takes longest, so that no process is left alone with it at the end; of the rest, files with many tests."""

NEED_JARS = ("a quorum of each make", "tests/interop/", "tests/test_bench.py")
"""The files that need the jars of Apache Kafka, which may still be downloading."""


CLEAREST = ("transcripts", REST, *(kind for kind in KINDS if kind != "transcripts"))
"""The kinds of proof, that with the clearest failures first."""

LAYERS = (
    "tests/metadata_log/",
    "tests/transport/",
    "tests/kraft/quorum/",
    "tests/kraft/partitions/",
    "tests/kraft/replica/",
    "tests/kraft/broker/",
    "tests/kraft/coordinators/",
)
"""From the lowest up: a failure below explains those above."""


def unit_of(nodeid: str) -> str:
    """The unit that runs in one process: the file of a test, since its fixtures start clusters, or a folder."""
    shared = (what for what, users in TOGETHER.items() if nodeid.startswith(users))
    return next(shared, nodeid.partition("::")[0])


def place_of(unit: str) -> int:
    """Where in `FIRST` a unit stands, or after all of that; after everything while it would wait for Kafka's jars."""
    if unit.startswith(NEED_JARS) and not are_there():
        return len(FIRST) + 1
    return next((place for place, start in enumerate(FIRST) if unit.startswith(start)), len(FIRST))


def clearness_of(unit: str) -> tuple[int, int]:
    """Where a unit stands in a run that ends at its first failure."""
    layer = next((place for place, start in enumerate(LAYERS) if unit.startswith(start)), len(LAYERS))
    return CLEAREST.index(kind_of(next(iter(TOGETHER.get(unit, (unit,)))))), layer


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """`--dist loadfile` of pytest-xdist, but for what `TOGETHER` and `FIRST` say."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        order = clearness_of if self.config.option.maxfail else place_of
        self.workqueue.move_to_end(min(self.workqueue, key=order), last=False)
        super()._assign_work_unit(node)
