"""Run a notebook as a program: each cell in order, its last expression printed, its pictures written as PNG.

Usage: python run_notebook.py NOTEBOOK PICTURES
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")


def run_notebook(notebook: Path, pictures: Path) -> dict[str, Any]:
    """The names that the cells leave behind.

    Args:
        notebook: The notebook.
        pictures: The directory for what `plt.show()` would show.
    """
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"{notebook.name}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        plt.show = lambda number=number: plt.savefig(pictures / f"cell-{number}.png")
        exec(compile(tree, f"{notebook.name}, cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), f"{notebook.name}, cell {number}", "eval"), names)
            if shown is not None:
                print(shown, end="\n\n")
        plt.close("all")
    return names


if __name__ == "__main__":
    run_notebook(Path(sys.argv[1]), Path(sys.argv[2]))
