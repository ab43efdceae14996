"""Random budgets and masses for property tests."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from randomset import Budget
from randomset.budgeting.gaussians import Ellipsoids

seeds = st.integers(0, 2**32 - 1)


@st.composite
def budgets(
    draw: st.DrawFn, min_classes: int = 2, max_classes: int = 6, closed: bool | None = None
) -> Budget:
    """Budgets with few or many sets, downward closed or not."""
    n = draw(st.integers(min_classes, max_classes))
    possible = [s for size in range(2, n + 1) for s in itertools.combinations(range(n), size)]
    chosen = draw(st.sets(st.sampled_from(possible), max_size=min(len(possible), 24)))
    if closed is None:
        closed = draw(st.booleans())
    if closed:
        chosen = {
            part
            for whole in list(chosen)[:6]
            for size in range(2, len(whole) + 1)
            for part in itertools.combinations(whole, size)
        }
    return Budget.from_sets(chosen, n)


def random_mass(
    budget: Budget, *shape: int, seed: int = 0, sparse: bool = False, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Valid masses; `sparse` leaves about half of the sets without mass."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(*shape, len(budget), dtype=torch.float64).exponential_(generator=generator)
    if sparse:
        keep = torch.rand(weight.shape, generator=generator, dtype=torch.float64) < 0.5
        keep[..., seed % len(budget)] = True
        weight = weight * keep
    return (weight / weight.sum(-1, keepdim=True)).to(dtype)


def random_budget(n: int, k: int, seed: int = 0, *, max_size: int | None = None) -> Budget:
    """K different sets of n classes, of random sizes."""
    generator = torch.Generator().manual_seed(seed)
    sets: set[tuple[int, ...]] = set()
    while len(sets) < k:
        size = int(torch.randint(2, (max_size or n) + 1, (), generator=generator))
        sets.add(tuple(sorted(torch.randperm(n, generator=generator)[:size].tolist())))
    return Budget.from_sets(sets, n)


def random_ellipsoids(n: int, dimensions: int, seed: int, crowd: float = 2.0) -> Ellipsoids:
    """One ellipsoid for each class, of random shape; a larger `crowd` brings them closer together."""
    draw = np.random.default_rng(seed)
    centres = draw.uniform(0, 6 * n ** (1 / dimensions) / crowd, (n, dimensions))
    turn = np.linalg.qr(draw.normal(size=(n, dimensions, dimensions)))[0]
    lengths = draw.uniform(0.4, 1.6, (n, dimensions))
    covariances = np.einsum("nij,nj,nkj->nik", turn, lengths**2, turn)
    return Ellipsoids.from_moments(centres, covariances, np.arange(n), 2.0)
