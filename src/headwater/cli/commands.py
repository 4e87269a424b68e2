"""The commands, in the order in which --help lists them. A new one is a file and a line here."""

from __future__ import annotations

from headwater.cli import contract, model
from headwater.cli.command import Command

COMMANDS: tuple[Command, ...] = (contract.COMMAND, model.COMMAND)
