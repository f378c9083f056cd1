"""The reference page of the faults that were caused on clusters of Apache Kafka.

PYTHONPATH=tests python tests/interop/doctor/faults_page.py > docs/reference/doctor-faults.md
"""

from __future__ import annotations

from typing import Final

from doctor_fault import Fault
from faults_brokers import BROKER_FAULTS, OLDER_FAULTS
from faults_files import ADDRESS_FAULTS, FILE_FAULTS
from faults_quorum import QUORUM_FAULTS
from faults_static import STATIC_FAULTS

SECTIONS: Final = (
    ("A live quorum", "three voters of a dynamic quorum, and a spare controller", QUORUM_FAULTS),
    ("Files of a voter", "controller 3 is stopped, and 1 and 2 lead", FILE_FAULTS),
    ("Address of a voter", "controller 3 is stopped, and 1 and 2 lead", ADDRESS_FAULTS),
    ("A static quorum", "three voters of controller.quorum.voters", STATIC_FAULTS),
    ("Brokers, topics, features", "three voters and three brokers", BROKER_FAULTS),
    (
        "An upgrade",
        "a voter of Kafka 4.3.1 with metadata.version 3.9-IV0, and a controller of Kafka 3.9.2",
        OLDER_FAULTS,
    ),
)
EVERY: Final = tuple(fault for _, _, faults in SECTIONS for fault in faults)

HEAD: Final = """\
# Faults that doctor was tried on

{faults} faults were caused on purpose on running clusters of Apache Kafka 4.3.1 (JVM controllers and brokers), and
`kraft doctor` found each of them: {findings} findings of {checks} of its {all} checks. For each row a test asserts four
things. Before the fault the doctor does not report the check for that node. After the fault the doctor does, with a
remedy that names the right command. The remedy is then carried out. Afterwards the doctor does not report the check any
more. Nodes that were stopped start again, catch up and vote. Faults in files and configurations are found while their
node is stopped, as before a start; a node starts with such a fault only where the remedy is that start.

The rows are printed from the list of faults in `tests/interop/doctor`. The tests are soak tests:

```
uv run pytest -n 0 -m soak tests/interop/doctor
```

{last}

"""
LAST: Final = "They passed last on 2026-11-23, with Apache Kafka 4.3.1 and 3.9.2 on OpenJDK."

NOT_TRIED: Final = (
    (
        "`noop-gap`, `endless-elections`, `clock-skew` in a log",
        "The finding is about the past. No remedy removes the records, so that the finding stays.",
    ),
    ("`clock-skew` of a leader", "All nodes of these tests have the clock of one host."),
    (
        "`broker-never-returned`, `reassignment-stuck`, `recovering-leader`",
        "A state must last for 7 days, an hour, 10 minutes.",
    ),
    ("`disk-headroom`", "A small file system needs the rights of an administrator."),
    ("`advertised-loopback`", "The check needs nodes on several hosts."),
    (
        "`unknown-record`, `mv-downgrade-impossible`, `before-downgrade`",
        "The cause is software that is newer than Kafka 4.3.1.",
    ),
    ("`open-transaction`", "A bootstrap would have to end within its one transaction."),
    (
        "`zookeeper-mode`, `meta-version`, `cluster-id-garbage`, `quorum-state-far-ahead`",
        "The remedy is to leave the file as it is, or to use other software.",
    ),
    (
        "identities of directories, a vote that cannot be read, access rights of a directory, and all settings",
        "The remedy is to put the file back. `tests/kraft/operate/test_doctor_cases.py` and `test_doctor_files.py` have"
        " such directories, written by Kafka.",
    ),
    ("the other `--before` steps", "Nothing is wrong yet: the answer is about a step that was not taken."),
)

TAIL: Final = """\
The tests of these checks use directories that Apache Kafka wrote and that were changed, and facts in memory.
"""


def lines(fault: Fault) -> list[str]:
    """The rows of a fault, one for each finding."""
    cells = [(fault.cause, f"`{one.check}`", one.way, one.done) for one in fault.expected]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]


def page(all_checks: int) -> str:
    """The whole page."""
    findings = [one.check for fault in EVERY for one in fault.expected]
    head = HEAD.format(faults=len(EVERY), findings=len(findings), checks=len(set(findings)), all=all_checks, last=LAST)
    parts = [head]
    for title, cluster, faults in SECTIONS:
        rows = [line for fault in faults for line in lines(fault)]
        names = ["| fault | check | found by reading | remedy that was carried out |", "| --- | --- | --- | --- |"]
        parts.append("\n".join([f"## {title}", "", f"The cluster: {cluster}.", "", *names, *rows, "", ""]))
    reasons = "".join(f"| {checks} | {reason} |\n" for checks, reason in NOT_TRIED)
    title = "## Not tried on a live cluster\n\n| check | reason |\n| --- | --- |\n"
    return "".join([*parts, title, reasons, "\n", TAIL])


if __name__ == "__main__":
    from kraft.operate.doctor.facts.catalog import CATALOG

    print(page(len(CATALOG)), end="")
