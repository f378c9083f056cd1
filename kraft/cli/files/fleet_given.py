"""What is given to the commands of `kraft fleet`: pairs of a name and a value, and failures in plain words."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from kraft.cli.moments import moment_of
from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from metadata_log.errors import MetadataLogError
from metadata_log.reading.timeline import moment_text

_TIMES: Final = frozenset({"since", "until", "asoftimestamp"})
"""The options of the source with a time, in lower case."""


def pairs(given: Sequence[str], option: str, hint: str | None = None) -> dict[str, str]:
    """The names and values of an option that may be repeated, such as `--conf`."""
    chosen = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise UsageError("a name and a value are expected", where=f"{option} {text}", hint=hint)
        chosen[name] = value
    return chosen


def chosen_options(options: Sequence[str], allowed: Sequence[str]) -> dict[str, str]:
    """The values of `--option`, by names that are allowed."""
    chosen = {}
    for option in options:
        name, separator, value = option.partition("=")
        known = next((one for one in allowed if one.lower() == name.lower()), None)
        if known is None or not separator:
            where = f"--option {option}"
            raise UsageError("a name and a value are expected", where=where, hint=f"One of {', '.join(allowed)}.")
        chosen[known] = value
    return chosen


def in_full(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the source with their times in full: the source knows no time of today."""
    return {name: _in_full(name, text) if name.lower() in _TIMES else text for name, text in options.items()}


def _in_full(name: str, text: str) -> str:
    try:
        at = moment_of(text)
    except ValueError as bad:
        raise UsageError(str(bad), where=f"--option {name}={text}") from bad
    return text if at.timestamp_ms is None else moment_text(at)


@contextmanager
def plain_failures() -> Iterator[None]:
    """Translate failures to exceptions of this program, and SIGTERM to the effect of Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except MetadataLogError as failed:
        raise CommandFailed(MetadataLogError.__str__(failed), hint=failed.hint) from failed
    finally:
        signal.signal(signal.SIGTERM, before)
