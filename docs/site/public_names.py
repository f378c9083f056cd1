"""Sphinx extension: no public name is missing in the reference, and every annotation names something that exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import pairwise

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

MODULES = (
    *("kraft", "kraft.asyncio", "kraft.client", "kraft.store", "kraft.sync", "kraft.testing"),
    *("metadata_log", "metadata_log.spark", "transport"),
)
"""The modules whose `__all__` is the public API."""
logger = logging.getLogger(__name__)


def public_names() -> Iterator[str]:
    """The full name of everything in the `__all__` of a public module."""
    for module in MODULES:
        for name in import_module(module).__all__:
            yield f"{module}.{name}"


def load_names(*_: object) -> None:
    """Put each public name into its module, as autodoc does not see names that a module loads on demand."""
    for full in public_names():
        module, _, name = full.rpartition(".")
        setattr(import_module(module), name, getattr(import_module(module), name))


def missing_names(described: Iterable[str]) -> list[str]:
    """The public names that are not among the objects that the reference describes, under this name or another one."""
    known = set(described)
    objects = {id(find(name)) for name in public_names() if name in known}
    return [name for name in public_names() if name not in known and id(find(name)) not in objects]


def warn_of_missing_names(_: Sphinx, environment: BuildEnvironment) -> None:
    """One warning for each public name without an entry; with `sphinx-build -W` the build fails."""
    for name in missing_names(environment.domains["py"].data["objects"]):
        logger.warning("%s is public and not in the API reference", name)


def resolve_annotation(
    app: Sphinx, environment: BuildEnvironment, wanted: pending_xref, shown: nodes.TextElement
) -> nodes.Node | None:
    """Lead an annotation to the public name of its class.

    autodoc writes the module that defines a class (`kraft.node.node.Node`), and the reference describes the class under
    the module that exports the class (`kraft.Node`). A class that exists and is not public stays text. A name that does
    not exist is left to Sphinx, which warns of the name under `-n`.
    """
    if wanted.get("refdomain") != "py":
        return None
    target = wanted["reftarget"]
    last = target.rpartition(".")[2]
    objects = environment.domains["py"].data["objects"]
    for name in public_names():
        if name.rpartition(".")[2] == last and name in objects and is_same(name, target):
            entry = objects[name]
            return make_refnode(app.builder, wanted["refdoc"], entry.docname, entry.node_id, shown)
    return shown if exists(target) else None


def is_same(public: str, target: str) -> bool:
    """Whether a public name and the target of an annotation are one object; a bare target names its object already."""
    return "." not in target or find(public) is find(target)


def exists(target: str) -> bool:
    """Whether a full name can be imported. A bare name is that of a type checker's import, which mypy has judged."""
    if "." in target:
        return find(target) is not None
    return target.isidentifier()


def with_marked_code(lines: list[str]) -> list[str]:
    """Mark indented code as such: to Sphinx, lines that are indented after an empty one are a quotation."""
    marked: list[str] = []
    for before, line in pairwise(["", *lines]):
        is_first = not before.strip() and line.startswith("    ") and bool(marked)
        if is_first and not next(one for one in reversed(marked) if one.strip()).startswith((" ", "::")):
            marked += ["::", ""]
        marked.append(line)
    return marked


def format_sections(app: Sphinx, what: str, name: str, described: object, options: object, lines: list[str]) -> None:
    """Turn the sections of a docstring (Args, Returns, Raises) into fields.

    `sphinx.ext.napoleon` would also take the text before the colon of an attribute's docstring for a type.
    """
    if what not in {"attribute", "data", "property"}:
        lines[:] = GoogleDocstring(with_marked_code(lines), Config(), app, what, name, described, options).lines()


def find(name: str) -> object | None:
    """The object of a full name, or `None`."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(import_module(module), last, None)
    except ImportError:
        return None


def show_made_defaults(
    app: Sphinx, what: str, name: str, described: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write `...` for a default that a struct makes anew each time: Sphinx cannot parse `<factory>`."""
    return signature and signature.replace("<factory>", "..."), returned


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", format_sections)
    app.connect("autodoc-process-signature", show_made_defaults)
    app.connect("builder-inited", load_names)
    app.connect("env-check-consistency", warn_of_missing_names)
    app.connect("missing-reference", resolve_annotation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
