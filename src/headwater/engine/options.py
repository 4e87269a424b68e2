"""The dials of an engine, and the machine that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from headwater.cache.policies import POLICIES
from headwater.engine.contract_of import DEFAULT_PAGE
from headwater.engine.keywords import read_keywords
from headwater.engine.units import parse_bytes, parse_pages
from headwater.errors import BadSetting
from headwater.schedule.order import Order
from headwater.schedule.recipe import CACHES, Recipe
from headwater.schedule.settings import Settings

if TYPE_CHECKING:  # they bring torch, and options are checked before anything slow is done
    from headwater.engine.facts import ModelFacts
    from headwater.engine.kv import KVFormat


class Named(TypedDict, total=False):
    """The options of `Headwater` by keyword, for type checkers (as `Asked`); `Options` says what
    they mean."""

    kv_memory: str | int
    page: int
    cache: str
    policy: str
    order: str
    max_running: int
    step_tokens: int
    context: int | None
    floors: Mapping[str, str | int]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    kv_memory: bytes for KV, as a number or as in "2GiB" and "512MB"; or as in "4096 pages".
    page: tokens a page.
    cache: "prefix", or "none" for an engine that reuses nothing, to compare with.
    policy: which KV is evicted first, by name.
    order: in which order waiting requests start: "fcfs", "longest-prefix", "depth-first" or
        "response-ratio".
    max_running: most answers that are generated at a time.
    step_tokens: most tokens computed in one pass; a longer prompt takes several, between which
        others go on.
    context: longest prompt with its answer, in tokens; the model's own when None.
    floors: sharing domain -> bytes or pages, as `kv_memory`: cached KV of the domain that is
        evicted for it alone. Together at most three quarters of the KV memory.
    """

    kv_memory: str | int = "1GiB"
    page: int = DEFAULT_PAGE
    cache: str = "prefix"
    policy: str = "lru"
    order: str = "fcfs"
    max_running: int = 256
    step_tokens: int = 2048
    context: int | None = None
    floors: dict[str, str | int] = {}


def read_options(named: Mapping[str, Any]) -> Options:
    """Check options given by name, as far as that needs no model.

    Raises TypeError for an unknown one, BadSetting for a wrong value.
    """
    options = read_keywords(named, Options, BadSetting, "option of an engine")
    _check(options)
    return options


def _check(options: Options) -> None:
    _require(options.page >= 1, f"page must be 1 or more, but is {options.page}.")
    _require_name("cache", options.cache, CACHES)
    _require_name("policy", options.policy, POLICIES)
    _require_name("order", options.order, [order.value for order in Order])
    _require(
        1 <= options.max_running <= options.step_tokens,
        f"step_tokens ({options.step_tokens}) must hold a token of each of the max_running "
        f"({options.max_running}) answers.",
    )
    memory = bytes_of(options)
    _require(memory is None or memory >= 1, f"kv_memory={options.kv_memory!r} holds nothing.")


def bytes_of(options: Options) -> int | None:
    """The bytes that `kv_memory` asks for; None where it asks for pages of a model still unknown.

    Raises BadSetting for what is no size.
    """
    memory = options.kv_memory
    return parse_bytes(memory) if parse_pages(memory) is None else None


def recipe_of(options: Options, facts: ModelFacts, epoch: str) -> Recipe:
    """What to build the machine from. Raises BadSetting for options that do not fit the model."""
    context = facts.context if options.context is None else options.context
    _require(
        1 <= context <= facts.context,
        f"context must lie in [1, {facts.context}], what the model can attend to.",
    )
    pages = _pages(options.kv_memory, options.page, facts.kv_format)
    _require(pages >= 1, f"kv_memory={options.kv_memory!r} does not hold a single page.")
    settings = Settings(
        context=context,
        running=options.max_running,
        step_tokens=options.step_tokens,
        order=Order(options.order),
    )
    return Recipe(
        settings=settings,
        pages=pages,
        page=options.page,
        epoch=epoch,
        cache=options.cache,
        policy=options.policy,
        floors=_floors(options, facts.kv_format, pages),
    )


def _floors(options: Options, form: KVFormat, pages: int) -> dict[str, int]:
    floors = {domain: _pages(floor, options.page, form) for domain, floor in options.floors.items()}
    _require(
        4 * sum(floors.values()) <= 3 * pages,
        f"The floors come to {sum(floors.values())} pages, more than three quarters of the {pages} "
        "that kv_memory holds.",
    )
    return floors


def _pages(memory: str | int, page: int, form: KVFormat) -> int:
    named = parse_pages(memory)
    return form.pages_in(parse_bytes(memory), page) if named is None else named


def _require_name(option: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    _require(name in names, f"There is no {option} {name!r}; known are {', '.join(names)}.")


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - it is what is said
    if not holds:
        raise BadSetting(otherwise)
