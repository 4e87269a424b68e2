"""Holds the code to the limits of the house; prints the offenders and exits 1 when there are any.

Cycles     no two modules import each other, directly or around a corner. Imports inside functions
           and under TYPE_CHECKING count: they hide a cycle, they do not break it.
Files      at most 500 lines, tests and benchmarks too.
Functions  95 of 100 in the package are shorter than 40 lines, docstring included.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FOLDERS = ("src", "tests", "tools", "bench", "examples")
MAX_FILE_LINES = 500
LONG_FUNCTION_LINES = 40
LONG_FUNCTIONS_PER_100 = 5


class Function(NamedTuple):
    lines: int
    where: str


def main() -> int:
    """Check everything; the exit status."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    problems = [*cycles(trees), *long_files(), *long_functions(trees)]
    for problem in problems:
        print(problem)
    if not problems:
        print(f"house limits kept by {len(trees)} modules")
    return 1 if problems else 0


def cycles(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """One import cycle, if there is any. Mend it and the next one shows."""
    modules = {module_name(path): tree for path, tree in trees.items()}
    graph = {
        module_name(path): set(imports(tree, package_of(path), modules)) - {module_name(path)}
        for path, tree in trees.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "import cycle: " + " <- ".join(error.args[1])


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path: Path) -> list[str]:
    """The package that a module's relative imports start from."""
    return list(path.relative_to(SOURCE).parts[:-1])


def imports(tree: ast.Module, package: list[str], modules: dict[str, ast.Module]) -> Iterator[str]:
    """The modules of ours that a module imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in modules:  # `from package import module` needs the module, not its root
                    yield inner
                elif base in modules:
                    yield base


def absolute(node: ast.ImportFrom, package: list[str]) -> str:
    """The module named by a `from` import, with leading dots resolved."""
    anchor = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*anchor, *([node.module] if node.module else [])])


def long_files() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = len(path.read_text().splitlines())
            if lines > MAX_FILE_LINES:
                yield f"{path.relative_to(ROOT)}: {lines} lines, the limit is {MAX_FILE_LINES}"


def long_functions(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """The long functions, longest first, if they are more than the house allows."""
    functions = [function for path, tree in trees.items() for function in functions_of(path, tree)]
    long = sorted((f for f in functions if f.lines >= LONG_FUNCTION_LINES), reverse=True)
    if 100 * len(long) <= LONG_FUNCTIONS_PER_100 * len(functions):
        return
    for function in long:
        yield f"{function.where}: {function.lines} lines"
    yield (
        f"{len(long)} of {len(functions)} functions have {LONG_FUNCTION_LINES} lines or more, "
        f"the limit is {LONG_FUNCTIONS_PER_100} in 100"
    )


def functions_of(path: Path, tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(lines, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")


if __name__ == "__main__":
    sys.exit(main())
