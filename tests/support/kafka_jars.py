"""Brings the jars of Apache Kafka into the user's cache directory, once, with the Ivy that ships inside PySpark.

`python tests/support/kafka_jars.py VERSION…` brings those of these versions. With `KAFKA_RELEASE=VERSION` in the
environment, the tests with Apache Kafka run with this release in place of the one that their expectations were taken
from.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from metadata_log.releases import NEWEST_RELEASE, SUPPORTED_RELEASES

OLDER_VERSION = SUPPORTED_RELEASES[0]
"""The last line of releases before pre-votes: it knows Vote v1 and Fetch v17."""
NEWER_VERSION = NEWEST_RELEASE
KAFKA_VERSION = os.environ.get("KAFKA_RELEASE") or SUPPORTED_RELEASES[-2]
"""The release that most tests run beside ours."""
VERSIONS = tuple(dict.fromkeys((KAFKA_VERSION, *reversed(SUPPORTED_RELEASES))))
"""All that tests run, in the order in which they are fetched."""
PUBLISHED_IN_PART = frozenset(("4.4.0",))
"""The releases whose kafka-shell and file connectors are not published."""
SLF4J_VERSION = "1.7.36"
RELOAD4J_VERSION = "1.2.25"
"""The classes of log4j 1, which Apache Kafka before 4.0 needs and does not ship."""
FETCH_SECONDS = 600
ASK_SECONDS = 60

IVY_FILE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="trio-kraft" module="tests"/>
  <dependencies>
{dependencies}
    <exclude org="org.apache.logging.log4j" module="log4j-slf4j-impl"/>
    <exclude org="org.slf4j" module="slf4j-reload4j"/>
  </dependencies>
</ivy-module>
"""


Module = tuple[str, str, str]
"""Organisation, name and revision; `NAME:CLASSIFIER` for a further artifact beside the module's own."""


class KafkaUnavailable(Exception):
    """Apache Kafka cannot be run here, and why."""


def modules(version: str) -> list[Module]:
    """The modules to fetch for a version of Apache Kafka."""
    parts = ("kafka_2.13", "kafka-tools", *(() if version in PUBLISHED_IN_PART else ("kafka-shell",)))
    found = [("org.apache.kafka", part, version) for part in parts]
    if version < "4":
        found.append(("ch.qos.reload4j", "reload4j", RELOAD4J_VERSION))
    return [*found, ("org.slf4j", "slf4j-simple", SLF4J_VERSION)]


def programs(version: str) -> list[Module]:
    """Programs beside brokers of a version, fetched only by tests that need them: Streams, Connect's files."""
    parts = ("kafka-streams", *(() if version in PUBLISHED_IN_PART else ("connect-file",)))
    return [("org.apache.kafka", part, version) for part in parts]


def cache_directory(version: str, name: str = "kafka") -> Path:
    """Where the jars of a version are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trio-kraft" / f"{name}-{version}"


def find_java() -> str:
    """The java to run; raises `KafkaUnavailable`."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise KafkaUnavailable("no java was found on PATH or in JAVA_HOME")
    return java


def ensure_jars(version: str = KAFKA_VERSION) -> Path:
    """The directory with the jars, fetched if they are not there yet; raises `KafkaUnavailable`."""
    return ensure(cache_directory(version), modules(version))


def ensure_programs(version: str = KAFKA_VERSION) -> Path:
    """The directory with the jars of `programs`, as `ensure_jars`."""
    return ensure(cache_directory(version, "programs"), programs(version))


def ensure_tiered(version: str = KAFKA_VERSION) -> Path:
    """The directory with a remote store in a local folder, of Kafka's own tests, as `ensure_jars`."""
    return ensure(cache_directory(version, "tiered"), [("org.apache.kafka", "kafka-storage:test", version)])


def ensure(directory: Path, wanted: list[Module]) -> Path:
    """The directory with the jars of these modules and of what they need, as `ensure_jars`."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with only_one(directory):
        if not directory.exists():
            _fetch(find_java(), wanted, directory)
    return directory


def are_there(version: str = KAFKA_VERSION) -> bool:
    """Whether nothing has to be fetched any more."""
    return cache_directory(version).exists()


def fetch_ahead() -> Callable[[], None]:
    """Begin to fetch what is not there yet, while tests run that do not need it; returns what ends that.

    Failures are not reported: a test that needs the jars waits for them, and fetches again if they are missing.
    """
    fetching = [
        subprocess.Popen([sys.executable, __file__, version], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for version in VERSIONS
        if not are_there(version)
    ]

    def end() -> None:
        for process in fetching:
            process.send_signal(signal.SIGINT)
        for process in fetching:
            process.wait()

    return end


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """While the block lasts no other process adds to what is kept of a version."""
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(java: str, wanted: list[Module], directory: Path) -> None:
    """Fetch into a directory beside the final one, which appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="fetch-") as scratch:
        libs = Path(scratch) / "libs"
        _retrieve(java, wanted, libs, Path(scratch))
        missing = [name for name in map(_file_name, wanted) if not (libs / name).exists()]
        if missing:
            raise KafkaUnavailable(f"the package registry did not give {', '.join(missing)}")
        libs.rename(directory)


def _retrieve(java: str, wanted: list[Module], libs: Path, scratch: Path) -> None:
    dependencies = "\n".join(map(_dependency, wanted))
    where = f"{libs}/[artifact]-[revision](-[classifier]).[ext]"
    _ivy(java, dependencies, scratch, "-retrieve", where)


def _file_name(wanted: Module) -> str:
    _, named, revision = wanted
    name, separator, classifier = named.partition(":")
    return f"{name}-{revision}-{classifier}.jar" if separator else f"{name}-{revision}.jar"


def _dependency(wanted: Module) -> str:
    org, named, revision = wanted
    name, _, classifier = named.partition(":")
    artifact = f'<artifact name="{name}" type="jar"'
    artifacts = f'{artifact}/>{artifact} m:classifier="{classifier}"/>' if classifier else ""
    return (
        f'    <dependency org="{org}" name="{name}" rev="{revision}" conf="default->default">{artifacts}</dependency>'
    )


def newest_published() -> str:
    """The newest release that the package registry has; raises `KafkaUnavailable`. It fetches some kilobytes."""
    asked = '    <dependency org="org.apache.kafka" name="kafka-tools-api" rev="latest.release" transitive="false"'
    with tempfile.TemporaryDirectory() as scratch:
        told = _ivy(find_java(), f'{asked} conf="default->master"/>', Path(scratch), seconds=ASK_SECONDS)
    found = re.search(r"org\.apache\.kafka#kafka-tools-api;([0-9.]+) in ", told)
    if found is None:
        raise KafkaUnavailable("the package registry names no release of Apache Kafka")
    return found[1]


def newer_than_supported(published: str) -> str | None:
    """The warning about a release that is not in the list of supported ones; None if it is, or is older."""
    numbers, newest = (tuple(map(int, one.split("."))) for one in (published, NEWEST_RELEASE))
    if numbers <= newest:
        return None
    return (
        f"warning: Apache Kafka {published} is published, and {NEWEST_RELEASE} is the newest supported release:"
        " docs/howto/new-kafka-release.md says how to take it over"
    )


def _ivy(java: str, dependencies: str, scratch: Path, *options: str, seconds: int = FETCH_SECONDS) -> str:
    """The output of Ivy as it resolves these dependencies."""
    spec = find_spec("pyspark")
    ivy = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec is not None and spec.origin else []
    if not ivy:
        raise KafkaUnavailable("PySpark is not installed, and its Ivy fetches the jars")
    (scratch / "ivy.xml").write_text(IVY_FILE.format(dependencies=dependencies))
    command = [java, f"-Divy.default.ivy.user.dir={scratch / 'ivy'}", "-jar", str(ivy[0])]
    command += ["-ivy", str(scratch / "ivy.xml"), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"the package registry did not answer within {seconds} s") from None
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise KafkaUnavailable(f"Ivy could not fetch Apache Kafka: {' '.join(last)}")
    return done.stdout


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        ensure_jars(wanted)
