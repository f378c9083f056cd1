"""The pytest plugin: the fixtures `kafka` and `kafka_cluster`, the marker `kafka`, and what a failing test is told.

pytest imports this module at each start, whether a test needs Kafka or not. So it imports nothing but pytest before a
fixture is used.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
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
}
_STARTED: Final = pytest.StashKey[float]()
_MOST_LINES: Final = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini keys."""
    for key, (kind, default, text) in _INI.items():
        parser.addini(key, text, type=kind, default=default)


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker with its controller in this process, for the whole session; `kafka.reset()` empties it."""
    from kraft.testing.kafka import Kafka

    with Kafka(**_of_ini(request.config) | {"brokers": 1, "controllers": 0}) as running:
        yield running


@pytest.fixture(scope="session")
def kafka_broker(kafka: Kafka) -> Kafka:
    """Another name of `kafka`."""
    return kafka


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A cluster for one test, or for one module, as the marker `kafka` says: three brokers and three controllers."""
    from kraft.testing.kafka import Kafka

    wanted = _of_ini(request.config)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        if marker.args or not marker.kwargs.keys() <= _ALLOWED:
            raise pytest.UsageError(f"the marker kafka takes {', '.join(sorted(_ALLOWED))}, by name: {marker}")
        settings = {**wanted["settings"], **marker.kwargs.get("settings", {})}
        wanted |= {**marker.kwargs, "settings": settings}
    scope = wanted.pop("scope", "function")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"the scope of kafka_cluster is {' or '.join(_SCOPES)}, not {scope!r}")
    if scope == "function":
        with Kafka(**wanted) as running:
            yield running
    else:
        yield request.getfixturevalue("_kafka_of_module")(wanted)


@pytest.fixture(scope="module")
def _kafka_of_module() -> Iterator[Callable[[dict[str, Any]], Kafka]]:
    """Returns the cluster of this module for what a marker asks for."""
    from kraft.testing.kafka import Kafka

    with ExitStack() as held:
        shared: dict[str, Kafka] = {}

        def cluster(wanted: dict[str, Any]) -> Kafka:
            key = repr(sorted(wanted.items()))
            if key not in shared:
                shared[key] = held.enter_context(Kafka(**wanted))
            return shared[key]

        yield cluster


def _of_ini(config: pytest.Config) -> dict[str, Any]:
    settings = [line.partition("=") for line in config.getini("kafka_settings")]
    return {
        "brokers": int(config.getini("kafka_brokers")),
        "controllers": int(config.getini("kafka_controllers")),
        "settings": {key.strip(): value.strip() for key, _, value in settings},
        "security": config.getini("kafka_security"),
        "auto_create": config.getini("kafka_auto_create"),
        "seed": int(config.getini("kafka_seed")),
    }


# What a failing test is told


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test begins: its report has the log from there on."""
    item.stash[_STARTED] = time.time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed and the log of each cluster to the report of a test that has failed."""
    report = yield
    if report.failed and report.when != "teardown" and "kraft.testing.kafka" in sys.modules:
        from kraft.testing.kafka import Kafka

        given = {id(one): one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Kafka)}
        for one in given.values():
            report.sections.append(("kafka", one.described()))
            lines = one.log.since(item.stash.get(_STARTED, 0.0))
            cut = [f"… {len(lines) - _MOST_LINES} lines before"] if len(lines) > _MOST_LINES else []
            report.sections.append(("log of kafka", "\n".join([*cut, *lines[-_MOST_LINES:]])))
    return report
