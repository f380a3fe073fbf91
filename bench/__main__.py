"""`python -m bench` (`make bench`): run every `bench_*.py` here, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """The worst exit status; numbers are printed, none is judged."""
    worst = 0
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"== {path.stem}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, str(path)], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
