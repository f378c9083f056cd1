"""The lab in which Kafka's ducktape tests run: what it needs, its folders, and one run in namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from support import ROOT
from support.judges.ducktape_table import Parametrization, Side
from support.judges.junit import class_path

SCRIPTS: Final = Path(__file__).parent / "kafkatest_lab"
DUCKTAPE: Final = "ducktape==0.17.0"
"""Kafka's tests pin an older one, which does not run with a newer Python; nothing that they use differs."""
LIMIT_SECONDS: Final = 2400
_PROGRAMS: Final = ("java", "jcmd", "mvn", "uv", "ip", "nsenter", "setpriv", "unshare", "mount")
_NOT_OF_A_RELEASE: Final = re.compile("junit|mockito|byte-buddy|opentest4j|bcp|bcutil|classgraph")
_QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable"
_QUICK_START: Final = f"{_QUICK} -XX:SharedArchiveFile=/opt/lab/kafka.jsa"
"""Options of every JVM: a test starts dozens, most for a second. One goes without an archive that does not fit."""
_ARCHIVED: Final = "org.apache.kafka.tools.VerifiableProducer --topic x --bootstrap-server 127.0.0.1:1 --max-messages 0"
_VERSION: Final = re.compile(r"^__version__ = ['\"]([^'\"]*)['\"]", re.MULTILINE)
_ARCHIVE_SECONDS: Final = 60
_REPLACED: Final = ("kafka-server-start.sh", "kafka-storage.sh")


class Lab(Struct, frozen=True):
    """Where the parts of a lab are.

    Args:
        home: A folder that belongs to the lab: `opt` is seen as /opt by the nodes, `nodes` holds their disks.
        tests: The folder with `kafkatest`.
        program: The script `ducktape`.
    """

    home: Path
    tests: Path
    program: Path


def missing(source: Path) -> str:
    """What is not there, if something is."""
    wanted = [f"{name} is not installed" for name in _PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        wanted.append("namespaces and mounts need root")
    if str(ROOT).startswith("/opt/") or sys.executable.startswith("/opt/"):
        wanted.append("the lab hides /opt, where this checkout or its Python is")
    files = ("tests/kafkatest/__init__.py", "bin/kafka-run-class.sh", "config")
    if without := [name for name in files if not (source / name).exists()]:
        wanted.append(f"{source} is no source tree of Apache Kafka, without {', '.join(without)}")
    return "; ".join(wanted)


def prepare(home: Path, source: Path) -> Lab:
    """Lay out a lab: ducktape in an environment of its own, Kafka's scripts and jars, tests with the jars' version."""
    environment = home / "ducktape"
    if not (environment / "bin" / "ducktape").exists():
        python = str(environment / "bin" / "python")
        subprocess.run(["uv", "venv", "-q", "--clear", str(environment)], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", python, DUCKTAPE], check=True)
    jars = [Path(jar) for jar in class_path().split(os.pathsep)]
    _lay_out(home / "opt", source, [jar for jar in jars if not _NOT_OF_A_RELEASE.search(jar.name)])
    tests = home / "tests"
    shutil.rmtree(tests, ignore_errors=True)
    shutil.copytree(source / "tests" / "kafkatest", tests / "kafkatest")
    _say_version(home, tests / "kafkatest" / "__init__.py", jars)
    return Lab(home, tests, environment / "bin" / "ducktape")


def _lay_out(opt: Path, source: Path, jars: list[Path]) -> None:
    """What the nodes see as /opt: Kafka's development tree with our scripts in the place of two, and our `jcmd`."""
    shutil.rmtree(opt, ignore_errors=True)
    kafka = opt / "kafka-dev"
    shutil.copytree(source / "bin", kafka / "bin")
    shutil.copytree(source / "config", kafka / "config")
    (kafka / "libs").mkdir()
    for jar in jars:
        shutil.copy(jar, kafka / "libs")
    for name in _REPLACED:
        (kafka / "bin" / name).rename(kafka / "bin" / f"kafkas-{name.removeprefix('kafka-')}")
    shutil.copytree(SCRIPTS / "bin", kafka / "bin", dirs_exist_ok=True)
    shutil.copytree(SCRIPTS / "lab-bin", opt / "lab" / "bin")
    _archive_classes(opt)


def _archive_classes(opt: Path) -> None:
    """Let JVMs map the classes that a producer has loaded, at the paths that nodes see: half of the time of a start."""
    # A JVM asks for the address of its own name, which may take long where no name server knows it.
    program = (
        f"hostname localhost && mount --bind '{opt}' /opt && exec /opt/kafka-dev/bin/kafka-run-class.sh {_ARCHIVED}"
    )
    options = {"KAFKA_JVM_PERFORMANCE_OPTS": f"{_QUICK} -XX:ArchiveClassesAtExit=/opt/lab/kafka.jsa"}
    command = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", program]
    with contextlib.suppress(subprocess.SubprocessError):  # without an archive it goes, too
        subprocess.run(
            command,
            env={**os.environ, **options},
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ARCHIVE_SECONDS,
        )


def _say_version(home: Path, file: Path, jars: list[Path]) -> None:
    """Give the tests the version of the jars, by which they find some of them, and note both."""
    jar = next(jar.name for jar in jars if re.fullmatch(r"kafka-clients-[\d.]+\.jar", jar.name))
    number = jar.removeprefix("kafka-clients-").removesuffix(".jar")
    text = file.read_text()
    own = _VERSION.search(text)
    file.write_text(_VERSION.sub(f"__version__ = '{number}'", text))
    (home / "version").write_text(f"{own[1] if own else 'unknown'}, with programs of {number}")


def version(home: Path) -> str:
    """The version of the tests that were last run here, and that of the jars."""
    noted = home / "version"
    return noted.read_text() if noted.exists() else ""


def release(home: Path) -> str:
    """The release of Kafka's software, without the last number: 4.3."""
    return ".".join(version(home).rpartition(" ")[2].split(".")[:2])


def run(lab: Lab, one: Parametrization, side: Side, results: Path) -> Path:
    """Run a parametrization, and return the report. All that it started is gone then, also after an interruption."""
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    command = [
        *(str(SCRIPTS / "lab.sh"), str(lab.home), str(one.nodes), str(ROOT)),
        *(str(lab.program), "--cluster", "lab_cluster.LabCluster", "--results-root", str(results)),
        *("--default-num-nodes", "1", f"{lab.tests}/kafkatest/{one.label}"),
    ]
    environment = {
        **os.environ,
        "LAB": str(lab.home),
        "JUDGED": side,
        "JUDGED_PYTHON": sys.executable,
        "KAFKAS_RELEASE": release(lab.home),
        "KAFKA_JVM_PERFORMANCE_OPTS": _QUICK_START,
        "PYTHONPATH": os.pathsep.join((str(SCRIPTS), str(lab.tests))),
    }
    environment.pop("VIRTUAL_ENV", None)
    with (results / "ducktape.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True
        )
        try:
            process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            log.write(b"\nended after the limit of time\n")
        finally:
            _end(process)
            shutil.rmtree(lab.home / "nodes", ignore_errors=True)
    sessions = sorted(path for path in results.iterdir() if path.is_dir() and not path.is_symlink())
    return (sessions[0] if sessions else results) / "report.json"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the lab: its first process takes all others, and the namespaces, with it (`unshare --kill-child`)."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
