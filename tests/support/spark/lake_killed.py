"""One run into a lake that kills its process around a commit: one JSON object of settings."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from metadata_log.spark.lakes import lake as lakes
from metadata_log.spark.lakes.publish import materialize_into
from metadata_log.spark.lakes.rows import Commit, Lake
from metadata_log.spark.materialize import find_fleet, make_job
from support.spark.lake_rows import make_lake


def main() -> None:
    settings = json.loads(sys.argv[1])
    real, made = lakes.commit, 0

    def counted(lake: Lake, name: str, change: Commit) -> None:
        nonlocal made
        made += 1
        if made == settings["at"] and not settings["is_made"]:
            os.kill(os.getpid(), signal.SIGKILL)
        real(lake, name, change)
        if made == settings["at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    lakes.commit = counted
    kind, folder, location, options = settings["lake"]
    lake = make_lake(kind, Path(folder), location, options)
    job = make_job(settings["out"], run=settings["run"], views=settings["views"], is_staged=True)
    materialize_into(lake, find_fleet([f"{settings['night']}/*"], {}), job)


if __name__ == "__main__":
    main()
