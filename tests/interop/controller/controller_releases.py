"""The controller's stories told by an older release of Kafka, and by ours at the level of that release."""

from __future__ import annotations

from typing import Any, Final

from metadata_log.errors import EncodeError
from metadata_log.releases import NEWEST_RELEASE, SUPPORTED_RELEASES
from metadata_log.serde import schema_of
from support.differential.controller_sides import Side
from support.differential.controller_stories import STORIES, newest
from transport.protocol import messages as m

GROUP: Final = 32
OTHERWISE: Final[dict[str, dict[tuple[str, int], str]]] = {
    "4.3.1": {},
    "3.9.2": {
        ("brokers register", 23): "a broker that migrates from ZooKeeper is refused with another error",
        ("configurations", 117): "cordoned.log.dirs is not known yet, and so stored",
        ("brokers pass requests on", 2): "cordoned.log.dirs is not known yet, and so stored",
        ("brokers pass requests on", 3): "cordoned.log.dirs is not known yet, and so removed",
        ("bad input", 0): "message.timestamp.after.max.ms has another default",
        ("bad input", 10): "an answer that is too long to be sent",
        ("internal settings", 0): "internal.segment.bytes is not known yet",
        ("internal settings", 3): "internal.segment.bytes is not known yet",
    },
}
"""The steps of stories that a release answers otherwise than ours at its level, and why."""
SAME_TEXTS: Final = frozenset(("4.3.1",))
"""The releases with the sentences of the newest one, but for the bounds of the settings of groups."""
SAME_RECORDS: Final = frozenset(("4.3.1",))
"""The releases that write the same batches to the same stories; 3.9.2 knows migrations from ZooKeeper."""
assert OTHERWISE.keys() == {*SUPPORTED_RELEASES} - {NEWEST_RELEASE}


def differing(release: str, theirs: Side, ours: Side) -> dict[tuple[str, int], str]:
    """The steps of all stories with different answers, and both answers."""
    asked = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    known = {one["api_key"]: one["max_version"] for one in theirs.ask(asked, 3)["api_keys"]}
    found = {}
    for name, story in STORIES.items():
        for number, (build, version) in enumerate(story):
            request = build(theirs)
            spoken = min(newest(request, version), known[schema_of(type(request)).api_key])
            try:
                kafkas = theirs.ask(request, spoken)
            except EncodeError:
                continue  # its version has no field for what is asked
            if "Unknown resource type" in str(kafkas):
                continue  # 3.9.2 has no settings of groups
            our = ours.ask(build(ours), spoken)
            names = {one["name"] for topic in kafkas.get("topics", ()) for one in topic.get("configs") or ()}
            if comparable(release, kafkas, names) != comparable(release, our, names):
                found[name, number] = f"{kafkas}\n{our}"
    return found


def comparable(release: str, value: Any, names: set[str]) -> Any:
    """An answer without what the release cannot have: settings of topics that are newer, and newer sentences."""
    match value:
        case dict():
            found = {key: comparable(release, one, names) for key, one in value.items()}
            if release not in SAME_TEXTS or value.get("resource_type") == GROUP:
                found.pop("error_message", None)
            if value.get("configs") and names:
                found["configs"] = [one for one in found["configs"] if one.get("name") in names]
            return found
        case list():
            return [comparable(release, one, names) for one in value]
        case _:
            return value
