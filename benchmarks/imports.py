"""The time of `import randomset`, relative to `import torch`.

Claim: less than 1.5 times as long, measured in new processes that take turns.

Run: python -m benchmarks.imports [--pairs 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

_TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(module: str) -> float:
    """Import a module in a new process; return the seconds it took."""
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(module)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    """Print the medians, and the median ratio of neighbouring pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args().pairs
    seconds("randomset")  # the first import compiles
    found = [(seconds("torch"), seconds("randomset")) for _ in range(pairs)]
    torch, ours = (statistics.median(column) for column in zip(*found, strict=True))
    ratio = statistics.median(b / a for a, b in found)
    print(f"import torch {torch:.2f} s, import randomset {ours:.2f} s; median of ratios {ratio:.2f}")


if __name__ == "__main__":
    main()
