"""Overlaps against closed forms, growth of the ellipsoids, number of points, and invariances."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given

from randomset.budgeting.gaussians import Ellipsoids
from randomset.budgeting.overlap import overlap_curve, top_overlaps
from randomset.budgeting.search import REPLICATES
from tests.budgeting.conftest import balls
from tests.strategies import random_ellipsoids, seeds


class TestVolumes:
    @pytest.mark.parametrize(("r", "s", "distance"), [(1, 1, 1.0), (2, 1, 2.2), (1, 0.3, 1.1), (1, 0.4, 0.2)])
    def test_pair_of_spheres_has_the_lens_volume(self, r, s, distance):
        if distance <= r - s:
            lens = 4 / 3 * math.pi * s**3
        else:
            lens = (
                math.pi
                * (r + s - distance) ** 2
                * (distance**2 + 2 * distance * (r + s) - 3 * (r - s) ** 2)
                / (12 * distance)
            )
        union = 4 / 3 * math.pi * (r**3 + s**3) - lens
        found = top_overlaps(balls([[0, 0, 0], [distance, 0, 0]], [r, s]), 2, 1, grow=False)
        assert found.overlaps[0] == pytest.approx(lens / union, rel=0.01)
        assert abs(found.overlaps[0] - lens / union) < 5 * found.errors[0] + 1e-9

    def test_intervals_are_exact_in_one_dimension(self):
        found = top_overlaps(balls([[0.0], [1.0], [2.5]], [1.0, 1.0, 1.0]), 3, 2, grow=False)
        assert found.sets == [(0, 1), (1, 2)]
        np.testing.assert_allclose(found.overlaps, [1 / 3, 0.5 / 3.5], atol=2e-3)

    def test_mixture_is_the_union_of_its_ellipsoids(self):
        # class 0 is two intervals, [-1, 1] and [3, 5]; class 1 is [0, 4]
        parts = Ellipsoids.from_moments(
            np.array([[0.0], [4.0], [2.0]]), np.array([[[1.0]], [[1.0]], [[4.0]]]), [0, 0, 1], 1.0
        )
        found = top_overlaps(parts, 2, 1, grow=False)
        assert found.overlaps[0] == pytest.approx(2 / 6, abs=2e-3)

    def test_distant_huge_class_does_not_affect_small_ones(self):
        """A volume ratio of 30^10 in ten dimensions leaves the overlaps of small classes unchanged."""
        draw = np.random.default_rng(0)
        centres = np.concatenate([0.3 * draw.normal(size=(3, 10)), np.full((1, 10), 1e4)])
        alone = balls(centres[:3], [1, 1, 1])
        beside = balls(centres, [1, 1, 1, 30])
        found, again = (top_overlaps(e, len(e), 4, grow=False, max_points=2**16) for e in (alone, beside))
        assert found.sets == again.sets
        np.testing.assert_allclose(found.overlaps, again.overlaps, rtol=0.1)
        tiny = balls(centres, [1, 1, 1, 1e-40])
        assert np.isfinite(top_overlaps(tiny, 4, 4, grow=False).overlaps).all()


class TestGrowth:
    def test_sets_found_at_a_smaller_radius_rank_first(self):
        found = top_overlaps(balls([[0.0, 0], [1, 0], [9, 0], [12, 0]], [1] * 4), 4, 4)
        assert found.sets[:2] == [(0, 1), (2, 3)]
        assert (np.diff(found.radii) >= 0).all()
        assert found.radii[0] == 1.0 < found.radii[1] < found.radii[2]

    def test_grown_families_are_downward_closed(self):
        ellipsoids = random_ellipsoids(8, 3, 5, crowd=0.5)
        found = top_overlaps(ellipsoids, 8, 60)
        assert len(found) == 60
        assert found.radii[-1] > found.radii[0]
        seen = set()
        for focal in found.sets:
            assert all(
                part in seen for part in itertools.combinations(focal, len(focal) - 1) if len(part) > 1
            )
            seen.add(focal)

    def test_growth_can_be_disabled(self):
        far = balls([[0.0, 0], [1, 0], [9, 0]], [1] * 3)
        found = top_overlaps(far, 3, 3, grow=False)
        assert (found.sets, found.radius) == ([(0, 1)], 1.0)

    def test_every_set_is_found_eventually(self):
        assert len(top_overlaps(balls([[0.0], [3.0], [50.0], [51.0]], [1] * 4), 4, 2**4 - 5)) == 11

    def test_curve_uses_a_single_radius(self):
        curve = overlap_curve(balls([[0.0, 0], [1, 0], [9, 0]], [1] * 3), 3, at_least=3, at_most=4)
        assert len(curve) >= 3
        assert len(set(curve.radii.tolist())) == 1
        assert curve.radius > 1


class TestPoints:
    def test_points_increase_until_the_choice_is_certain(self):
        # {0, 1} overlaps slightly more than {2, 3}: a few points are not enough
        near = balls([[0, 0, 0], [0.8, 0, 0], [9, 0, 0], [9.802, 0, 0]], [1] * 4)
        found = top_overlaps(near, 4, 1, grow=False)
        assert found.sets == [(0, 1)]
        assert found.points > 1024 * REPLICATES
        easy = balls([[0, 0, 0], [0.3, 0, 0], [9, 0, 0], [10.2, 0, 0]], [1] * 4)
        found = top_overlaps(easy, 4, 1, grow=False)
        assert (found.points, found.undecided) == (1024 * REPLICATES, 0)

    def test_crowded_ellipsoids_get_fewer_points(self):
        crowd = random_ellipsoids(40, 2, 0, crowd=60)
        spread = random_ellipsoids(40, 2, 0, crowd=1)
        few, many = (top_overlaps(e, 40, 30, max_points=2**14).points for e in (crowd, spread))
        assert few < many
        assert top_overlaps(crowd, 40, 30, max_points=2**16).points > few

    def test_undecided_sets_are_counted_at_the_cut(self):
        curve = overlap_curve(balls([[0.0, 0], [1, 0], [1.9, 0]], [1] * 3), 3, at_least=3, at_most=4)
        assert curve.cut(1).undecided == 0
        assert curve.cut(1).sets == curve.sets[:1]

    def test_max_points_is_respected_and_undecided_sets_are_counted(self):
        near = balls([[0, 0, 0], [0.8, 0, 0], [9, 0, 0], [9.8001, 0, 0]], [1] * 4)
        found = top_overlaps(near, 4, 1, grow=False, max_points=4096)
        assert found.points * 4 <= 4096
        assert found.undecided >= 1

    def test_exact_ties_do_not_increase_the_points(self):
        same = balls([[0.0, 0.0]] * 3, [1.0] * 3)
        found = top_overlaps(same, 3, 1)
        assert found.sets == [(0, 1)]
        assert found.points == 1024 * REPLICATES


class TestInvariance:
    @given(seed=seeds)
    def test_relabelling_changes_nothing_but_names(self, seed):
        ellipsoids = random_ellipsoids(7, 3, seed, crowd=2)
        order = np.random.default_rng(seed).permutation(7)
        other = Ellipsoids(ellipsoids.centres[order], ellipsoids.axes[order], np.arange(7), ellipsoids.radius)
        found, again = (top_overlaps(e, 7, 12, max_points=2**14) for e in (ellipsoids, other))
        np.testing.assert_allclose(found.overlaps, again.overlaps, rtol=1e-9)
        renamed = [tuple(sorted(order[c] for c in focal)) for focal in again.sets]
        assert set(renamed) == set(found.sets)

    @pytest.mark.slow
    @given(seed=seeds)
    def test_rotating_moving_and_scaling_change_nothing(self, seed):
        draw = np.random.default_rng(seed)
        means, covariances = (
            draw.normal(0, 2, (6, 3)),
            np.stack([np.cov(draw.normal(size=(3, 9))) for _ in range(6)]),
        )
        turn = 3 * np.linalg.qr(draw.normal(size=(3, 3)))[0]
        one = Ellipsoids.from_moments(means, covariances, range(6), 1.5)
        two = Ellipsoids.from_moments(means @ turn.T + 7, turn @ covariances @ turn.T, range(6), 1.5)
        found, again = (top_overlaps(e, 6, 10, max_points=2**14) for e in (one, two))
        assert found.sets == again.sets
        np.testing.assert_allclose(found.overlaps, again.overlaps, rtol=1e-3)

    def test_the_same_seed_gives_the_same_numbers(self):
        ellipsoids = random_ellipsoids(7, 3, 1)
        one, two, other = (top_overlaps(ellipsoids, 7, 9, seed=s) for s in (0, 0, 1))
        assert one.overlaps.tolist() == two.overlaps.tolist() != other.overlaps.tolist()
