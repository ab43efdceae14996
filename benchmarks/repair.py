"""Accuracy and cost of both repairs on a noisy power set of 10 classes.

Claim: where the paper's clipping loses the prediction, the projection keeps the decision of the singleton
beliefs, and corrects some of its errors.

Run: python -m benchmarks.repair
"""

from __future__ import annotations

import time

import torch

from randomset import Budget, RandomSet
from randomset.belief.repair import Repair
from randomset.belief.transforms import belief_from_classes

SAMPLES = 1000


def main() -> None:
    """Print accuracy and time for each noise level."""
    budget = Budget.powerset(10)
    print(f"{SAMPLES} encoded labels with Gaussian noise, clipped to [0, 1]; 3 seeds; accuracy in %")
    print(f"{'noise':<8}{'singletons':>12}{'clip':>14}{'projection':>14}{'ms per sample':>20}")
    methods: tuple[Repair, Repair] = ("clip", "projection")
    for noise in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
        right: dict[str, list[float]] = {"singletons": [], "clip": [], "projection": []}
        spent = dict.fromkeys(methods, 0.0)
        for seed in range(3):
            torch.manual_seed(seed)
            labels = torch.randint(10, (SAMPLES,))
            belief = belief_from_classes(labels, budget)
            belief = (belief + noise * torch.randn_like(belief)).clamp(0, 1)
            right["singletons"].append((belief[:, :10].argmax(-1) == labels).float().mean().item())
            for method in methods:
                start = time.perf_counter()
                answer = RandomSet.from_belief(belief, budget, method)
                spent[method] += (time.perf_counter() - start) / 3 / SAMPLES * 1e3
                right[method].append((answer.labels == labels).float().mean().item())
        shown = {
            name: f"{100 * torch.tensor(seen).mean():.1f} ± {100 * torch.tensor(seen).std():.1f}"
            for name, seen in right.items()
        }
        print(f"{noise:<8}{shown['singletons']:>12}{shown['clip']:>14}{shown['projection']:>14}"
              f"{spent['clip']:>10.3f} /{spent['projection']:>7.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
