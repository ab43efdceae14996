"""Two processes under torchrun: the same global batch, the same loss curve, one calibration."""

import json
import os
import subprocess
import sys
from statistics import median

import pytest
import torch

import randomset as rs

SCRIPT = """
import json, os, sys, torch
import randomset as rs
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = load_digits()
x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
kind, out = sys.argv[1:]
torch.manual_seed(0)
budget = rs.Budget.from_sets([{3, 8}, {4, 9}, {1, 7, 8}], 10)
network = rs.RandomSetNetwork(nn.Sequential(nn.Linear(64, 32), nn.ReLU()), budget)
network.head.layers[-1].bias.data.zero_()
loss = rs.RandomSetLoss(budget, alpha=0.1, beta=2.0)  # the hinge matters, and is open in some steps only
weights = torch.rand(333, generator=torch.Generator().manual_seed(1))
train = TensorDataset(x[:333], y[:333], weights)
world = int(os.environ.get("WORLD_SIZE", 1))
if kind == "loader":  # a loader's batch size is for each process, as Lightning has it
    train = DataLoader(train, 64 // world, shuffle=True)
report = rs.fit(
    network, train, TensorDataset(x[400:501], y[400:501]), epochs=3, loss=loss, out=out,
    batch_size=None if kind == "loader" else 64, progress=False, accelerator="cpu", precision="32-true",
    **({"class_weight": {"3": 5.0}, "sampling": "balanced", "ema": 0.9} if kind == "balanced" else {}),
)
answer = {
    "history": report.history,
    "temperature": report.calibration.temperature,
    "samples": report.calibration.samples,
    "weight": network.head.layers[0].weight.flatten().tolist(),
    "reliability": network.predict(torch.cat((x[600:650], 30 * x[650:700]))).reliability.tolist(),
    "familiar_from": report.reliability.familiar_from,
}
rank = os.environ.get("RANK", "0")
json.dump(answer, open(f"{out}-{rank}.json", "w"))
"""

PIPELINE = """
import json, os, sys, torch
from pathlib import Path
from sklearn.datasets import load_digits
from randomset.training import TrainConfig, train

kind, out = sys.argv[1:]
data = load_digits()
images, labels = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)
config = TrainConfig(epochs=4, num_sets=5, batch_size=64, width=8)
result = train(
    config, images, labels, tuple("0123456789"), rows=torch.arange(600), val_rows=torch.arange(600, 801),
    out=Path(out), progress=False, accelerator="cpu", precision="32-true",
)
answer = result.model.predict(images[1000:1200])
history = [{k: v for k, v in row.items() if k != "samples_per_second"} for row in result.fit.history]
answer = {
    "sets": [sorted(members) for members in result.model.budget.sets],
    "history": history,
    "temperature": result.fit.calibration.temperature,
    "probabilities": answer.pignistic.tolist(),
    "reliability": answer.reliability.tolist(),
}
rank = os.environ.get("RANK", "0")
json.dump(answer, open(f"{out}-{rank}.json", "w"))
"""


def run(tmp_path, kind, processes, text=SCRIPT):
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    out = tmp_path / f"{kind}{processes}"
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if processes == 2 else []
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(script), kind, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads((tmp_path / f"{out.name}-{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data set", "loader", "balanced"])
def test_two_processes_learn_what_one_learns(tmp_path, kind):
    (alone,) = run(tmp_path, kind, 1)
    first, second = run(tmp_path, kind, 2)
    assert first["weight"] == second["weight"]
    assert first["temperature"] == second["temperature"]
    assert first["weight"] == pytest.approx(alone["weight"], abs=1e-5)
    assert first["temperature"] == pytest.approx(alone["temperature"], rel=1e-2)
    assert first["reliability"] == second["reliability"]
    assert first["familiar_from"] == second["familiar_from"]
    assert first["reliability"] == pytest.approx(alone["reliability"], abs=0.05)
    assert median(first["reliability"][50:]) < 0.1 < median(first["reliability"][:50])
    assert first["samples"] == alone["samples"] == 101
    for one, two in zip(alone["history"], first["history"], strict=True):
        for name in ("loss", "bce", "M_r", "M_s", "val_loss", "val_accuracy", "val_ece", "learning_rate"):
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name
    assert alone["history"][0]["M_s"] > 0.1


@pytest.mark.slow
def test_two_processes_train_in_two_phases_what_one_trains(tmp_path):
    (alone,) = run(tmp_path, "pipeline", 1, PIPELINE)
    first, second = run(tmp_path, "pipeline", 2, PIPELINE)
    assert first == second
    assert first["sets"] == alone["sets"]
    assert [row["phase"] for row in first["history"]] == [row["phase"] for row in alone["history"]]
    assert len(first["history"]) == 4
    for one, two in zip(alone["history"][:2], first["history"][:2], strict=True):  # the plain network
        for name in ("loss", "val_loss", "val_accuracy"):
            assert two[name] == pytest.approx(one[name], rel=1e-3), name
    # Batch statistics are those of each process, so what follows agrees on average.
    for name in ("probabilities", "reliability"):
        difference = torch.tensor(first[name]) - torch.tensor(alone[name])
        assert difference.abs().mean() < 0.03, name
    assert len((tmp_path / "pipeline2" / "metrics.csv").read_text().splitlines()) == 1 + 4


def test_the_hinge_is_on_the_mean_of_all_processes(monkeypatch):
    """The average of the processes' gradients is that of the whole batch, though one's own hinge is shut."""
    budget = rs.Budget.singletons(3)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    logits[:2] += 2  # the sum of masses is above one in the first part, below in the second, above on average
    logits[2:] -= 0.9
    labels = torch.arange(6) % 3
    whole = logits.clone().requires_grad_()
    loss = rs.RandomSetLoss(budget, 0.5, 2.0)
    value = loss(whole, labels)
    value.backward()
    assert loss.terms["M_s"] > 0
    totals = []

    def collect(tensor):
        totals.append(tensor.clone())

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", collect)
    parts = [logits[:2], logits[2:]]
    for part, label in zip(parts, (labels[:2], labels[2:]), strict=True):
        loss(part, label)
    everything = totals[0] + totals[1]
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: tensor.copy_(everything))
    values, gradients = [], []
    for part, label in zip(parts, (labels[:2], labels[2:]), strict=True):
        part = part.clone().requires_grad_()
        values.append(loss(part, label))
        values[-1].backward()
        gradients.append(part.grad / 2)  # engines average
        assert loss.terms["loss"].item() == pytest.approx(value.item())
    assert (sum(values) / 2).item() == pytest.approx(value.item())
    assert torch.allclose(torch.cat(gradients), whole.grad)
    assert parts[1].sigmoid().sum(1).mean() < 1
