"""Writes the file list of docs/architecture.md: one line a module, the first of its docstring.

python tools/structure.py           rewrite the list
python tools/structure.py --check   exit 1 when it is out of date
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headwater"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- structure -->\n", "<!-- end of structure -->\n"


def main() -> int:
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    wanted = f"{before}{BEGIN}{''.join(lines())}{END}{after}"
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print(f"{PAGE.relative_to(ROOT)} is out of date; run python tools/structure.py")
        return int(text != wanted)
    PAGE.write_text(wanted, "utf-8")
    return 0


def lines() -> Iterator[str]:
    """A table for each folder, the package itself first."""
    modules = sorted((path.parent, path) for path in SOURCE.rglob("*.py"))
    for folder, group in groupby(modules, key=lambda each: each[0]):
        rows = [(path.name, first_line(path)) for _, path in group]
        rows = [(name, line) for name, line in rows if line]
        if rows:
            yield f"\n### `{folder.relative_to(SOURCE.parent).as_posix()}/`\n\n"
            yield "| file | what it is |\n|---|---|\n"
            yield from (f"| `{name}` | {line} |\n" for name, line in rows)


def first_line(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return said.split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".:").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
