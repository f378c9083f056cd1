"""A watch of etcd by its JSON gateway, and puts whose time until the watcher sees them is measured."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable

from load import Address
from peer_quorums.etcd import EtcdClient


class EtcdWatch:
    """Calls a function with the key and the value of each change below a prefix, in a thread of its own."""

    def __init__(self, address: Address, prefix: str, on_change: Callable[[bytes, bytes], None]) -> None:
        self._on_change = on_change
        self._connection = http.client.HTTPConnection(*address)
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        body = {"create_request": {"key": _encoded(prefix), "range_end": _encoded(end)}}
        self._connection.request("POST", "/v3/watch", json.dumps(body))
        self._answer = self._connection.getresponse()
        assert json.loads(self._answer.readline())["result"]["created"]
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while line := self._answer.readline():
            for event in json.loads(line)["result"].get("events", ()):
                one = event["kv"]
                self._on_change(base64.b64decode(one["key"]), base64.b64decode(one.get("value", "")))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class WatchedClient(EtcdClient):
    """A client that notes when it put each of its values."""

    def __init__(self, leader: Address, number: int, value_bytes: int, began: dict[tuple[bytes, bytes], float]) -> None:
        super().__init__(leader, number, value_bytes)
        self._key = f"bench-{number}".encode()
        self._values = [f"bench-{number}-{turn}-".ljust(value_bytes, "x").encode() for turn in (0, 1)]
        self._began = began

    def send(self) -> None:
        """Put the next of the two values."""
        self._began[self._key, self._values[self._turn]] = time.perf_counter()
        super().send()
