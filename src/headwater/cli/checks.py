"""What `headwater doctor` checks of a running server, one function a check.

All requests are short, run under salts of their own, so that they meet nobody's cache and nobody
meets theirs, and are flushed in the end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from headwater.cli.remote import KEY, Remote, ServerTrouble
from headwater.cli.replies import Caller, Chat, Models, Piece
from headwater.cli.tallies import PROMPT, Tally
from headwater.errors import HeadwaterError

Verdict = Literal["ok", "warning", "failed"]

CHAT = "/v1/chat/completions"
SKEW = 60.0
"""Seconds by which the server's clock may differ from ours before it is worth a word."""


SEEN = 0.25
"""Seconds by which pieces may be late together before somebody would see it."""


class Finding(msgspec.Struct, frozen=True):
    """What a check found. todo: what to do about it; empty when nothing is."""

    check: str
    verdict: Verdict
    said: str
    todo: str = ""


class Found(NamedTuple):
    """A finding without the name of its check."""

    verdict: Verdict
    said: str
    todo: str = ""


class Patient:
    """A server under examination, and what earlier checks learnt of it."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._salts = [_new_salt()]
        self.tenant: str | None = None

    def change_salt(self) -> None:
        """From now on nothing is cached."""
        self._salts.append(_new_salt())

    def ask(self, *said: str, most: int = 8) -> Chat:
        """The answer to a conversation whose turns alternate, the user's first."""
        return self.remote.post(CHAT, self._body(said, most), Chat)

    def stream(self, said: str, most: int) -> Iterator[Piece]:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        return self.remote.stream(CHAT, self._body([said], most) | more, Piece)

    def tally(self) -> Tally:
        """What the server has counted so far for this caller's tenant."""
        return Tally.read(self.remote.text("/metrics"), self.tenant)

    def forget(self) -> None:
        """Flush what was asked. Whoever could not ask has nothing to flush."""
        with suppress(HeadwaterError):
            for salt in self._salts:
                self.remote.post("/v1/cache/flush", {"salt": salt}, dict[str, Any])

    def _body(self, said: Any, most: int) -> dict[str, Any]:
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
        return {
            "messages": messages,
            "max_tokens": most,
            "temperature": 0,
            "headwater": {"salt": self._salts[-1]},
        }


def _new_salt() -> str:
    return f"doctor {secrets.token_hex(8)}"


def examine(remote: Remote) -> Iterator[Finding]:
    """Check a server; findings as they are made. What cannot work without a check that failed is
    not tried."""
    patient = Patient(remote)
    try:
        for check in CHECKS:
            found = _tried(check, patient)
            yield Finding(check.name, *found)
            if found.verdict == "failed" and check.is_needed:
                return
    finally:
        patient.forget()


def _tried(check: Check, patient: Patient) -> Found:
    try:
        return check.run(patient)
    except HeadwaterError as error:
        return Found("failed", str(error), check.todo)


# Whether it can be asked


def _reachable(patient: Patient) -> Found:
    patient.remote.get("/healthz", dict[str, Any])
    return Found("ok", f"{patient.remote.url} answers.")


def _ready(patient: Patient) -> Found:
    patient.remote.get("/readyz", dict[str, Any])
    return Found("ok", "Requests are let in, and steps go on.")


def _key(patient: Patient) -> Found:
    remote = patient.remote
    caller = remote.get("/v1/caller", Caller)
    patient.tenant = caller.tenant
    if caller.tenant is None:
        said = "No key was given." if remote.key is None else "The key is nobody's on this server."
        return Found("failed", said, f"Give a tenant's key with --key or {KEY}.")
    if not remote.is_encrypted and not remote.is_loopback and remote.key is not None:
        said = "The key went over the network as it is; anyone on the way can read it."
        return Found("warning", said, "Put a proxy with TLS before the server, and use https.")
    if caller.open and not remote.is_loopback:
        said = "No key is asked for: whoever reaches the server may use it."
        return Found("warning", said, "Give tenants keys in the server's configuration.")
    if caller.open:
        return Found("ok", f"None is needed; everyone is the tenant {caller.tenant!r}.")
    whose = "an admin" if caller.admin else "no admin"
    return Found("ok", f"It is that of the tenant {caller.tenant!r}, {whose}.")


def _model(patient: Patient) -> Found:
    served = patient.remote.get("/v1/models", Models).data[0]
    answer = patient.ask("Say hello.")
    if not answer.usage.completion_tokens or answer.headwater is None:
        said = f"{served.id} drew no token, or its answer has no field `headwater`."
        return Found("failed", said, "Look at the server's log; is this Headwater?")
    return Found("ok", f"{served.id} answers; its context is {served.max_model_len} tokens.")


# Whether the cache works


def _twice(patient: Patient) -> Found:
    """One prompt twice: nothing can be cached the first time, all but the last token the second."""
    patient.change_salt()
    first, second = (patient.ask("Repeat after me: salt.").usage for _ in range(2))
    best = second.prompt_tokens - 1
    if first.cached:
        said = f"{first.cached} tokens were cached under a salt that nobody had used."
        return Found("failed", said, "Salts do not keep prompts apart; please report this.")
    if second.cached == 0:
        todo = "Is it run with --cache none, or with room for a few pages only?"
        return Found("failed", "Nothing of it was cached the second time.", todo)
    if second.cached < best:
        said = f"Only {second.cached} of {best} tokens were cached the second time."
        return Found("warning", said, "Is the KV memory so small that it was evicted at once?")
    return Found("ok", f"The second time {second.cached} of {best + 1} tokens were cached.")


def _template(patient: Patient) -> Found:
    """Turn 2 begins with the tokens of turn 1, or else a conversation is computed again and again.

    tokens |  turn 1's prompt  |  its answer, as drawn  |  what turn 2 adds |
           0                   p                        p + drawn - 1: the last has no KV yet
    """
    said = "Name one colour."
    first = patient.ask(said, most=16)
    second = patient.ask(said, first.text, "And another?", most=1)
    prompt, drawn = first.usage.prompt_tokens, first.usage.completion_tokens
    cached, why = second.usage.cached, _why(second)
    if cached < prompt:
        said = f"Turn 2 reuses {cached} of the {prompt} tokens of turn 1's prompt. {why}"
        todo = "Does the model's chat template write earlier turns in another way, or today's date?"
        return Found("failed", said, todo)
    if cached < prompt + drawn - 1:
        said = (
            f"Turn 2 reuses turn 1's prompt, and {cached - prompt} of the {drawn} tokens of the "
            f"answer, which became others when it was sent back. {why}"
        )
        return Found("warning", said, "/v1/responses with previous_response_id goes on exactly.")
    return Found("ok", f"Turn 2 reuses all {cached} tokens of turn 1 that have KV.")


def _why(answer: Chat) -> str:
    return "" if answer.headwater is None else answer.headwater.cache[0].why.sentence


# Whether it tells the truth


def _metrics(patient: Patient) -> Found:
    """Counters rise by what a request's usage said, and pages are neither made nor lost."""
    try:
        before = patient.tally()
    except ServerTrouble as error:
        if error.status != 403:
            raise
        return Found("warning", "They are not shown to this key.", "An admin's key can see them.")
    usage = patient.ask(f"Count: {secrets.randbelow(10**6)}").usage
    after = patient.tally()
    expected = {
        PROMPT: float(usage.prompt_tokens),
        "headwater_generated_tokens_total": float(usage.completion_tokens),
        "headwater_requests_total": 1.0,
    }
    short = [
        f"{name} rose by {after[name] - before[name]:.0f}, not {rise:.0f}"
        for name, rise in expected.items()
        if after[name] - before[name] < rise
    ]
    if short:
        todo = "Is there a proxy that spreads requests over several servers?"
        return Found("failed", f"{'; '.join(short)}.", todo)
    if before.pages != after.pages:
        said = f"The KV pool has {before.pages:.0f} pages, then {after.pages:.0f}."
        return Found("failed", said, "Pages are lost or counted twice; please report this.")
    if all(after[name] - before[name] == rise for name, rise in expected.items()):
        return Found("ok", f"Counters rose by what the usage said; {after.pages:.0f} pages.")
    return Found("ok", "Counters rose by what the usage said, and by others' requests.")


def _clock(patient: Patient) -> Found:
    """The server's times fit ours: the time of day, and how long a request took."""
    began, today = time.monotonic(), time.time()
    answer = patient.ask("What time is it?")
    spent = time.monotonic() - began
    ahead = answer.created - today
    if abs(ahead) > SKEW:
        which = "ahead of" if ahead > 0 else "behind"
        said = f"The server's clock is {abs(ahead):.0f} s {which} this machine's."
        return Found("warning", said, "Set both by NTP, or logs will not fit together.")
    assert answer.headwater is not None
    timing = answer.headwater.timing[0]
    if not 0 <= timing.first_token <= timing.total <= spent + 0.05:
        said = (
            f"A request that took {spent:.3f} s is told to have taken {timing.total:.3f}, its "
            f"first token {timing.first_token:.3f}."
        )
        return Found("failed", said, "The server's clock does not run evenly.")
    added = spent - timing.total
    said = f"Of {spent:.3f} s the server took {timing.total:.3f}."
    if added > 1.0:
        return Found("warning", said, "The way there is slow: a proxy, or the network.")
    return Found("ok", said)


def _streaming(patient: Patient) -> Found:
    """Pieces arrive while the answer is made, not all at its end."""
    came: list[float] = []
    took = 0.0
    for piece in patient.stream("Count to twenty.", most=32):
        if piece.text:
            came.append(time.monotonic())
        if piece.headwater is not None:
            timing = piece.headwater.timing[0]
            took = timing.total - timing.first_token
    if not came:
        return Found("warning", "The answer had no text.", "Ask again, or try another model.")
    spread = came[-1] - came[0]
    said = f"{len(came)} pieces arrived over {spread:.3f} s; making them took {took:.3f} s."
    if took - spread > SEEN and spread < took / 2:
        todo = "Turn off buffering in the proxy (nginx: proxy_buffering off)."
        return Found("warning", f"All at once: {said}", todo)
    return Found("ok", said)


class Check(NamedTuple):
    """name: of what is checked. is_needed: the later checks make no sense without it.
    todo: what to do when it fails without saying more."""

    name: str
    run: Callable[[Patient], Found]
    is_needed: bool = False
    todo: str = ""


CHECKS = (
    Check("reachable", _reachable, True, "Start it with `headwater serve`, or give its URL."),
    Check("ready", _ready, True, "Wait for it, or look at its log."),
    Check("key", _key, True, "Is that a Headwater server of this version?"),
    Check("model", _model, True, "Look at the server's log."),
    Check("one prompt twice", _twice),
    Check("template", _template),
    Check("metrics", _metrics),
    Check("clock", _clock),
    Check("streaming", _streaming),
)
