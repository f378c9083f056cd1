"""The costs of the start of the lab: first paint, interactive, its parts, and the bytes of the first load.

    uv run poe docs && uv run poe lab-times

starts Chromium anew for each of three loads, so that no cache helps. Processor time is that of the page with its
worker: it says what the page needs on a machine that is busy with something else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from support.lab.chromium import opened_tab, served

ROOT: Final = Path(__file__).resolve().parents[2]
SITE: Final = ROOT / "out" / "site" / "docs" / "lab"
LOADS: Final = 3
MEASURED: Final = """({
  paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  interactive: lab.interactiveMs, ...lab.took })"""


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def load() -> dict[str, float]:
    """The times of one load in a new browser, in ms."""
    with TemporaryDirectory() as folder, served(SITE) as address, opened_tab(Path(folder)) as tab:
        tab.look_like(1280, 1300)
        tab.call("Performance.enable")
        tab.open(f"{address}/index.html")
        tab.until("window.lab")
        times: dict[str, float] = tab.evaluate(MEASURED)
        metrics: list[dict[str, Any]] = tab.call("Performance.getMetrics")["metrics"]
        processor = next(one["value"] for one in metrics if one["name"] == "ProcessTime")
        return {**times, "processor": 1000 * processor}


def main() -> int:
    """Print the times of all loads, and the bytes of each part of the page."""
    if not (SITE / "packages.zip").exists():
        sys.stderr.write("There is no page of the lab: run `uv run poe docs` first.\n")
        return 1
    write(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    loads = [load() for _ in range(LOADS)]
    names = {
        "paint": "first paint",
        "interactive": "interactive",
        "python": "  of it: Python is fetched, compiled and started",
        "packages": "  of it: packages are unpacked",
        "import": "  of it: packages are imported",
        "processor": "processor time of the page",
    }
    for name, told in names.items():
        write(f"{told:50}" + "".join(f"{one[name] / 1000:8.2f} s" for one in loads))
    sizes = {path: path.stat().st_size for path in SITE.rglob("*") if path.is_file()}
    for path, size in sorted(sizes.items(), key=lambda one: -one[1]):
        write(f"{path.relative_to(SITE).as_posix():50}{size:12,} bytes")
    write(f"{'first load':50}{sum(sizes.values()):12,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
