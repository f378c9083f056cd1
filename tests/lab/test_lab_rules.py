"""The rules that the page of the lab names lead to where `docs/protocol` states them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kraft.sim.lab.link import run_from
from kraft.sim.lab.session import LiveSession
from support.left_out import leave_out

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r'"(\.\./[\w./-]+)\.html(?:#([\w-]+))?"')
NAMED = {"votes", "pre-votes", "fetch", "divergence", "watermark", "voters"}
ASK = """
const { readFileSync } = await import("node:fs");
const { rulesOf } = await import(`data:text/javascript,${encodeURIComponent(readFileSync(process.argv[1]))}`);
const moments = JSON.parse(await new Response(process.stdin).text());
console.log(JSON.stringify(moments.map(one => rulesOf(one, one.why).map(({ href }) => href))));
"""


def scenario(title: str) -> list[dict[str, object]]:
    """The moments of a guided scenario, as the page gets them."""
    (one,) = [each for each in json.loads((DOCS / "lab/scenarios.json").read_text()) if each["title"] == title]
    session = LiveSession(run_from(one["fragment"]))
    try:
        session.advance(one["until"], 100_000)
        return [{"what": moment.what, "details": moment.details, "why": moment.why} for moment in session.notes.told]
    finally:
        session.close()


def links_of(moments: list[dict[str, object]]) -> list[list[str]]:
    """The links that the page shows at each moment."""
    node = shutil.which("node")
    if node is None:
        leave_out("node", "node is not here")
    command = [node, "--input-type=module", "-e", ASK, str(DOCS / "lab/rules.js")]
    done = subprocess.run(command, input=json.dumps(moments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def anchors(page: str) -> set[str]:
    return set(re.findall(r'<a id="([\w-]+)"></a>', (DOCS / "lab" / f"{page}.md").resolve().read_text()))


def test_each_rule_that_a_run_shows_has_its_place_in_the_protocol() -> None:
    moments = [
        *scenario("A log diverges and is truncated"),
        *scenario("A voter is replaced while the leader dies"),
        *scenario("A pre-vote saves the leader"),
    ]
    seen = {link for links in links_of(moments) for link in links}
    assert {link.partition("#")[0] for link in seen} == {"../protocol/README.html"}
    assert {link.partition("#")[2] for link in seen} == NAMED
    assert anchors("../protocol/README") >= NAMED


@pytest.mark.parametrize(
    ("what", "anchor"),
    [
        ("node 1 does not vote for node 3 in epoch 2: it has voted for node 1", "votes"),
        ("node 1 is asked by node 3 whether it would vote, and refuses: it leads itself", "pre-votes"),
        ("the log of node 2 loses what follows offset 1", "divergence"),
        ("node 1 answer of 2 to AddRaftVoter", "voters"),
        ("visitor: crash 2", None),
    ],
)
def test_a_moment_names_its_own_rule(what: str, anchor: str | None) -> None:
    ((links),) = links_of([{"what": what, "details": [], "why": ""}])
    assert links == ([] if anchor is None else [f"../protocol/README.html#{anchor}"])


@pytest.mark.parametrize("source", ["index.html", "main.js", "rules.js"])
def test_each_link_of_the_page_leads_to_a_page_and_a_place_in_it(source: str) -> None:
    found = LINK.findall((DOCS / "lab" / source).read_text())
    assert source == "main.js" or found
    for page, anchor in found:
        assert (DOCS / "lab" / f"{page}.md").resolve().is_file()
        assert not anchor or anchor in anchors(page)


def test_the_words_of_the_page_lead_to_their_rules() -> None:
    assert {anchor for _, anchor in LINK.findall((DOCS / "lab/index.html").read_text())} >= NAMED
