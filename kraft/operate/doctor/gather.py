"""Gathers the facts of all inputs: nodes, the metadata at the end of the best copy, addresses of names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kraft.config.errors import ConfigError
from kraft.operate.doctor.bundle import read_bundle
from kraft.operate.doctor.facts.log_facts import ImageFacts
from kraft.operate.doctor.facts.node import Facts, LiveFacts, Node
from kraft.operate.doctor.host import host_facts, open_files, resolve
from kraft.operate.doctor.read_log import read_image_facts
from kraft.operate.doctor.read_nodes import Source, Unreadable, named, read_nodes
from metadata_log.disk import OsDisk

Advance = Callable[[int], None]


class GatheredFacts(Struct, frozen=True, kw_only=True):
    """Facts, and the inputs that could not be read."""

    facts: Facts
    unreadable: tuple[Unreadable, ...] = ()


def this_host() -> Source:
    """The disk of this machine, with what its file system says."""
    return Source(disk=OsDisk(), host=host_facts, files=open_files)


def gather(
    configs: Sequence[str],
    directories: Sequence[str],
    bundles: Sequence[str] = (),
    *,
    live: tuple[LiveFacts, ImageFacts | None] | None = None,
    offline: bool = True,
    with_image: bool = True,
    advance: Advance = lambda batches: None,
) -> GatheredFacts:
    """Read properties files with their log directories, log directories and bundles, and add what a live cluster
    reports.

    The metadata of the live cluster wins over that of files. With `offline`, host names are not looked up. `advance`
    hears of numbers of batches read. What cannot be read is listed and not raised.
    """
    local, unreadable = read_nodes(this_host(), configs, directories, advance)
    nodes: list[Node] = list(local)
    bad = list(unreadable)
    images: dict[int, ImageFacts] = {}
    for path in bundles:
        try:
            bundle = read_bundle(path)
        except (ConfigError, OSError) as failed:
            bad.append(Unreadable(path, str(failed)))
            continue
        images |= {len(nodes) + place: image for place, image in bundle.images.items()}
        nodes += (replace(node, host=bundle.manifest.host) for node in bundle.manifest.nodes)
    facts = Facts(nodes=named(nodes), live=None if live is None else live[0])
    image = None if live is None else live[1]
    if image is None and with_image:
        image = _best_image(facts, images, len(local), advance)
    facts = Facts(nodes=facts.nodes, live=facts.live, image=image)
    return GatheredFacts(facts=facts if offline else with_names(facts), unreadable=tuple(bad))


def _best_image(facts: Facts, images: dict[int, ImageFacts], local: int, advance: Advance) -> ImageFacts | None:
    """The metadata at the end of the best copy. A bundle may lack the metadata of its copy; an equal copy stands in."""
    best = facts.best
    if best is None or best.log is None:
        return None
    for place, node in enumerate(facts.nodes):
        if node.log is None or node.log.position != best.log.position:
            continue
        if place in images:
            return images[place]
        if place < local:
            return read_image_facts(OsDisk(), node.log.path, advance)
    return None


def with_names(facts: Facts) -> Facts:
    """The facts with the addresses of the hosts of voters and bootstrap servers, from the resolver of this host."""
    hosts = [host for voter in facts.quorum.voters for _, host, _ in voter.endpoints]
    for node in facts.nodes:
        if node.settings is not None:
            hosts += [host for host, _ in node.settings.bootstrap_servers]
    return replace(facts, names=resolve(hosts))
