"""The subject of a certificate as Java prints it (`X500Principal.getName()`, RFC 2253): the input of mapping rules.

Python's libraries print names in other forms, and an access rule compares the text exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes with a name in RFC 2253; every other one is printed as its number and the bytes of its value."""
_TEXTS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))
"""The types of strings, from UTF8String to BMPString. Java reads the bytes of all of them as UTF-8."""
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_VERSION: Final = 0xA0
_BEFORE_SUBJECT: Final = 4
"""Serial number, algorithm, issuer and validity."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER form: the distinguished name, last part first, as
    `CN=kafka1,OU=ops,O=acme,C=NL`. `ValueError` if the bytes are no certificate.
    """
    (_, outer, _), *_ = _parts(certificate)
    (_, signed, _), *_ = _parts(outer)
    fields = list(_parts(signed))
    at = _BEFORE_SUBJECT + (fields[0][0] == _VERSION)
    if len(fields) <= at:
        raise ValueError("the certificate has no subject")
    return name_text(fields[at][2])


def name_text(name: bytes) -> str:
    """A name in DER form as text; raises `ValueError`."""
    ((_, relative_names, _),) = _parts(name, _SEQUENCE)
    relative = [
        "+".join(map(_attribute, _parts(attributes, _SEQUENCE))) for _, attributes, _ in _parts(relative_names, _SET)
    ]
    return ",".join(reversed(relative))


def _attribute(found: tuple[int, bytes, bytes]) -> str:
    (_, number, _), (kind, value, whole) = _parts(found[1])
    dotted = _dotted(number)
    if dotted not in _NAMES or kind not in _TEXTS:
        return f"{_NAMES.get(dotted, dotted)}=#{whole.hex()}"
    return f"{_NAMES[dotted]}={_escaped(value.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    """The value of an attribute (Java: `AVA.toRFC2253String`)."""
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in inner)
    blanks = ["".join("\\" + char for char in part) for part in (text[:lead], text[lead + len(inner) :])]
    return blanks[0] + escaped + blanks[1]


def _dotted(number: bytes) -> str:
    values, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    first = min(values[0] // 40, 2) if values else 0
    return ".".join(map(str, (first, values[0] - 40 * first, *values[1:]))) if values else ""


def _parts(data: bytes, wanted: int | None = None) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements of a DER sequence: each one's tag, content and whole bytes. Raises `ValueError`."""
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1] if at + 1 < len(data) else 0x80
        at += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or at + count > len(data):
                raise ValueError("a length in the certificate is invalid")
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data) or (wanted is not None and tag != wanted):
            raise ValueError("an element of the certificate is invalid")
        yield tag, data[at : at + size], data[start : at + size]
        at += size
