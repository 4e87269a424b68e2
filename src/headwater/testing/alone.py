"""The oracle: what a request answers alone, in a fresh machine that keeps nothing."""

from __future__ import annotations

from headwater.cache.no_cache import NoCache
from headwater.cache.policies import LRU
from headwater.cache.tokens import count
from headwater.schedule.events import Arrived, Request, RunStep, StepDone
from headwater.schedule.machine import Machine
from headwater.schedule.settings import Settings
from headwater.testing.fake_model import EngineMemory, FakeModel, Language

PAGE = 16


def answers(request: Request, context: int, language: Language) -> list[list[int]]:
    """The tokens of each choice, when memory is plenty and nothing else runs."""
    longest = min(count(request.prompt) + request.max_tokens, context)
    pages = (longest // PAGE + 2) * request.choices
    memory = EngineMemory(pages, PAGE)
    model = FakeModel(memory, _one_namespace, "", language)
    settings = Settings(context=context, running=request.choices, growth_pages=0)
    machine = Machine(memory.pool, LRU(), _one_namespace, settings, cache_class=NoCache)
    model.begin(request)
    out: list[list[int]] = [[] for _ in range(request.choices)]
    actions = machine.handle(Arrived(request), 0.0)
    while actions and isinstance(actions[-1], RunStep):
        step = actions[-1].step
        drawn = model.draw(step, model.run(step))
        for sample, (token, _) in zip(step.samples, drawn, strict=True):
            out[sample.choice].append(token)
        done = StepDone(step.id, [d.token for d in drawn], [d.stopped for d in drawn])
        actions = machine.handle(done, 0.0)
    return out


def _one_namespace(epoch: str, domain: str, salt: str) -> bytes:
    return b""
