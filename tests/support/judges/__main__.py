"""Runs a judge: tests that others have written, unchanged, against our brokers (`uv run poe judge NAME …`)."""

from __future__ import annotations

import sys

from support.judges import ducktape, junit, kfake, table

JUDGES = {"ducktape": ducktape.main, "junit": junit.main, "kfake": kfake.main, "page": table.main}

if __name__ == "__main__":
    name, *rest = sys.argv[1:] or [""]
    if name not in JUDGES:
        raise SystemExit(f"usage: judge {'|'.join(JUDGES)} …")
    sys.exit(JUDGES[name](rest))
