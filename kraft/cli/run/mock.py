"""`kraft mock`: one node in memory, for tests of programs in any language."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any, Final

import click

from kraft.config import UsageError

_FAULTS: Final = ("fail_next", "delay", "throttle", "break_connection", "slow_disk", "full_disk")


@click.command(
    "mock",
    short_help="Run one node in memory, for tests.",
    epilog="Example: kraft mock --port 9092",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="0 for any free port.")
@click.option("--faults", type=click.Path(exists=True, dir_okay=False), help="A JSON file with faults from the start.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of everything that is random.")
def mock_command(*, port: int, faults: str | None, seed: int) -> None:
    """Run a broker with its controller, in memory, until SIGTERM or Ctrl-C.

    Once it serves, it prints one line: a JSON object with the addresses of its listeners by protocol. The file of
    --faults is a JSON list of objects like {"fault": "fail_next", "api": "Produce", "error": "NOT_ENOUGH_REPLICAS"}.
    """
    from kraft.testing.kafka import Kafka
    from kraft.testing.live import SECURITY

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    given = [] if faults is None else _read(faults)
    with Kafka(seed=seed, ports={"PLAINTEXT": port}) as kafka:
        for fault, arguments in given:
            try:
                getattr(kafka, fault)(**arguments)
            except (TypeError, ValueError) as bad:
                raise UsageError(f"{fault}: {bad}", where=str(faults)) from bad
        addresses = {name: kafka.get_bootstrap_server(name) for name in SECURITY}
        click.echo(json.dumps({"event": "ready", **addresses}))
        ended.wait()


def _read(path: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
        faults = [(one.pop("fault"), one) for one in found]
    except (ValueError, KeyError, AttributeError, TypeError) as bad:
        raise UsageError(f"this is no JSON list of objects with a fault: {bad!r}", where=path) from bad
    for fault, _ in faults:
        if fault not in _FAULTS:
            raise UsageError(f"there is no fault {fault!r}; there are {', '.join(_FAULTS)}", where=path)
    return faults
