"""Belief to mass on the power set of 16 classes: the fast transform against the sparse matrix.

Claim: the fast transform, N · 2^N steps, is far faster than a sparse matrix with 3^N entries, and needs less
than three times the memory of its input.

Run: python -m benchmarks.power_set
"""

from __future__ import annotations

import time
import warnings

import torch

from benchmarks.families import memory_ratio, seconds
from randomset import Budget, BudgetOperators, belief_from_mass, mass_from_belief

SAMPLES = 100


def sparse_moebius(num_classes: int, code: torch.Tensor) -> torch.Tensor:
    """Build the inverse of the subset matrix as CSR, over the sets in the budget's order."""
    whole = 2**num_classes
    row, column = torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    for c in range(num_classes):  # subsets of A ∪ {c} are those of A, with and without c
        bit = 1 << c
        row = torch.cat((row, row | bit, row | bit))
        column = torch.cat((column, column, column | bit))
    size = torch.tensor([i.bit_count() for i in range(whole)])
    value = 1.0 - 2.0 * ((size[row] - size[column]) % 2)
    keep = column > 0  # without the empty set
    place = torch.empty(whole, dtype=torch.long)
    place[code] = torch.arange(len(code))
    indices = torch.stack((place[row[keep]], place[column[keep]]))
    shape = (len(code), len(code))
    return (
        torch.sparse_coo_tensor(indices, value[keep], shape, check_invariants=False)
        .coalesce()
        .to_sparse_csr()
    )


def main() -> None:
    """Print the ratios."""
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    torch.manual_seed(0)
    print(f"belief to mass, {SAMPLES} predictions, {torch.get_num_threads()} threads, float32")
    print(f"{'classes':<9}{'sets':>8}{'fast':>11}{'sparse matrix':>16}{'ratio':>8}")
    for n in (10, 13, 16):
        budget = Budget.powerset(n)
        mass = torch.rand(SAMPLES, len(budget))
        mass /= mass.sum(-1, keepdim=True)
        belief = belief_from_mass(mass, budget)
        transform = BudgetOperators(budget).transform
        assert transform is not None
        start = time.perf_counter()
        matrix = sparse_moebius(n, transform.code.long())
        built = time.perf_counter() - start
        (fast, _), (sparse, _) = seconds(
            lambda: mass_from_belief(belief, budget),  # noqa: B023
            lambda: matrix @ belief.T,  # noqa: B023
            rounds=2,
            repeats=3,
        )
        print(f"{n:<9}{len(budget):>8}{fast * 1e3:>8.2f} ms{sparse * 1e3:>13.1f} ms{sparse / fast:>8.1f}"
              f"   (and {built:.1f} s to build its {matrix.values().numel():,} entries)")  # fmt: skip
    ratio = memory_ratio(
        """
from randomset import Budget, mass_from_belief
budget = Budget.powerset(16)
mass_from_belief(torch.rand(1, len(budget)), budget)
x = torch.rand(100, len(budget))
""",
        "mass_from_belief(x, budget)",
    )
    print(f"memory at N = 16: {ratio:.2f} times the input, beyond the input itself")


if __name__ == "__main__":
    main()
