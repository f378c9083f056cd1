"""Walks through the bytes of a message by Kafka's own schema facts, to say where and in which field they go wrong.

It shares nothing with the codecs: no declarations, no reader. Kafka's rules are those of `ByteBufferAccessor` and of
the generated `*Data.java`, Kafka 4.4.0.
"""

import gzip
import json

from support import DATA

FACTS = {
    facts["name"]: facts
    for facts in json.loads(gzip.decompress((DATA / "schemas.json.gz").read_bytes())).values()
    if isinstance(facts, dict) and "validVersions" in facts
}
SIZES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16}


class WrongAt(Exception):
    """The bytes go wrong in `field`, in what begins at `start`."""

    def __init__(self, field, start):
        super().__init__(field)
        self.field, self.start = field, start


def within(versions, version):
    """Whether Kafka's notation `0-2`, `3+`, `7` or `none` holds this version."""
    if versions in {None, "none"}:
        return False
    low, _, high = versions.removesuffix("+").partition("-")
    return int(low) <= version and (versions.endswith("+") or version <= int(high or low))


class Walk:
    def __init__(self, name, version, data):
        self.facts, self.version, self.data, self.at = FACTS[name], version, data, 0
        self.flexible = within(self.facts["flexibleVersions"], version)
        self.common = {struct["name"]: struct["fields"] for struct in self.facts.get("commonStructs", ())}

    def finding(self):
        """The field that is wrong and where; or None, and where the message ends."""
        try:
            self.fields(self.facts["fields"], "")
        except WrongAt as wrong:
            return wrong.field, wrong.start
        return None, self.at

    def fields(self, fields, path):
        plain = [one for one in fields if within(one["versions"], self.version) and "tag" not in one]
        for one in plain:
            self.field(one, path)
        if self.flexible:
            self.tagged(fields, path)

    def tagged(self, fields, path):
        here = f"{path} tagged fields".strip()
        count = signed(self.varint(here))
        if not 0 <= count <= min(len(self.data) - self.at, 10_000):
            raise WrongAt(here, self.at)
        for _ in range(count):
            start = self.at
            tag, size = self.varint(here), self.varint(here)
            [known] = [one for one in fields if one.get("tag") == tag] or [None]
            if known is None:
                self.skip(size, here)
            elif within(known["taggedVersions"], self.version):
                self.field(known, path, tagged=True)
            else:
                raise WrongAt(here, start)

    def field(self, one, path, *, tagged=False):
        name = one["name"][0].lower() + one["name"][1:]
        nullable = within(one.get("nullableVersions"), self.version)
        here, start = f"{path}.{name}".strip("."), self.at
        compact = self.flexible and one.get("flexibleVersions") != "none"
        if self.value(one["type"], one, here, compact, may_be_absent=nullable and not tagged) and not nullable:
            raise WrongAt(here, start)

    def value(self, kind, one, here, compact, *, may_be_absent=False):
        """Walk through one value; whether it is null."""
        if kind in SIZES:
            self.skip(SIZES[kind], here)
        elif kind in {"string", "bytes", "records"}:
            size = self.length(here, compact, 2 if kind == "string" else 4)
            if size < 0:
                return True
            if kind == "string" and size > 0x7FFF:
                raise WrongAt(here, self.at)
            self.skip(size, here)
        elif kind.startswith("[]"):
            count = self.length(here, self.flexible, 4)
            if count < 0:
                return True
            if count > min(len(self.data) - self.at, 1_000_000):
                raise WrongAt(here, self.at)
            for index in range(count):
                if self.value(kind[2:], one, f"{here}[{index}]", self.flexible):
                    raise WrongAt(f"{here}[{index}]", self.at)
        else:
            if may_be_absent and self.skip(1, here)[0] > 0x7F:
                return True
            self.fields(one.get("fields") or self.common[kind], here)
        return False

    def length(self, here, compact, width):
        if compact:
            return signed(self.varint(here) - 1 & 0xFFFFFFFF)
        return int.from_bytes(self.skip(width, here), "big", signed=True)

    def varint(self, here):
        start, value = self.at, 0
        for shift in range(0, 35, 7):
            [byte] = self.skip(1, here)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise WrongAt(here, start)

    def skip(self, size, here):
        start = self.at
        if size > len(self.data) - start:
            raise WrongAt(here, start)
        self.at += size
        return self.data[start : self.at]


def signed(number):
    return number - (1 << 32) if number >= 1 << 31 else number
