"""The calls of the page of the lab, which its worker makes in a browser: texts go in, and JSON comes out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from kraft.sim.faults.profiles import PROFILES
from kraft.sim.lab.deeds import Deed
from kraft.sim.lab.kinds import KnownKind, known_kinds
from kraft.sim.lab.link import LabRun, fragment_of, run_from
from kraft.sim.lab.moments import LabMoment
from kraft.sim.lab.session import LiveSession, ReplaySession, Session
from kraft.sim.search.planting import bugs
from kraft.sim.search.schedule import Schedule, decode_schedule, encode_schedule
from kraft.sim.search.seed_search import SeedSearch
from kraft.sim.search.shrink import shrink
from metadata_log.errors import MetadataLogError

AT_ONCE: Final = 3000
"""The most moments of one call, so that the page can show something meanwhile."""
OBJECTS_AT_ONCE: Final = 50_000
"""The number of added objects after which garbage is collected."""


class State(Struct, frozen=True):
    """A run as the page shows it, and the moments since the last call."""

    fragment: str
    """The link to the run; empty for a recorded schedule."""
    members: str
    bug: str
    """The planted bug; empty for none."""
    node_ids: tuple[int, ...]
    now_ms: int
    digest: str
    is_over: bool
    verdict: str
    is_violated: bool
    moments: tuple[LabMoment, ...]


class KnownBug(Struct, frozen=True):
    """A bug that can be planted."""

    name: str
    what: str
    members: str


class Known(Struct, frozen=True):
    """The choices that the page offers."""

    bugs: tuple[KnownBug, ...]
    kinds: tuple[KnownKind, ...]
    profiles: tuple[tuple[str, str], ...]


class Found(Struct, frozen=True):
    """The outcome of a part of a search: the seeds so far, and the schedule if one of them violates an invariant."""

    tried: int
    schedule: str = ""
    actions: int = 0
    shrunk: int = 0
    fragment: str = ""


class Page:
    """One page, which watches one run at a time."""

    def __init__(self) -> None:
        gc.set_threshold(OBJECTS_AT_ONCE)
        self._session: Session | None = None

    def known(self) -> str:
        """The bugs, the kinds of nodes, and the profiles."""
        mutants = tuple(KnownBug(one.name, one.what, str(one.scope)) for one in bugs().values())
        return _json(Known(mutants, known_kinds(), tuple((one.name, one.what) for one in PROFILES.values())))

    def open(self, fragment: str, until_ms: int) -> str:
        """Begin the run of a link, and go on to a virtual time."""
        run = run_from(fragment)
        self._close()
        self._session = session = LiveSession(run)
        return self._state(session, session.advance(until_ms, AT_ONCE))

    def open_schedule(self, text: str) -> str:
        """Begin to replay a saved schedule."""
        schedule = decode_schedule(text.encode(), "the file")
        self._close()
        self._session = session = ReplaySession(schedule)
        return self._state(session, [])

    def advance(self, until_ms: int, most: int) -> str:
        """Go on to a virtual time, and at most for so many moments."""
        session = self._current()
        return self._state(session, session.advance(until_ms, min(most, AT_ONCE)))

    def do(self, name: str, nodes: Sequence[int], ms: int, text: str) -> str:
        """Do what the visitor wants, now."""
        session = self._current()
        if not isinstance(session, LiveSession):
            raise MetadataLogError("this is a recorded run: open its seed to go on by yourself")
        return self._state(session, session.do(Deed(0, name, tuple(nodes), ms, text)))

    def saved(self) -> str:
        """The schedule so far, as a file for `kraft sim replay`."""
        return encode_schedule(self._current().schedule).decode()

    def diagram(self) -> str:
        """The space-time diagram of what has happened so far, as an HTML page."""
        return self._current().diagram()

    def search(self, name: str, first: int, count: int, on_progress: Callable[[str], object]) -> str:
        """Run seeds with a planted bug until one violates an invariant, and shrink what happened."""
        self._close()
        bug = bugs()[name]
        search = SeedSearch(members=str(bug.scope), mutant=name, profile=bug.profile, faults=bug.faults)
        for seed in range(first, first + count):
            on_progress(f"seed {seed}")
            found = search.run(seed)
            if isinstance(found, Schedule):
                on_progress(f"seed {seed} violates an invariant: shortening {len(found.actions)} events")
                small = shrink(found, on_shorter=_shorter(seed, on_progress))
                link = fragment_of(LabRun(search, seed))
                sizes = len(found.actions), len(small.actions)
                return _json(Found(seed - first + 1, encode_schedule(small).decode(), *sizes, link))
        return _json(Found(count))

    def _current(self) -> Session:
        if self._session is None:
            raise MetadataLogError("no run is open")
        return self._session

    def _close(self) -> None:
        """End the session before, whose bug is in the code of this process."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @staticmethod
    def _state(session: Session, moments: Sequence[LabMoment]) -> str:
        state = State(
            fragment=fragment_of(session.run) if isinstance(session, LiveSession) else "",
            members=session.scenario.members,
            bug=session.mutant or "",
            node_ids=session.world.node_ids,
            now_ms=session.now_ms,
            digest=session.digest,
            is_over=session.is_over,
            verdict=session.verdict,
            is_violated=session.failure is not None,
            moments=tuple(moments),
        )
        return _json(state)


def _shorter(seed: int, on_progress: Callable[[str], object]) -> Callable[[int], None]:
    def on_shorter(left: int) -> None:
        on_progress(f"seed {seed}: {left} events left")

    return on_shorter


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
