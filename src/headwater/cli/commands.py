"""The commands, in the order in which --help lists them. A new one is a file and a line here."""

from __future__ import annotations

from headwater.cli import bench, chat, contract, demo, doctor, explain, generate, model, serve
from headwater.cli.command import Command

COMMANDS: tuple[Command, ...] = (
    demo.COMMAND,
    serve.COMMAND,
    chat.COMMAND,
    explain.COMMAND,
    doctor.COMMAND,
    generate.COMMAND,
    model.COMMAND,
    contract.COMMAND,
    bench.COMMAND,
)
