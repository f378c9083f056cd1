"""The link to a run: the seed, the settings and the visitor's deeds, in the fragment of an address.

    seed=7&members=replica&nodes=3&profile=quiet&do=1200.crash.2,1900.cut.1-3,2500.write.1..hello

A browser sends no fragment to a server. `kraft sim run` prints such links, and the page of the lab makes them.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, unquote

from msgspec import Struct

from kraft.sim.faults.nemesis import FAULTS, FOCUSED_STRIKES, ONLY_BY_NAME
from kraft.sim.faults.profiles import BY_TURNS, PROFILES, QUIET
from kraft.sim.lab.deeds import Deed
from kraft.sim.nodes.cluster import CLUSTERS
from kraft.sim.search.planting import bugs
from kraft.sim.search.seed_search import KINDS, SeedSearch
from metadata_log.errors import MetadataLogError

LONGEST: Final = 20_000
"""The most characters of a fragment."""
OF_PROFILE: Final = "profile"
"""In place of names of faults: those of the profile, and not those of the bug."""
MOST_NODES: Final = 9
MOST_CHAOS_MS: Final = 3_600_000


class BadLink(MetadataLogError):
    """The text is not the link to a run, or this version cannot run it."""


class LabRun(Struct, frozen=True):
    """Everything that determines a run that somebody watches."""

    search: SeedSearch = SeedSearch(profile=QUIET.name)
    """The search of which this is one run. A link leaves out the faults of its bug."""
    seed: int = 0
    deeds: tuple[Deed, ...] = ()


def fragment_of(run: LabRun) -> str:
    """The fragment of the address of a run, without the `#`; `run_from` reads it."""
    search = run.search
    parts = {"seed": str(run.seed), "members": search.members}
    if search.nodes is not None:
        parts["nodes"] = str(search.nodes)
    if search.members in CLUSTERS and search.brokers != SeedSearch().brokers:
        parts["brokers"] = str(search.brokers)
    parts["profile"] = search.profile
    if search.chaos_ms is not None:
        parts["chaos"] = str(search.chaos_ms)
    if search.faults != _usual_faults(search.mutant, search.profile):
        parts["faults"] = OF_PROFILE if search.faults is None else ".".join(search.faults)
    if search.mutant is not None:
        parts["bug"] = search.mutant
    if run.deeds:
        parts["do"] = ",".join(map(_deed_text, run.deeds))
    return "&".join(f"{name}={quote(value, safe='.,')}" for name, value in parts.items())


def _deed_text(deed: Deed) -> str:
    text = quote(deed.text, safe="").replace(".", "%2E")
    parts = (str(deed.at_ms), deed.name, "-".join(map(str, deed.nodes)), str(deed.ms) if deed.ms else "", text)
    return ".".join(parts).rstrip(".")


def run_from(fragment: str) -> LabRun:
    """The run of a fragment, with or without the `#` and what stands before it.

    Raises:
        BadLink: The text is none, or this version has no such nodes, profile, bug or deed.
    """
    text = fragment.rpartition("#")[2]
    if len(text) > LONGEST:
        raise BadLink(f"a link has at most {LONGEST} characters")
    known = dict(parse_qsl(text, keep_blank_values=True))
    try:
        run = _run(known)
    except ValueError as failure:
        raise BadLink(f"this is no link to a run: {failure}") from failure
    _check(run)
    return run


def _run(known: dict[str, str]) -> LabRun:
    mutant, profile, named = known.get("bug"), known.get("profile", QUIET.name), known.get("faults")
    faults = _usual_faults(mutant, profile) if named is None else None if named == OF_PROFILE else _named(named)
    search = SeedSearch(
        members=known.get("members", "replica"),
        nodes=int(known["nodes"]) if "nodes" in known else None,
        brokers=int(known.get("brokers", SeedSearch().brokers)),
        profile=profile,
        chaos_ms=int(known["chaos"]) if "chaos" in known else None,
        faults=faults,
        mutant=mutant,
    )
    deeds = tuple(map(_deed, known["do"].split(","))) if known.get("do") else ()
    return LabRun(search, int(known.get("seed", 0)), deeds)


def _named(faults: str) -> tuple[str, ...]:
    names = tuple(faults.split(".")) if faults else ()
    unknown = [one for one in names if one not in (*FAULTS, *FOCUSED_STRIKES, *ONLY_BY_NAME)]
    if unknown:
        raise BadLink(f"this version has no fault {unknown[0]!r}")
    return names


def _usual_faults(mutant: str | None, profile: str) -> tuple[str, ...] | None:
    """The faults that `kraft sim run --mutant` chooses without `--faults` and `--profile`."""
    bug = None if mutant is None else bugs().get(mutant)
    return bug.faults if bug is not None and bug.profile == profile else None


def _deed(text: str) -> Deed:
    at_ms, name, *more = text.split(".", 4)
    nodes, ms, written = (*more, "", "", "")[:3]
    ids = tuple(map(int, nodes.split("-"))) if nodes else ()
    return Deed(int(at_ms), name, ids, int(ms) if ms else 0, unquote(written))


def _check(run: LabRun) -> None:
    search = run.search
    if search.members not in KINDS:
        raise BadLink(f"this version has no nodes of the kind {search.members!r}")
    if search.profile not in (*PROFILES, BY_TURNS):
        raise BadLink(f"this version has no profile {search.profile!r}")
    if search.mutant is not None and search.mutant not in bugs():
        raise BadLink(f"this version has no bug {search.mutant!r} to plant")
    if not (1 <= (search.nodes or 1) <= MOST_NODES and 0 <= search.brokers <= MOST_NODES):
        raise BadLink(f"a run has 1 to {MOST_NODES} voters, and at most as many brokers")
    if not 0 <= (search.chaos_ms or 0) <= MOST_CHAOS_MS:
        raise BadLink(f"faults occur for at most {MOST_CHAOS_MS} ms")
    times = [deed.at_ms for deed in run.deeds]
    if times != sorted(times):
        raise BadLink("the deeds are not in the order of their times")
