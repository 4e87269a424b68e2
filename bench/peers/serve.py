"""The peer's end of the wire. Usage: python serve.py PEER_FILE

Runs inside the peer's own environment, where neither Headwater nor this package is installed: so
this file and each `*_peer.py` stand alone. A peer file holds one class, `Peer`, whose methods are
the verbs. One JSON object a line comes in, `{"verb": ..., "args": {...}}`; one a line goes out,
`{"value": ...}` or `{"error": "..."}`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time


def main() -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Engines and their native libraries print to standard output as they please. The wire keeps the
    # real one for itself; what else is printed lands on standard error, which is the log.
    wire = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    peer = runpy.run_path(sys.argv[1])["Peer"]()
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"value": getattr(peer, call["verb"])(**call["args"])}
        except Exception as error:  # noqa: BLE001 - whatever its fault is, it is this call's answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        wire.write(json.dumps(answer) + "\n")


def _end_with(parent: int) -> None:
    """A verb can run for minutes without a look at the wire: do not outlive who asked for it."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":  # vLLM starts its engine by spawning, which imports this file again
    main()
