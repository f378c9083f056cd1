"""Stands for Docker where a suite of other people starts its brokers with it: the driver does what is asked.

As a module it has the few names that aiokafka's fixtures use; as a program it takes `compose start NAME` and
`compose stop NAME`. It runs in the interpreter of the suite, and uses nothing of this project.
"""

import json
import os
import socket
import sys
from types import SimpleNamespace
from typing import Any


def ask(*words: str, **more: str) -> tuple[int, bytes]:
    """Ask the driver; returns an exit code and what was printed."""
    host, _, port = os.environ["SUITE_DRIVER"].rpartition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rwb") as stream:
        stream.write(json.dumps({"words": words, "more": more}).encode() + b"\n")
        stream.flush()
        answer = json.loads(stream.readline())
    return answer["code"], answer["text"].encode()


class Container:
    """The brokers of the driver."""

    def exec_run(self, command: Any, **_: Any) -> tuple[int, bytes]:
        return ask("exec", *(command.split() if isinstance(command, str) else command))

    def stop(self) -> None:
        """They end with the driver."""


def from_env() -> SimpleNamespace:
    """A client with what the fixtures call."""

    def run(environment: dict[str, Any], **_: Any) -> Container:
        ask("run", **{name: str(value) for name, value in environment.items()})
        return Container()

    return SimpleNamespace(
        close=lambda: None, containers=SimpleNamespace(run=run), images=SimpleNamespace(pull=lambda _: None)
    )


models = SimpleNamespace(containers=SimpleNamespace(Container=Container))

if __name__ == "__main__":
    code, text = ask(*sys.argv[1:])
    sys.stdout.buffer.write(text)
    sys.exit(code)
