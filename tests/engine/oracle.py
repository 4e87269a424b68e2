"""Conversations for the engine's oracle, and a planted fault that it must see."""

from __future__ import annotations

from headwater.testing.oracle import Verdict, ask, compare


def converse(cached, plain, conversations, tokens):
    """Hold conversations with both engines; the verdict, and how many tokens were reused.

    conversations: for each the user's messages. What the engine with the cache has answered is
    part of the next prompt to both. Every other turn comes in reverse order, so that some of what
    it could reuse is still there and some is evicted.
    """
    verdict, reused = Verdict(), 0
    histories = [[] for _ in conversations]
    for turn in range(len(conversations[0])):
        order = list(range(len(conversations)))[:: -1 if turn % 2 else 1]
        for at in order:
            histories[at].append({"role": "user", "content": conversations[at][turn]})
        prompts = [histories[at] for at in order]
        results = ask(cached, prompts, tokens)
        for at, ours, other in zip(order, results, ask(plain, prompts, tokens), strict=True):
            compare(verdict, at, ours.choices[0], other.choices[0])
            reused += ours.usage.cached_tokens
            histories[at].append({"role": "assistant", "content": ours.text})
    return verdict, reused


def plant_wrong_pages(hw, monkeypatch):
    """From now on the longest segment of every step names one wrong page of the pool.

    The number of slots stays right, so nothing but what the model says can give it away.
    """
    run = hw._engine._runner.run

    def wrong(step, params):
        longest = max(
            range(len(step.segments)),
            key=lambda at: (not step.segments[at].causal, slots(step.segments[at])),
        )
        segment = step.segments[longest]
        if not segment.causal and slots(segment) > 32:
            step.segments[longest] = with_pages_swapped(segment)
        return run(step, params)

    monkeypatch.setattr(hw._engine._runner, "run", wrong)


def slots(segment):
    return sum(run.count for run in segment.runs)


def with_pages_swapped(segment):
    """The first 16 slots replaced by the second 16."""
    first, *rest = segment.runs
    run = type(first)
    assert first.count >= 32
    moved = (run(first.first + 16, 16), run(first.first + 16, first.count - 16))
    return type(segment)((*moved, *rest), segment.row_begin, segment.row_end, segment.causal)
