"""Machines on one wire: network namespaces of this one, with addresses of their own and names from a hosts file."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_TOOLS = ("unshare", "nsenter", "ip", "mount", "hostname")
_WAYS = ((), ("--user", "--map-root-user"))
"""As root, or as the root of a user namespace."""
_LOBBY = """
set -e
mount --make-rprivate /
mount --bind "$1" /etc/hosts
mount -t tmpfs none /run
ip link set lo up
ip link add wire type bridge
ip link set wire up
ip address add 10.64.0.254/24 dev wire
ip address add fd64::fe/64 dev wire nodad
echo ready
exec cat
"""
_MACHINE = """
set -e
name=$1
ip netns add "$name"
ip link add "$name" type veth peer name eth0 netns "$name"
ip link set "$name" master wire up
ip -n "$name" link set lo up
ip -n "$name" link set eth0 up
"""
_ADDRESSES = """
set -e
name=$1
shift
ip -n "$name" address flush dev eth0 scope global
for address; do
  case $address in
    *:*) ip -n "$name" address add "$address/64" dev eth0 nodad ;;
    *) ip -n "$name" address add "$address/24" dev eth0 ;;
  esac
done
"""
_NAMED = """
hostname "$1"
shift
exec "$@"
"""


class Machines:
    """Made by `machines`. A command without a machine runs on one that is on the wire, too."""

    def __init__(self, lobby: int, way: Sequence[str], hosts: Path) -> None:
        same_user = ("--user", "--preserve-credentials") if way else ()
        self._enter = ("nsenter", "--target", str(lobby), "--net", "--mount", *same_user, "--")
        self._hosts = hosts

    def add(self, name: str, *addresses: str) -> None:
        """A machine of that name, with addresses of 10.64.0.0/24 and fd64::/64."""
        self._do(_MACHINE, name)
        self.move(name, *addresses)

    def move(self, name: str, *addresses: str) -> None:
        """Give a machine other addresses."""
        self._do(_ADDRESSES, name, *addresses)

    def name(self, addresses: Mapping[str, Sequence[str]]) -> None:
        """Write the hosts file that all of them share: the addresses of each machine, which is called `NAME.quorum`."""
        lines = [f"{address} {name}.quorum\n" for name, some in addresses.items() for address in some]
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))

    def command(self, words: Sequence[str], on: str | None = None) -> list[str]:
        """The command that runs `words` on a machine, which knows itself by its name."""
        if on is None:
            return [*self._enter, *words]
        named = ("unshare", "--uts", "sh", "-c", _NAMED, "sh", f"{on}.quorum")
        return [*self._enter, "ip", "netns", "exec", on, *named, *words]

    def _do(self, script: str, *arguments: str) -> None:
        command = self.command(("sh", "-c", script, "sh", *arguments))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@contextmanager
def machines(hosts: Path) -> Iterator[Machines]:
    """A wire without machines; `hosts` becomes their hosts file. Skips the test where that cannot be had."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"network namespaces need {', '.join(missing)}")
    hosts.touch()
    reasons = []
    for way in _WAYS:
        command = ["unshare", "--net", "--mount", *way, "sh", "-c", _LOBBY, "sh", str(hosts)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as lobby:
            assert lobby.stdin is not None
            assert lobby.stdout is not None
            assert lobby.stderr is not None
            if lobby.stdout.readline() != "ready\n":
                reasons.append(lobby.stderr.read().strip())
                continue
            try:
                yield Machines(lobby.pid, way, hosts)
            finally:
                lobby.stdin.close()
            return
    pytest.skip(f"network namespaces cannot be had here: {'; '.join(reasons)}")
