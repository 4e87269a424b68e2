"""Our end of the wire: start a peer's process, call its verbs, and end it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.peers import HERE, HOME, PEERS, ROOT, Peer

LOAD_LIMIT = 600.0
"""Seconds a call may take. vLLM compiles its model for minutes when it is loaded."""


class PeerMissing(Exception):
    """The peer is not here, did not start or failed; the message is the row's reason."""


class Worker:
    """One peer's process. Verbs are methods by name: `worker.call("cold", tokens=[...])`."""

    def __init__(self, name: str) -> None:
        """Raises PeerMissing when the peer's environment was not built."""
        self.name = name
        peer = PEERS[name]
        command, env = (
            [str(_python(peer)), "-P", str(HERE / "serve.py"), str(HERE / peer.script)],
            _environment(peer),
        )
        HOME.mkdir(exist_ok=True)
        self._log = HOME / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                start_new_session=True,  # so that what it starts itself can be ended with it
            )
        self._pending = b""

    def call(self, verb: str, limit: float = LOAD_LIMIT, /, **args: Any) -> Any:
        """Carry out a verb in the peer. Raises PeerMissing with the reason when it cannot."""
        request = json.dumps({"verb": verb, "args": args}).encode() + b"\n"
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(request)
            pipe.flush()
        except BrokenPipeError:
            raise PeerMissing(
                f"{self.name} has ended; its log is {self._log.relative_to(ROOT)}"
            ) from None
        answer = json.loads(self._line(verb, time.monotonic() + limit))
        if "error" in answer:
            raise PeerMissing(f"{self.name} could not {verb}: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End the process and what it started. Idempotent."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended with a request unread
            process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, verb: str, deadline: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise PeerMissing(f"{self.name} did not {verb} in time")
            piece = os.read(pipe, 1 << 16)
            if not piece:
                raise PeerMissing(
                    f"{self.name} ended during {verb}; its log is {self._log.relative_to(ROOT)}"
                )
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line


def _python(peer: Peer) -> Path:
    if peer.venv is None:
        return Path(sys.executable)
    python = peer.venv / "bin" / "python"
    if not python.exists():
        raise PeerMissing(f"{peer.name} is not built: run `python -m bench.peers {peer.name}`")
    return python


def _environment(peer: Peer) -> dict[str, str]:
    env = os.environ | dict(peer.env) | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    library = (peer.venv or Path(sys.prefix)) / (peer.preload or "")
    if peer.preload is not None and library.exists():
        env["LD_PRELOAD"] = str(library)
    return env
