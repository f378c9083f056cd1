"""Draws the states of a replica from the actions of `Quorum.tla`, and writes the picture.

An edge is an action whose guard names a role and whose effect another one, as the module says; nothing is drawn by hand
but the places of the six roles.
"""

from __future__ import annotations

import re
from html import escape
from math import hypot
from pathlib import Path
from typing import Final

PROTOCOL: Final = Path(__file__).parent.parent / "docs" / "protocol"
MODULE: Final = PROTOCOL / "Quorum.tla"
PICTURE: Final = PROTOCOL / "quorum.svg"
ROLES: Final = ("Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned")
PLACES: Final = {
    "Unattached": (130, 90),
    "Prospective": (400, 90),
    "Candidate": (680, 90),
    "Leader": (680, 330),
    "Resigned": (400, 330),
    "Follower": (130, 330),
}
WIDTH, HEIGHT = 820, 430
HALF = (62, 22)
"""Half of the width and of the height of a box."""


def edges(text: str) -> dict[tuple[str, str], list[str]]:
    """The actions between each two roles, in the order of the module."""
    found: dict[tuple[str, str], list[str]] = {}
    bodies = dict(re.findall(r"^(\w+)(?:\([\w, ]+\))? ==\n((?:  .*\n)+)", text, re.MULTILINE))
    for name, written in bodies.items():
        body = written.replace("BecomeCandidate(n)", bodies["BecomeCandidate"])
        if name in ("BecomeCandidate", "Restart", "Init") or "role'" not in body:
            continue
        guard, effect = body.split("role'", 1)
        effect = guard[guard.rfind("/\\") :] + effect.split("/\\")[0]
        for source in _named(guard.split("role[n]", 1)[1].split("\n")[0]) if "role[n]" in guard else ROLES:
            for target in _named(effect):
                if source != target:
                    found.setdefault((source, target), []).append(name)
    return found


def _named(text: str) -> list[str]:
    return [role for role in ROLES if f'"{role}"' in text]


def picture(text: str) -> str:
    """The picture as SVG."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        "<title>The states of a replica, from Quorum.tla</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    anywhere = {"LearnEpoch", "LearnLeader"}
    for (source, target), names in edges(text).items():
        drawn = [name for name in names if name not in anywhere]
        if drawn:
            lines += _edge(PLACES[source], PLACES[target], ", ".join(drawn))
    for role, (x, y) in PLACES.items():
        lines += [
            f'<rect x="{x - HALF[0]}" y="{y - HALF[1]}" width="{2 * HALF[0]}" height="{2 * HALF[1]}" rx="8"'
            ' fill="#eef3fb" stroke="#345"/>',
            f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-weight="bold">{role}</text>',
        ]
    told = "From every role: LearnEpoch to Unattached, LearnLeader to Follower, and Restart to what the disk says."
    lines += [
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 14}" text-anchor="middle" fill="#333">{escape(told)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _edge(source: tuple[int, int], target: tuple[int, int], label: str) -> list[str]:
    x1, y1, x2, y2 = map(float, (*source, *target))
    length = hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    side = 14
    away = min(HALF[0] / abs(ux) if ux else 1e9, HALF[1] / abs(uy) if uy else 1e9)
    x1, y1, x2, y2 = (
        x1 + ux * away - uy * side,
        y1 + uy * away + ux * side,
        x2 - ux * (away + 2) - uy * side,
        y2 - uy * (away + 2) + ux * side,
    )
    at = 0.5 if not (ux and uy) else 0.36
    lx, ly = x1 + (x2 - x1) * at - uy * 10, y1 + (y2 - y1) * at + ux * 10 + 4
    anchor = "middle" if abs(uy) < 0.9 else ("end" if uy > 0 else "start")
    return [
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="#555" marker-end="url(#end)"/>',
        f'<text x="{lx:.0f}" y="{ly:.0f}" text-anchor="{anchor}" fill="#345">{escape(label)}</text>',
    ]


if __name__ == "__main__":
    PICTURE.write_text(picture(MODULE.read_text()))
