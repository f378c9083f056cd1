"""Properties files that combine the settings of listeners, for a comparison with Kafka's verdict on each."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

_VERDICTS: Final = Path(__file__).parents[1] / "data/listener_verdicts.txt.xz"

ROLES: Final = ("broker", "controller", "broker,controller")
MAPS: Final = (
    "",
    "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
    "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT,D:SSL",
    "A:PLAINTEXT,C:PLAINTEXT",
)
LISTENERS: Final = (
    "",
    "A://127.0.0.1:9092",
    "A://127.0.0.1:9092,B://127.0.0.1:9093",
    "A://127.0.0.1:9092,C://127.0.0.1:9094",
    "A://127.0.0.1:9092,B://:9093,C://:9094",
    "C://127.0.0.1:9094",
    "C://:9094",
    "PLAINTEXT://127.0.0.1:9092",
    "PLAINTEXT://0.0.0.0:9092",
)
ADVERTISED: Final = (
    "",
    " ",
    "A://h:9092",
    "B://h:9093",
    "A://h:9092,B://h:9093",
    "A://0.0.0.0:9092",
    "C://h:9094",
    "A://h:9092,C://h:9094",
    "D://h:1",
    "PLAINTEXT://h:9092",
)
BETWEEN_BROKERS: Final = (
    "",
    "inter.broker.listener.name=A",
    "inter.broker.listener.name=B",
    "inter.broker.listener.name=C",
    "inter.broker.listener.name=D",
    "security.inter.broker.protocol=PLAINTEXT",
    "security.inter.broker.protocol=SSL",
    "inter.broker.listener.name=A\nsecurity.inter.broker.protocol=PLAINTEXT",
)
CONTROLLERS: Final = ("C", "C,D", "")
EARLY: Final = ("", "A", "D")


def files() -> Iterator[str]:
    """Every combination; each is a whole file of properties. A space is a key with an empty value."""
    plain = product(ROLES, MAPS, LISTENERS, ADVERTISED, BETWEEN_BROKERS, ("C",), ("",))
    few = product(ROLES, MAPS[:2], LISTENERS[3:6], ADVERTISED[:2], BETWEEN_BROKERS[:3], CONTROLLERS[1:], EARLY)
    early = product(ROLES, MAPS[1:2], LISTENERS[1:5], ADVERTISED[:1], BETWEEN_BROKERS[:1], ("C",), EARLY[1:])
    for roles, protocols, listeners, advertised, between, controllers, started in (*plain, *few, *early):
        voter = 1 if "controller" in roles else 2
        lines = [
            f"process.roles={roles}",
            "node.id=1",
            f"controller.quorum.voters={voter}@127.0.0.1:9094",
            "log.dirs=/x",
        ]
        lines += [f"controller.listener.names={controllers}"]
        settings = {
            "listener.security.protocol.map": protocols,
            "listeners": listeners,
            "advertised.listeners": advertised,
            "early.start.listeners": started,
        }
        lines += [f"{key}={value.strip()}" for key, value in settings.items() if value]
        yield "\n".join([*lines, between, ""])


def stored() -> list[bool]:
    """Whether Kafka reads each of these files: a letter r for each that it reads."""
    return [letter == "r" for letter in lzma.decompress(_VERDICTS.read_bytes()).decode()]
