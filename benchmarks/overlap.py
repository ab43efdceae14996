"""Time of the exact search for overlapping sets, and how it grows.

Claim: at most 3 s for 1000 classes and 3000 sets. Other rows show how the time grows with classes, sets and
points, and a comparison with a naive implementation: every set of up to three classes whose pairs overlap is
weighted with the same points, without search, bounding boxes or merged patterns.

Generated clusters (`clusters` below): centres uniform in a cube with 27 units of volume for each class,
ellipsoids with axes uniform in 0.4 to 1.2 standard deviations, rotated at random; about 3.4 ellipsoids
contain a point that is in any two, the best sets overlap by 0.6, the 3000th by 0.06. The crowded rows have an
eighth of the space.

Run: python -m benchmarks.overlap
"""

from __future__ import annotations

import itertools
import time

import numpy as np

from benchmarks.families import seconds
from randomset.budgeting.gaussians import Ellipsoids, radius_from_coverage
from randomset.budgeting.overlap import top_overlaps
from randomset.budgeting.search import Focal, best_sets, patterns_from_ellipsoids, unit_ball


def main() -> None:
    """Print the tables."""
    print("overlap step, float64; fastest of 5 runs, in brackets the median")
    print(f"{'(N, K)':<16}{'seconds':>18}{'points in each':>16}{'undecided':>12}{'K-th overlap':>22}")
    for classes, sets, crowd in ((10, 20, 1), (100, 200, 1), (1000, 3000, 1), (100, 200, 2), (1000, 3000, 2)):
        regions = clusters(classes, crowd=crowd)
        found = top_overlaps(regions, classes, sets)
        ((best, middle),) = seconds(lambda: top_overlaps(regions, classes, sets), rounds=1)  # noqa: B023
        name = f"({classes}, {sets})" + (" crowded" if crowd > 1 else "")
        last = f"{found.overlaps[-1]:.4f} ± {found.errors[-1]:.4f}"
        spent = f"{best:.3f} ({middle:.3f})"
        print(f"{name:<22}{spent:>16}{found.points:>12,}{found.undecided:>12}{last:>22}", flush=True)

    print(
        "\ngrowth: seconds for patterns (points in every ellipsoid) and search, fastest of 3; * is the base"
    )
    print(f"{'classes':>8}{'sets':>8}{'points':>8}{'patterns':>12}{'search':>10}")
    base = (500, 1500, 512)
    rows = [(n, 3 * n, 512) for n in (125, 250, 500, 1000, 2000)]
    rows += [(500, k, 512) for k in (375, 750, 3000, 6000)]
    rows += [(500, 1500, p) for p in (128, 256, 1024, 2048)]
    for classes, sets, points in rows:
        regions, ball = clusters(classes), unit_ball(3, points // 8, 0)
        patterns = patterns_from_ellipsoids(regions, classes, ball)
        (mapped, _), (searched, _) = seconds(
            lambda: patterns_from_ellipsoids(regions, classes, ball),  # noqa: B023
            lambda: best_sets(patterns, sets),  # noqa: B023
            rounds=1,
            repeats=3,
        )
        mark = "  *" if (classes, sets, points) == base else ""
        print(f"{classes:>8}{sets:>8}{points:>8}{mapped:>12.3f}{searched:>10.3f}{mark}", flush=True)

    print("\nagainst the plain version, the same points, one run each")
    print(f"{'(N, K)':<14}{'plain':>10}{'ours':>10}{'ratio':>8}")
    for classes, sets, points in ((10, 20, 1024), (30, 60, 1024), (100, 200, 1024)):
        regions, ball = clusters(classes), unit_ball(3, points // 8, 0)
        start = time.perf_counter()
        expected = naive_overlaps(regions, ball)
        plain = time.perf_counter() - start
        ((ours, _),) = seconds(
            lambda: best_sets(patterns_from_ellipsoids(regions, classes, ball), sets),  # noqa: B023
            rounds=1,
            repeats=3,
        )
        ranked = best_sets(patterns_from_ellipsoids(regions, classes, ball), sets)
        for focal, value in zip(ranked.sets, ranked.overlaps.tolist(), strict=True):
            assert len(focal) > 3 or np.isclose(expected[focal], value)
        print(f"{f'({classes}, {sets})':<14}{plain:>9.2f}s{ours:>9.3f}s{plain / ours:>8.0f}", flush=True)


def clusters(classes: int, *, crowd: float = 1.0, seed: int = 0) -> Ellipsoids:
    """Draw ellipsoids of random position, shape and orientation in three dimensions."""
    draw = np.random.default_rng(seed)
    centres = draw.uniform(0, 3 * classes ** (1 / 3) / crowd, (classes, 3))
    turn = np.linalg.qr(draw.normal(size=(classes, 3, 3)))[0]
    lengths = draw.uniform(0.4, 1.2, (classes, 3))
    covariances = np.einsum("nij,nj,nkj->nik", turn, lengths**2, turn)
    return Ellipsoids.from_moments(centres, covariances, np.arange(classes), radius_from_coverage(0.95, 3))


def naive_overlaps(regions: Ellipsoids, ball: np.ndarray) -> dict[Focal, float]:
    """Compute the overlap of every pair, and of every triple whose pairs overlap, with all points."""
    places = zip(regions.centres, regions.axes, strict=True)
    points = np.concatenate([centre + regions.radius * ball @ axes.T for centre, axes in places])
    inside = regions.contain(points)
    for i in range(len(regions)):
        inside[i * len(ball) : (i + 1) * len(ball), i] = True
    weight = 1 / (inside / regions.relative_volumes).sum(1)

    def overlap(focal: Focal) -> float:
        return weight[inside[:, focal].all(1)].sum() / weight[inside[:, focal].any(1)].sum()

    pairs = itertools.combinations(range(len(regions)), 2)
    weighed: dict[Focal, float] = {pair: overlap(pair) for pair in pairs}
    meeting = {focal for focal, value in weighed.items() if value > 0}
    for focal in itertools.combinations(range(len(regions)), 3):
        if all(pair in meeting for pair in itertools.combinations(focal, 2)):
            weighed[focal] = overlap(focal)
    return weighed


if __name__ == "__main__":
    main()
