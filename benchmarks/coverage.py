"""Do the intervals contain the true probability, and do they become narrower with more samples?

Four classes, normal distributions at (±1.5, ±1.5), whose posterior is known. For each number of samples, of
which a fifth (at least 30) are validation data, a small network is trained with the default settings. On
2,000 new inputs: the share for which the true probability of the predicted class lies in [Bel, Pl], the mean
width of that interval, and the likelihood and calibration error beside those without a reliability.

Run: python -m benchmarks.coverage [--plot docs/images/coverage.png]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from torch import Tensor

import randomset as rs
from randomset import RandomSet, backbones
from randomset.evaluation.metrics import calibration_error, negative_log_likelihood

CENTRES = 1.5 * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
SIZES = (150, 1500, 15000)
STEPS = 600  # of training, about


def sample(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw inputs and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    return CENTRES[labels] + torch.randn(count, 2, generator=generator), labels


def posterior(inputs: Tensor) -> Tensor:
    """Return the true probabilities of the classes."""
    return (-(inputs[:, None] - CENTRES).square().sum(-1) / 2).softmax(-1)


def trained(count: int, seed: int) -> rs.RandomSetNetwork:
    """Train a network on so many samples."""
    inputs, labels = sample(count, seed)
    held = max(30, count // 5)
    train, val = (inputs[held:], labels[held:]), (inputs[:held], labels[:held])
    batch = min(64, len(train[0]) // 2)
    epochs = max(5, min(60, STEPS * batch // len(train[0])))
    torch.manual_seed(seed)
    network = rs.RandomSetNetwork(backbones.mlp(2, keep_inputs=True), rs.Budget.powerset(4))
    rs.fit(network, train, val, epochs=epochs, batch_size=batch, seed=seed, progress=False)
    return network


def intervals(answer: RandomSet) -> tuple[Tensor, Tensor]:
    """Return lower and upper probability of the predicted class."""
    top = answer.labels[:, None]
    return answer.lower.gather(1, top)[:, 0], answer.upper.gather(1, top)[:, 0]


def measured(network: rs.RandomSetNetwork, seed: int) -> dict[str, dict[str, float]]:
    """Return coverage, width, NLL and ECE without and with the reliability."""
    inputs, labels = sample(2000, 10**6 + seed)
    rows = {}
    for name, discounted in (("without", False), ("with", True)):
        answer = network.predict(inputs, discounted=discounted)
        low, high = intervals(answer)
        truth = posterior(inputs).gather(1, answer.labels[:, None])[:, 0]
        rows[name] = {
            "coverage": float(((truth >= low - 1e-6) & (truth <= high + 1e-6)).float().mean()),
            "width": float((high - low).mean()),
            "nll": negative_log_likelihood(answer.pignistic, labels),
            "ece": calibration_error(answer.pignistic, labels),
        }
    return rows


def plot(networks: dict[int, rs.RandomSetNetwork], path: Path) -> None:
    """Draw the interval of the first class along a line from data to where there are none."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(networks), figsize=(11, 3.2), sharey=True, layout="constrained")
    line = torch.stack((torch.linspace(-8, 8, 400), torch.full((400,), 1.5)), 1)
    for axis, (count, network) in zip(axes, networks.items(), strict=True):
        answer = network.predict(line)
        x = line[:, 0].numpy()
        axis.fill_between(x, answer.lower[:, 0], answer.upper[:, 0], alpha=0.3, label="[Bel, Pl]")
        axis.plot(x, answer.pignistic[:, 0], label="BetP")
        axis.plot(x, posterior(line)[:, 0], "k--", linewidth=1, label="true probability")
        axis.axvspan(-4.5, 4.5, color="0.95", zorder=0)
        axis.set(title=f"{count:,} samples", xlabel="first coordinate (data: shaded)", ylim=(-0.02, 1.02))
    axes[0].set_ylabel("probability of class 0")
    axes[0].legend(loc="upper left", fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print one row per number of samples."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="a PNG file to draw")
    arguments = parser.parse_args()
    print("| samples | reliability | coverage | mean width | NLL, nats | ECE |\n|---|---|---|---|---|---|")
    drawn: dict[int, rs.RandomSetNetwork] = {}
    for count in SIZES:
        found = []
        for seed in range(arguments.seeds):
            network = trained(count, seed)
            drawn.setdefault(count, network)
            found.append(measured(network, seed))
        for name in ("without", "with"):
            cells = []
            for key in ("coverage", "width", "nll", "ece"):
                values = [row[name][key] for row in found]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(f"{statistics.mean(values):.3f} ± {spread:.3f}")
            print(f"| {count:,} | {name} | {' | '.join(cells)} |", flush=True)
    if arguments.plot:
        plot(drawn, arguments.plot)


if __name__ == "__main__":
    main()
