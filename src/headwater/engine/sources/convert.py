"""GGUF to a safetensors folder, as a program of its own: convert.py FILE.gguf FOLDER.

Reading a quantised file makes transformers import half of itself and hold the weights twice. A
child process gives all of that back, and keeps the settings changed here out of the caller's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging


def main() -> None:
    """Convert the file named first on the command line into the folder named second."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    parent, name = str(source.parent), source.name
    here = {"gguf_file": name, "local_files_only": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(parent, dtype=torch.float32, **here)
    tokenizer = AutoTokenizer.from_pretrained(parent, **here)
    save(model, folder)
    tokenizer.save_pretrained(folder)


def save(model: PreTrainedModel, folder: Path) -> None:
    """Write configuration and weights.

    Not by save_pretrained, which refuses a model that was ever quantised, this one being whole
    again notwithstanding.
    """
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    save_file(untied(model), folder / "model.safetensors", metadata={"format": "pt"})


def untied(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights, each storage once and under its first name: tied ones are tied again on load."""
    weights: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict().items():
        weights.setdefault(tensor.data_ptr(), (name, tensor.contiguous()))
    return dict(weights.values())


if __name__ == "__main__":
    main()
