"""Writes docs/grafana-dashboard.json from the metrics that a server has.

python tools/dashboard.py           rewrite the file
python tools/dashboard.py --check   exit 1 when it is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headwater.observe.dashboard import dashboard
from headwater.observe.metrics import Metrics

FILE = Path(__file__).resolve().parent.parent / "docs" / "grafana-dashboard.json"


def main() -> int:
    wanted = text()
    if "--check" in sys.argv[1:]:
        is_old = not FILE.exists() or FILE.read_text("utf-8") != wanted
        if is_old:
            print(f"docs/{FILE.name} is out of date; run python tools/dashboard.py")
        return int(is_old)
    FILE.write_text(wanted, "utf-8")
    return 0


def text() -> str:
    """The dashboard, as Grafana imports it."""
    families = Metrics(lambda: None).registry.collect()
    return json.dumps(dashboard(families), indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main())
