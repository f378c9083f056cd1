"""The pytest plugin: fixtures with clusters, the marker `kafka`, and what a failing test is told.

pytest imports this module at each start, whether a test needs Kafka or not. So it imports nothing but pytest before a
fixture is used.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kraft.testing.cluster import Cluster
    from kraft.testing.kafka import Kafka

MARKER: Final = (
    "kafka(brokers=…, controllers=…, settings={…}, security=…, auto_create=…, seed=…, scope='function' or 'module'):"
    " the cluster of the fixture kafka_cluster"
)
_SCOPES: Final = ("function", "module")
_ALLOWED: Final = frozenset({"brokers", "controllers", "settings", "security", "auto_create", "seed", "scope"})
_INI: Final[dict[str, tuple[Literal["string", "linelist", "bool"], object, str]]] = {
    "kafka_brokers": ("string", "3", "the brokers of kafka_cluster"),
    "kafka_controllers": ("string", "3", "the controllers of kafka_cluster; 0 for one node with both roles"),
    "kafka_settings": ("linelist", [], "properties of each node, one key=value a line"),
    "kafka_security": ("string", "PLAINTEXT", "the protocol of bootstrap_servers and client_config"),
    "kafka_auto_create": ("bool", True, "whether a client that names a topic creates it"),
    "kafka_seed": ("string", "0", "the seed of elections, ids and faults"),
    "kafka_picture": ("string", "", "the directory of the pictures of failed tests; by default that of tmp_path"),
}
_STARTED: Final = pytest.StashKey[float]()
_TEMPORARY: Final = pytest.StashKey[pytest.TempPathFactory]()
_MOST_LINES: Final = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini keys, and an option."""
    parser.getgroup("kafka").addoption("--kafka-picture", metavar="DIR", help=_INI["kafka_picture"][2])
    for key, (kind, default, text) in _INI.items():
        parser.addini(key, text, type=kind, default=default)


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker with its controller in this process, for the whole session; `kafka.reset()` empties it."""
    request.config.stash[_TEMPORARY] = tmp_path_factory
    with _started(_of_ini(request.config) | {"brokers": 1, "controllers": 0}) as running:
        yield running


def started(wanted: Mapping[str, Any]) -> Kafka:
    """Start a cluster with these arguments of `Kafka`; the first start imports nearly everything.

    The imports make a hundred thousand objects that live until the end. The garbage collector would look through them
    again and again, for a tenth of the time, and rests meanwhile.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        from kraft.testing.kafka import Kafka

        return Kafka(**wanted)
    finally:
        if is_enabled:
            gc.enable()


def _started(wanted: Mapping[str, Any]) -> Kafka:
    """As `started`; of a wrong setting pytest shows a sentence, and not where in the code it was found."""
    try:
        return started(wanted)
    except Exception as failed:
        from kraft.testing.settings import wrong_setting

        wrong = wrong_setting(failed)
        if wrong is None:
            raise
    pytest.fail(f"{wrong} Change it in kafka_settings, or in the settings of the marker kafka.", pytrace=False)


@pytest.fixture(scope="session")
def kafka_broker(kafka: Kafka) -> Kafka:
    """Another name of `kafka`."""
    return kafka


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A cluster for one test, or for one module, as the marker `kafka` says: three brokers and three controllers."""
    request.config.stash[_TEMPORARY] = tmp_path_factory
    wanted = _of_markers(request)
    scope = wanted.pop("scope", "function")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"the scope of kafka_cluster is {' or '.join(_SCOPES)}, not {scope!r}")
    if scope == "function":
        with _started(wanted) as running:
            yield running
    else:
        yield request.getfixturevalue("_kafka_of_module")(wanted)


@pytest.fixture(scope="module")
def _kafka_of_module() -> Iterator[Callable[[dict[str, Any]], Kafka]]:
    """Returns the cluster of this module for what a marker asks for."""
    with ExitStack() as held:
        shared: dict[str, Kafka] = {}

        def cluster(wanted: dict[str, Any]) -> Kafka:
            key = repr(sorted(wanted.items()))
            if key not in shared:
                shared[key] = held.enter_context(_started(wanted))
            return shared[key]

        yield cluster


@pytest.fixture
def kafka_virtual(request: pytest.FixtureRequest) -> Cluster:
    """A cluster in virtual time, for Trio: `async with kafka_virtual as cluster`, under `in_virtual_time`."""
    from kraft.testing.cluster import Cluster

    wanted = _of_markers(request)
    settings = {"auto.create.topics.enable": str(wanted["auto_create"]).lower(), **wanted["settings"]}
    return Cluster(
        controllers=max(1, wanted["controllers"]),
        brokers=wanted["brokers"],
        seed=wanted["seed"],
        settings={key: str(value) for key, value in settings.items()},
        data=True,
    )


def _of_markers(request: pytest.FixtureRequest) -> dict[str, Any]:
    wanted = _of_ini(request.config)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        if marker.args or not marker.kwargs.keys() <= _ALLOWED:
            raise pytest.UsageError(f"the marker kafka takes {', '.join(sorted(_ALLOWED))}, by name: {marker}")
        for name in ("brokers", "controllers", "seed"):
            if type(number := marker.kwargs.get(name, 0)) is not int:
                raise pytest.UsageError(f"{name} of the marker kafka is a whole number, and not {number!r}")
        if type(creates := marker.kwargs.get("auto_create", True)) is not bool:
            raise pytest.UsageError(f"auto_create of the marker kafka is True or False, and not {creates!r}")
        if not isinstance(given := marker.kwargs.get("settings", {}), Mapping):
            raise pytest.UsageError(f"settings of the marker kafka are a dictionary, and not {given!r}")
        settings = {**wanted["settings"], **given}
        wanted |= {**marker.kwargs, "settings": settings}
    return wanted


def _of_ini(config: pytest.Config) -> dict[str, Any]:
    settings = [line.partition("=") for line in config.getini("kafka_settings")]
    for key, equals, _ in settings:
        if not equals:
            raise pytest.UsageError(f"a line of kafka_settings is key=value, and not {key!r}")
    return {
        "brokers": _number(config, "kafka_brokers"),
        "controllers": _number(config, "kafka_controllers"),
        "settings": {key.strip(): value.strip() for key, _, value in settings},
        "security": config.getini("kafka_security"),
        "auto_create": _truth(config, "kafka_auto_create"),
        "seed": _number(config, "kafka_seed"),
    }


def _number(config: pytest.Config, key: str) -> int:
    """The whole number that an ini key has."""
    text = config.getini(key)
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"{key} is a whole number, and not {text!r}") from None


def _truth(config: pytest.Config, key: str) -> bool:
    """Whether an ini key is true."""
    try:
        return bool(config.getini(key))
    except (ValueError, pytest.UsageError):
        raise pytest.UsageError(f"{key} is true or false") from None


# What a failing test is told


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins: its report has the log from there on. Warn of a marker without effect."""
    item.stash[_STARTED] = time.time()
    named = set(getattr(item, "fixturenames", ()))
    is_marked = any(one.name == "kafka" and one.kwargs for one in item.own_markers)
    if is_marked and "kafka" in named and not named & {"kafka_cluster", "kafka_virtual"}:
        item.warn(pytest.PytestWarning("the marker kafka is for kafka_cluster: the fixture kafka is always one broker"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed, the log and a picture of each cluster to the report of a test that has failed."""
    report = yield
    if report.failed and report.when != "teardown" and "kraft.testing.kafka" in sys.modules:
        from kraft.testing.kafka import Kafka

        given = {id(one): one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Kafka)}
        for number, one in enumerate(given.values(), 1):
            began = item.stash.get(_STARTED, 0.0)
            report.sections.append(("kafka", one.described()))
            report.sections.append(("picture of kafka", _drawn(item, one, began, number)))
            lines = one.log.since(began)
            cut = [f"… {len(lines) - _MOST_LINES} lines before"] if len(lines) > _MOST_LINES else []
            report.sections.append(("log of kafka", "\n".join([*cut, *lines[-_MOST_LINES:]])))
    return report


def _temporary(config: pytest.Config) -> Path:
    """Where pictures are, unless that is said: beside the temporary files of the run, if they are known.

    They are not where no test has asked for a fixture of this module, as each has a cluster of its own.
    """
    from pathlib import Path
    from tempfile import mkdtemp

    factory = config.stash.get(_TEMPORARY, None)
    return Path(mkdtemp(prefix="kafka-")) if factory is None else factory.getbasetemp()


def _drawn(item: pytest.Item, kafka: Kafka, began: float, number: int) -> str:
    """Write the picture of a cluster; returns its path. Nothing that goes wrong here hides why the test failed."""
    import re
    from pathlib import Path
    from zlib import crc32

    config = item.config
    try:
        wanted = config.getoption("kafka_picture") or config.getini("kafka_picture")
        folder = config.rootpath / wanted if wanted else _temporary(config)
        # Of a long name the end tells more; the checksum keeps names apart that become the same.
        name = re.sub(r"[^\w.-]+", "-", item.nodeid, flags=re.ASCII)[-100:].strip("-.")
        path = Path(folder, f"kafka-{name}-{crc32(item.nodeid.encode()):08x}{'' if number == 1 else f'-{number}'}.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kafka.picture(began, title=item.nodeid), encoding="utf-8")
    except Exception as failed:
        return f"There is none: {failed!r}"
    return str(path)
