"""Without the engine's packages there is one sentence, not a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAYS = "The engine is not installed; install it with: pip install 'headwater[engine]'"

# As in an environment without torch: the import of it fails, and names it.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; "


@pytest.mark.parametrize(
    "code",
    [
        "from headwater import Headwater",
        "import headwater; headwater.LoadedModel",
    ],
)
def test_the_library_says_what_to_install(code):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"headwater.errors.EngineMissing: {SAYS}")


def test_the_command_line_says_what_to_install():
    code = "from headwater.cli import main; sys.exit(main(['generate', 'hi']))"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() == f"headwater: {SAYS}"
