"""State machines in real processes over TCP and files, which are killed with commands in hand: nothing twice, nothing
lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest
import trio

from embedded_quorum import configs
from kraft.config import Config
from support.loopback import free_ports

PROGRAM = """
import json
import sys

import msgspec
import trio

import kraft


class Sold(msgspec.Struct, frozen=True):
    till: str
    number: int


class Shop(kraft.StateMachine[Sold, int]):
    def __init__(self):
        self.sold = []

    def apply(self, command, at):
        self.sold.append((command.till, command.number))
        return len(self.sold)

    def snapshot(self):
        return msgspec.msgpack.encode(self.sold)

    def restore(self, data):
        self.sold = msgspec.msgpack.decode(data, type=list[tuple[str, int]])


async def main(path):
    async with kraft.open_node(kraft.Config.load(path), state_machine=Shop) as node:
        async with trio.open_nursery() as nursery:
            async for line in trio.wrap_file(sys.stdin):
                nursery.start_soon(answer, node, *line.split())


async def answer(node, till, number):
    if till == "all":
        print("all", 0, json.dumps(await node.read(lambda shop: list(shop.sold))), flush=True)
    else:
        session = await node.open_session(till)
        try:
            print(till, number, await session.submit(Sold(till, int(number)), int(number)), flush=True)
        except kraft.Superseded:
            pass  # another process was quicker, and the till has gone on


trio.run(main, sys.argv[1])
"""


class Shops:
    """Three processes, and what they have answered."""

    def __init__(self, folder: Path, paths: dict[int, Path], nursery: trio.Nursery) -> None:
        self._program = folder / "shop.py"
        self._program.write_text(PROGRAM)
        self._paths = paths
        self._nursery = nursery
        self._processes: dict[int, trio.Process] = {}
        self._errors = folder / "errors"
        self.answers: dict[tuple[str, str], set[str]] = {}
        self._news = trio.lowlevel.ParkingLot()
        self._asking = trio.Lock()

    async def start(self, node_id: int) -> None:
        with self._errors.open("ab") as errors:
            process = await trio.lowlevel.open_process(
                [sys.executable, str(self._program), str(self._paths[node_id])],
                cwd=Path(__file__).parents[3],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._processes[node_id] = process
        self._nursery.start_soon(self._listen, process)

    async def kill(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.kill()
        await process.wait()

    async def close(self) -> None:
        for node_id in list(self._processes):
            await self.kill(node_id)

    async def _listen(self, process: trio.Process) -> None:
        assert process.stdout is not None
        text = b""
        async for piece in process.stdout:
            *lines, text = (text + piece).split(b"\n")
            for line in lines:
                till, number, answer = line.decode().split(" ", 2)
                self.answers.setdefault((till, number), set()).add(answer)
            self._news.unpark_all()

    async def ask(self, node_id: int, till: str, number: int) -> None:
        """Ask a process that runs; it may be dead before it answers."""
        stdin = self._processes[node_id].stdin
        assert stdin is not None
        async with self._asking:
            with suppress(trio.BrokenResourceError):
                await stdin.send_all(b"%s %d\n" % (till.encode(), number))

    async def hear(self, till: str, number: int, seconds: float) -> bool:
        """Wait until a process has answered this, or for so many seconds."""
        with trio.move_on_after(seconds):
            while (till, str(number)) not in self.answers:
                await self._news.park()
        return (till, str(number)) in self.answers

    def pick(self, rng: Random) -> int:
        return rng.choice(sorted(self._processes))


async def sell(shops: Shops, till: str, count: int, rng: Random) -> None:
    """Sell so many things, one after the other; a request without an answer is repeated at any process."""
    for number in range(1, count + 1):
        while True:
            await shops.ask(shops.pick(rng), till, number)
            if await shops.hear(till, number, 0.5):
                break


def properties(folder: Path, config: Config) -> Path:
    return folder / f"c{config.node_id}.properties"


@pytest.mark.parametrize(("kills", "count"), [(2, 12), pytest.param(20, 300, marks=pytest.mark.soak)])
async def test_commands_are_applied_exactly_once_while_processes_are_killed(
    tmp_path: Path, kills: int, count: int
) -> None:
    ports = free_ports(3)
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))
    paths = {}
    for config, port in zip(configs(tmp_path, ports), ports, strict=True):
        path = paths[config.node_id] = properties(tmp_path, config)
        path.write_text(
            f"process.roles=controller\nnode.id={config.node_id}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.quorum.voters={voters}\n"
            f"log.dirs={config.log_dirs[0]}\nmetadata.log.max.record.bytes.between.snapshots=3000\n"
        )
    rng = Random("tills")
    tills = ("a", "b", "c")
    with trio.fail_after(120 + 20 * kills):
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
            shops = Shops(tmp_path, paths, nursery)
            stack.push_async_callback(shops.close)
            for node_id in paths:
                await shops.start(node_id)
            async with trio.open_nursery() as selling:
                for till in tills:
                    selling.start_soon(sell, shops, till, count, rng)
                for at in range(kills):
                    await shops.hear("a", 1 + at * count // kills, 60)
                    victim = shops.pick(rng)
                    await shops.kill(victim)
                    await shops.start(victim)
            for node_id in paths:
                await shops.ask(node_id, "all", 0)
            seen: set[str] = set()
            while not seen:
                await shops.hear("all", 0, 60)
                seen = shops.answers[("all", "0")]
            await shops.close()
            nursery.cancel_scope.cancel()
    assert len(seen) == 1
    sold = [(till, number) for one in seen for till, number in json.loads(one)]
    assert sorted(sold) == sorted((till, number) for till in tills for number in range(1, count + 1))
    for till in tills:
        assert [number for one, number in sold if one == till] == list(range(1, count + 1))
    for (till, number), answers in shops.answers.items():
        if till != "all":
            assert answers == {str(1 + sold.index((till, int(number))))}
