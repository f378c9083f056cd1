"""Contexts: parts of a registry, each with ids of its own. `:.test:orders` is the subject `orders` of `.test`."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT: Final = "."
"""The context of a subject that names none."""
MARK: Final = ":."
"""So begin the names of subjects that say a context."""
GLOBAL: Final = ":.__GLOBAL:"
"""In the place of a subject: what holds where neither a subject nor its context says anything."""
EVERY: Final = ":*:"
"""Before a prefix of subjects: in all contexts."""


class Place(NamedTuple):
    """A subject, and its context."""

    context: str
    subject: str

    @property
    def full(self) -> str:
        """The name of the subject, with its context unless that is the default."""
        return f"{scope(self.context)}{self.subject}"


def scope(context: str) -> str:
    """The beginning of the subjects of a context; settings of the whole context have it as their subject."""
    return "" if context == DEFAULT else f":{context}:"


def place(name: str) -> Place:
    """Where a name of a subject leads."""
    if not name.startswith(MARK):
        return Place(DEFAULT, name)
    context, _, subject = name[1:].partition(":")
    return Place(context, subject)


def context_of(subject: str) -> str:
    """The context of a subject."""
    return place(subject).context


def named(given: str) -> str | None:
    """The context that a path names, as `.test`, `test` or `:.test:`; None if that is no name."""
    name = given.removeprefix(":").removesuffix(":")
    return None if ":" in name else f".{name.removeprefix('.')}"


def within(context: str, name: str) -> str:
    """A subject of a context, unless its name says another one."""
    return place(name).full if name.startswith((MARK, EVERY)) else f"{scope(context)}{name}"
