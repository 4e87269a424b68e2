"""Build the peers' environments. Usage: python -m bench.peers [NAME...]"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv

from bench.peers import PEERS, Peer


def build(peer: Peer) -> None:
    """Make the peer's environment, or bring it up to date; one that needs none is left alone."""
    home = peer.venv
    if home is None or peer.shares is not None:
        print(f"{peer.name}: runs in {'this environment' if home is None else home.name}")
        return
    if not (home / "bin" / "python").exists():
        venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", *peer.requires], check=True)
    if peer.unwanted:
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", *peer.unwanted], check=True)
    print(f"{peer.name}: ready in {home.name}/")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="Build the peers' environments."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join(PEERS)}; all when none is given"
    )
    names = parser.parse_args(argv).names or list(PEERS)
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    failed = []
    for name in names:
        try:
            build(PEERS[name])
        except subprocess.CalledProcessError as error:
            failed.append(
                name
            )  # a missing peer costs its rows, not the benchmark: build the others
            print(f"{name}: could not be built ({error})", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
