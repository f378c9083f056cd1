"""JSON schemas: the library `jsonschema` says whether a text is one, and two are compared here.

A reader can read what a writer writes if each document of the writer is one of the reader. Each pair is decided: what
cannot be shown to hold is said to be incompatible. Patterns of strangers are run by RE2 alone, which takes linear time;
one that it does not know is compared by its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft7Validator, validator_for

from kraft.registry.json_documents import REFERENCES, Document, Meanings
from kraft.registry.json_texts import json_text, json_tree
from kraft.registry.json_values import Unknown, Values, matches
from kraft.registry.schemas import CannotCheck, Difference, InvalidSchema, Source

_GROUPS: Final = {
    "null": frozenset(("null",)),
    "boolean": frozenset(("boolean",)),
    "object": frozenset(("object",)),
    "array": frozenset(("array",)),
    "string": frozenset(("string",)),
    "integer": frozenset(("integer",)),
    "number": frozenset(("integer", "fraction")),
}
"""The kinds of documents that each type has."""
_ALL: Final = frozenset().union(*_GROUPS.values())
_SPLIT: Final = {name: {"type": name} for name in ("null", "boolean", "object", "array", "string", "number")}
_FEW: Final = {"null": (None,), "boolean": (True, False)}
"""The types with few documents."""
_ANY_NAME: Final = ("", "^", ".*", "^.*$", "^.*", ".*$")
_DISJOINT_DEPTH: Final = 4
_LEAST: Final = ("minLength", "minItems", "minProperties")
_MOST: Final = ("maxLength", "maxItems", "maxProperties")
Facts = tuple[Any, ...]
"""Schemas of the writer that all hold for what it wrote."""


def canonical(source: Source, normalize: bool) -> str:
    """Without spaces, as Jackson writes it; normalized with the keys in order."""
    tree = json_tree(source.text)
    if not isinstance(tree, dict | bool):
        raise InvalidSchema("a JSON schema is an object or a boolean")
    try:
        validator_for(tree, default=Draft7Validator).check_schema(tree)
    except SchemaError as bad:
        raise InvalidSchema(f"the schema is no JSON schema: {bad.message[:500]}") from bad
    except (TypeError, ValueError, KeyError, AttributeError) as bad:
        raise InvalidSchema(f"the schema is no JSON schema: {bad}") from bad
    return comparable(source, normalize)


def comparable(source: Source, normalize: bool) -> str:
    """The form that equal schemas have in common: the order of keys counts, unless they are normalized."""
    return json_text(json_tree(source.text, exact=True), sort=normalize)


def rendered(source: Source, form: str) -> str:
    """There is one form. A later registry may know others, so that asking for one is no mistake."""
    return source.text


def differences(reader: Source, writer: Source) -> Iterator[Difference]:
    """Why a document of the writer may be none of the reader."""
    meanings = Meanings()
    try:
        mine, theirs = (Document(json_tree(one.text), one.imports, meanings) for one in (reader, writer))
        return iter(_Comparison(mine, theirs).run())
    except (TypeError, ValueError, KeyError, AttributeError) as bad:
        raise CannotCheck(f"a schema is not as it should be: {bad}") from bad  # of another program


class _Comparison:
    """Of two documents of schemas.

    A pair that is being compared further out is taken as compatible, as schemas may be recursive, unless it is about
    the very same document: then nothing was shown by going in a circle.
    """

    def __init__(self, reader: Document, writer: Document) -> None:
        self._reader = reader
        self._writer = writer
        self._open: dict[object, int] = {}
        self._shown: set[object] = set()
        self._trail: list[object] = []
        """The pairs that were shown, in order; what was shown within an attempt that failed is forgotten."""
        self._failed: dict[object, list[Difference]] = {}
        self._leaves: dict[tuple[int, str], Any] = {}
        self._flats: dict[tuple[int, ...], list[Any] | None] = {}
        self._ruled_out: dict[int, dict[int, bool]] = {}
        self._next: dict[int, int] = {}
        """Of each list of the reader's branches the one to try first: those of the writer often have the same order."""
        self._values = Values(reader)
        self._other: _Comparison | None = None
        self._agreed: bool | None = None

    @property
    def _back(self) -> _Comparison:
        """The comparison the other way around."""
        if self._other is None:
            self._other = _Comparison(self._writer, self._reader)
            self._other._other = self
        return self._other

    def run(self) -> list[Difference]:
        """Every difference that matters."""
        if not (self._reader.is_known and self._writer.is_known):
            is_same = self._reader.tree == self._writer.tree
            return [] if is_same else [Difference("DRAFT_UNKNOWN", "schemas of draft 3 are not compared", "#")]
        return self._compare(self._reader.tree, (self._writer.tree,), "#", 0)

    def _compare(self, reader: Any, facts: Facts, where: str, depth: int) -> list[Difference]:
        """The obstacle that keeps documents for which all facts hold from being ones of the reader."""
        if not (view := self._reader.view(reader)):
            return []
        flat = self._flat(facts)
        if flat is None or any(self._is_same(reader, one) for one in flat):
            return []
        key = id(reader), tuple(sorted(map(id, flat)))
        if key in self._shown:
            return []
        if key in self._failed:
            return self._failed[key]
        if (opened := self._open.get(key)) is not None:
            return [] if opened < depth else [Difference("REFERENCE_CIRCLE", "a reference leads to itself", where)]
        self._open[key] = depth
        mark = len(self._trail)
        split = self._split(reader, flat, where, depth) if "anyOf" in view or "oneOf" in view else None
        problems = self._parts(reader, flat, where, depth) if split is None else split
        if problems and split is None:
            self._forget(mark)
            split = self._split(reader, flat, where, depth)
            problems = problems if split is None else split
        del self._open[key]
        if problems:
            self._forget(mark)
            self._failed[key] = problems
        else:
            self._shown.add(key)
            self._trail.append(key)
        return problems

    def _forget(self, mark: int) -> None:
        self._shown.difference_update(self._trail[mark:])
        del self._trail[mark:]

    def _is_same(self, reader: Any, writer: Any) -> bool:
        """Whether both say the same in the same words."""
        mine, theirs = self._reader.meaning(reader), self._writer.meaning(writer)
        return mine[0] == theirs[0] and (not (mine[1] or theirs[1]) or self._agrees())

    def _agrees(self) -> bool:
        """Whether references with the same text lead to the same in both documents."""
        if self._agreed is None:
            mine, theirs = self._reader, self._writer
            self._agreed = True
            for text in mine.by_text.keys() & theirs.by_text.keys():
                leads = [(document, one) for document in (mine, theirs) for one in document.by_text[text]]
                # What leads to nothing known leads to the same in both.
                if len({None if one is None else document.meaning(one)[0] for document, one in leads}) > 1:
                    self._agreed = False
        return self._agreed

    # The writer

    def _flat(self, facts: Facts) -> list[Any] | None:
        """The facts, with what they refer to and are made of; None if no document is left."""
        key = tuple(map(id, facts))
        if key not in self._flats:
            self._flats[key] = self._flat_anew(facts)
        return self._flats[key]

    def _flat_anew(self, facts: Facts) -> list[Any] | None:
        waiting, flat, seen = list(facts), [], set()
        while waiting:
            one = waiting.pop()
            view = self._writer.view(one)
            if view.get("not", False) in (True, {}):
                return None
            if not view or id(one) in seen:
                continue
            seen.add(id(one))
            flat.append(one)
            if "$ref" in view and (target := self._writer.target(one)) is not None:
                waiting.append(target)
            waiting += view.get("allOf", ())
        return flat

    def _leaf(self, schema: Any, without: str = "") -> Any:
        """A fact without what it was made of, and without a word."""
        key = id(schema), without
        if key not in self._leaves:
            gone = (*REFERENCES, "allOf", without)
            words = {} if "$ref" in schema and not self._writer.is_modern else schema
            self._leaves[key] = self._writer.kept({word: one for word, one in words.items() if word not in gone})
        return self._leaves[key]

    def _split(self, reader: Any, flat: list[Any], where: str, depth: int) -> list[Difference] | None:
        """The obstacle in any of the writer's branches; None if it has none."""
        for at, one in enumerate(flat):
            view = self._writer.view(one)
            word = "anyOf" if "anyOf" in view else "oneOf"
            if word not in view:
                continue
            others = [self._leaf(fact) for fact in (*flat[:at], *flat[at + 1 :])]
            others.append(self._leaf(one, word))
            problems: list[Difference] = []
            for number, branch in enumerate(view[word]):
                beside = [self._not_others(view[word], number)] if word == "oneOf" else []
                problems += self._compare(reader, (*others, branch, *beside), f"{where}/{word}/{number}", depth)
            return problems
        return None

    def _not_others(self, branches: list[Any], but: int) -> Any:
        """A fact that a document is one of no branch but one."""
        key = id(branches), f"not {but}"
        if key not in self._leaves:
            others = [other for at, other in enumerate(branches) if at != but]
            self._leaves[key] = self._writer.kept({"not": {"anyOf": others}})
        return self._leaves[key]

    def _is_excluded(self, schemas: list[Any], flat: list[Any]) -> bool:
        """Whether a fact excludes what one of the reader's schemas says, in the same words."""
        numbers = [self._reader.meaning(one) for one in schemas]
        for given in self._said(flat, "not"):
            if id(given) not in self._ruled_out:
                parts = [given, *self._writer.view(given).get("anyOf", ())] if isinstance(given, dict) else []
                is_alone = parts and self._writer.view(given).keys() == {"anyOf"}
                self._ruled_out[id(given)] = dict(map(self._writer.meaning, parts if is_alone else parts[:1]))
            known = self._ruled_out[id(given)]
            if any(number in known and (not (refers or known[number]) or self._agrees()) for number, refers in numbers):
                return True
        return False

    def _said(self, flat: list[Any], word: str) -> list[Any]:
        """The values of the facts for a word."""
        views = map(self._writer.view, flat)
        return [view[word] for view in views if word in view]

    # The reader

    def _parts(self, reader: Any, flat: list[Any], where: str, depth: int) -> list[Difference]:
        """Of each part of the reader what keeps it from holding."""
        view = self._reader.view(reader)
        if view.get("not", False) in (True, {}):
            return [Difference("NOTHING_IS_ALLOWED", "the reader takes no document here", where)]
        values = self._few(flat)
        if values is not None:
            return self._taken(reader, values, where)
        problems: list[Difference] = []
        facts = tuple(flat)
        if "$ref" in view:
            target = self._reader.target(reader)
            if target is None:
                return [Difference("REFERENCE_UNKNOWN", f"{str(view['$ref'])[:100]} leads to nothing known", where)]
            problems += self._compare(target, facts, where, depth)
        for word in ("$dynamicRef", "$recursiveRef"):
            if word in view:
                problems.append(Difference("REFERENCE_UNKNOWN", f"{word} is not followed", where))
        for at, part in enumerate(view.get("allOf", ())):
            problems += self._compare(part, facts, f"{where}/allOf/{at}", depth)
        for word in ("anyOf", "oneOf"):
            if word in view:
                problems += self._any(reader, word, flat, where, depth)
        if "not" in view:
            problems += self._excluded(view["not"], flat, where)
        if "if" in view:
            problems += self._conditional(reader, view, flat, where, depth)
        for word in ("unevaluatedProperties", "unevaluatedItems"):
            if view.get(word, True) not in (True, {}):
                problems.append(Difference(f"{_snake(word)}_CHANGED", f"{word} beside what differs", where))
        return problems + self._plain(view, flat, where, depth)

    def _few(self, flat: list[Any]) -> list[Any] | None:
        """All documents of the writer, if they are few, and perhaps some more; None if they are many."""
        for given in self._said(flat, "const"):
            return [given]
        for fact in flat:
            if "enum" in (view := self._writer.view(fact)):
                others = [*(one for one in flat if one is not fact), self._leaf(fact, "enum")]
                return [one for one in view["enum"] if self._back._may_take(others, one)]
        types = self._types(flat)
        return [one for name in sorted(types) for one in _FEW[name]] if types and types <= _FEW.keys() else None

    def _taken(self, reader: Any, values: list[Any], where: str) -> list[Difference]:
        problems = []
        for one in values:
            try:
                if self._values.takes(reader, one):
                    continue
                what = "is no value of the reader"
            except Unknown as unknown:
                what = f"may be no value of the reader: {unknown}"
            problems.append(Difference("ENUM_ARRAY_NARROWED", f"{json_text(one)[:100]} {what}", where))
        return problems

    def _may_take(self, schemas: list[Any], value: Any) -> bool:
        try:
            return all(self._values.takes(one, value) for one in schemas)
        except Unknown:
            return True

    def _types(self, flat: list[Any]) -> frozenset[str]:
        types = _ALL
        for given in self._said(flat, "type"):
            types &= _kinds(given)
        return types

    def _any(self, reader: Any, word: str, flat: list[Any], where: str, depth: int) -> list[Difference]:
        """The obstacle that keeps one branch of the reader from holding, or, of `oneOf`, from being the only one."""
        branches = self._reader.view(reader)[word]
        numbers = sorted(self._reader.meaning(one) for one in branches)
        if any(
            sorted(self._writer.meaning(one) for one in theirs) == numbers
            for theirs in self._said(flat, word)
            if not any(refers for _, refers in numbers) or self._agrees()
        ):
            return []
        facts = tuple(flat)
        start = self._next.get(id(branches), 0)
        for at in (*range(start, len(branches)), *range(start)):
            if self._compare(branches[at], facts, f"{where}/{word}/{at}", depth):
                continue
            self._next[id(branches)] = at + 1
            if word == "oneOf":
                overlapping = [
                    number
                    for number, other in enumerate(branches)
                    if number != at and not self._are_disjoint((other,), flat, _DISJOINT_DEPTH)
                ]
                if overlapping:
                    what = f"branches {[at, *overlapping]} of oneOf may take the same document"
                    return [Difference("ONE_OF_OVERLAPS", what, where)]
            return []
        types = self._types(flat)
        groups = [name for name in _SPLIT if _GROUPS[name] & types]
        if len(groups) > 1:
            part = self._part(reader, word)
            problems: list[Difference] = []
            for name in groups:
                problems += self._compare(part, (*facts, _SPLIT[name]), where, depth)
            return problems
        what = f"no branch of the reader takes what the writer writes ({', '.join(sorted(types))})"
        return [Difference("SUM_TYPE_NARROWED", what, where)]

    def _part(self, reader: Any, word: str) -> Any:
        """One word of the reader, alone."""
        key = id(reader), f"reader {word}"
        if key not in self._leaves:
            self._leaves[key] = self._reader.kept({word: self._reader.view(reader)[word]})
        return self._leaves[key]

    def _excluded(self, excluded: Any, flat: list[Any], where: str) -> list[Difference]:
        """The obstacle to showing that no document is one of a schema."""
        if self._are_disjoint((excluded,), flat, _DISJOINT_DEPTH):
            return []
        for theirs in self._said(flat, "not"):
            if not self._back._compare(theirs, (excluded,), where, 0):
                return []
        return [Difference("NOT_TYPE_EXTENDED", "the reader excludes more than the writer", f"{where}/not")]

    def _conditional(
        self, reader: Any, view: Mapping[str, Any], flat: list[Any], where: str, depth: int
    ) -> list[Difference]:
        words = ("if", "then", "else")
        mine = [self._reader.meaning(view.get(word, True)) for word in words]
        for one in flat:
            theirs = self._writer.view(one)
            is_same = "if" in theirs and [self._writer.meaning(theirs.get(word, True)) for word in words] == mine
            if is_same and (self._agrees() or not any(refers for _, refers in mine)):
                return []
        facts = tuple(flat)
        problems = [
            problem
            for word in ("then", "else")
            for problem in self._compare(view.get(word, True), facts, f"{where}/{word}", depth)
        ]
        return [Difference("CONDITION_CHANGED", "if, then or else differ", where)] if problems else []

    def _are_disjoint(self, mine: Facts, flat: list[Any], depth: int) -> bool:
        """Whether it is sure that no document is one of the reader's schemas and of the writer's."""
        own = self._back._flat(mine)
        if own is None:
            return True
        if not self._types(flat) & self._back._types(own):
            return True
        if self._is_excluded(own, flat):
            return True
        values = self._few(flat)
        if values is not None and self._are_refused(own, values):
            return True
        for one in own:
            view = self._reader.view(one)
            for word in ("anyOf", "oneOf"):
                if (
                    depth
                    and word in view
                    and all(self._are_disjoint((branch,), flat, depth - 1) for branch in view[word])
                ):
                    return True
        if depth == 0 or self._types(flat) & self._back._types(own) != {"object"}:
            return False
        required = {
            name for names in (*self._said(flat, "required"), *self._back._said(own, "required")) for name in names
        }
        for name in sorted(required):
            ours = tuple(need for one in own for need in self._needed(self._reader.view(one), name))
            theirs = self._flat(self._known(flat, name))
            if theirs is None or (ours and self._are_disjoint(ours, theirs, depth - 1)):
                return True
        return False

    def _are_refused(self, own: list[Any], values: list[Any]) -> bool:
        return not any(self._may_take(own, value) for value in values)

    # Words that say something of one document

    def _plain(self, view: Mapping[str, Any], flat: list[Any], where: str, depth: int) -> list[Difference]:
        types = self._types(flat)
        if lost := types - _kinds(view.get("type", list(_GROUPS))):
            return [Difference("TYPE_NARROWED", f"the reader does not take {_names(lost)}", where)]
        if "enum" in view or "const" in view:
            return [Difference("ENUM_ARRAY_CHANGED", "the reader takes some values alone", where)]
        problems: list[Difference] = []
        if types & _GROUPS["number"]:
            problems += self._numbers(view, flat, where)
        if "string" in types:
            problems += self._strings(view, flat, where)
        if "object" in types:
            problems += self._objects(view, flat, where, depth)
        if "array" in types:
            problems += self._arrays(view, flat, where, depth)
        return problems

    def _numbers(self, view: Mapping[str, Any], flat: list[Any], where: str) -> Iterator[Difference]:
        for end, best, is_within in (("imum", max, _is_least), ("imum", min, _is_most)):
            side = "min" if best is max else "max"
            closed, opened = f"{side}{end}", f"exclusive{side.title()}{end}"
            theirs = [(one, False) for one in self._said(flat, closed)]
            theirs += [(one, True) for one in self._said(flat, opened)]
            for word, is_strict in ((closed, False), (opened, True)):
                if word in view and not any(is_within(view[word], is_strict, *one) for one in theirs):
                    yield _changed(word, view[word], [one for one, _ in theirs], where)
        if "multipleOf" in view:
            wanted = Fraction(str(view["multipleOf"]))
            given = self._said(flat, "multipleOf")
            if self._types(flat) <= {"integer"}:
                given = [*given, 1]
            if not any(wanted and (Fraction(str(one)) / wanted).denominator == 1 for one in given):
                yield _changed("multipleOf", view["multipleOf"], given, where)

    def _strings(self, view: Mapping[str, Any], flat: list[Any], where: str) -> Iterator[Difference]:
        yield from self._counts(view, flat, ("minLength", "maxLength"), where)
        for word in ("pattern", "format"):
            given = self._said(flat, word)
            if word not in view or view[word] in given or (word == "pattern" and view[word] in _ANY_NAME):
                continue
            kind = f"{word.upper()}_{'CHANGED' if given else 'ADDED'}"
            yield Difference(kind, f"{word} is {view[word]!r:.200}", where)

    def _counts(
        self,
        view: Mapping[str, Any],
        flat: list[Any],
        words: tuple[str, ...],
        where: str,
        *,
        least: int = 0,
        most: int | None = None,
    ) -> Iterator[Difference]:
        """Bounds of a size, which is known to be between two numbers anyway."""
        for word in words:
            if word not in view:
                continue
            given = self._said(flat, word)
            if word in _LEAST:
                fits = view[word] <= max((*given, least))
            else:
                fits = any(one <= view[word] for one in (*given, *([] if most is None else [most])))
            if not fits:
                yield _changed(word, view[word], given, where)

    # Objects

    def _objects(self, view: Mapping[str, Any], flat: list[Any], where: str, depth: int) -> Iterator[Difference]:
        mine = view.get("properties", {})
        theirs = {name for given in self._said(flat, "properties") for name in given}
        for name in sorted(mine.keys() | theirs):
            place = f"{where}/properties/{name}"
            if not (needed := self._needed(view, name)):
                continue
            known = self._known(flat, name)
            problems = [one for need in needed for one in self._compare(need, known, place, depth + 1)]
            if problems and name not in theirs:
                what = f"the writer may have written {name} as anything, as it forbids no other properties"
                yield Difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", what, place)
            elif problems and name not in mine:
                what = f"the reader does not take {name}, as it forbids other properties"
                yield Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", what, place)
            else:
                yield from problems
        patterns = view.get("patternProperties", {})
        for pattern, need in sorted(patterns.items(), key=lambda one: one[0]):
            known = tuple(fact for one in flat for fact in self._where_matching(one, pattern))
            yield from self._compare(need, known, f"{where}/patternProperties/{pattern}", depth + 1)
        if "additionalProperties" in view and not any(pattern in _ANY_NAME for pattern in patterns):
            known = tuple(fact for one in flat for fact in self._where_additional(one, patterns))
            yield from self._compare(view["additionalProperties"], known, f"{where}/additionalProperties", depth + 1)
        yield from self._names(view, flat, where, depth)

    def _names(self, view: Mapping[str, Any], flat: list[Any], where: str, depth: int) -> Iterator[Difference]:
        """The properties that there are."""
        required = {name for given in self._said(flat, "required") for name in given}
        for name in sorted(set(view.get("required", ())) - required):
            declared = view.get("properties", {}).get(name)
            # As in the common registry: whoever reads knows what to take instead.
            if not (isinstance(declared, dict) and "default" in declared):
                what = f"{name} is required, and may be missing in what was written"
                yield Difference("REQUIRED_ATTRIBUTE_ADDED", what, f"{where}/properties/{name}")
        closed = [self._closed(one) for one in flat]
        most = min((len(one) for one in closed if one is not None), default=None)
        yield from self._counts(view, flat, ("minProperties", "maxProperties"), where, least=len(required), most=most)
        if "propertyNames" in view:
            yield from self._property_names(view["propertyNames"], flat, closed, where, depth)
        for name, wanted in sorted(view.get("dependentRequired", {}).items()):
            there = {one for given in self._said(flat, "dependentRequired") for one in given.get(name, ())}
            if (more := set(wanted) - there - required - {name}) and not self._is_absent(flat, name):
                what = f"beside {name} there must be {', '.join(sorted(more))}"
                yield Difference("DEPENDENCY_ARRAY_CHANGED", what, f"{where}/dependencies/{name}")
        for name, need in sorted(view.get("dependentSchemas", {}).items()):
            if not self._is_absent(flat, name):
                known = [one[name] for one in self._said(flat, "dependentSchemas") if name in one]
                yield from self._compare(need, (*flat, *known), f"{where}/dependencies/{name}", depth)

    def _property_names(
        self, need: Any, flat: list[Any], closed: list[Any], where: str, depth: int
    ) -> Iterator[Difference]:
        known = (_SPLIT["string"], *self._said(flat, "propertyNames"))
        problems = self._compare(need, known, f"{where}/propertyNames", depth + 1)
        for names in closed:
            if names is not None and not self._taken(need, sorted(names), where):
                return
        yield from problems

    def _is_absent(self, flat: list[Any], name: str) -> bool:
        return self._flat(self._known(flat, name)) is None

    def _closed(self, schema: Any) -> Any:
        """The properties of a fact that allows no others; None if it does."""
        view = self._writer.view(schema)
        is_closed = view.get("additionalProperties") is False and not view.get("patternProperties")
        return view.get("properties", {}).keys() if is_closed else None

    def _needed(self, view: Mapping[str, Any], name: str) -> list[Any]:
        """All that a property must be, for the reader."""
        properties, needed, is_sure = view.get("properties", {}), [], False
        if name in properties:
            needed, is_sure = [properties[name]], True
        for pattern, one in view.get("patternProperties", {}).items():
            matches = self._matches(pattern, name)
            if matches is not False:
                needed.append(one)
            is_sure |= matches is True
        if not is_sure and "additionalProperties" in view:
            needed.append(view["additionalProperties"])
        return needed

    def _known(self, flat: list[Any], name: str) -> Facts:
        """All that is known of a property that was written."""
        known: list[Any] = []
        for view in map(self._writer.view, flat):
            properties = view.get("properties", {})
            found = [properties[name]] if name in properties else []
            verdicts = {}
            for pattern, one in view.get("patternProperties", {}).items():
                verdicts[pattern] = self._matches(pattern, name)
                if verdicts[pattern]:
                    found.append(one)
            if not found and "additionalProperties" in view and None not in verdicts.values():
                found.append(view["additionalProperties"])
            known += found
        return tuple(known)

    def _where_matching(self, schema: Any, pattern: str) -> list[Any]:
        """The schema that a fact has for properties that match a pattern of the reader, and have no other name."""
        view = self._writer.view(schema)
        patterns = view.get("patternProperties", {})
        if pattern in patterns:
            return [patterns[pattern]]
        return self._one_of_several(schema, [view.get("additionalProperties", True), *patterns.values()], pattern)

    def _where_additional(self, schema: Any, without: Mapping[str, Any]) -> list[Any]:
        """The schema that a fact has for properties that match none of some patterns, and have no other name."""
        view = self._writer.view(schema)
        others = [one for pattern, one in view.get("patternProperties", {}).items() if pattern not in without]
        return self._one_of_several(schema, [view.get("additionalProperties", True), *others], "")

    def _one_of_several(self, schema: Any, options: list[Any], of: str) -> list[Any]:
        if len(options) == 1:
            return options
        key = id(schema), f"options {of}"
        if key not in self._leaves:
            self._leaves[key] = self._writer.kept({"anyOf": options})
        return [self._leaves[key]]

    def _matches(self, pattern: str, name: str) -> bool | None:
        return matches(pattern, name)

    # Arrays

    def _arrays(self, view: Mapping[str, Any], flat: list[Any], where: str, depth: int) -> Iterator[Difference]:
        yield from self._counts(view, flat, ("minItems", "maxItems"), where)
        most = min(self._said(flat, "maxItems"), default=None)
        is_unique = True in self._said(flat, "uniqueItems") or (most is not None and most <= 1)
        if view.get("uniqueItems", False) is True and not is_unique:
            yield Difference("UNIQUE_ITEMS_ADDED", "the items have to differ", where)
        first = view.get("prefix", [])
        count = max(len(first), *(len(one) for one in self._said(flat, "prefix")), 0)
        for at in range(count if most is None else min(count, int(most))):
            need = first[at] if at < len(first) else view.get("rest", True)
            yield from self._compare(need, self._items_at(flat, at), f"{where}/items/{at}", depth + 1)
        if "rest" in view and (most is None or most > count):
            yield from self._compare(view["rest"], self._items_at(flat, count), f"{where}/items", depth + 1)
        if "contains" in view:
            yield from self._contained(view, flat, where, depth)

    def _items_at(self, flat: list[Any], at: int) -> Facts:
        known = []
        for view in map(self._writer.view, flat):
            first = view.get("prefix", [])
            if at < len(first):
                known.append(first[at])
            elif "rest" in view:
                known.append(view["rest"])
        return tuple(known)

    def _contained(self, view: Mapping[str, Any], flat: list[Any], where: str, depth: int) -> Iterator[Difference]:
        need, least, most = view["contains"], view.get("minContains", 1), view.get("maxContains")
        views = [one for one in map(self._writer.view, flat) if "contains" in one]
        if least:
            every = tuple(one for fact in map(self._writer.view, flat) for one in _all_items(fact))
            at_least = max(self._said(flat, "minItems"), default=0)
            is_full = at_least >= least and bool(every) and not self._compare(need, every, where, depth + 1)
            if not is_full and not any(
                one.get("minContains", 1) >= least and not self._compare(need, (one["contains"],), where, depth + 1)
                for one in views
            ):
                yield Difference("MIN_CONTAINS_CHANGED", "fewer items may be as the reader wants them", where)
        if most is None or any(one <= most for one in self._said(flat, "maxItems")):
            return
        if not any(
            one.get("maxContains", most + 1) <= most and not self._back._compare(one["contains"], (need,), where, 0)
            for one in views
        ):
            yield Difference("MAX_CONTAINS_CHANGED", "more items may be as the reader wants few", where)


def _all_items(view: Mapping[str, Any]) -> list[Any]:
    return [view["rest"]] if "rest" in view and not view.get("prefix") else []


def _kinds(given: Any) -> frozenset[str]:
    names = [given] if isinstance(given, str) else given
    return frozenset().union(*(_GROUPS.get(name, frozenset()) for name in names))


def _names(kinds: frozenset[str]) -> str:
    return ", ".join(sorted({"number" if one == "fraction" else one for one in kinds}))


def _is_least(wanted: Any, is_strict: bool, given: Any, is_given_strict: bool) -> bool:
    return bool(given > wanted or (given == wanted and (is_given_strict or not is_strict)))


def _is_most(wanted: Any, is_strict: bool, given: Any, is_given_strict: bool) -> bool:
    return bool(given < wanted or (given == wanted and (is_given_strict or not is_strict)))


def _changed(word: str, wanted: Any, given: list[Any], where: str) -> Difference:
    was = f", and was {', '.join(map(str, given))}" if given else ""
    return Difference(f"{_snake(word)}_CHANGED", f"{word} is {wanted}{was}", where)


def _snake(word: str) -> str:
    return "".join(f"_{one}" if one.isupper() else one.upper() for one in word)
