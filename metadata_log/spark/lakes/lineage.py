"""The messages to OpenLineage of the runs of a fleet: START, then COMPLETE, FAIL or ABORT.

The package `openlineage-python` is an extra, and its own configuration says where events go: `OPENLINEAGE_URL`,
`OPENLINEAGE__TRANSPORT…`, or a file `openlineage.yml`. Without one of these nothing is imported and nothing is sent.
An event that cannot be sent is a warning and never ends a run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metadata_log.errors import install_extra
from metadata_log.spark.materialize import Fleet, Run
from metadata_log.tables.cluster import ClusterOutcome, Job

if TYPE_CHECKING:
    from metadata_log.spark.lakes.lineage_events import Events
    from metadata_log.spark.lakes.rows import Lake

Warn = Callable[[str], None]
_FILE: Final = "openlineage.yml"


def is_configured() -> bool:
    """Whether the environment or a file says where events go; the places are those that OpenLineage's client reads."""
    environment = os.environ
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environment)
    if named or environment.get("OPENLINEAGE_URL") or environment.get("OPENLINEAGE_CONFIG"):
        return True
    return Path(_FILE).is_file() or (Path.home() / ".openlineage" / _FILE).is_file()


@contextmanager
def told_to_openlineage(job: Job, lake: Lake | None = None, *, warn: Warn) -> Iterator[Night]:
    """Tell OpenLineage what becomes of a run, if OpenLineage is configured.

    Args:
        job: The run.
        lake: The format and the place of the tables; None for Parquet on disk.
        warn: Called with a sentence for each event that could not be sent.

    Yields:
        The run as OpenLineage is told of it: its logs once they are found, and its result.
    """
    night = Night(_events(job, lake, warn) if is_configured() else None, warn)
    try:
        yield night
    except Exception as failed:
        night.stopped("FAIL", str(failed))
        raise
    except BaseException:
        night.stopped("ABORT")
        raise
    finally:
        night.close()


def _events(job: Job, lake: Lake | None, warn: Warn) -> Events | None:
    try:
        from metadata_log.spark.lakes.lineage_events import Events

        return Events(job, lake)
    except ModuleNotFoundError as missing:
        warn(
            f"OpenLineage is configured, and the package {missing.name} is not installed:"
            f" {install_extra('openlineage')}; OPENLINEAGE_DISABLED=true says that no events are wanted"
        )
    except Exception as bad:  # whatever its configuration and its transports raise
        warn(f"OpenLineage's client does not start: {bad}")
    return None


class Night:
    """One run as OpenLineage is told of it."""

    def __init__(self, events: Events | None, warn: Warn) -> None:
        self._events = events
        self._warn = warn
        self._fleet = Fleet([], [])
        self._is_begun = False

    def begins(self, fleet: Fleet) -> None:
        """The logs are found."""
        self._fleet, self._is_begun = fleet, True
        self._send("START")

    def ends(self, run: Run) -> None:
        """The tables are written as far as they can be. A run that is not sound has failed."""
        outcomes = {outcome.cluster: outcome for outcome in run.outcomes}
        if run.is_sound:
            self._send("COMPLETE", None, outcomes)
            return
        why = [f"{text} (cluster {one.cluster})" for one in run.outcomes for text in (one.text, *one.doubts) if text]
        self._send("FAIL", "; ".join(why), outcomes)

    def stopped(self, state: str, message: str | None = None) -> None:
        """The run ends with an error, or is stopped from outside."""
        if not self._is_begun:
            self._send("START")
        self._send(state, message)

    def close(self) -> None:
        """Let the client send what it still holds."""
        if self._events is not None:
            with self._warned("the last events"):
                self._events.close()

    def _send(
        self, state: str, message: str | None = None, outcomes: Mapping[str, ClusterOutcome] | None = None
    ) -> None:
        if self._events is not None:
            with self._warned(f"the event {state}"):
                self._events.send(state, self._fleet, outcomes or {}, message)

    @contextmanager
    def _warned(self, what: str) -> Iterator[None]:
        """A warning in place of whatever a transport raises and logs: the tables matter more than news of them."""
        retries = logging.getLogger("urllib3.connectionpool")
        level = retries.level
        retries.setLevel(logging.ERROR)
        try:
            yield
        except Exception as failed:
            cause = str(failed).strip().partition("\n")[0] or type(failed).__name__
            self._warn(f"OpenLineage has not got {what} of this run: {cause}")
        finally:
            retries.setLevel(level)
