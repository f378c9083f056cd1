"""Generated Python code, from which `reading` and `writing` make functions (Kafka: `CodeBuffer`)."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from metadata_log.types import Uuid


class Source:
    """Lines of generated Python, and their constants."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names = dict(names)
        self._counter = itertools.count()

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """An unused name for a variable."""
        return f"{prefix}{next(self._counter)}"

    def constant(self, prefix: str, value: object) -> str:
        """A name for `value`; equal structs share a name by their prefix."""
        name = self.fresh(prefix + "_")
        self.names[name] = value
        return name

    def shared(self, name: str, value: object) -> str:
        """Give `value` this name in the generated code."""
        self.names[name] = value
        return name

    def literal(self, value: object) -> str:
        """An expression for a default value."""
        match value:
            case Uuid():
                return self.shared("zero_uuid", value)
            case None | bool() | int() | float() | str() | b"" | () | []:
                return repr(value)
            case _:
                return self.constant("default", value)

    def compile(self, signature: str, title: str) -> Callable[..., Any]:
        """The compiled function."""
        return compile_function(signature, self.lines, self.names, title)


def evaluated(expressions: Iterable[str], names: Mapping[str, object]) -> tuple[Any, ...]:
    """The values of expressions with these names, which are compiled in one piece."""
    space = dict(names)
    exec(f"values = ({''.join(f'{one}, ' for one in expressions)})", space)
    values = space["values"]
    assert isinstance(values, tuple), values
    return values


def compile_function(signature: str, lines: list[str], names: dict[str, object], title: str) -> Callable[..., Any]:
    """Compile a function from these lines, with `names` as globals; tracebacks show the title."""
    text = "\n".join([f"def {signature}:", *lines, ""])
    filename = f"<codec: {title}>"
    exec(compile(text, filename, "exec"), names)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    function = names[signature.partition("(")[0]]
    assert callable(function), signature
    return function
