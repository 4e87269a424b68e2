"""Keeping other libraries from writing over what a command shows."""

from __future__ import annotations

import os


def quiet_libraries() -> None:
    """Turn off progress bars and advice; call it before transformers is imported."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
