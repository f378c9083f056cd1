"""The argument CONFIG of `kraft serve` and `kraft format`, alone: a node that starts loads no formatting."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click


def with_config_file(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the option; the command gets the path as `config_path`."""

    @wraps(command)
    def with_path(*args: Any, file: str | None, config: str | None, **more: Any) -> None:
        if (file is None) == (config is None):
            said = "missing CONFIG: a Kafka properties file" if file is None else "CONFIG is given twice"
            raise click.UsageError(said)
        command(*args, config_path=file if config is None else config, **more)

    with_file: Callable[..., None] = with_path
    option = click.option("-c", "--config", metavar="CONFIG", help="The same as the argument CONFIG.")
    return click.argument("file", required=False, metavar="CONFIG")(option(with_file))
