"""Reads the plan that `kraft recover plan --json` has printed, and compares it with the directories of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from kraft.config import UsageError
from kraft.config.errors import CommandFailed
from kraft.operate.recover.plan import Plan, PlanOptions
from kraft.operate.recover.plan_json import directory_json

_COMPARED = ("nodeId", "directoryId", "logStart", "logEnd", "lastEpoch", "epochStarts", "quorumState")
_HINT = "Make one with `kraft recover plan --json DIR… --brokers DIR… > plan.json`."


class PlanFile(Struct, frozen=True, kw_only=True):
    """What `apply` needs of a plan: the directories, the choices, and the facts to compare."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]
    options: PlanOptions
    directories: dict[str, dict[str, Any]]
    best: str


def read_plan_file(path: str) -> PlanFile:
    """Read a plan; raises `UsageError` for any other content, and `OSError`."""
    try:
        plan = json.loads(Path(path).read_text())
        directories: dict[str, dict[str, Any]] = plan["directories"]
        voter_ids = plan["configuredVoterIds"]
        return PlanFile(
            controllers=tuple(directories[name]["path"] for name in plan["given"]["controllers"]),
            brokers=tuple(directories[name]["path"] for name in plan["given"]["brokers"]),
            options=PlanOptions(
                observers=plan["observersMaySeed"],
                voter_ids=None if voter_ids is None else tuple(voter_ids),
                gone=tuple(plan["brokersGone"]),
                truncate_to=plan["truncateTo"],
            ),
            directories=directories,
            best=plan["best"],
        )
    except (ValueError, KeyError, TypeError) as bad:
        raise UsageError(f"this is no plan of kraft recover: {bad!r}", where=path, hint=_HINT) from bad


def check_unchanged(planned: PlanFile, plan: Plan, path: str) -> None:
    """Raise `CommandFailed` if a directory differs from the plan: a node was started meanwhile."""
    for one in plan.inventory.dirs:
        now, before = directory_json(one), planned.directories[one.name]
        for key in _COMPARED:
            if now.get(key) != before.get(key):
                change = f"{key} was {before.get(key)} and is {now.get(key)}"
                raise CommandFailed(
                    f"{one.path} has changed since the plan was made: {change}",
                    hint=f"Stop the node that uses it, and make the plan in {path} again.",
                )
