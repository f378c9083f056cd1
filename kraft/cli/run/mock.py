"""`kraft mock`: one node, in memory or in a directory, for tests of programs in any language."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from kraft.config import UsageError
from kraft.config.errors import CommandFailed

_LOOK_SECONDS: Final = 0.2
_CONTROL: Final = "CONTROL"
_FAULTS: Final = ("fail_next", "delay", "throttle", "break_connection", "slow_disk", "full_disk")


@click.command(
    "mock",
    short_help="Run a node or some, in memory or in a directory, for tests.",
    epilog="Example: kraft mock --port 9092 --registry",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="0 for any free port.")
@click.option(
    "--registry",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=8081,
    metavar="[PORT]",
    help="Serve a schema registry, too, at 8081 or at this port; 0 for any free one.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep everything in this directory; the next start goes on with it. Without this, it is in memory.",
)
@click.option(
    "--control",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=8082,
    metavar="[PORT]",
    help="Take faults, moves of leaders and the like over HTTP, at 8082 of loopback, or this port; 0 for any free one.",
)
@click.option("--brokers", type=click.IntRange(1, 100), default=1, show_default=True, help="How many brokers run.")
@click.option(
    "--controllers",
    type=click.IntRange(0, 9),
    help="How many controllers run apart from the brokers. By default one beside several brokers; one broker alone has "
    "both roles.",
)
@click.option("--faults", type=click.Path(exists=True, dir_okay=False), help="A JSON file with faults from the start.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of everything that is random.")
def mock_command(
    *,
    port: int,
    registry: int | None,
    directory: str | None,
    control: int | None,
    brokers: int,
    controllers: int | None,
    faults: str | None,
    seed: int,
) -> None:
    """Run a broker with its controller, or several, in memory or in a directory, until SIGTERM or Ctrl-C.

    Once it serves, it prints one line: a JSON object with the addresses of its listeners by protocol, and with the URLs
    of the schema registry as REGISTRY and of the control as CONTROL. At the control, POST /kill with {"node_id": 1}
    kills node 1, and GET / lists the verbs; with it the command goes on after its nodes. The file of --faults is a JSON
    list of objects like {"fault": "fail_next", "api": "Produce", "error": "NOT_ENOUGH_REPLICAS"}.
    """
    from kraft.testing.control import open_control
    from kraft.testing.kafka import REGISTRY, Kafka
    from kraft.testing.live import SECURITY
    from kraft.trio_thread import TrioThread

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    given = [] if faults is None else _read(faults)
    try:
        opened = Kafka(
            brokers=brokers,
            controllers=int(brokers > 1) if controllers is None else controllers,
            seed=seed,
            ports={"PLAINTEXT": port, REGISTRY: registry or 0},
            directory=directory,
        )
    except ValueError as bad:
        raise UsageError(str(bad)) from bad
    with opened as kafka, ExitStack() as stack:
        for fault, arguments in given:
            try:
                getattr(kafka, fault)(**arguments)
            except (TypeError, ValueError) as bad:
                raise UsageError(f"{fault}: {bad}", where=str(faults)) from bad
        addresses = {name: kafka.get_bootstrap_server(name) for name in SECURITY}
        if registry is not None:
            try:
                addresses[REGISTRY] = kafka.schema_registry_url
            except (ModuleNotFoundError, OSError) as failed:
                raise CommandFailed(str(failed)) from failed
        if control is not None:
            serving = TrioThread(open_control(kafka, control), "control of a mock")
            stack.callback(serving.stop)
            addresses[_CONTROL] = serving.value
        signal.signal(signal.SIGINT, lambda *_: ended.set())
        click.echo(json.dumps({"event": "ready", **addresses}))
        while not ended.wait(_LOOK_SECONDS):
            if control is None and not kafka.running:
                raise CommandFailed(f"the node has ended: {kafka.failure_of(*kafka.broker_ids)}")


def _read(path: str) -> list[tuple[str, dict[str, Any]]]:
    """The faults in a JSON file: the name of each, and its arguments."""
    try:
        entries = json.loads(Path(path).read_text("utf-8"))
        faults = [(one.pop("fault"), one) for one in entries]
    except (ValueError, KeyError, AttributeError, TypeError) as bad:
        raise UsageError(f"this is no JSON list of objects with a fault: {bad!r}", where=path) from bad
    for fault, _ in faults:
        if fault not in _FAULTS:
            raise UsageError(f"there is no fault {fault!r}; there are {', '.join(_FAULTS)}", where=path)
    return faults
