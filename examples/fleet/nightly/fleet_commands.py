"""The commands of the nightly job, in their order: the DAG, the bundle and the tests run these and no others."""

from __future__ import annotations

import os
import shlex

BACKUP = os.environ.get("KRAFT_BACKUP", "backup/*")
"""Where the archives of the clusters are: a glob."""
LAKE = os.environ.get("KRAFT_LAKE", "lake")
"""The directory of the tables and the report."""
FORMAT = os.environ.get("KRAFT_FORMAT", "parquet")
"""The format of the tables: `parquet`, `delta` or `iceberg`."""
CLUSTERS = os.environ.get("KRAFT_CLUSTERS", "clusters.toml")
"""The file with the names of the clusters."""
MASTER = os.environ.get("KRAFT_MASTER", "local[2]")
"""Where Spark makes the report."""


def commands(run_id: str) -> dict[str, list[str]]:
    """The steps by name. Each step may be repeated: a step that is done changes nothing, or replaces its output.

    Args:
        run_id: The id of the run, which the lineage columns and the table `runs` keep.
    """
    return {
        "materialize": [
            *("kraft", "fleet", "materialize", BACKUP, "--out", LAKE, "--format", FORMAT, "--clusters", CLUSTERS),
            *("--gate", "fail", "--run-id", run_id),
        ],
        "report": [
            *("kraft", "fleet", "report", BACKUP, "--clusters", CLUSTERS, "--master", MASTER),
            *("--html", f"{LAKE}/fleet.html"),
        ],
    }


def shell(run_id: str) -> dict[str, str]:
    """The same steps as lines for a shell."""
    return {name: shlex.join(words) for name, words in commands(run_id).items()}
