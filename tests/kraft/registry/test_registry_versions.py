"""Which versions count in each question: those that are there, deleted softly, or gone. The facts are those of the
common registry's source; the page has the same table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft.registry.state import State
from registry_core import Core

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "schema-registry.md").read_text()
INT, LONG, TEXT = '"int"', '"long"', '"string"'
USES = '{"type":"record","name":"User","fields":[{"name":"home","type":"x.Address"}]}'
ADDRESS = '{"type":"record","name":"Address","namespace":"x","fields":[]}'
REFERENCE = {"name": "x.Address", "subject": "s", "version": 1}
THERE, SOFTLY, GONE = "there", "deleted softly", "gone"
STATES = (THERE, SOFTLY, GONE)


def with_version(state: str, schema: str = INT) -> Core:
    """A registry whose subject `s` has one version in a state."""
    core = Core()
    core.register("s", schema)
    if state != THERE:
        core.ask("DELETE", "/subjects/s/versions/1")
    if state == GONE:
        core.ask("DELETE", "/subjects/s/versions/1", permanent="true")
    return core


def answer_of(asked: tuple[int, Any]) -> object:
    """An answer, or its code of error."""
    status, body = asked
    return body if status == 200 else body["error_code"]


def compatibility_at_registering(state: str) -> object:
    return "yes" if with_version(state).register("s", TEXT)[0] == 409 else "no"


def compatibility_with_all(state: str) -> object:
    asked = with_version(state).ask("POST", "/compatibility/subjects/s/versions", {"schema": TEXT})
    return "no" if asked[1]["is_compatible"] else "yes"


def compatibility_with_the_latest(state: str) -> object:
    asked = with_version(state).ask("POST", "/compatibility/subjects/s/versions/latest", {"schema": TEXT})
    return "no" if asked[1]["is_compatible"] else "yes"


def compatibility_with_the_version(state: str) -> object:
    asked = with_version(state).ask("POST", "/compatibility/subjects/s/versions/1", {"schema": TEXT})
    return "yes" if asked == (200, {"is_compatible": False}) else answer_of(asked)


def look_up(state: str, **query: str) -> object:
    asked = with_version(state).ask("POST", "/subjects/s", {"schema": INT}, **query)
    return "yes" if asked[0] == 200 else answer_of(asked)


def look_up_of_another_schema(state: str) -> object:
    return answer_of(with_version(state).ask("POST", "/subjects/s", {"schema": LONG}))


def look_up_deleted(state: str) -> object:
    return look_up(state, deleted="true")


def id_of_the_same_schema(state: str) -> object:
    return "the same" if with_version(state).id_of("s", INT) == 1 else "a new one"


def id_of_the_same_schema_elsewhere(state: str) -> object:
    return "the same" if with_version(state).id_of("t", INT) == 1 else "a new one"


def version_of_the_same_schema(state: str) -> object:
    return with_version(state).register("s", INT)[1]["version"]


def version_of_another_schema(state: str) -> object:
    return with_version(state).register("s", LONG)[1]["version"]


def versions_after_the_same_schema(state: str) -> object:
    core = with_version(state)
    core.register("s", INT)
    return answer_of(core.ask("GET", "/subjects/s/versions", deletedAsNegative="true"))


def id_of_another_schema(state: str) -> object:
    return with_version(state).id_of("s", LONG)


def id_of_another_schema_after_a_restart(state: str) -> object:
    core = with_version(state)
    last: dict[bytes, bytes | None] = {}
    for key, value in core.log:
        last.pop(key, None)
        last[key] = value
    core.state = State()
    for record in last.items():
        core.state.apply(*record)
    return core.id_of("s", LONG)


def by_id(state: str) -> object:
    asked = with_version(state).ask("GET", "/schemas/ids/1")
    return "yes" if asked[0] == 200 else answer_of(asked)


def subjects_of_the_id(state: str) -> object:
    return answer_of(with_version(state).ask("GET", "/schemas/ids/1/subjects"))


def versions_of_the_id_deleted(state: str) -> object:
    asked = with_version(state).ask("GET", "/schemas/ids/1/versions", deleted="true")
    return [one["version"] for one in asked[1]] if asked[0] == 200 else answer_of(asked)


def the_version(state: str) -> object:
    asked = with_version(state).ask("GET", "/subjects/s/versions/1")
    return "yes" if asked[0] == 200 else answer_of(asked)


def the_version_deleted(state: str) -> object:
    asked = with_version(state).ask("GET", "/subjects/s/versions/1", deleted="true")
    return "yes" if asked[0] == 200 else answer_of(asked)


def the_latest_deleted(state: str) -> object:
    asked = with_version(state).ask("GET", "/subjects/s/versions/latest", deleted="true")
    return "yes" if asked[0] == 200 else answer_of(asked)


def versions(state: str) -> object:
    return answer_of(with_version(state).ask("GET", "/subjects/s/versions"))


def versions_deleted_only(state: str) -> object:
    return answer_of(with_version(state).ask("GET", "/subjects/s/versions", deletedOnly="true"))


def subjects_deleted_only(state: str) -> object:
    return answer_of(with_version(state).ask("GET", "/subjects", deletedOnly="true"))


def schemas(state: str) -> object:
    return "yes" if with_version(state).ask("GET", "/schemas")[1] else "no"


def a_reference_to_it(state: str) -> object:
    asked = with_version(state, ADDRESS).register("u", USES, references=[REFERENCE])
    return "yes" if asked[0] == 200 else answer_of(asked)


def a_reference_to_the_latest(state: str) -> object:
    asked = with_version(state, ADDRESS).register("u", USES, references=[{**REFERENCE, "version": -1}])
    return "yes" if asked[0] == 200 else answer_of(asked)


def with_user(state: str) -> Core:
    """A registry where a version of `u`, in a state, imports one of `s`."""
    core = Core()
    core.register("s", ADDRESS)
    core.register("u", USES, references=[REFERENCE])
    if state != THERE:
        core.ask("DELETE", "/subjects/u")
    if state == GONE:
        core.ask("DELETE", "/subjects/u", permanent="true")
    return core


def referenced_by_it(state: str) -> object:
    return answer_of(with_user(state).ask("GET", "/subjects/s/versions/1/referencedby"))


def referenced_by_it_deleted(state: str) -> object:
    return answer_of(with_user(state).ask("GET", "/subjects/s/versions/1/referencedby", deleted="true"))


def soft_deletion_of_what_it_imports(state: str) -> object:
    asked = with_user(state).ask("DELETE", "/subjects/s/versions/1")
    return "no" if asked[0] == 200 else answer_of(asked)


def deletion_for_good_of_what_it_imports(state: str) -> object:
    core = with_user(SOFTLY)
    core.ask("DELETE", "/subjects/s")
    if state == THERE:
        core.register("u", USES, references=[REFERENCE])
    elif state == GONE:
        core.ask("DELETE", "/subjects/u", permanent="true")
    asked = core.ask("DELETE", "/subjects/s", permanent="true")
    return "no" if asked[0] == 200 else answer_of(asked)


def the_same_schema_again_if_it_is_imported(state: str) -> object:
    """The versions of `s`: one deleted softly goes once the same schema is registered, unless another imports it."""
    core = with_user(state)
    core.ask("DELETE", "/subjects/u")
    core.ask("DELETE", "/subjects/s")
    core.register("s", ADDRESS)
    return answer_of(core.ask("GET", "/subjects/s/versions", deletedAsNegative="true"))


def import_mode(state: str) -> object:
    asked = with_version(state).ask("PUT", "/mode/s", {"mode": "IMPORT"})
    return "no" if asked[0] == 200 else answer_of(asked)


def import_mode_if_another_imports_it(state: str) -> object:
    core = with_user(THERE)
    if state != THERE:
        core.ask("DELETE", "/subjects/u")
        core.ask("DELETE", "/subjects/s")
    if state == GONE:
        core.ask("DELETE", "/subjects/u", permanent="true")
        core.ask("DELETE", "/subjects/s", permanent="true")
    asked = core.ask("PUT", "/mode/s", {"mode": "IMPORT"})
    return "no" if asked[0] == 200 else answer_of(asked)


TABLE: dict[Any, tuple[str, object, object, object]] = {
    compatibility_at_registering: ("does it count for the compatibility of the next", "yes", "no", "no"),
    compatibility_with_all: ("… for `/compatibility/…/versions`", "yes", "no", "no"),
    compatibility_with_the_latest: ("… for `/compatibility/…/versions/latest`", "yes", "no", "no"),
    compatibility_with_the_version: ("… for `/compatibility/…/versions/1`", "yes", 40402, 40402),
    look_up: ("is it found by its schema", "yes", 40401, 40401),
    look_up_deleted: ("… with `deleted=true`", "yes", "yes", 40401),
    look_up_of_another_schema: ("… by another schema", 40403, 40401, 40401),
    id_of_the_same_schema: ("the id of the same schema, registered again", "the same", "the same", "a new one"),
    id_of_the_same_schema_elsewhere: ("… in another subject", "the same", "the same", "a new one"),
    version_of_the_same_schema: ("… its version", 1, 2, 1),
    versions_after_the_same_schema: ("… the versions then, minus for deleted softly", [1], [2], [1]),
    version_of_another_schema: ("the version of another schema", 2, 2, 1),
    id_of_another_schema: ("… its id", 2, 2, 2),
    id_of_another_schema_after_a_restart: ("… after compaction and a restart", 2, 2, 1),
    by_id: ("is it found by its id", "yes", "yes", 40403),
    subjects_of_the_id: ("the subjects of its id", ["s"], [], 40403),
    versions_of_the_id_deleted: ("the versions of its id with `deleted=true`", [1], [1], 40403),
    the_version: ("is it found by its number", "yes", 40401, 40401),
    the_version_deleted: ("… with `deleted=true`", "yes", "yes", 40401),
    the_latest_deleted: ("… as the latest with `deleted=true`", "yes", 40402, 40401),
    versions: ("the versions of its subject", [1], 40401, 40401),
    versions_deleted_only: ("… with `deletedOnly=true`", [], [1], 40401),
    subjects_deleted_only: ("the subjects with `deletedOnly=true`", [], ["s"], []),
    schemas: ("is it in `/schemas`", "yes", "no", "no"),
    a_reference_to_it: ("can another schema import it", "yes", "yes", 42201),
    a_reference_to_the_latest: ("… as the latest", "yes", 42201, 42201),
    referenced_by_it: ("it imports another: `referencedby` of that one", [2], [], []),
    referenced_by_it_deleted: ("… with `deleted=true`", [2], [2], []),
    soft_deletion_of_what_it_imports: ("… does it keep that one from soft deletion", 42206, "no", "no"),
    deletion_for_good_of_what_it_imports: ("… from deletion for good", 42206, 42206, "no"),
    the_same_schema_again_if_it_is_imported: (
        "… versions once that one was deleted softly and registered again",
        [-1, 2],
        [-1, 2],
        [2],
    ),
    import_mode: ("does it keep its subject from the mode IMPORT", 42205, "no", "no"),
    import_mode_if_another_imports_it: ("… if another imports it", 42205, 42206, "no"),
}


def test_the_page_has_the_table() -> None:
    rows = [f"| {question} | {' | '.join(str(one) for one in cells)} |" for question, *cells in TABLE.values()]
    wanted = "\n".join([f"| question | {' | '.join(STATES)} |", "| --- | --- | --- | --- |", *rows])
    assert wanted in PAGE, wanted


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("question", TABLE, ids=lambda one: one.__name__)
def test_the_right_versions_count(question: Any, state: str) -> None:
    assert question(state) == TABLE[question][1 + STATES.index(state)]
