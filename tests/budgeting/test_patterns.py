"""Quasi-random points and the volumes estimated from them."""

import numpy as np
import pytest
from hypothesis import given

from randomset.budgeting.patterns import REPLICATES, Patterns, patterns_from_ellipsoids, unit_ball
from randomset.budgeting.search import best_sets
from tests.oracles import overlap_by_counting
from tests.strategies import random_ellipsoids, seeds


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 7])
def test_unit_ball_is_filled_uniformly(dimensions):
    ball = unit_ball(dimensions, 512, 3)
    length = np.linalg.norm(ball, axis=1)
    assert ball.shape == (512 * REPLICATES, dimensions)
    assert length.max() <= 1
    for share in (0.1, 0.5, 0.9):
        assert (length**dimensions < share).mean() == pytest.approx(share, abs=0.01)
    np.testing.assert_allclose(ball.mean(0), 0, atol=0.01)
    np.testing.assert_allclose(np.cov(ball.T), np.eye(dimensions) / (dimensions + 2), atol=0.01)


def test_dense_and_sparse_pair_intersections_agree():
    crowd = random_ellipsoids(30, 2, 0, crowd=20)
    patterns = patterns_from_ellipsoids(crowd, 30, unit_ball(2, 16, 0))
    assert len(patterns.classes) > 0.05 * len(patterns) * 30
    spread = Patterns(patterns.starts, patterns.classes, patterns.weights, 30 * 60)  # the same, but sparser
    np.testing.assert_allclose(
        patterns.pair_intersections(), spread.pair_intersections()[:30, :30], rtol=1e-12
    )


@pytest.mark.slow
@given(seed=seeds)
def test_overlaps_agree_with_uniform_points_in_a_box(seed):
    """Compare with an independent estimate from uniform points in a bounding box."""
    ellipsoids = random_ellipsoids(5, 2, seed, crowd=4)
    found = best_sets(patterns_from_ellipsoids(ellipsoids, 5, unit_ball(2, 512, seed)), 26)
    low = (ellipsoids.centres - ellipsoids.half_widths).min(0)
    high = (ellipsoids.centres + ellipsoids.half_widths).max(0)
    box = np.random.default_rng(seed).uniform(low, high, (40_000, 2))
    truth = overlap_by_counting(ellipsoids.contain(box), np.ones(len(box)))
    for focal, overlap, error in zip(found.sets, found.overlaps, found.errors, strict=True):
        assert overlap == pytest.approx(truth.pop(focal), abs=0.02 + 5 * error)
    assert max(truth.values(), default=0) < 0.02  # the remaining sets hardly overlap
