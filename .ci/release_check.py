"""All that a release needs and a machine can do, into out/release. The rest stands in docs/howto/release.md.

uv run poe release-check
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final

from pythons import MINORS, pythons

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "out" / "release"
DIST: Final = OUT / "dist"
TOOLS: Final = OUT / "tools"
UV: Final = [found] if (found := shutil.which("uv")) else [sys.executable, "-m", "uv"]
PERMISSIVE: Final = frozenset(
    {"0BSD", "Apache Software License", "Apache-2.0", "BSD License", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0"}
    | {"3-Clause BSD License", "MIT", "MIT License", "MIT-0", "PSF-2.0", "The MIT License", "Zlib"}
    | {"Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0"}
)
"""Licences, as packages name them, that ask a program for nothing but their name, if it uses the package unchanged (the
last two ask for changes of the package's own files).
"""


def project() -> dict[str, Any]:
    """The section of pyproject.toml that names the project, with the version, which stands where hatchling reads it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    source = settings["tool"]["hatch"]["version"]
    found = re.search(source["pattern"], (ROOT / source["path"]).read_text())
    assert found is not None, source
    return {**settings["project"], "version": found["version"]}


def run(*command: str | Path) -> str:
    """Run a command at the top of the tree; it ends the check if it fails. What it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}FAILED: exit code {done.returncode}")
    return done.stdout


def build() -> str:
    """The source archive, and the wheel from it alone."""
    shutil.rmtree(OUT, ignore_errors=True)
    run(*UV, "build", "--quiet", "--out-dir", DIST)
    (DIST / ".gitignore").unlink(missing_ok=True)
    return ", ".join(f"{path.name} ({path.stat().st_size / 1000:,.0f} kB)" for path in sorted(DIST.iterdir()))


def tool(name: str) -> Path:
    """A program of the dependency group `release`, which is installed here for the check alone."""
    if not TOOLS.exists():
        run(*UV, "venv", "--quiet", "--python", sys.executable, TOOLS)
        group = ["--group", f"{ROOT / 'pyproject.toml'}:release", "--constraint", "constraints.txt"]
        run(*UV, "pip", "install", "--quiet", "--python", TOOLS / "bin" / "python", *group)
    return TOOLS / "bin" / name


def check_metadata() -> str:
    """What an index of packages shows of the project."""
    run(tool("twine"), "check", "--strict", *sorted(DIST.iterdir()))
    return "twine accepts the metadata and the README"


def try_wheel() -> str:
    """A tour of the wheel alone, with each Python that is here."""
    (wheel,) = DIST.glob("*.whl")
    here = pythons()
    for program in here.values():
        run(ROOT / ".ci" / "wheel", wheel, program)
    absent = [f"3.{minor}" for minor in MINORS if f"3.{minor}" not in here]
    return f"a quickstart from the wheel alone held on {', '.join(here)}" + (
        f"; NOT TRIED, as it is not here: {', '.join(absent)}" if absent else ""
    )


def describe_parts() -> str:
    """The software bill of materials: what comes with the wheel, as a document of CycloneDX."""
    (wheel,) = DIST.glob("*.whl")
    installed, path = OUT / "installed", OUT / "sbom.cdx.json"
    run(*UV, "venv", "--quiet", "--python", sys.executable, installed)
    pins = ["--constraint", "constraints.txt"]
    run(*UV, "pip", "install", "--quiet", "--python", installed / "bin" / "python", *pins, wheel)
    run(tool("cyclonedx-py"), "environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible",
        "-o", path, installed / "bin" / "python")  # fmt: skip
    parts = json.loads(path.read_text())["components"]
    return f"{path.relative_to(ROOT)} names {len(parts)} packages"


def licence(headers: Mapping[str, list[str]]) -> str:
    """The licence that a package names in its metadata: an expression, classifiers, or a line of text."""
    classifiers = [text.rpartition(" :: ")[2] for text in headers["Classifier"] if text.startswith("License ::")]
    texts = headers["License-Expression"] or [" OR ".join(classifiers), *headers["License"]]
    return next((text.strip().partition("\n")[0] for text in texts if text.strip()), "none")


def is_permissive(named: str) -> bool:
    """Whether each part of an expression asks for nothing but to be named."""
    return set(re.split(r" (?:AND|OR) ", named)) <= PERMISSIVE


def licences() -> Iterator[tuple[str, str]]:
    """The licence of each package that the project can need to run, if that is installed here."""
    for name in re.findall(r"^([a-z0-9.-]+)==", (ROOT / "constraints-hashed.txt").read_text(), re.MULTILINE):
        try:
            described = metadata(name)
        except PackageNotFoundError:
            continue
        keys = ("License-Expression", "Classifier", "License")
        yield name, licence({key: [str(text) for text in described.get_all(key) or []] for key in keys})


def check_licences() -> str:
    """The licences of all dependencies, those of the extras among them."""
    found = dict(licences())
    if others := {name: named for name, named in found.items() if not is_permissive(named)}:
        raise SystemExit(f"FAILED: not known to be permissive: {others}")
    path = OUT / "licences.md"
    rows = [f"| {name} | {named} |\n" for name, named in found.items()]
    path.write_text("".join(["| package | licence |\n| --- | --- |\n", *rows]))
    return f"{path.relative_to(ROOT)} lists {len(found)} packages; each licence is permissive"


def build_docs() -> str:
    """The site; a warning is an error."""
    run(sys.executable, "-m", "poethepoet", "--quiet", "docs")
    return "out/site, without a warning"


def left_to_a_person(
    version: str, changelog: str, fragments: int, urls: Mapping[str, str], tags: list[str]
) -> list[str]:
    """What this release lacks and no machine can decide."""
    heading = next((line for line in changelog.splitlines() if line.startswith(f"## {version}")), None)
    found = []
    if f"v{version}" in tags:
        found.append(f"{version} has a tag already: raise the version in metadata_log/software.py")
    if heading is None or fragments:
        waiting = f"{fragments} files wait in changelog.d"
        found.append(f"write the changelog: uv run towncrier build --version {version} ({waiting})")
    if heading and "not yet released" in heading:
        found.append(f"put the day into the heading of the changelog: {heading}")
    if not urls:
        found.append("name the public address of the repository in pyproject.toml, under [project.urls]")
    return found


STEPS: Final[dict[str, Callable[[], str]]] = {
    "build": build,
    "metadata": check_metadata,
    "licences": check_licences,
    "parts": describe_parts,
    "docs": build_docs,
    "wheel": try_wheel,
}


def main() -> None:
    """Run each step, and say what is left."""
    about = project()
    version = about["version"]
    print(f"trio-kraft {version}", flush=True)
    for name, step in STEPS.items():
        print(f"  {name:10}{step()}", flush=True)
    fragments = len(list((ROOT / "changelog.d").glob("+*.md")))
    tags = run("git", "tag").split()
    left = left_to_a_person(version, (ROOT / "CHANGELOG.md").read_text(), fragments, about.get("urls", {}), tags)
    if dirty := run("git", "status", "--porcelain"):
        left.insert(0, f"commit what is not committed: {len(dirty.splitlines())} files")
    left += [f"git tag --annotate v{version}", "publish, as docs/howto/release.md says"]
    print("Everything held. Left to a person:")
    for number, what in enumerate(left, 1):
        print(f"  {number}. {what}")


if __name__ == "__main__":
    main()
