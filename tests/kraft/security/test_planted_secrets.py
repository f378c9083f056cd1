"""Secrets that are planted in every place of a configuration reach no output, no log line and no title of a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from kraft.cli.main import main
from support.eventually import eventually
from support.kraft.command_line import CLUSTER_ID, Done, run, settings_of_the_process
from support.loopback import free_ports

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule"
SCRAM = f"{MODULES}.scram.ScramLoginModule"
OAUTH = f"{MODULES}.oauthbearer"
NODE, ADMIN, WRONG, CLIENT, KEY = (f"planted-{one}" for one in ("n0de", "adm1n", "wr0ng", "cl1ent", "k3y"))
STOP_SECONDS = 30


class Planted:
    """A controller in a process of its own, and the files of its clients."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (self.port,) = free_ports(1)
        key = RSAKey.generate_key(2048)
        (root / "jwks.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        now = int(time.time())
        claims = {"sub": "admin", "iat": now, "exp": now + 3600}
        self.token = jwt.encode({"alg": "RS256"}, claims, key)
        self.bad_token = jwt.encode({"alg": "RS256"}, claims | {"exp": now - 3600}, key)
        self.secrets = (NODE, ADMIN, WRONG, CLIENT, KEY, *self.token.split(".")[1:], *self.bad_token.split(".")[1:])
        self.config = root / "node.properties"
        prefix = "listener.name.ctl"
        self.config.write_text(
            f"""process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{self.port}
controller.listener.names=CTL
listeners=CTL://127.0.0.1:{self.port}
listener.security.protocol.map=CTL:SASL_PLAINTEXT
log.dirs={root / "log"}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER
sasl.mechanism.controller.protocol=PLAIN
{prefix}.plain.sasl.jaas.config={PLAIN} required username=node password="{NODE}" user_node="{NODE}" \\
 user_admin="{ADMIN}";
{prefix}.scram-sha-256.sasl.jaas.config={SCRAM} required;
{prefix}.oauthbearer.sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required clientSecret="{CLIENT}";
{prefix}.oauthbearer.sasl.server.callback.handler.class={OAUTH}.OAuthBearerValidatorCallbackHandler
{prefix}.sasl.oauthbearer.jwks.endpoint.url={(root / "jwks.json").as_uri()}
{prefix}.sasl.oauthbearer.allow.unverified.audience=true
{prefix}.sasl.oauthbearer.allow.unverified.issuer=true
delegation.token.secret.key={KEY}
"""
        )

    def client(self, name: str, *lines: str) -> str:
        path = self.root / f"{name}.properties"
        path.write_text("\n".join(("security.protocol=SASL_PLAINTEXT", *lines, "")))
        return str(path)

    def with_password(self, password: str, mechanism: str = "PLAIN", module: str = PLAIN) -> str:
        jaas = f'sasl.jaas.config={module} required username="admin" password="{password}";'
        return self.client(f"{mechanism}-{password == ADMIN}", f"sasl.mechanism={mechanism}", jaas)

    def with_token(self, name: str, url: str) -> str:
        return self.client(
            name,
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required clientId=admin clientSecret={CLIENT};",
            f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.token.endpoint.url={url}",
        )

    def with_token_of(self, name: str, token: str) -> str:
        (self.root / f"{name}.jwt").write_text(token)
        return self.with_token(name, (self.root / f"{name}.jwt").as_uri())

    def check(self, text: str) -> None:
        assert [one for one in self.secrets if one in text] == []


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def node(planted: Planted) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The running controller, and the file of everything that the process has printed."""
    kraft = [sys.executable, "-m", "kraft", "--debug"]
    scram = f"SCRAM-SHA-256=[name=admin,password={ADMIN}]"
    formatting = [*kraft, "format", "-c", str(planted.config), "-t", CLUSTER_ID, "--add-scram", scram]
    done = subprocess.run(formatting, capture_output=True, text=True, timeout=60, check=True)
    planted.check(done.stdout + done.stderr)
    output = planted.root / "serve.log"
    with output.open("wb") as file:
        serving = [*kraft, "serve", "-c", str(planted.config), "--log-level", "debug"]
        process = subprocess.Popen(serving, stdout=file, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: b"listening node=1" in output.read_bytes(), "the controller listens", 60)
        yield process, output
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
        planted.check(output.read_text())


Node = tuple[subprocess.Popen[bytes], Path]


def debugged(capsys: pytest.CaptureFixture[str], *words: str) -> Done:
    """Run `kraft --debug` with these words; a failure has its traceback, as Python prints it."""
    capsys.readouterr()
    with settings_of_the_process():
        try:
            main(("--debug", *words))
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except Exception:
            traceback.print_exc()
            code = 1
    out, err = capsys.readouterr()
    return Done(code, out, err)


def status(planted: Planted, capsys: pytest.CaptureFixture[str], config: str, *command: str) -> Done:
    """Run a command that fails at once or succeeds, with its traceback."""
    words = command or ("quorum", "status", "--bootstrap-controller", f"127.0.0.1:{planted.port}", "--timeout", "2")
    done = debugged(capsys, *words, "--command-config", config)
    planted.check(done.out + done.err)
    return done


def test_right_and_wrong_secrets_stay_with_both_sides(
    capsys: pytest.CaptureFixture[str], node: Node, planted: Planted
) -> None:
    for config, is_right in (
        (planted.with_password(ADMIN), True),
        (planted.with_password(WRONG), False),
        (planted.with_password(ADMIN, "SCRAM-SHA-256", SCRAM), True),
        (planted.with_password(WRONG, "SCRAM-SHA-256", SCRAM), False),
        (planted.with_token_of("good", planted.token), True),
        (planted.with_token_of("old", planted.bad_token), False),
    ):
        done = status(planted, capsys, config)
        assert (done.code == 0) is is_right, (config, done)
        if not is_right:
            assert "the token" in done.err or "refuses the login" in done.err


def test_an_archive_and_a_watch_log_in_and_keep_secrets(
    capsys: pytest.CaptureFixture[str], node: Node, planted: Planted
) -> None:
    right, wrong = planted.with_password(ADMIN), planted.with_password(WRONG)
    at, target = f"127.0.0.1:{planted.port}", str(planted.root / "archive")
    archived = status(planted, capsys, right, "archive", "--from", at, "--to", target, "--for", "0", "--verify")
    assert archived.code == 0
    watched = status(
        planted, capsys, right, "watch", "--bootstrap-controller", at, "--since", "beginning", "--count", "1"
    )
    assert watched.code == 0
    other = str(planted.root / "other")
    refused = status(planted, capsys, wrong, "archive", "--from", at, "--to", other, "--for", "0", "--timeout", "2")
    assert refused.code == 1
    assert "refuses the login by PLAIN" in refused.err
    refused = status(planted, capsys, wrong, "watch", "--bootstrap-controller", at, "--timeout", "2", "--for", "2")
    assert refused.code == 1
    assert "refuses the login by PLAIN" in refused.err


def test_the_title_of_a_node_has_no_secret(node: Node, planted: Planted) -> None:
    process, _ = node
    proc = Path(f"/proc/{process.pid}")
    names = [(one / "comm").read_text() for one in (proc / "task").iterdir()]
    assert names
    planted.check((proc / "cmdline").read_text() + "".join(names))


@pytest.mark.parametrize(
    "jaas",
    [
        f'{PLAIN} required username="admin" password="{WRONG}"',
        f'{PLAIN} required username="admin" password="{WRONG};',
        f"{PLAIN} required username=admin password={WRONG}#;",
        f'{PLAIN} required username="admin" {WRONG};',
        f'{PLAIN} {WRONG} username="admin";',
        f'{WRONG} required username="admin" password="x";',
        f'{PLAIN} required password="{WRONG}";',
        f'{PLAIN} required username="a" password="{WRONG}"; {PLAIN} required;',
    ],
)
def test_a_malformed_file_of_a_client_is_refused_without_its_content(
    capsys: pytest.CaptureFixture[str], planted: Planted, jaas: str
) -> None:
    done = status(planted, capsys, planted.client("malformed", "sasl.mechanism=PLAIN", f"sasl.jaas.config={jaas}"))
    assert done.code == 1
    assert "sasl.jaas.config" in done.err


def test_a_token_endpoint_that_is_away_is_named_without_the_secret_for_it(
    capsys: pytest.CaptureFixture[str], planted: Planted
) -> None:
    (port,) = free_ports(1)
    done = status(planted, capsys, planted.with_token("away", f"http://127.0.0.1:{port}/token"))
    assert done.code == 1
    assert "no token: Connection refused" in done.err
    done = status(planted, capsys, planted.with_token("userinfo", f"https://me:{WRONG}@127.0.0.1:{port}/"))
    assert "has a user or a password" in done.err


@pytest.mark.parametrize("command", ["serve", "format"])
@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (f'user_admin="{ADMIN}";', f'user_admin="{ADMIN}"'),
        (f'user_admin="{ADMIN}";', f"user_admin={ADMIN}#;"),
        (f'PlainLoginModule required username=node password="{NODE}"', f"Plain{NODE} required"),
        ("sasl.enabled.mechanisms=PLAIN,", f"sasl.jaas.config={WRONG}\nsasl.enabled.mechanisms=PLAIN,GSSAPI,"),
        (f'clientSecret="{CLIENT}"', f'clientSecret="{CLIENT}" ssl.truststore.location="/nowhere"'),
    ],
)
def test_a_malformed_configuration_of_a_node_is_refused_without_its_secrets(
    capsys: pytest.CaptureFixture[str], planted: Planted, tmp_path: Path, command: str, line: str, broken: str
) -> None:
    text = planted.config.read_text()
    assert line in text
    config = tmp_path / "broken.properties"
    config.write_text(text.replace(line, broken).replace(str(planted.root / "log"), str(tmp_path / "log")))
    more = ("-t", CLUSTER_ID) if command == "format" else ()
    done = debugged(capsys, command, "-c", str(config), *more)
    # Only a start reads the authorities for the keys of tokens.
    assert done.code == (0 if command == "format" and "truststore" in broken else 1)
    planted.check(done.out + done.err)


def test_help_shows_no_secret_of_the_environment(
    capsys: pytest.CaptureFixture[str], planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAFT_COMMAND_CONFIG", planted.with_password(ADMIN))
    for words in (("quorum", "status"), ("archive",), ("watch",), ("topics", "list"), ("users", "set")):
        done = run(capsys, *words, "--help")
        planted.check(done.out + done.err)
