"""The HTML reports in a real browser: legible at 1280 and 390 pixels, light and dark, with a filter and no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from metadata_log.disk import OsDisk
from metadata_log.history import VIEWS
from metadata_log.history.engine import rows as history_rows
from metadata_log.reading.timeline import read_timeline
from metadata_log.report import FLEET_VIEWS, HISTORY_VIEWS, render_diff, render_fleet, render_history
from metadata_log.report.report_data import TABLE_ROWS
from support.metadata_log.browser import PHONE_WIDTH, WIDTH, look
from support.metadata_log.report_rows import HOSTILE, fleet_rows, large_rows, real_rows
from support.real_data import unpack

MOST_BYTES = 2_000_000
LIGHT, DARK = "rgb(244, 245, 247)", "rgb(20, 23, 28)"


class Difference(Struct, frozen=True):
    kind: str
    name: str
    field: str
    before: object
    after: object


def check_page(page: Path, filters: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Check a page on a desktop and on a phone; returns what was measured."""
    text = page.read_text()
    assert len(text.encode()) < MOST_BYTES
    assert not re.search(r"\bsrc=|\bhref=(?!\"#)|@import|url\(|https?://", text)
    found = look(page, filters=filters)
    for facts, width, background in ((found["desktop"], WIDTH, LIGHT), (found["phone"], PHONE_WIDTH, DARK)):
        assert facts["errors"] == []
        assert facts["requests"] == []
        assert facts["width"] <= width
        assert facts["background"] == background
        assert facts["smallest"] >= 11
        assert (facts["blocks"], facts["parts"], facts["silent"]) == ([], [], [])
        for plot in facts["plots"]:
            assert plot["marks"] > 0, f"{plot['id']} is empty"
            assert plot["overlaps"] == [], plot["id"]
            assert plot["outside"] == [], plot["id"]
            assert plot["track"] >= 150, plot["id"]
        colours = [entry["colour"] for entry in facts["legend"]]
        meanings = [entry["meaning"] for entry in facts["legend"]]
        assert len(set(colours)) == len(set(meanings)) == len(facts["legend"]), "a colour with two meanings"
        assert {word for entry in facts["legend"] for word in entry["look"].split() if word[:2] == "k-"} == set(
            facts["looks"]
        ), "a colour without a meaning"
        said = [name for name, _ in facts["themes"]]
        assert said == ["Colours: dark", "Colours: light", "Colours: system"]
        assert [colour for _, colour in facts["themes"]] == [DARK, LIGHT, background]
        assert facts["after"] == facts["before"], "an empty filter hides rows"
        for words, result in facts["filtered"].items():
            assert 0 < result["shown"] < facts["before"], words
            assert result["said"] == f"{result['shown']} of {facts['before']} rows and lanes"
            assert result["wrong"] == 0, words
    return found


@pytest.mark.parametrize(
    ("cluster", "node"), [("failover", "c3"), pytest.param("static3", "c1", marks=pytest.mark.soak)]
)
def test_the_history_of_a_real_cluster(cluster: str, node: str, tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    render_history(real_rows(cluster, node, HISTORY_VIEWS, tmp_path), page, title=f"History of {cluster}")
    found = check_page(page, filters=("broker 101", "orders-11") if cluster == "failover" else ())
    facts = found["desktop"]
    drawn = {plot["id"] for plot in facts["plots"]}
    wanted = {"brokers-1", "leaders-1", "causes-1", "topics-1", "skew-1", "isr-1", "controllers-1"}
    assert wanted <= drawn
    assert facts["cut"] == []
    assert facts["title"] == f"History of {cluster}"
    if cluster == "failover":
        assert "outages-1" in drawn
        assert "broker 101 was fenced: its session timed out" in page.read_text()
        picked = facts["picked"]
        assert picked["rows"]
        assert all(row.startswith(picked["value"]) for row in picked["rows"])
        meanings = [entry["meaning"] for entry in facts["legend"]]
        assert meanings[:3] == ["active", "in controlled shutdown", "fenced"]
        assert meanings[-3:] == [f"broker {broker} as leader" for broker in (101, 102, 103)]


def test_the_first_sentence_of_a_real_failover_names_the_worst_outage_and_its_cause(tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    render_history(real_rows("failover", "c3", HISTORY_VIEWS, tmp_path), page, title="A night")
    text = page.read_text()
    said = re.findall(r'<p class="(?:headline" id="headline|finding)">(.*?)</p>', text)
    assert said == [
        "31 partitions had no leader for 5.6 s after the sessions of brokers 101 and 102 timed out "
        "(2026-11-21 08:23:12.076 UTC).",
        "In the same incident, 111 partitions refused writes with acks=all for up to 6.1 s.",
        "31 unclean elections chose leaders that may lack acknowledged records.",
        "Once, no controller was active for a second or more; the longest such time was 3.8 s.",
    ]
    outages = text[text.index('<section id="outages">') :].partition("</section>")[0]
    listed = re.findall(
        r'<tr id="outage-[^"]+"><td class="name">(\S+)</td><td class="number">(\d+)</td><td class="time">', outages
    )
    assert len(listed) == 111, "an outage is listed twice, or not at all"
    assert len(set(listed)) == 111


def test_a_fleet_of_many_clusters(tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    commands = {"moves": "kraft fleet history '/backup/*' --view leadership_changes --json"}
    render_fleet(fleet_rows(60, 150), page, title=f"Fleet {HOSTILE}", notes=[f"A note {HOSTILE}"], commands=commands)
    facts = check_page(page, filters=("region-017",))["desktop"]
    assert facts["title"] == f"Fleet {HOSTILE}"
    plots = {"outages-1", "controllers-1", "causes-1", "causes-2", "causes-3", "churn-1", "churn-2"}
    assert plots == {plot["id"] for plot in facts["plots"]}
    text = page.read_text()
    assert "The table has the latest 200 of 9,000. All of them: <code>kraft fleet history &#39;/backup/*&#39;" in text
    assert re.search(r"The table has the longest 200 of [\d,]+\.", text)


def test_the_incidents_of_a_real_fleet_fit_the_screen(tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    rows = [*real_rows("failover", "c3", FLEET_VIEWS, tmp_path), *real_rows("static3", "c1", FLEET_VIEWS, tmp_path)]
    render_fleet(rows, page, title="Fleet")
    assert "outages" not in look(page)["desktop"]["cut"], "a column of the incidents is out of sight"


def test_a_difference(tmp_path: Path) -> None:
    differences = [
        *(Difference("topics", f"orders-{at}", "leader", 101 + at % 3, 101 + (at + 1) % 3) for at in range(300)),
        Difference("configs", "topic orders", "retention.ms", None, HOSTILE),
        Difference("brokers", "broker 104", "registered", "yes", None),
        Difference("topics", "orders-3", "isr", (1, 2, 3), (1,)),
    ]
    page = tmp_path / "diff.html"
    commands = {"topics": "kraft diff c1@17 @99 --only topics"}
    render_diff(differences, page, before="offset 17", after="offset 99", title="A night", commands=commands)
    facts = check_page(page, filters=("orders-17",))["desktop"]
    assert facts["sections"] == ["overview", "brokers", "configs", "topics"]
    assert facts["title"] == "A night"
    text = page.read_text()
    assert "The table has the first 200 of 301. All of them: <code>kraft diff c1@17 @99 --only topics</code>" in text
    assert (
        "302 objects differ: 1 of brokers, 1 of configs and 300 of topics; 300 partitions have another leader." in text
    )


@pytest.mark.parametrize("page", ["history", "fleet", "diff"])
def test_a_report_without_data_has_a_sentence_for_each_plot(page: str, tmp_path: Path) -> None:
    """Every plot without data is a sentence."""
    out = tmp_path / "empty.html"
    if page == "diff":
        render_diff([], out, before="a", after="b")
    else:
        (render_history if page == "history" else render_fleet)([], out, title="Nothing")
    text = out.read_text()
    assert '<figure class="plot' not in text
    assert text.count('<p class="none">') == text.count("<section ")


def test_a_page_says_nothing_about_views_that_were_not_read(tmp_path: Path) -> None:
    """The page of one topic does not state that no broker was fenced."""
    out = tmp_path / "topic.html"
    read = ("leader_history", "isr_history")
    render_history(real_rows("failover", "c3", read, tmp_path), out, title="One topic", read=read)
    text = out.read_text()
    assert re.findall(r'<section id="(\w+)"', text) == ["leaders", "skew", "isr"]
    assert re.findall(r'class="card">.*<span>(.*)</span>', text) == ["partitions seen"]
    assert "enough in-sync replicas all the time" not in text
    assert "the log of this part shows no outage" in text


def test_the_views_exist() -> None:
    assert set(HISTORY_VIEWS) | set(FLEET_VIEWS) <= set(VIEWS)


def test_a_page_with_the_most_content_stays_below_two_megabytes(tmp_path: Path) -> None:
    """Every list and plot is at its limit."""
    page = tmp_path / "large.html"
    render_history(large_rows(6000), page, title="Large")
    assert page.stat().st_size < MOST_BYTES
    text = page.read_text()
    assert text.count("<tr>") <= 12 * TABLE_ROWS
    assert "Busy lanes show the worst state in each" in text


@pytest.mark.soak
def test_the_page_of_the_biggest_recorded_log_stays_below_two_megabytes(tmp_path: Path) -> None:
    """A log of 650,000 records."""
    unpack("big", "", tmp_path / "big")
    page = tmp_path / "big.html"
    rows = history_rows(read_timeline(OsDisk(), str(tmp_path / "big")), HISTORY_VIEWS, cluster="big")
    render_history(rows, page, title="Big")
    assert page.stat().st_size < MOST_BYTES
    check_page(page)
