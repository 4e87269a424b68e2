"""In which order waiting sequences are admitted.

An order is a rank, smallest first. What stands above it (answers that have begun, priority, who is
overdue) is in line.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from headwater.schedule.sequence import Sequence


class Order(Enum):
    """Names of the orders, as an operator types them."""

    fcfs = "fcfs"
    longest_prefix = "longest-prefix"
    depth_first = "depth-first"
    response_ratio = "response-ratio"


Rank = Callable[[Sequence, int], Any]
"""(sequence, prompt tokens computed so far by the engine) -> what to sort by"""


def _fcfs(sequence: Sequence, work: int) -> Any:
    return sequence.arrival


def _longest_prefix(sequence: Sequence, work: int) -> Any:
    """SGLang's longest-prefix-first: what is cached now is used before it can be evicted."""
    assert sequence.match is not None
    return (-sequence.match.ready, sequence.arrival)


def _depth_first(sequence: Sequence, work: int) -> Any:
    """Byte order of the prompts visits the tree of all waiting prompts depth first.

    For a batch known in advance this order has the best hit rate (SGLang's theorem). Domain and
    salt stand for the namespace, whose order depends on a secret that a replayed log lacks.
    """
    request = sequence.request
    return (request.domain, request.salt, sequence.key, sequence.arrival)


def _response_ratio(sequence: Sequence, work: int) -> Any:
    """Highest response ratio next: (waiting + service) / service.

    Both are counted in prompt tokens, computed since arrival and still to compute, so that the
    ratio needs no clock and no speed.
    """
    assert sequence.match is not None
    service = max(sequence.known - sequence.match.ready, 1)
    return (-(work - sequence.work_at_arrival + service) / service, sequence.arrival)


RANKS: dict[Order, Rank] = {
    Order.fcfs: _fcfs,
    Order.longest_prefix: _longest_prefix,
    Order.depth_first: _depth_first,
    Order.response_ratio: _response_ratio,
}
RESTLESS = frozenset({Order.response_ratio})
"""Orders whose ranks change with every step."""
USE_MATCH = frozenset({Order.longest_prefix, Order.response_ratio})
"""Orders whose rank depends on how much of a prompt is cached."""
