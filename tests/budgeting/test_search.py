"""The exact search against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset.budgeting.search import REPLICATES, Patterns, best_sets, patterns_from_ellipsoids, unit_ball
from tests.budgeting.conftest import balls
from tests.oracles import overlap_by_counting
from tests.strategies import random_ellipsoids, seeds


def points_and_weights(ellipsoids, ball):
    """Return the points of all ellipsoids and their weights, from the definition."""
    places = [
        c + ellipsoids.radius * ball @ a.T for c, a in zip(ellipsoids.centres, ellipsoids.axes, strict=True)
    ]
    inside = ellipsoids.contain(np.concatenate(places))
    for i in range(len(ellipsoids)):  # a boundary point belongs to the ellipsoid that it was drawn from
        inside[i * len(ball) : (i + 1) * len(ball), i] = True
    volumes = [abs(np.linalg.det(a)) for a in ellipsoids.axes]
    return inside, 1 / (inside / np.array(volumes)).sum(1) / len(ball)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
@given(seed=seeds, n=st.integers(2, 10), crowd=st.floats(0.5, 6))
def test_agrees_with_brute_force_over_all_subsets(dimensions, seed, n, crowd):
    ellipsoids = random_ellipsoids(n, dimensions, seed, crowd)
    ball = unit_ball(dimensions, 16, seed)
    inside, weight = points_and_weights(ellipsoids, ball)
    every = overlap_by_counting(inside, weight)
    count = seed % 40 + 1
    found = best_sets(patterns_from_ellipsoids(ellipsoids, n, ball), count)
    ranked = sorted((v for v in every.values() if v > 0), reverse=True)
    assert len(found) == min(count, len(ranked))
    np.testing.assert_allclose(found.overlaps, ranked[: len(found)], rtol=2e-9)
    for focal, overlap in zip(found.sets, found.overlaps, strict=True):
        assert every[focal] == pytest.approx(overlap, rel=2e-9)


@given(seed=seeds, n=st.integers(3, 9), crowd=st.floats(1, 8))
def test_result_is_downward_closed_and_sorted(seed, n, crowd):
    patterns = patterns_from_ellipsoids(random_ellipsoids(n, 2, seed, crowd), n, unit_ball(2, 8, seed))
    found = best_sets(patterns, 25)
    assert all(a >= b * (1 - 1e-10) for a, b in itertools.pairwise(found.overlaps))
    seen = set()
    for focal in found.sets:  # every subset comes first
        assert all(part in seen for part in itertools.combinations(focal, len(focal) - 1) if len(part) > 1)
        seen.add(focal)


def test_ties_are_broken_by_size_then_class_order():
    same = balls([[0.0, 0.0]] * 4, [1.0] * 4)
    found = best_sets(patterns_from_ellipsoids(same, 4, unit_ball(2, 16, 0)), 11)
    assert found.overlaps.tolist() == [1.0] * 11
    sizes = [list(itertools.combinations(range(4), size)) for size in (2, 3, 4)]
    assert found.sets == list(itertools.chain.from_iterable(sizes))


def test_hand_worked_patterns():
    # 6 units in {0}, 2 in {0, 1}, 1 in {0, 1, 2}, 3 in {2}
    patterns = Patterns(
        np.array([0, 1, 3, 6, 7]), np.array([0, 0, 1, 0, 1, 2, 2]), np.array([[6.0], [2], [1], [3]]), 3
    )
    found = best_sets(patterns, 9)
    assert dict(zip(found.sets, found.overlaps, strict=True)) == pytest.approx(
        {(0, 1): 3 / 9, (1, 2): 1 / 6, (0, 2): 1 / 12, (0, 1, 2): 1 / 12}
    )


def test_zero_sets_requested():
    near = balls([[0.0], [1.0]], [1.0, 1.0])
    assert len(best_sets(patterns_from_ellipsoids(near, 2, unit_ball(1, 8, 0)), 0)) == 0


def test_disjoint_regions_give_no_sets():
    far = balls([[0.0], [10.0]], [1.0, 1.0])
    assert len(best_sets(patterns_from_ellipsoids(far, 2, unit_ball(1, 8, 0)), 5)) == 0


@pytest.mark.slow
def test_reported_errors_match_the_spread_over_seeds():
    """Over many seeds, the standard deviation of an overlap matches the reported errors."""
    pair = balls([[0, 0, 0], [0.8, 0, 0]], [1, 1])
    runs = [best_sets(patterns_from_ellipsoids(pair, 2, unit_ball(3, 64, s)), 1) for s in range(60)]
    spread = np.std([run.overlaps[0] for run in runs])
    assert 0.6 < spread / np.mean([run.errors[0] for run in runs]) < 1.6


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
