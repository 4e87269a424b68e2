"""What the demonstration shows: a live table an act, then the account of every token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from statistics import median

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from headwater.demo.acts import TITLES
from headwater.demo.pair import Row
from headwater.engine.stats import Stats


def show_rows(console: Console, rows: Iterable[Row]) -> list[Row]:
    """Show rows as they come, a table for each act; give them back when all have come."""
    shown: list[Row] = []
    for act, group in groupby(rows, lambda row: row.act):
        table = _table(act)
        with _live(console, table) as refresh:
            for row in group:
                table.add_row(*_cells(row))
                refresh()
                shown.append(row)
        for row in (each for each in shown if each.act == act):
            console.print(Padding(f"[dim]{escape(row.who)}: {escape(row.why)}[/dim]", (0, 0, 0, 2)))
        console.print()
    return shown


def show_account(console: Console, rows: list[Row], stats: Stats, plain: Stats) -> None:
    """Where every token came from, and what that saved."""
    table = Table(title="Every token accounted for", title_justify="left", title_style="bold")
    for name in ("", "prompt", "reused", "computed", "generated"):
        table.add_column(name, justify="left" if not name else "right")
    for name, each in (("with the cache", stats), ("without", plain)):
        tokens = each.tokens
        counts = (tokens.prompt, tokens.reused, tokens.computed, tokens.generated)
        table.add_row(name, *(f"{count:,}" for count in counts))
    console.print(table)
    for line in _conclusions(rows, stats):
        console.print(f"  {line}")


def all_agree(rows: Iterable[Row]) -> bool:
    """Whether no answer differs by more than a tie."""
    return all(row.difference is None or row.difference.is_tie for row in rows)


def same_answers(rows: list[Row]) -> tuple[int, int]:
    """How many answers were the same with and without the cache, of how many."""
    return sum(row.difference is None for row in rows), len(rows)


@contextmanager
def _live(console: Console, table: Table) -> Iterator[Callable[[], None]]:
    """Show a table that grows; where nothing can be redrawn (a file, a pipe), once at its end."""
    if console.is_terminal:
        with Live(table, console=console, auto_refresh=False) as live:
            yield live.refresh
    else:
        yield lambda: None
        console.print(table)


def _table(act: int) -> Table:
    table = Table(title=f"{act}. {TITLES[act]}", title_justify="left", title_style="bold")
    table.add_column("")
    for name in ("prompt", "cached", "first token with", "without", "faster"):
        table.add_column(name, justify="right")
    table.add_column("same answer")
    return table


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.who,
        f"{row.prompt:,}",
        f"{row.cached:,}",
        f"{row.with_cache:.2f} s",
        f"{row.without:.2f} s",
        f"{row.speedup:.1f} ×",
        _verdict(row),
    )


def _verdict(row: Row) -> str:
    if row.difference is None:
        return "yes"
    found = row.difference
    if found.gap is None:
        return f"no, from token {found.token}"
    tie = ", a tie" if found.is_tie else ""
    return f"no, from token {found.token} (two candidates {found.gap:.4f} apart{tie})"


def _conclusions(rows: list[Row], stats: Stats) -> Iterator[str]:
    tokens, pages = stats.tokens, stats.pages
    same, asked = same_answers(rows)
    yield f"{tokens.reused / tokens.prompt:.0%} of all prompt tokens were reused, not computed."
    hits = [row.speedup for row in rows if row.cached > row.prompt // 2]
    if hits:
        times = f"{median(hits):.1f} × sooner (median)"
        yield f"Where most of a prompt was cached, its first token came {times}."
    yield f"{same} of {asked} answers are the same, token by token, with the cache and without."
    held = f"{pages.free:,} free + {pages.cached:,} cached + {pages.private + pages.in_io:,} in use"
    yield f"Pages of {stats.page} tokens: {held} = {pages.total:,}."
