"""Write the run folder of this version that later versions must read: `python -m tests.hardening.runs.make`.

It is kept as it is; another version adds a folder of its own. In it are also the predictions that it gave,
and in origin.json what made it: the versions, and the commands.
"""

import json
import shutil
from pathlib import Path

import torch

import randomset
from tests.commands import run

HERE = Path(__file__).parent
COMMANDS = [
    "train digits --out RUN --backbone mlp --width 8 --epochs 2 --sets 5 --validation 0.05 --test 0.1",
    "evaluate RUN --no-timing --no-sweeps --no-figures",
    "predict RUN digits --format jsonl --out RUN/predictions.jsonl",
]


def main():
    """Train, evaluate and predict; keep what is small."""
    folder = HERE / ".".join(randomset.__version__.split(".")[:2])
    if folder.exists():
        raise SystemExit(f"{folder} is there already: it is not to be changed")
    for words in COMMANDS:
        done = run(*words.replace("RUN", folder.name).split(), cwd=HERE)
        if done.returncode:
            raise SystemExit(done.stderr)
    lines = (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "predictions.jsonl").write_text("\n".join(lines[:12]) + "\n", encoding="utf-8")
    for name in ("first", "checkpoints"):  # of an ended training nobody needs them
        shutil.rmtree(folder / name)
    origin = {"randomset": randomset.__version__, "torch": torch.__version__, "commands": COMMANDS}
    (folder / "origin.json").write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
