"""Certificates of a running quorum change: under load no request is lost. `quorum status --why` tells their ends."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from ssl import PEM_cert_to_DER_cert

import pytest
import trio

from embedded_quorum import configs
from kraft.admin import AdminClient, QuorumDescription, open_admin
from kraft.admin.client import ConfigChange, ResourceType
from kraft.config import Config
from kraft.node.embed import open_node
from kraft.process.hosting import host_controller
from kraft.security.certificates import Certificate
from kraft.security.clients import ClientSecurity, load_client
from support.eventually import pause
from support.interop.certificates import Stores, another_authority, authority, issue
from support.kraft.command_line import run
from support.loopback import free_ports
from transport.interface import Endpoint, Failed
from transport.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

UNHURRIED = {"controller.quorum.election.timeout.ms": "1000", "controller.quorum.fetch.timeout.ms": "5000"}
SECONDS = 90


class Quorum:
    """Three controllers with certificates, and the files that they and their administrator use."""

    def __init__(self, root: Path) -> None:
        self.stores = root / "stores"
        self.write()
        self.write(name="admin")
        trust = self.stores / "c1.trust.pem"
        self.configs: list[Config] = configs(
            root,
            free_ports(3),
            **UNHURRIED,
            **{
                "listener.security.protocol.map": "CONTROLLER:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.stores / "c1.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(trust),
                "listener.name.controller.ssl.client.auth": "required",
            },
        )
        self.client = root / "admin.properties"
        self.client.write_text(
            "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
            f"ssl.keystore.location={self.stores / 'admin.pem'}\nssl.truststore.location={trust}\n"
        )
        self.endpoints = [Endpoint(one.listeners[0].host, one.listeners[0].port) for one in self.configs]

    def write(self, days: int = 60, *, name: str = "c1") -> Path:
        """New files of the same name and the same authority."""
        return Stores(self.stores, issue("c1", days=days), name).pem

    @property
    def security(self) -> ClientSecurity:
        """The client's security, by the files as they are now."""
        return load_client(str(self.client))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Callable[[list[int]], Awaitable[None]]]:
        """Runs the nodes; yields a function that restarts some of them, by id, after all of these have ended."""
        lives: dict[int, tuple[trio.CancelScope, trio.Event]] = {}
        async with trio.open_nursery() as nursery:

            async def start(ids: list[int]) -> None:
                for config in self.configs:
                    if config.node_id in ids:
                        lives[config.node_id] = await nursery.start(_serve, config)

            async def restart(ids: list[int]) -> None:
                for life, _ in map(lives.__getitem__, ids):
                    life.cancel()
                for _, ended in map(lives.__getitem__, ids):
                    await ended.wait()
                await start(ids)

            await start([1, 2, 3])
            yield restart
            nursery.cancel_scope.cancel()

    async def leader(self) -> QuorumDescription:
        """The quorum, when it has a leader with which every voter has fetched."""
        async with self.admin() as admin:
            while True:
                found = await admin.describe_quorum()
                if found.leader_id > 0 and all(one.log_end_offset >= 0 for one in found.voters):
                    return found
                await pause()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AdminClient]:
        async with open_admin(self.endpoints, transport=self.security.transport()) as admin:
            yield admin

    async def ends(self, endpoint: Endpoint) -> str | None:
        """When the certificate of a new connection to this controller ends; None if the connection is refused."""
        async with self.admin() as admin:
            await admin.ask(endpoint, alter(0), IncrementalAlterConfigsResponse)
            shown = admin.certificate_of(endpoint)
            return None if shown is None else str(Certificate.parse(shown).ends.date())

    async def until_shown(self, endpoints: list[Endpoint], ends: str) -> None:
        """Wait until new connections to these controllers show a certificate of this end."""

        async def is_shown() -> bool:
            return [await self.ends(endpoint) for endpoint in endpoints] == [ends] * len(endpoints)

        await until(is_shown)


async def _serve(config: Config, *, task_status: trio.TaskStatus[tuple[trio.CancelScope, trio.Event]]) -> None:
    ended = trio.Event()
    with trio.CancelScope() as life:
        async with open_node(config, application=host_controller):
            task_status.started((life, ended))
            await trio.sleep_forever()
    ended.set()


def alter(value: int) -> IncrementalAlterConfigsRequest:
    change = AlterableConfig(name="message.max.bytes", value=str(10_000 + value))
    return IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=4, configs=[change])])


def end_of(pem: Path) -> str:
    """When the first certificate of a file ends."""
    text = pem.read_text()
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
    return str(Certificate.parse(PEM_cert_to_DER_cert(text[begin:end])).ends.date())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until the condition holds."""
    while True:
        if await condition():
            return
        await pause()


async def logged(caplog: pytest.LogCaptureFixture, found: Callable[[str], bool]) -> str:
    """The first line of the log for which this holds."""
    while True:
        for record in caplog.records:
            if found(record.getMessage()):
                return record.getMessage()
        await pause()


async def test_certificates_are_replaced_under_load_without_a_lost_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    quorum = Quorum(tmp_path)
    done = [0, 0]

    async def load(leader: Endpoint) -> None:
        """Each write has to succeed at the first attempt."""
        async with quorum.admin() as admin:
            while True:
                await write(admin, leader, done[0])
                done[0] += 1

    async def connect(leader: Endpoint) -> None:
        """Each new connection has to succeed at the first attempt, whichever certificates the two sides use."""
        while True:
            async with quorum.admin() as admin:
                await write(admin, leader, done[1])
            done[1] += 1

    async def write(admin: AdminClient, leader: Endpoint, value: int) -> None:
        answer = await admin.ask(leader, alter(value), IncrementalAlterConfigsResponse, timeout_ms=20_000)
        assert not isinstance(answer, Failed), answer
        assert [one.error_code for one in answer.responses] == [0], answer

    with trio.fail_after(SECONDS):
        async with quorum.running(), trio.open_nursery() as nursery:
            found = await quorum.leader()
            leader, epoch = quorum.endpoints[found.leader_id - 1], found.leader_epoch
            nursery.start_soon(load, leader)
            nursery.start_soon(connect, leader)

            # The same authority; the new certificate is near its end.
            quorum.write(days=20)
            await quorum.until_shown(quorum.endpoints, end_of(quorum.stores / "c1.pem"))
            why = await status(quorum, capsys, "--json")
            assert {one["certificate"]["warning"].split(", ")[-1] for one in json.loads(why)["why"]} == {"in 20 days"}
            assert "the certificate expires at" in await status(quorum, capsys)
            await logged(caplog, lambda line: line.startswith("certificate node=2 setting=ssl.keystore.location"))

            # A broken file: the certificates in use stay, and new connections are accepted.
            good = (quorum.stores / "c1.pem").read_bytes()
            (quorum.stores / "c1.pem").write_bytes(good.replace(b"BEGIN CERTIFICATE", b"BEGIN CERTIFICAT"))
            line = await logged(caplog, lambda line: line.startswith("stores-kept node=3"))
            assert "ssl.keystore.location: there is no certificate in PEM form" in line
            (quorum.stores / "c1.pem").write_bytes(good)
            for endpoint in quorum.endpoints:
                assert await quorum.ends(endpoint) == end_of(quorum.stores / "c1.pem")

            # The dynamic configuration of one controller, as `kafka-configs` alters it.
            other = quorum.write(days=120, name="other")
            async with quorum.admin() as admin:
                key = "listener.name.controller.ssl.keystore.location"
                change = ConfigChange(resource_type=ResourceType.BROKER, resource_name="2", key=key, value=str(other))
                await admin.alter_configs([change])
            await quorum.until_shown([quorum.endpoints[1]], end_of(other))
            assert await quorum.ends(quorum.endpoints[0]) == end_of(quorum.stores / "c1.pem")

            before = list(done)

            async def goes_on() -> bool:
                return all(now >= then + 5 for now, then in zip(done, before, strict=True))

            await until(goes_on)
            found = await quorum.leader()
            assert (quorum.endpoints[found.leader_id - 1], found.leader_epoch) == (leader, epoch)
            nursery.cancel_scope.cancel()


async def status(quorum: Quorum, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The output of `kraft quorum status --why`."""
    where = ("--bootstrap-controller", str(quorum.endpoints[0]), "--command-config", str(quorum.client))
    told = await trio.to_thread.run_sync(partial(run, capsys, "quorum", "status", "--why", *where, *options))
    assert told.code == 0, told.err
    return told.out


async def test_outgoing_connections_have_the_new_certificate_and_the_new_authority(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A change of the authority in three steps; then the one node that has not restarted connects to the others."""
    caplog.set_level(logging.INFO)
    quorum = Quorum(tmp_path)
    trust, store = quorum.stores / "c1.trust.pem", quorum.stores / "c1.pem"
    both = authority().cert_pem.bytes() + another_authority().cert_pem.bytes()

    async def is_done(step: int) -> bool:
        return sum(record.getMessage().startswith("stores-replaced") for record in caplog.records) >= 3 * (step + 1)

    with trio.fail_after(SECONDS):
        async with quorum.running() as restart:
            for step in range(3):
                if step == 1:
                    Stores(quorum.stores, issue("c1", by=another_authority()), "c1")
                trust.write_bytes(another_authority().cert_pem.bytes() if step == 2 else both)
                Stores(quorum.stores, issue("admin", by=another_authority() if step else authority()), "admin")
                await until(partial(is_done, step))
            assert [await quorum.ends(endpoint) for endpoint in quorum.endpoints] == [end_of(store)] * 3
            before = await quorum.leader()
            follower = next(one for one in (1, 2, 3) if one != before.leader_id)
            await restart([one for one in (1, 2, 3) if one != follower])
            # Its connections have ended. Only new ones, by the new trust store, carry votes to the others, or fetches.
            after = await quorum.leader()
            assert after.leader_epoch > before.leader_epoch
