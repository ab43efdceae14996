"""What must work with the core dependencies alone: run by `make package` in an environment of its own."""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import randomset as rs
from randomset import backbones
from randomset.errors import MissingPackageError

OPTIONAL = ("lightning", "matplotlib", "pandas", "onnx", "fastapi", "transformers", "timm", "PIL")


def main() -> None:
    there = [name for name in OPTIONAL if importlib.util.find_spec(name)]
    assert not there, f"these are no core dependencies: {there}"

    centres = 3.0 * torch.eye(4, 6)
    labels = torch.arange(400) % 4
    inputs = centres[labels] + torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
    budget = rs.Budgeter(num_sets=4).fit(inputs, labels).budget_
    torch.manual_seed(0)
    network = rs.RandomSetNetwork(backbones.mlp(6, (32,)), budget)
    loss, optimiser = rs.RandomSetLoss(budget), torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        loss(network(inputs), labels).backward()
        optimiser.step()
    answer = network.eval().predict(inputs)
    accuracy = (answer.labels == labels).float().mean()
    assert accuracy > 0.8, accuracy

    with tempfile.TemporaryDirectory() as place:
        network.save(place)
        again = rs.RandomSetNetwork.load(place)
        assert torch.equal(again.predict(inputs).mass, answer.mass)
        answer.save(Path(place, "answer.safetensors"))
        assert torch.equal(rs.RandomSet.load(Path(place, "answer.safetensors")).mass, answer.mass)
        missing = ""
        try:
            rs.fit(network, (inputs, labels), epochs=1)
        except MissingPackageError as error:
            missing = str(error)
        assert "randomset[train]" in missing, "training without Lightning must name the extra"
        command = [str(Path(sys.executable).parent / "randomset")]
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        assert said.strip() == rs.__version__, said
        failed = subprocess.run(
            [*command, "train", "digits", "--out", f"{place}/run"], capture_output=True, text=True
        )
        assert failed.returncode == 2, failed.stderr
        assert "randomset[train]" in " ".join(failed.stderr.split()), failed.stderr
    print(f"randomset {rs.__version__} works with its core dependencies alone")


if __name__ == "__main__":
    main()
