"""Brings the jars of Apache Kafka into the user's cache directory, once, with the Ivy that ships inside PySpark."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

KAFKA_VERSION = "4.3.1"
SLF4J_VERSION = "1.7.36"
MODULES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-shell", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", SLF4J_VERSION),
)
FETCH_SECONDS = 600

IVY_FILE = """<ivy-module version="2.0">
  <info organisation="trio-kraft" module="tests"/>
  <dependencies>
{dependencies}
    <exclude org="org.apache.logging.log4j" module="log4j-slf4j-impl"/>
  </dependencies>
</ivy-module>
"""


class KafkaUnavailable(Exception):
    """Apache Kafka cannot be run here, and why."""


def cache_directory() -> Path:
    """Where the jars are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trio-kraft" / f"kafka-{KAFKA_VERSION}"


def find_java() -> str:
    """The java to run; raises `KafkaUnavailable`."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise KafkaUnavailable("no java was found on PATH or in JAVA_HOME")
    return java


def ensure_jars() -> Path:
    """The directory with the jars, fetched if they are not there yet; raises `KafkaUnavailable`."""
    directory = cache_directory()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            _fetch(find_java(), directory)
    return directory


def _fetch(java: str, directory: Path) -> None:
    """Fetch into a directory beside the final one, which appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="fetch-") as scratch:
        libs = Path(scratch) / "libs"
        _retrieve(java, libs, Path(scratch))
        missing = [name for _, name, version in MODULES if not (libs / f"{name}-{version}.jar").exists()]
        if missing:
            raise KafkaUnavailable(f"the package registry did not give {', '.join(missing)}")
        libs.rename(directory)


def _retrieve(java: str, libs: Path, scratch: Path) -> None:
    spec = find_spec("pyspark")
    ivy = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec is not None and spec.origin else []
    if not ivy:
        raise KafkaUnavailable("PySpark, whose Ivy fetches the jars, is not installed")
    dependencies = "\n".join(
        f'    <dependency org="{org}" name="{name}" rev="{version}" conf="default->default"/>'
        for org, name, version in MODULES
    )
    (scratch / "ivy.xml").write_text(IVY_FILE.format(dependencies=dependencies))
    command = [java, f"-Divy.default.ivy.user.dir={scratch / 'ivy'}", "-jar", str(ivy[0])]
    command += ["-ivy", str(scratch / "ivy.xml"), "-retrieve", f"{libs}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"the package registry did not answer within {FETCH_SECONDS} s") from None
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise KafkaUnavailable(f"Ivy could not fetch Apache Kafka: {' '.join(last)}")
