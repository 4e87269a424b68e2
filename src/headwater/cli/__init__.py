"""The command line. One file a command; `commands.py` lists them."""

from headwater.cli.main import main

__all__ = ["main"]
