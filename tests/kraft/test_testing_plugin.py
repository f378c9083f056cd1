"""The pytest plugin: fixtures and their scopes, the marker, ini keys, reports of failures, workers, what it leaves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"
PLUGIN = ("-p", "kraft.testing.plugin", "-p", "no:cacheprovider")


def test_the_plugin_loads_nothing_before_a_test_needs_it() -> None:
    program = "import sys, kraft.testing.plugin; print({'trio', 'kraft.node', 'ssl'} & sys.modules.keys())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_fixtures_have_their_scopes_and_the_marker_and_ini_keys_decide(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_brokers = 1\nkafka_controllers = 0\nkafka_settings =\n  num.partitions=5\n")
    pytester.makepyfile(
        test_one="""
        import pytest
        seen = []

        def test_the_session_has_one(kafka, kafka_broker):
            assert kafka is kafka_broker
            kafka.create_topic("kept")
            seen.append(kafka)

        @pytest.mark.parametrize("_", range(2))
        def test_and_keeps_it(kafka, _):
            assert kafka is seen[0] and "kept" in kafka.image.topics

        def test_a_function_has_its_own(kafka_cluster, kafka):
            assert kafka_cluster is not kafka and kafka_cluster.layout.brokers == 1
            assert kafka_cluster.layout.settings == {"num.partitions": "5"}

        @pytest.mark.kafka(seed=5, security="SASL_SSL", auto_create=False, settings={"num.partitions": 2})
        def test_the_marker_decides(kafka_cluster):
            assert kafka_cluster.seed == 5 and not kafka_cluster.layout.auto_create
            assert kafka_cluster.layout.settings == {"num.partitions": "2"}
            assert kafka_cluster.client_config("librdkafka")["security.protocol"] == "SASL_SSL"

        @pytest.mark.kafka(scope="module", seed=6)
        class TestModule:
            def test_first(self, kafka_cluster):
                kafka_cluster.create_topic("shared")

            def test_second(self, kafka_cluster):
                assert "shared" in kafka_cluster.image.topics

        @pytest.mark.kafka(broker=3)
        def test_a_misspelt_marker(kafka_cluster):
            pass
        """,
        test_two="""
        def test_the_session_goes_on(kafka):
            assert "kept" in kafka.image.topics
        """,
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-q")
    result.assert_outcomes(passed=8, errors=1)
    result.stdout.fnmatch_lines(["*the marker kafka takes auto_create, brokers*"])


@pytest.mark.parametrize(
    ("ini", "told"),
    [
        ("kafka_brokers = three", "kafka_brokers is a whole number, and not 'three'"),
        ("kafka_auto_create = maybe", "kafka_auto_create is true or false"),
        ("kafka_seed =", "kafka_seed is a whole number, and not ''"),
        ("kafka_settings = num.partitions", "a line of kafka_settings is key=value, and not 'num.partitions'"),
    ],
)
def test_a_wrong_ini_key_is_told(pytester: pytest.Pytester, ini: str, told: str) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile("def test_it(kafka_cluster):\n    pass")
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    assert told in result.stdout.str()


def test_a_marker_that_the_fixture_does_not_read_is_warned_of(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.kafka(brokers=3)\ndef test_it(kafka):\n    pass")
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=1, warnings=1)
    assert "the marker kafka is for kafka_cluster: the fixture kafka is always one broker" in result.stdout.str()


def test_a_cluster_in_virtual_time_needs_the_loop_of_trio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio

        def test_it(kafka_virtual):
            async def use():
                async with kafka_virtual:
                    pass

            asyncio.run(use())
        """
    )
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(failed=1)
    assert "a cluster in virtual time needs Trio's loop" in result.stdout.str()


@pytest.mark.parametrize("fixture", ["kafka", "kafka_cluster"])
def test_a_wrong_setting_is_one_sentence(pytester: pytest.Pytester, fixture: str) -> None:
    """Also of six nodes that have it."""
    pytester.makeini("[pytest]\nkafka_settings = num.partitions=five\n")
    pytester.makepyfile(f"def test_it({fixture}):\n    pass")
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at setup of test_it*",
            "num.partitions=five: allowed is a whole number from 1 to 2147483647."
            " Change it in kafka_settings, or in the settings of the marker kafka.",
            "*short test summary*",
        ],
        consecutive=True,
    )


def test_a_failure_shows_the_seed_the_state_and_the_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(kafka):
            kafka.create_topic("orders")
            assert not kafka.leader("orders")
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-o", "kafka_seed=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*seed 3, cluster *", "node 1 runs", "topic orders: 0: leader 1 ISR [[]1]", "*log of kafka*"]
    )


def test_a_failure_leaves_a_picture_with_a_lane_for_each_node_and_what_the_test_broke(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(brokers=2, controllers=1)
        @pytest.mark.parametrize("name", ["</script><b>../x"])
        def test_it(kafka_cluster, name):
            # The jump may fence both brokers, in either order: with a minimum of two, both stay eligible.
            kafka_cluster.create_topic(
                "orders", partitions=8, replication_factor=2, config={"min.insync.replicas": "2"}
            )
            kafka_cluster.clock.jump(60)
            kafka_cluster.kill(101)
            kafka_cluster.wait_until(lambda kafka: kafka.leader("orders") == 102 and kafka.is_fenced(101))
            with pytest.raises(ValueError):
                kafka_cluster.fail_next(name, "INVALID_RECORD")
            assert not name

        def test_that_passes(kafka):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*PLUGIN, "--basetemp", "temporary")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*picture of kafka*", "*temporary/kafka-*.html", "*[[]test[]] kill(101) *"])
    (path,) = (pytester.path / "temporary").iterdir()
    page = path.read_text("utf-8")
    assert {f">node {number}<" for number in (1, 101, 102)} <= set(re.findall(">node [0-9]+<", page))
    assert "http" not in page
    assert "<b>" not in page
    (data,) = re.findall(r'<script type="application/json" id="moments">(.*?)</script>', page, re.DOTALL)
    moments = json.loads(data)
    told = [(one["node"], one["what"]) for one in moments]
    in_order = [(1, "becomes Leader (elected), epoch 1"), (101, "serves"), (101, "kill(101)"), (0, "the test ends")]
    assert [one for one in told if one in in_order] == in_order
    # The jump of the clock may end the session before the broker is killed.
    assert (101, "was fenced: its session timed out") in told, [one for one in told if one[0] == 101]
    assert any(node == 102 and re.match("leads orders-. and [0-9] more|leads orders-", what) for node, what in told)
    (killed,) = [one for one in moments if one["what"] == "kill(101)"]
    assert (killed["is_fault"], killed["nodes"]["101"]["state"]) == (True, "down")
    # The clock of the nodes is a minute ahead, the picture is not.
    assert moments[-1]["at_ms"] < 60_000
    assert max(one["at_ms"] for one in moments) == moments[-1]["at_ms"]


def test_a_cluster_of_a_fixture_of_ones_own_has_a_picture(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There was none while no test of the run had asked for a fixture of the plug-in."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pytester.makepyfile(
        """
        import pytest
        from kraft.testing import Kafka

        @pytest.fixture
        def mine():
            with Kafka() as kafka:
                yield kafka

        def test_it(mine):
            assert mine is None
        """
    )
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.stdout.fnmatch_lines(["*picture of kafka*", f"{tmp_path}/kafka-*.html"])


def test_the_place_of_the_pictures_is_chosen_and_an_error_there_hides_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kafka):\n    assert kafka is None")
    result = pytester.runpytest_inprocess(*PLUGIN, "-o", "kafka_picture=pictures/here")
    result.stdout.fnmatch_lines(["*/pictures/here/kafka-*.html"])
    assert len(list((pytester.path / "pictures" / "here").iterdir())) == 1
    pytester.makefile("", occupied="")
    result = pytester.runpytest_inprocess(*PLUGIN, "--kafka-picture", "occupied")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert * is None*", "There is none: FileExistsError*"])


@pytest.mark.soak
def test_each_worker_has_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(kafka, number):
            with kafka.assert_produces(f"topic-{number}", ["one"]):
                kafka.produce(f"topic-{number}", ["one"])
        """
    )
    pytester.runpytest_subprocess(*PLUGIN, "-n", "2").assert_outcomes(passed=4)


def test_an_interrupted_session_ends_cleanly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(kafka):
            kafka.tls.ca_file
            raise KeyboardInterrupt
        """
    )
    pytester.makeconftest(
        f"""
        import tempfile, threading
        tempfile.tempdir = {str(pytester.path)!r}

        def pytest_unconfigure():
            import glob
            print("left:", threading.active_count(), glob.glob({str(pytester.path)!r} + "/trio-kraft-*"))
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-s")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["left: 1 [[]]"])
