"""Builds the page of the lab: the files of `docs/lab`, Pyodide and wheels for it, and the packages of this repository.

`docs/lab/parts.toml` names what is fetched, with hashes. Fetched files stay in `out/lab-parts`.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "docs" / "lab"
PARTS: Final = ROOT / "out" / "lab-parts"
PACKAGES: Final = ("kraft", "metadata_log", "transport", "planted_bugs")
LEFT_OUT: Final = ("kraft/adapters", "kraft/testing", "kraft/registry", "metadata_log/spark", "metadata_log/tables")
"""Folders without which the page does its work."""
OF_PYODIDE: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
PACKED: Final = ("pyodide.asm.wasm", "pyodide.asm.mjs", "pyodide-lock.json")
"""Files that the site has compressed, for hosts that do not compress what they send."""
WHEELS_FOR: Final = ("--python-version", "3.14", "--only-binary", ":all:")
PLATFORM: Final = "pyemscripten_2026_0_wasm32"
MOMENT: Final = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the archive, so that two builds are equal."""


class CannotFetch(Exception):
    """A part of the lab could not be fetched: npm, pip or their registries are not here."""


def parts() -> dict[str, Path]:
    """The file of each part by name; fetches those that are not here, and checks the hash of each.

    Raises:
        CannotFetch: A program or its registry is missing, or a file has another hash.
    """
    PARTS.mkdir(parents=True, exist_ok=True)
    wanted = tomllib.loads((SOURCE / "parts.toml").read_text())
    return {name: _part(one) for name, one in wanted.items()}


def _part(wanted: dict[str, str]) -> Path:
    path = PARTS / wanted["file"]
    if not path.exists():
        _run(["npm", "pack", wanted["npm"], "--silent"] if "npm" in wanted else _download(wanted))
    found = sha256(path.read_bytes()).hexdigest() if path.exists() else "no file"
    if found != wanted["sha256"]:
        path.unlink(missing_ok=True)
        raise CannotFetch(f"{wanted['file']} has the SHA-256 {found}, not {wanted['sha256']}")
    return path


def _download(wanted: dict[str, str]) -> list[str]:
    return [*_pip(), "--platform", wanted.get("platform", PLATFORM), wanted["pypi"]]


def _pip() -> list[str]:
    """The command to download a wheel; the environment of the project has no pip of its own."""
    uvx = shutil.which("uvx")
    pip = [uvx, "pip"] if uvx else [shutil.which("python3") or sys.executable, "-m", "pip"]
    return [*pip, "download", "--quiet", "--no-deps", *WHEELS_FOR]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, cwd=PARTS, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise CannotFetch(f"{command[0]}: {failure}") from failure
    if done.returncode:
        raise CannotFetch(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")


def runtime(out: Path) -> None:
    """Write what runs Python in a browser or in node: Pyodide, the wheels, and our packages, into a folder."""
    files = parts()
    (out / "pyodide").mkdir(parents=True, exist_ok=True)
    with tarfile.open(files["pyodide"]) as archive:
        for name in OF_PYODIDE:
            member = archive.extractfile(f"package/{name}")
            assert member is not None, name
            (out / "pyodide" / name).write_bytes(member.read())
    packages = BytesIO()
    with ZipFile(packages, "w", ZIP_DEFLATED, compresslevel=9) as merged:
        for name, data in sorted(_of_wheels(files)):
            _add(merged, name, data)
        for name in _ours():
            _add(merged, name, (ROOT / name).read_bytes())
    (out / "packages.zip").write_bytes(packages.getvalue())


def _of_wheels(files: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    for name, path in files.items():
        if name != "pyodide":
            with ZipFile(path) as wheel:
                names = [one for one in wheel.namelist() if not one.endswith(("/", "linux-gnu.so"))]
                yield from ((one, wheel.read(one)) for one in names)


def _add(archive: ZipFile, name: str, data: bytes) -> None:
    archive.writestr(ZipInfo(name, MOMENT), data, ZIP_DEFLATED, 9)


def _ours() -> list[str]:
    """The files of our packages that the page needs."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    names = (path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts)
    return sorted(name for name in names if not name.startswith(tuple(f"{one}/" for one in LEFT_OUT)))


def build(out: Path) -> None:
    """Write the whole page into a folder, which any web server may serve; the parts are compressed.

    Raises:
        CannotFetch: A part could not be fetched.
    """
    out.mkdir(parents=True, exist_ok=True)
    runtime(out)
    _run(["node", str(Path(__file__).with_name("lab_compile.mjs")), str(out.resolve())])
    for name in PACKED:
        path = out / "pyodide" / name
        path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        path.unlink()
    for path in SOURCE.iterdir():
        if path.suffix in {".html", ".css", ".js", ".mjs", ".py", ".json"}:
            shutil.copy(path, out / path.name)


if __name__ == "__main__" and sys.argv[1:] == ["--fetch"]:
    parts()
elif __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out" / "site" / "docs" / "lab")
