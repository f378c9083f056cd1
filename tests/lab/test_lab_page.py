"""The page of the lab in a real browser: it loads, runs, is broken by clicks, shares links, and asks no other host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from kraft.cli.doctor.command import doctor_command
from kraft.sim.search.schedule import decode_schedule, replay
from kraft.sim.search.seed_search import KINDS
from pyodide_in_node import builder
from support.lab.chromium import Tab, opened_tab, served
from support.metadata_log.browser import browser
from support.real_data import unpack

FIRST_LOAD_BYTES: Final = 16_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    browser()
    out = tmp_path_factory.mktemp("lab") / "site"
    builder().build(out)
    return out


@pytest.fixture(scope="module")
def tab(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with served(site) as address, opened_tab(tmp_path_factory.mktemp("profile")) as one:
        one.look_like(1280, 1400)
        one.open(f"{address}/index.html")
        one.until("window.lab")
        yield one


@pytest.fixture(autouse=True)
def sound(tab: Tab) -> Iterator[None]:
    """After each test: the console has no errors, and no other host was asked."""
    yield
    assert tab.errors == []
    hosts = {urlsplit(one.removeprefix("blob:")).hostname for one in tab.requests if not one.startswith("data:")}
    assert hosts == {"127.0.0.1"}


def opened(tab: Tab, fragment: str, until_ms: int = 0) -> None:
    tab.evaluate(f"location.hash = {json.dumps(fragment)}")
    tab.until(f"lab.run.state && lab.run.state.fragment === {json.dumps(fragment)}")
    if until_ms:
        tab.evaluate(f"lab.run.advance({until_ms}, 3000).then(() => lab.run.show(1e9))")


def test_the_page_is_small_enough(site: Path) -> None:
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) <= FIRST_LOAD_BYTES


def test_a_run_plays(tab: Tab) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet")
    tab.evaluate("document.getElementById('speed').value = '5000'")
    tab.click("#play")
    tab.until("lab.run.moments.length > 300 && lab.run.cursor > 300")
    tab.click("#play")
    assert "Leader" in tab.evaluate("document.getElementById('nodes-view').innerText")


def test_steps_go_forth_and_back(tab: Tab) -> None:
    opened(tab, "seed=8&members=replica&nodes=3&profile=quiet")
    for _ in range(3):
        tab.click("#change")
        tab.until("!document.getElementById('change').disabled")
    tab.until("lab.run.cursor > 2")
    after = tab.evaluate("lab.run.cursor")
    tab.click("#last-change")
    assert tab.evaluate("lab.run.cursor") < after
    tab.click("#change")
    tab.until(f"lab.run.cursor === {after}")
    before = tab.evaluate("lab.run.cursor")
    tab.click("#back")
    assert tab.evaluate("lab.run.cursor") == before - 1
    tab.click("#step")
    tab.until(f"lab.run.cursor === {before}")


@pytest.mark.parametrize("name", ["crash", "isolate", "pause", "slow-disk", "write"])
def test_each_fault_is_a_click(tab: Tab, name: str) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet", 3000)
    tab.click(f'[data-node="2"] [data-act="{name}"]')
    tab.until(f"location.hash.includes('.{name}.2')")
    seen = {"crash": "down", "pause": "paused", "slow-disk": "an fsync takes up to 1000 ms"}.get(name, "")
    tab.until(f"document.querySelector('[data-node=\"2\"]').innerText.includes({json.dumps(seen)})")
    if name == "crash":
        tab.click('[data-node="2"] [data-act="restart"]')
        tab.until("location.hash.includes('.restart.2')")
    if name == "isolate":
        tab.until("document.querySelector('[data-link=\"2-3\"]').getAttribute('aria-pressed') === 'true'")
        tab.click("#heal")
        tab.until("document.querySelector('[data-link=\"2-3\"]').getAttribute('aria-pressed') === 'false'")


def test_a_link_is_cut_by_a_click_and_the_voters_change(tab: Tab) -> None:
    opened(tab, "seed=3&members=dynamic&nodes=5&profile=quiet", 4000)
    tab.click('[data-link="1-2"]')
    tab.until("location.hash.includes('.cut.1-2')")
    for name in ("add-voter", "remove-voter"):
        tab.click(f'[data-node="3"] [data-act="{name}"]')
        tab.until(f"location.hash.includes('.{name}.3')")


def test_the_keyboard_does_what_clicks_do(tab: Tab) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet", 3000)
    for key in ("3", "c"):
        tab.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}))")
    tab.until("location.hash.includes('.crash.3')")
    before = tab.evaluate("lab.run.cursor")
    tab.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true }))")
    assert tab.evaluate("lab.run.cursor") == before - 1


def test_a_fault_in_the_past_goes_another_way(tab: Tab) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet", 4000)
    tab.evaluate("lab.run.show(lab.run.moments.findIndex(one => one.at_ms > 2000))")
    at_ms = tab.evaluate("lab.run.nowMs")
    tab.click('[data-node="1"] [data-act="crash"]')
    tab.until("location.hash.includes('.crash.1')")
    assert f"do={at_ms}.crash.1" in tab.evaluate("location.hash")


def test_a_link_and_a_saved_run_have_the_same_digest(tab: Tab) -> None:
    fragment = "seed=7&members=replica&nodes=3&profile=quiet&do=2000.crash.2,2600.restart.2"
    opened(tab, fragment, 4000)
    digest = tab.evaluate("lab.run.state.digest")
    saved = tab.evaluate("import('./engine.js').then(one => one.call('saved'))")
    assert replay(decode_schedule(saved.encode(), "saved")).digest == digest
    again = f"import('./engine.js').then(one => one.asked('open', {json.dumps(fragment)}, 4000))"
    assert tab.evaluate(again)["digest"] == digest


def test_a_bad_link_is_told(tab: Tab) -> None:
    tab.evaluate("location.hash = 'members=nobody'")
    tab.until("document.getElementById('status').textContent.includes('nobody')")


def test_a_planted_bug_is_found_and_stepped_through(tab: Tab) -> None:
    tab.click('[data-tab="bugs"]')
    tab.evaluate("document.getElementById('bug-name').value = 'vote-in-memory-only'")
    tab.click("#bug-search")
    tab.until("document.querySelector('#question .bug-link') && lab.run.isRecorded")
    assert "vote-in-memory-only" in tab.evaluate("document.getElementById('planted').innerText")
    assert "bug=vote-in-memory-only" in tab.evaluate("location.hash")
    tab.evaluate("lab.run.advance(3600000, 3000).then(() => lab.run.show(1e9))")
    assert "Violated" in tab.until("document.getElementById('verdict').textContent")
    tab.click("#question .bug-link")
    tab.until("!lab.run.isRecorded && lab.run.state.bug === 'vote-in-memory-only'")


def test_a_bug_is_planted_by_hand_and_goes_with_the_next_run(tab: Tab) -> None:
    tab.evaluate("document.getElementById('bug').value = 'raft-figure-8'")
    tab.evaluate("document.getElementById('bug').dispatchEvent(new Event('change'))")
    tab.click("#new-run button")
    tab.until("lab.run.state.bug === 'raft-figure-8'")
    assert not tab.evaluate("document.getElementById('planted').hidden")
    tab.evaluate("document.getElementById('bug').value = ''")
    tab.click("#new-run button")
    tab.until("lab.run.state.bug === ''")
    assert tab.evaluate("document.getElementById('planted').hidden")


def test_a_link_begins_at_its_last_fault_and_goes_to_the_end(tab: Tab) -> None:
    opened(tab, "seed=2&members=core&nodes=3&profile=broad&chaos=1000&do=300.crash.2,800.restart.2")
    assert tab.evaluate("lab.run.nowMs") == 800
    tab.click("#end")
    tab.until("lab.run.state.is_over")
    assert "no invariant is violated" in tab.until("document.getElementById('verdict').innerText")


def test_each_kind_of_nodes_can_be_chosen(tab: Tab) -> None:
    offered = tab.evaluate("[...document.getElementById('members').options].map(one => one.value)")
    assert set(offered) == set(KINDS)
    for kind in ("store", "combined-cluster"):
        tab.evaluate(f"document.getElementById('members').value = '{kind}'")
        tab.click("#new-run button")
        tab.until(f"lab.run.state.members === '{kind}'")


def test_a_node_that_is_down_shows_its_disk(tab: Tab) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet&do=3000.crash.1", 3100)
    card = tab.evaluate("document.querySelector('[data-node=\"1\"]').innerText")
    assert "down" in card
    assert "epoch 1, a vote for 2" in card


def test_the_client_hears_of_its_record(tab: Tab) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet&do=3000.write.2..mine", 3300)
    assert "mine is acknowledged" in tab.evaluate("document.getElementById('story').innerText")


def test_the_keyboard_stays_on_a_link_while_time_goes_on(tab: Tab) -> None:
    opened(tab, "seed=7&members=replica&nodes=3&profile=quiet", 3000)
    tab.evaluate("document.querySelector('[data-link=\"1-3\"]').focus()")
    tab.evaluate("lab.run.step()")
    assert tab.evaluate("document.activeElement.dataset.link") == "1-3"


def test_a_scenario_asks_before_it_answers(tab: Tab) -> None:
    tab.click('[data-tab="scenarios"]')
    tab.click('[data-scenario="0"]')
    assert "Who wins?" in tab.until("document.getElementById('question').innerText")
    tab.click("#answer")
    tab.until("document.getElementById('question').innerText.includes('Nobody.')")
    assert "node 1 votes for node 3 in epoch 3" in tab.evaluate("document.getElementById('story').innerText")


def test_files_are_looked_into_without_a_request(tab: Tab, tmp_path: Path) -> None:
    folder = unpack("clusters", "failover/nodes/c3", tmp_path) / "__cluster_metadata-0"
    tab.click('[data-tab="tools"]')
    before = len(tab.requests)
    tab.choose_files("#folder", [folder])
    tab.until("!document.getElementById('tool-form').hidden")
    for name, seen in (("dump", "LeaderChangeMessage"), ("history", "controller 2: active"), ("doctor", "1 node read")):
        tab.evaluate(f"document.getElementById('tool-name').value = '{name}'")
        tab.click("#tool-form button")
        tab.until(f"document.getElementById('tool-out').textContent.includes({json.dumps(seen)})")
    tab.evaluate("document.getElementById('tool-name').value = 'report'")
    tab.click("#tool-form button")
    tab.until("!document.getElementById('tool-report').hidden")
    assert tab.requests[before:] == []


def test_a_bundle_says_what_happened_to_a_partition(tab: Tab, tmp_path: Path) -> None:
    node, bundle = unpack("clusters", "failover/nodes/c3", tmp_path), tmp_path / "host.tar.gz"
    made = CliRunner().invoke(doctor_command, ["collect", "--records", "--into", str(bundle), str(node)])
    assert made.exit_code == 0, made.output
    tab.click('[data-tab="tools"]')
    tab.choose_files("#files", [bundle])
    tab.until("document.getElementById('tool-path').value.endsWith('host.tar.gz')")
    tab.evaluate("document.getElementById('tool-name').value = 'replay'")
    tab.evaluate("document.getElementById('tool-topic').value = 'alerts-16-0'")
    tab.click("#tool-form button")
    tab.until("document.getElementById('tool-out').textContent.includes('alerts-16-0: 101 leads')")
    tab.evaluate("document.getElementById('tool-topic').value = ''")


@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (390, True)])
def test_nothing_is_wider_than_the_window(tab: Tab, width: int, is_dark: bool) -> None:
    opened(tab, "seed=1&members=replica&nodes=5&profile=quiet", 3000)
    tab.look_like(width, 1400, is_dark=is_dark, is_phone=width < 600)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 28)" if is_dark else "rgb(255, 255, 255)")
    tab.look_like(1280, 1400)
