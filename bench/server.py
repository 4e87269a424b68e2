"""What HTTP adds, what a user waits beside `vllm serve`, and what one tenant does to another.

The clients run in this process, the servers in processes of their own, on the same cores: as in a
small deployment, and harder on the server than a network would be.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from bench.models import model_of
from bench.options import Options
from bench.peers import HOME, PEERS, ROOT
from bench.report import Row
from bench.turns import chat_turns
from bench.wire import Answer, stream, wait_until_ready

STREAMS, STREAM_TOKENS, GAP = 50, 48, 0.04
"""The streams begin within two seconds and go on together for ten."""

TURNS, TURN_TOKENS = 200, 32
RATE = 1.0
"""Requests a second, Poisson: what the slower of the two servers can keep up with on two cores."""

LOAD_SECONDS = 420.0


def run(options: Options) -> list[Row]:
    rows = added(options)
    rows += against_vllm(options)
    rows += noise(options)
    return rows


# What HTTP adds to the Python API


def added(options: Options) -> list[Row]:
    options.say(f"server: {STREAMS} streams at once")
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "stamped_server.py"), str(port)]
    with running(command, port):
        asyncio.run(_many(port, 4))  # the first run of anything is slow
        answers = asyncio.run(_many(port, STREAMS))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stamps") as reply:
            stamps = json.load(reply)
    delays = sorted(_delays(answers, stamps))
    how = (
        f"{STREAMS} chats streamed at once, begun {GAP * 1e3:.0f} ms apart, {STREAM_TOKENS} tokens "
        "each, default model, float32: "
        "from the engine's delivery of a piece to its arrival at a client on the same two cores, "
        f"and for first tokens the way in as well; {len(delays)} pieces"
    )
    return [
        Row(f"server.added_p{part}_ms", percentile(delays, part) * 1e3, "ms", "", how)
        for part in (50, 99)
    ]


async def _many(port: int, count: int) -> dict[int, Answer]:
    seeds = [1000 * count + i for i in range(count)]
    bodies = [
        {
            "messages": [{"role": "user", "content": f"Tell a story about the number {seed}."}],
            "max_tokens": STREAM_TOKENS,
            "ignore_eos": True,
            "seed": seed,
        }
        for seed in seeds
    ]
    asked = []
    for body in bodies:
        asked.append(asyncio.ensure_future(stream(port, "/v1/chat/completions", body)))
        await asyncio.sleep(GAP)
    return dict(zip(seeds, await asyncio.gather(*asked), strict=True))


def _delays(
    answers: dict[int, Answer], stamps: dict[str, tuple[float, list[float]]]
) -> Iterator[float]:
    """Seconds that each piece was on its way."""
    for seed, answer in answers.items():
        asked, delivered = stamps[str(seed)]
        if len(delivered) != len(answer.texts):
            raise RuntimeError(f"{len(delivered)} pieces were sent, {len(answer.texts)} came")
        way_in = asked - answer.sent
        for sent, (came, _) in zip(delivered, answer.texts, strict=True):
            yield came - sent + way_in
            way_in = 0.0


# Real chat turns, beside vLLM


def against_vllm(options: Options) -> list[Row]:
    ids = ("server.ttft_vs_vllm", "server.ttft_p99_vs_vllm")
    if options.peers is not None and "vllm" not in options.peers:
        return [Row(name, None, "x time", "vllm serve", "left out by --peers") for name in ids]
    turns = chat_turns(TURNS)
    if not turns:
        return [Row(n, None, "x time", "vllm serve", "the conversations are not here") for n in ids]
    python = HOME / "vllm" / "bin" / "python"
    if not python.exists():
        reason = "vllm is not built: run `python -m bench.peers vllm`"
        return [Row(name, None, "x time", "vllm serve", reason) for name in ids]
    model = str(model_of(options))
    theirs = _turns(options, "vLLM", vllm_server(model), turns)
    ours = _turns(options, "Headwater", our_server(model), turns)
    how = (
        f"{len(turns)} turns of agents' conversations, whole prompts, {TURN_TOKENS} tokens drawn, "
        f"Poisson arrivals at {RATE:g} a second, the same for both; float32. Ours / vLLM's: "
    )
    return [
        _ratio(ids[0], ours, theirs, statistics.fmean, f"{how}mean of time to first token"),
        _ratio(ids[1], ours, theirs, lambda t: percentile(sorted(t), 99), f"{how}99th percentile"),
    ]


def _ratio(
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    measure: Callable[[Sequence[float]], float],
    how: str,
) -> Row:
    a, b = measure(ours), measure(theirs)
    return Row(name, a / b, "x time", "vllm serve", f"{how} {a:.3f} s / {b:.3f} s")


def _turns(
    options: Options,
    name: str,
    server: tuple[list[str], dict[str, str], int],
    turns: Sequence[str],
) -> list[float]:
    command, env, port = server
    options.say(f"server: starting {name}")
    with running(command, port, env):
        asyncio.run(_paced(port, turns[:3], random.Random(1)))  # the first run of anything is slow
        options.say(f"server: {len(turns)} chat turns on {name}")
        answers = asyncio.run(_paced(port, turns, random.Random(0)))
    failed = [each.error for each in answers if each.status != 200 or not each.texts]
    if failed:
        raise RuntimeError(f"{name} failed {len(failed)} of {len(turns)} turns: {failed[0]}")
    return [each.first_token for each in answers]


async def _paced(port: int, turns: Sequence[str], rng: random.Random) -> list[Answer]:
    """Requests leave at random times that do not depend on the answers."""
    running_: list[Awaitable[Answer]] = []
    for turn in turns:
        body = {"prompt": turn, "max_tokens": TURN_TOKENS, "temperature": 0.0, "ignore_eos": True}
        running_.append(asyncio.ensure_future(stream(port, "/v1/completions", body)))
        await asyncio.sleep(rng.expovariate(RATE))
    return list(await asyncio.gather(*running_))


def our_server(model: str, *flags: str) -> tuple[list[str], dict[str, str], int]:
    port = free_port()
    command = [sys.executable, "-m", "headwater", "serve", model, "--port", str(port)]
    return [*command, "--dtype", "float32", *flags], {}, port


def vllm_server(model: str) -> tuple[list[str], dict[str, str], int]:
    """VLLM's own server, with the OpenMP library it asks for and all cores to compute on."""
    port, home = free_port(), HOME / "vllm"
    # What `vllm serve` runs; the command itself looks for a package that is called `vllm`, and the
    # CPU build's is not.
    command = [str(home / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", model, "--served-model-name", "model", "--port", str(port)]
    command += ["--dtype", "float32", "--max-model-len", "4096", "--enable-prefix-caching"]
    env = {"VLLM_CPU_KVCACHE_SPACE": "3", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    preload = PEERS["vllm"].preload
    if preload is not None and (home / preload).exists():
        env["LD_PRELOAD"] = str(home / preload)
    return command, env, port


# One tenant's noise in another's ears

QUIET_PROMPTS, QUIET_TOKENS, QUIET_ROUNDS = 8, 600, 4
FLOOR = 0.4
"""Of the KV memory: the quiet tenant's working set fits, with its answers."""

TENANTS = """
[[tenants]]
name = "quiet"
keys = ["quiet-key-0123456789"]
kv_floor = "{floor}"
priority = 1

[[tenants]]
name = "loud"
keys = ["loud-key-0123456789"]
max_requests = 4
"""


def noise(options: Options) -> list[Row]:
    model = str(model_of(options))
    pages = int(QUIET_PROMPTS * QUIET_TOKENS * 1.3 / 16 / FLOOR)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "headwater.toml"
        config.write_text(TENANTS.format(floor=f"{int(pages * FLOOR)} pages"))
        command, env, port = our_server(
            model,
            "--config",
            str(config),
            "--kv-memory",
            f"{pages} pages",
            "--step-tokens",
            "64",
            "--max-running",
            "32",
        )
        options.say("server: a quiet tenant beside a loud one")
        with running(command, port, env):
            calm, loud = asyncio.run(_beside(port))
    floor = 1.0  # the floor holds the whole working set, so everything should go on to hit
    hits = sum(a.cached_tokens for a in loud) / sum(a.cached_tokens for a in calm)
    calm_p99, loud_p99 = (
        percentile(sorted(a.first_token for a in each), 99) for each in (calm, loud)
    )
    how = (
        f"{QUIET_PROMPTS} prompts of {QUIET_TOKENS} tokens asked {QUIET_ROUNDS} times by a tenant "
        f"with a floor of {FLOOR:.0%} of the KV memory and priority 1, alone and while another one "
        f"keeps 4 requests of 1,000 new tokens in flight; 64 tokens a pass. p99 {loud_p99:.3f} s / "
        f"{calm_p99:.3f} s alone"
    )
    return [
        Row("server.noise_hits", hits / floor, "x hit tokens", "its quiet run", how),
        Row("server.noise", loud_p99 / calm_p99, "x p99 TTFT", "its quiet run", how),
    ]


async def _beside(port: int) -> tuple[list[Answer], list[Answer]]:
    rng = random.Random(3)
    prompts = [
        [rng.randrange(100, 40_000) for _ in range(QUIET_TOKENS)] for _ in range(QUIET_PROMPTS)
    ]
    await _fill(port, prompts)
    calm = await _quiet(port, prompts, rng, rounds=QUIET_ROUNDS)
    floods = [asyncio.ensure_future(_flood(port, random.Random(i))) for i in range(4)]
    await asyncio.sleep(10)  # until the pool is full of noise
    loud = await _quiet(port, prompts, rng, rounds=QUIET_ROUNDS)
    for each in floods:
        each.cancel()
    await asyncio.gather(*floods, return_exceptions=True)
    return calm, loud


async def _fill(port: int, prompts: Sequence[list[int]]) -> None:
    for prompt in prompts:
        await _as(port, "quiet", {"prompt": prompt, "max_tokens": 1})


async def _quiet(
    port: int, prompts: Sequence[list[int]], rng: random.Random, rounds: int
) -> list[Answer]:
    answers = []
    for _ in range(rounds):
        for prompt in prompts:
            tail = [rng.randrange(100, 40_000) for _ in range(24)]
            body = {"prompt": prompt + tail, "max_tokens": 4, "headwater": {"store": False}}
            answers.append(await _as(port, "quiet", body))
            await asyncio.sleep(rng.random() * 0.3)
    return answers


async def _flood(port: int, rng: random.Random) -> None:
    while True:
        prompt = [rng.randrange(100, 40_000) for _ in range(1000)]
        await _as(port, "loud", {"prompt": prompt, "max_tokens": 4})


async def _as(port: int, tenant: str, body: dict[str, object]) -> Answer:
    headers = {"Authorization": f"Bearer {tenant}-key-0123456789"}
    body = body | {"temperature": 0.0, "ignore_eos": True}
    answer = await stream(port, "/v1/completions", body, headers)
    if answer.status != 200:
        raise RuntimeError(f"a request of the {tenant} tenant failed: {answer.error}")
    return answer


# Servers as processes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], port: int, env: dict[str, str] | None = None) -> Iterator[None]:
    """A server's process, from when it answers to its end. Its output goes to a peers' log."""
    HOME.mkdir(exist_ok=True)
    log = HOME / f"{Path(command[1]).stem}-server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HF_HUB_OFFLINE": "1"} | (env or {}),
            start_new_session=True,
            cwd=ROOT,
        )
    try:
        if not _is_up(process, port):
            raise RuntimeError(f"{command[0]} did not start; its log is {log}")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(1)


def _is_up(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a server answers; False when it ends before, or takes too long."""
    deadline = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if asyncio.run(wait_until_ready(port, 5.0)):
            return True
    return False


def percentile(ordered: Sequence[float], part: float) -> float:
    """Of values in order: the smallest that `part` per cent do not exceed."""
    return ordered[min(int(len(ordered) * part / 100), len(ordered) - 1)]
