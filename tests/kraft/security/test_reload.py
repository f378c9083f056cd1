"""Stores that change: good ones replace those in use, and bad ones leave them, with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from kraft.config import Config
from kraft.config.listener_settings import TO_BROKERS, TO_CONTROLLERS
from kraft.config.tls_settings import is_reloadable
from kraft.security.certificates import validity_warning
from kraft.security.contexts import load_tls
from kraft.security.reload import Kept, Replaced, Stores
from support.interop.certificates import Stores as Files
from support.interop.certificates import another_authority, authority, issue

LOCATION = "listener.name.ctl.ssl.keystore.location"


class Node:
    """A node's settings, and its files."""

    def __init__(self, root: Path, *lines: str) -> None:
        self.root = root
        self.files = Files(root, issue("c1"), "c1")
        self.config = Config.parse(
            "\n".join(
                (
                    "process.roles=controller",
                    "node.id=1",
                    "controller.listener.names=CTL",
                    "listeners=CTL://127.0.0.1:9093",
                    "listener.security.protocol.map=CTL:SSL",
                    "controller.quorum.voters=1@127.0.0.1:9093",
                    "ssl.keystore.type=PEM",
                    f"ssl.keystore.location={self.files.pem}",
                    "ssl.truststore.type=PEM",
                    f"ssl.truststore.location={self.files.trust_pem}",
                    "listener.name.ctl.ssl.client.auth=required",
                    *lines,
                )
            ),
            source="c1.properties",
        )
        self.stores = Stores(self.config.tls, load_tls(self.config))

    def after(self, change: Callable[[], object]) -> Replaced | Kept | None:
        """The outcome of a change of files."""
        before = self.stores.loaded
        change()
        assert not self.stores.look({}), "the first look may see a file in the middle of a write"
        assert self.stores.look({})
        outcome = self.stores.read()
        if not isinstance(outcome, Replaced):
            assert self.stores.loaded is before
        return outcome


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_renewed_certificate_replaces_that_in_use(node: Node) -> None:
    before = node.stores.loaded.own[0].certificate
    outcome = node.after(lambda: Files(node.root, issue("c1", days=90), "c1"))
    assert isinstance(outcome, Replaced)
    assert outcome.loaded is node.stores.loaded
    assert outcome.files == (str(node.files.pem), str(node.files.trust_pem))
    assert node.stores.loaded.own[0].certificate.ends - before.ends >= timedelta(days=29)
    assert not node.stores.look({})


@pytest.mark.parametrize("listener", ["controller", "brokers"])
def test_a_broker_replaces_the_stores_for_controllers_and_those_for_brokers(tmp_path: Path, listener: str) -> None:
    """And keeps both where one of them is not sound."""
    files = {name: Files(tmp_path, issue("b"), name) for name in ("controller", "brokers")}
    stores = [
        f"listener.name.{name}.ssl.{key}={value}"
        for name, one in files.items()
        for key, value in (
            ("keystore.type", "PEM"),
            ("keystore.location", one.pem),
            ("truststore.type", "PEM"),
            ("truststore.location", one.trust_pem),
        )
    ]
    lines = (
        "process.roles=broker",
        "node.id=101",
        "listeners=BROKERS://127.0.0.1:9092",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:SSL,BROKERS:SSL",
        "controller.quorum.voters=1@127.0.0.1:9093",
        "inter.broker.listener.name=BROKERS",
        *stores,
    )
    node = Node.__new__(Node)
    node.config = Config.parse("\n".join(lines))
    node.stores = Stores(node.config.tls, load_tls(node.config))
    before = node.stores.loaded.tls
    outcome = node.after(lambda: Files(tmp_path, issue("b", days=90), listener))
    assert isinstance(outcome, Replaced)
    assert len(outcome.files) == 4
    kind = TO_BROKERS if listener == "brokers" else TO_CONTROLLERS
    ends = {one: own.certificate.ends for one, own in outcome.loaded.outgoing.items()}
    assert max(ends, key=ends.__getitem__) == kind
    assert before is not None
    assert outcome.loaded.tls is not None
    assert outcome.loaded.tls.outgoing[kind] is not before.outgoing[kind]
    kept = node.after(lambda: files[listener].trust_pem.write_bytes(another_authority().cert_pem.bytes()))
    if listener == "brokers":
        assert isinstance(kept, Kept)
        assert "listener BROKERS: this node could not connect to itself any more" in kept.why
    else:
        assert isinstance(kept, Replaced), "a broker has no listener of controllers to try"


def test_files_at_rest_are_not_read(node: Node) -> None:
    assert [node.stores.look({}) for _ in range(40)] == [False] * 40


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    """Secrets of Kubernetes are directories behind a link that changes."""
    for name in ("old", "new"):
        Files(tmp_path / name, issue("c1"), "c1")
    link = tmp_path / "now"
    link.symlink_to(tmp_path / "old")
    node = Node(tmp_path / "node", f"listener.name.ctl.ssl.keystore.location={link}/c1.pem")

    def lead_elsewhere() -> None:
        (tmp_path / "next").symlink_to(tmp_path / "new")
        os.replace(tmp_path / "next", link)

    assert isinstance(node.after(lead_elsewhere), Replaced)


def broken(node: Node) -> None:
    node.files.pem.write_bytes(node.files.pem.read_bytes()[:900])


def with_another_key(node: Node) -> None:
    other = Files(node.root / "more", issue("c1"), "c1")
    node.files.pem.write_bytes(other.key + node.files.chain)


def without_trust(node: Node) -> None:
    node.files.trust_pem.write_bytes(b"")


def with_another_authority(node: Node) -> None:
    node.files.trust_pem.write_bytes(another_authority().cert_pem.bytes())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(broken, "there is no certificate in PEM form (c1.properties:8)", id="cut"),
        pytest.param(lambda node: node.files.pem.unlink(), "No such file or directory", id="removed"),
        pytest.param(with_another_key, "the key is not the one of the certificate", id="other-key"),
        pytest.param(without_trust, "ssl.truststore.location: the trust store has no certificate", id="no-trust"),
        pytest.param(with_another_authority, "this node could not connect to itself any more", id="other-trust"),
        pytest.param(
            lambda node: Files(node.root, issue("c1", days=-1), "c1"), "the certificate has expired at", id="expired"
        ),
        pytest.param(
            lambda node: Files(node.root, issue("c1", is_early=True), "c1"), "is not valid before", id="too-early"
        ),
        pytest.param(
            lambda node: Files(node.root, issue("c2"), "c1"),
            "is that of CN=c2,OU=tests,",
            id="other-name",
        ),
        pytest.param(
            lambda node: Files(node.root, issue("c1", "localhost"), "c1"),
            "the certificate does not name 127.0.0.1, ::1, as the one in use does",
            id="other-hosts",
        ),
        pytest.param(
            lambda node: Files(node.root, issue("c1", by=another_authority()), "c1"),
            "the peer's certificate is not accepted: unable to get local issuer certificate",
            id="other-authority",
        ),
    ],
)
def test_bad_stores_leave_those_in_use_and_the_reason_is_told_once(
    node: Node, change: Callable[[Node], object], told: str
) -> None:
    outcome = node.after(lambda: change(node))
    assert isinstance(outcome, Kept)
    assert told in outcome.why
    assert "PRIVATE" not in outcome.why.replace("BEGIN PRIVATE KEY", "")
    tries = [node.stores.read() for _ in range(93) if node.stores.look({})]
    assert tries == [None] * 3, "the time of a certificate may come without a change, so that the node tries again"
    node.files.trust_pem.write_bytes(node.files.trusted)
    good = node.after(lambda: Files(node.root, issue("c1", days=90), "c1"))
    assert isinstance(good, Replaced), good


def test_settings_allow_another_name_and_fewer_hosts(tmp_path: Path) -> None:
    node = Node(tmp_path, "ssl.allow.dn.changes=true", "ssl.allow.san.changes=true")
    assert isinstance(node.after(lambda: Files(node.root, issue("c2", "localhost"), "c1")), Replaced)


def test_an_authority_is_replaced_in_three_steps(node: Node) -> None:
    """Trust both authorities, then the certificate of the new one, then trust that alone."""
    both = authority().cert_pem.bytes() + another_authority().cert_pem.bytes()
    assert isinstance(node.after(lambda: node.files.trust_pem.write_bytes(both)), Replaced)

    def issue_anew() -> None:
        Files(node.root, issue("c1", by=another_authority()), "c1")
        node.files.trust_pem.write_bytes(both)

    assert isinstance(node.after(issue_anew), Replaced)
    assert isinstance(node.after(lambda: with_another_authority(node)), Replaced)


def test_the_dynamic_configuration_names_another_store(node: Node) -> None:
    """Kafka's way: `kafka-configs --alter --entity-type brokers --add-config listener.name.ctl.ssl.keystore…`."""
    values = {LOCATION: str(Files(node.root / "next", issue("c1", days=90), "c1").pem)}
    assert [node.stores.look(values) for _ in range(2)] == [False, True]
    outcome = node.stores.read()
    assert isinstance(outcome, Replaced)
    assert outcome.files[0] == values[LOCATION]
    before = outcome.loaded
    bad = {LOCATION: "/nowhere/c1.pem"}
    assert [node.stores.look(bad) for _ in range(2)] == [False, True]
    kept = node.stores.read()
    assert isinstance(kept, Kept)
    assert "cannot read /nowhere/c1.pem" in kept.why
    assert "(dynamic configuration)" in kept.why
    assert node.stores.loaded is before
    assert [node.stores.look({}) for _ in range(2)] == [False, True]
    assert isinstance(node.stores.read(), Replaced), "the file of the properties is in use again"


def test_sighup_reads_at_once(node: Node) -> None:
    assert node.stores.look({}, at_once=True)
    assert isinstance(node.stores.read(), Replaced)


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        (LOCATION, True),
        ("listener.name.ctl.ssl.truststore.password", True),
        ("ssl.keystore.location", False),
        ("listener.name.ctl.ssl.client.auth", False),
        ("listener.name.ctl.sasl.jaas.config", False),
    ],
)
def test_only_stores_of_a_listener_are_dynamic(key: str, counts: bool) -> None:
    assert is_reloadable(key) is counts


@pytest.mark.parametrize(
    ("days", "told"), [(60, None), (29, "in 29 days"), (1, "in 1 day"), (0, "in 0 days"), (-1, "has expired at")]
)
def test_a_certificate_near_its_end_is_warned_of(tmp_path: Path, days: int, told: str | None) -> None:
    files = Files(tmp_path, issue("c1", days=days), "c1")
    config = Node(tmp_path / "node", f"listener.name.ctl.ssl.keystore.location={files.pem}").config
    loaded = load_tls(config)
    warnings = [line for line in loaded.warnings if "certificate" in line]
    if told is None:
        assert warnings == []
    else:
        [warning] = warnings
        assert warning.startswith(f"{LOCATION}: the certificate")
        assert told in warning
        assert warning == f"{LOCATION}: {validity_warning(loaded.own[0].certificate)}"
