"""Random values of `ssl.principal.mapping.rules`, and random names of certificates as Java prints them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kraft.config.principal_rules import NoPrincipal, PrincipalRules

JAVA_ONLY = "a pattern of Java only"
ATTRIBUTES = ("CN", "OU", "O", "L", "ST", "C", "DC", "UID", "STREET", "1.2.840.113549.1.9.1")
PLAIN = "abcdefgKLMNXYZ0123456789.-_ @"
ESCAPED = (r"\,", r"\+", r"\"", r"\\", r"\<", r"\>", r"\;", r"\=", r"\ ", r"\#")
# Without a capital sigma and letters beyond U+FFFF: docs/differences.md says how these differ.
OTHERS = "/$*()[]{}^|ßİıſσςÀéñ中文Ω\u00a0\u0130"
FIXED = ("CN=kafka1,OU=ops,O=acme,C=NL", "CN=x,OU=y", "OU=JavaSoft,O=Sun", "", "CN=", "kafka1")
ATOMS = ("[a-z]", "[A-Z0-9]", "[^,]", r"\w", r"\d", r"\s", ".", "[a-zA-Z0-9._-]", r"\S", "[^,=]", r"\W")
COUNTS = ("", "*", "+", "?", "*?", "+?", "{1,3}", "{2}", "*+", "++", "??", "{0,}")


def answer_of(rules: str, name: str) -> str:
    """The principal, after "is "; "refused" for invalid rules; "none" for a name without a principal."""
    try:
        parsed = PrincipalRules.parse(rules)
    except ValueError as bad:
        return JAVA_ONLY if "cannot be matched here" in str(bad) else "refused"
    try:
        return f"is {parsed.principal_of(name)}"
    except NoPrincipal:
        return "none"


def random_name(rng: Random) -> str:
    """A name: most with the attributes that rules ask for."""
    if rng.random() < 0.05:
        return rng.choice(FIXED)
    parts: list[str] = []
    for _ in range(rng.randint(1, 5)):
        attribute = "CN" if not parts and rng.random() < 0.7 else rng.choice(ATTRIBUTES)
        parts.append(f"{attribute}={_value(rng)}")
    text = parts[0]
    for part in parts[1:]:
        text += ("+" if rng.random() < 0.1 else ",") + part
    return text


def _value(rng: Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(("kafka1", "Kafka2", "ops", "acme", "NL", "broker-101", "x", "host.example.com", "a/b"))
    pieces: list[str] = []
    for _ in range(rng.randint(0, 10)):
        draw = rng.random()
        pieces.append(rng.choice(PLAIN if draw < 0.8 else ESCAPED if draw < 0.9 else OTHERS))
    return "".join(pieces)


def random_rules(rng: Random) -> str:
    """A value of the setting: from one to three rules, now and then an invalid one."""
    rules = [_rule(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    text = rng.choice((",", ", ", " , ")).join(rules)
    if rng.random() < 0.03:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice("/\\,RL$ x") + text[at:]
    return text


def _rule(rng: Random) -> str:
    if rng.random() < 0.2:
        return "DEFAULT"
    return f"RULE:{_pattern(rng)}/{_replacement(rng)}/{rng.choice(('', '', 'L', 'U'))}"


def _pattern(rng: Random) -> str:
    make: Callable[[Random], str] = rng.choice((_of_attributes, _of_attributes, _of_attributes, _of_atoms, _whole))
    found = make(rng)
    return ("(?i)" if rng.random() < 0.05 else "") + found


def _of_attributes(rng: Random) -> str:
    """A pattern in the form of Kafka's manual."""
    pieces: list[str] = []
    for _ in range(rng.randint(1, 3)):
        inside = rng.choice((".*?", "[a-z]+", "[^,]*", ".*", r"\w+", "[a-zA-Z0-9.-]*", "(?:a|kafka)[0-9]*"))
        group = f"({inside})" if rng.random() < 0.8 else f"(?<g{len(pieces)}>{inside})"
        pieces.append(f"{rng.choice(ATTRIBUTES[:7])}={group}")
    tail = rng.choice((",.*$", "$", ".*", ".*$", ""))
    return f"{rng.choice(('^', '', '^.*'))}{','.join(pieces)}{tail}"


def _of_atoms(rng: Random) -> str:
    pieces: list[str] = []
    for _ in range(rng.randint(1, 4)):
        piece = rng.choice(ATOMS) + rng.choice(COUNTS)
        pieces.append(f"({piece})" + rng.choice(("", "", "?")) if rng.random() < 0.4 else piece)
    return "".join(pieces) + rng.choice(("", ".*", "(.*)", "|.*"))


def _whole(rng: Random) -> str:
    return rng.choice((".*", "^.*$", "^(.*)$", ".+", "(.*)", "^CN=.*", "(.*?),(.*)", "([^=]*)=([^,]*)(,.*)?"))


REFERENCES = (
    "$1",
    "$1",
    "$2",
    "$3",
    "$0",
    "$12",
    "$10",
    "${g0}",
    "${g1}",
    r"\$",
    r"\\",
    r"\/",
    "$",
    "-",
    "@",
    "x",
    ",b=",
)


def _replacement(rng: Random) -> str:
    return "".join(rng.choice(REFERENCES) for _ in range(rng.choice((0, 1, 1, 2, 3))))
