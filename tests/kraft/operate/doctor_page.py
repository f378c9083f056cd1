"""The reference page of the doctor's checks, from their descriptions.

PYTHONPATH=tests python tests/kraft/operate/doctor_page.py > docs/reference/doctor-checks.md
"""

from __future__ import annotations

from kraft.operate.doctor.facts.directory_checks import DIRECTORY_CHECKS
from kraft.operate.doctor.facts.finding import Described
from kraft.operate.doctor.facts.image_checks import BEFORE_CHECKS, IMAGE_CHECKS
from kraft.operate.doctor.facts.quorum_checks import QUORUM_CHECKS

HEAD = """\
# Checks of kraft doctor

Every check by its id. Ids are stable: a check that is removed keeps its id. `kraft doctor explain ID` prints one of
them, and [What is wrong with this quorum?](../howto/what-is-wrong-with-a-quorum.md) shows the command at work. The
page is printed from the descriptions in `kraft/operate/doctor/facts/`. *Tried* means that Apache Kafka was started
with that fault.

| severity | meaning | exit code |
| --- | --- | --- |
| fatal | a start or an election fails, or data is lost | 2 |
| error | the cluster is degraded now | 1 |
| warn | the next fault will hurt | 0 |
| info | good to know | 0 |
"""
SECTIONS = (
    ("Directories, identities and logs", DIRECTORY_CHECKS),
    ("Quorum configuration, live quorums", QUORUM_CHECKS),
    ("Metadata, brokers, partitions", IMAGE_CHECKS),
    ("Before a planned step", BEFORE_CHECKS),
)


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *("\n".join(_section(title, checks)) for title, checks in SECTIONS)])


def _section(title: str, checks: tuple[Described, ...]) -> list[str]:
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(one)) + " |" for one in checks]
    names = "| id | condition | severity | consequence | remedy | source |"
    return [f"## {title}", "", names, "| --- " * 6 + "|", *rows, ""]


def _cells(one: Described) -> tuple[str, ...]:
    return (f"`{one.id}`", one.title, one.severity, one.consequence, one.remedy, one.source)


if __name__ == "__main__":
    print(page(), end="")
