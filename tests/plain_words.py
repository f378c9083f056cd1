"""The search for sentences that do not name their subject."""

from __future__ import annotations

import re

VAGUE = re.compile(
    r"(?<![\w-])(?:who|whoever|whom|whose|someone|anyone|everyone|no one)(?![\w-])"
    r"|(?:nobody|somebody|everybody|anybody|whoever)",
    re.IGNORECASE,
)
"""Words for a subject without a name. The longer ones also count within identifiers."""
OF_OTHERS = re.compile(
    r"allow\.everyone\.if\.no\.acl\.found"  # Kafka's key
    r"|string\(\"anyone\"\)"  # ZooKeeper's identity of every client
    r"|a batch whose last offset delta is"  # a line of traces, which digests cover
    r"|restart leaders until controller 3, whose log start has moved, leads"  # recorded data
)
VAGUE_ON_PAGES = re.compile(r"\b(?:whoever|whom|nobody|somebody|everybody|anybody|who has|who is)\b", re.IGNORECASE)
"""The same for pages, which may say "an operator who removes a voter"."""
QUOTED = re.compile(r"^```.*?^```$|^\| `[^\n]*$|`[^`\n]*`|\"[^\"\n]*\"", re.MULTILINE | re.DOTALL)
"""Program output, code, and tables that are printed from code, where the words are the program's."""


def vague_words(text: str, words: re.Pattern[str] = VAGUE) -> list[tuple[int, str]]:
    """Each line with a word for a subject without a name, by its number."""
    return [
        (number, line.strip()[:100])
        for number, line in enumerate(text.splitlines(), 1)
        if words.search(OF_OTHERS.sub("", line))
    ]


def prose(page: str) -> str:
    """A page without what it quotes from programs."""
    return QUOTED.sub("", page)
