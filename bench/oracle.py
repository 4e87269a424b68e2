"""Does the cache ever change an answer? Real conversations, asked with the cache and without.

    python -m bench.oracle DATA [--conversations N] [--tokens N]

DATA is a folder with traces: `agents/miniswe/*.jsonl` (sessions with the whole prompt of every
call) and `rag/mtrag/mtragun_generation_reference.jsonl` (conversations with their documents). Each
gives prompts of which the later ones extend the earlier. Several conversations run at once, in a
pool that holds about half of them, so that what is reused is sometimes still there, sometimes
evicted, sometimes in the making.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

from rich.console import Console

from headwater import Headwater, LoadedModel
from headwater.testing.oracle import Verdict, ask, compare

LONGEST, SHORTEST = 12_000, 4_000
"""Characters of a prompt that is taken: 1,000 tokens and more, and not minutes of prefill."""

AT_ONCE = 6


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    console = Console()
    conversations = list(islice(chain(_agents(args.data), _chats(args.data)), args.conversations))
    if not conversations:
        console.print(f"There are no conversations in {args.data}.")
        return 2
    loaded = LoadedModel.load(None, dtype="float32", device="cpu")
    verdict, reused, prompt = Verdict(), 0, 0
    with (
        Headwater(loaded, kv_memory=f"{AT_ONCE * 90} pages", check=True) as cached,
        Headwater(loaded, cache="none", kv_memory="2000 pages") as plain,
    ):
        for first in range(0, len(conversations), AT_ONCE):
            group = conversations[first : first + AT_ONCE]
            for turn in zip_longest(*group):
                asked = [(first + at, each) for at, each in enumerate(turn) if each is not None]
                prompts = [each for _, each in asked]
                ours, other = ask(cached, prompts, args.tokens), ask(plain, prompts, args.tokens)
                for (at, _), a, b in zip(asked, ours, other, strict=True):
                    compare(verdict, at, a.choices[0], b.choices[0])
                    reused += a.usage.cached_tokens
                    prompt += a.usage.prompt_tokens
            console.print(f"{first + len(group)} conversations: {_sentence(verdict)}")
        evicted = cached.stats().pages.evicted
    console.print(f"{prompt} prompt tokens, {reused} reused, {evicted} pages evicted meanwhile.")
    return 0 if verdict.holds else 1


def _sentence(verdict: Verdict) -> str:
    return (
        f"{verdict.tokens} tokens compared, {verdict.ties} ties, {len(verdict.wrong)} wrong, "
        f"log-probabilities at most {verdict.apart:.1e} apart"
    )


def _agents(data: Path) -> Iterator[list[str]]:
    """Calls of one session that still fit, in their order."""
    for file in sorted((data / "agents" / "miniswe").glob("*.jsonl")):
        calls = [json.loads(line)["input"] for line in file.read_text("utf-8").splitlines()]
        taken = [call for call in calls if SHORTEST <= len(call) <= LONGEST][:3]
        if taken:
            yield taken


def _chats(data: Path) -> Iterator[list[str]]:
    """A conversation about documents: its prompt at an earlier turn and at its last one."""
    file = data / "rag" / "mtrag" / "mtragun_generation_reference.jsonl"
    for line in file.read_text("utf-8").splitlines() if file.is_file() else ():
        task = json.loads(line)
        documents = "\n\n".join(each["text"] for each in task["contexts"])
        turns = [f"{each['speaker']}: {each['text']}" for each in task["input"]]
        prompts = [
            "\n".join([documents, *turns[:count], "agent:"])
            for count in (max(1, len(turns) - 2), len(turns))
        ]
        if len(turns) >= 3 and all(SHORTEST <= len(each) <= LONGEST for each in prompts):
            yield prompts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.oracle", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="a folder with traces")
    parser.add_argument("--conversations", type=int, default=64, metavar="N", help="how many")
    parser.add_argument("--tokens", type=int, default=12, metavar="N", help="drawn per answer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
