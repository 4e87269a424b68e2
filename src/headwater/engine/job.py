"""One request as the engine serves it: from drawn tokens to the pieces its caller gets."""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.cache.tokens import count, unpack
from headwater.engine.results import End, Piece, Timing, Usage
from headwater.engine.sampling import SamplingParams, TokenLogprobs
from headwater.engine.stop_strings import StopStrings
from headwater.engine.tokenizer import Tokenizer
from headwater.errors import Cancelled, HeadwaterError
from headwater.observe.explain import Report, explain
from headwater.schedule.account import Account
from headwater.schedule.events import Finish, Request

Deliver = Callable[[Piece | HeadwaterError], None]
"""Hands a piece, or the error that ends a request, to its caller. Called by the engine's thread,
so it must neither block nor raise."""


class Job:
    """A request, how to draw its tokens, and the text of its choices so far."""

    def __init__(
        self,
        request: Request,
        params: SamplingParams,
        stops: tuple[str, ...],
        tokenizer: Tokenizer,
        deliver: Deliver,
        *,
        submitted: float,
    ) -> None:
        """submitted: when the caller asked, on the clock of the engine."""
        self.request = request
        self.params = params
        self.deliver = deliver
        self._tokenizer = tokenizer
        self._texts = [tokenizer.detokenizer() for _ in range(request.choices)]
        self._stops = [StopStrings(stops) for _ in range(request.choices)]
        self._accounts: dict[int, Account] = {}
        self._submitted = submitted
        self._first_token: float | None = None
        self._scored: dict[int, TokenLogprobs] = {}

    def drawn(self, choice: int, token: int, logprobs: TokenLogprobs | None) -> bool:
        """Take a choice's next token; True when its text is complete with it."""
        if self._first_token is None:
            self._first_token = time.monotonic()
        stops = self._stops[choice]
        text = ""
        if token not in self.request.stop_tokens:
            text = stops.push(self._texts[choice].push(token))
        self.deliver(Piece(choice, text, (token,), () if logprobs is None else (logprobs,)))
        return stops.found

    def scored(self, position: int, logprobs: list[TokenLogprobs]) -> None:
        """Take the log-probabilities of the prompt's tokens from a position on.

        They come again, the same, for what is computed again after a preemption.
        """
        self._scored.update(enumerate(logprobs, position))

    def finish(self, end: Finish) -> Report | None:
        """Deliver the end of a choice; the report on the request when it was the last one."""
        self._accounts[end.choice] = end.account
        is_last = len(self._accounts) == self.request.choices
        report = self._report() if is_last else None
        if end.reason != "cancelled":
            rest = "" if self._stops[end.choice].found else self._rest(end.choice)
            last = None if report is None else self._end(report)
            self.deliver(Piece(end.choice, rest, finish_reason=end.reason, end=last))
        elif is_last:
            self.deliver(Cancelled("The request was cancelled before it finished.", report))
        return report

    def _rest(self, choice: int) -> str:
        """The text that was held back, when no stop string came of it."""
        stops = self._stops[choice]
        text = stops.push(self._texts[choice].flush())
        return text if stops.found else text + stops.flush()

    def _report(self) -> Report:
        accounts = [self._accounts[choice] for choice in range(self.request.choices)]
        return explain(accounts, unpack(self.request.prompt), self._submitted, self._tokenizer.show)

    def _end(self, report: Report) -> End:
        ended = time.monotonic()
        first = ended if self._first_token is None else self._first_token
        return End(
            Usage(count(self.request.prompt), report.reused, report.generated),
            report,
            Timing(first - self._submitted, ended - self._submitted),
            self.params.seed,
            tuple(self._scored[position] for position in sorted(self._scored)),
        )
