"""A finding, its severity, and the description of its check."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Severity(StrEnum):
    """How bad a finding is, worst first."""

    FATAL = "fatal"
    """A start or an election fails, or data is lost."""
    ERROR = "error"
    """The cluster is degraded now."""
    WARN = "warn"
    """The next fault will hurt."""
    INFO = "info"
    """Good to know."""


RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}
"""The order of severities, worst first."""


class Finding(Struct, frozen=True, kw_only=True):
    """One result of one check.

    Args:
        id: The id of the check.
        severity: How bad the finding is.
        nodes: The names of the nodes that show the finding.
        subjects: The partitions, brokers, settings or files that the finding is about.
        read: What was read: files, with the field or the offset.
        evidence: What was found there.
        consequence: What follows; empty for the text of the check.
        remedy: What to do, as a command where one exists; empty for the text of the check.
    """

    id: str
    severity: Severity
    evidence: str
    nodes: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    consequence: str = ""
    remedy: str = ""


class Need(StrEnum):
    """An input without which a check is skipped."""

    SETTINGS = "a properties file (-c)"
    DIRECTORY = "a log directory"
    SEVERAL = "several nodes"
    IMAGE = "a readable metadata log"
    LIVE = "a live cluster (--bootstrap-controller)"
    NAMES = "the resolution of host names (leave --offline out)"
    HOST = "the host's own file system (not a bundle)"


class Described(Struct, frozen=True, kw_only=True):
    """The description of a check, for `kraft doctor explain` and for findings.

    Args:
        id: The stable id.
        title: The condition in one sentence.
        severity: The severities that the check gives, as a text.
        consequence: What follows if nothing is done.
        remedy: What to do, as a command where one exists.
        source: The JIRA issue, KIP, Kafka class or experiment behind the check.
    """

    id: str
    title: str
    severity: str
    consequence: str
    remedy: str
    source: str
