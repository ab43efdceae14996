"""The exact search against brute force, the volumes against closed forms, and what must not matter."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset.budgeting.ellipsoids import Ellipsoids, coverage_from_radius, radius_from_coverage
from randomset.budgeting.overlap import overlap_curve, top_overlaps
from randomset.budgeting.patterns import REPLICATES, Patterns, patterns_from_ellipsoids, unit_ball
from randomset.budgeting.search import best_sets
from tests.oracles import overlap_by_counting
from tests.strategies import random_ellipsoids, seeds


def balls(centres, radii, radius=1.0):
    centres = np.asarray(centres, float)
    d = centres.shape[1]
    spread = np.stack([np.eye(d) * r**2 for r in radii])
    return Ellipsoids.from_moments(centres, spread, range(len(centres)), radius)


def points_of(ellipsoids, ball):
    """All points, ellipsoid by ellipsoid, and the weight of each, from the definition."""
    places = [
        c + ellipsoids.radius * ball @ a.T for c, a in zip(ellipsoids.centres, ellipsoids.axes, strict=True)
    ]
    inside = ellipsoids.contain(np.concatenate(places))
    for i in range(len(ellipsoids)):  # a point on the rim belongs to the ellipsoid that drew it
        inside[i * len(ball) : (i + 1) * len(ball), i] = True
    volumes = [abs(np.linalg.det(a)) for a in ellipsoids.axes]
    return inside, 1 / (inside / np.array(volumes)).sum(1) / len(ball)


class TestSearch:
    @pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
    @given(seed=seeds, n=st.integers(2, 10), crowd=st.floats(0.5, 6))
    def test_agrees_with_brute_force_over_all_subsets(self, dimensions, seed, n, crowd):
        ellipsoids = random_ellipsoids(n, dimensions, seed, crowd)
        ball = unit_ball(dimensions, 16, seed)
        inside, weight = points_of(ellipsoids, ball)
        every = overlap_by_counting(inside, weight)
        count = seed % 40 + 1
        found = best_sets(patterns_from_ellipsoids(ellipsoids, n, ball), count)
        ranked = sorted((v for v in every.values() if v > 0), reverse=True)
        assert len(found) == min(count, len(ranked))
        np.testing.assert_allclose(found.overlaps, ranked[: len(found)], rtol=2e-9)
        for focal, overlap in zip(found.sets, found.overlaps, strict=True):
            assert every[focal] == pytest.approx(overlap, rel=2e-9)

    @given(seed=seeds, n=st.integers(3, 9), crowd=st.floats(1, 8))
    def test_is_downward_closed_and_sorted(self, seed, n, crowd):
        patterns = patterns_from_ellipsoids(random_ellipsoids(n, 2, seed, crowd), n, unit_ball(2, 8, seed))
        found = best_sets(patterns, 25)
        assert all(a >= b * (1 - 1e-10) for a, b in itertools.pairwise(found.overlaps))
        seen = set()
        for focal in found.sets:  # every part of a set comes before it
            assert all(
                part in seen for part in itertools.combinations(focal, len(focal) - 1) if len(part) > 1
            )
            seen.add(focal)

    def test_ties_go_to_smaller_sets_then_to_class_order(self):
        same = balls([[0.0, 0.0]] * 4, [1.0] * 4)
        found = best_sets(patterns_from_ellipsoids(same, 4, unit_ball(2, 16, 0)), 11)
        assert found.overlaps.tolist() == [1.0] * 11
        sizes = [list(itertools.combinations(range(4), size)) for size in (2, 3, 4)]
        assert found.sets == list(itertools.chain.from_iterable(sizes))

    def test_hand_worked_patterns(self):
        # 6 units in {0}, 2 in {0, 1}, 1 in {0, 1, 2}, 3 in {2}
        patterns = Patterns(
            np.array([0, 1, 3, 6, 7]), np.array([0, 0, 1, 0, 1, 2, 2]), np.array([[6.0], [2], [1], [3]]), 3
        )
        found = best_sets(patterns, 9)
        assert dict(zip(found.sets, found.overlaps, strict=True)) == pytest.approx(
            {(0, 1): 3 / 9, (1, 2): 1 / 6, (0, 2): 1 / 12, (0, 1, 2): 1 / 12}
        )

    def test_no_sets_asked_for(self):
        near = balls([[0.0], [1.0]], [1.0, 1.0])
        assert len(best_sets(patterns_from_ellipsoids(near, 2, unit_ball(1, 8, 0)), 0)) == 0

    def test_a_huge_class_far_away_does_not_blur_small_ones(self):
        """Volumes of 30^10 to 1 in ten dimensions: the small ones' overlaps stay what they were."""
        draw = np.random.default_rng(0)
        centres = np.concatenate([0.3 * draw.normal(size=(3, 10)), np.full((1, 10), 1e4)])
        alone = balls(centres[:3], [1, 1, 1])
        beside = balls(centres, [1, 1, 1, 30])
        found, again = (top_overlaps(e, len(e), 4, grow=False, max_points=2**16) for e in (alone, beside))
        assert found.sets == again.sets
        np.testing.assert_allclose(found.overlaps, again.overlaps, rtol=0.1)
        tiny = balls(centres, [1, 1, 1, 1e-40])
        assert np.isfinite(top_overlaps(tiny, 4, 4, grow=False).overlaps).all()

    def test_nothing_overlaps(self):
        far = balls([[0.0], [10.0]], [1.0, 1.0])
        assert len(best_sets(patterns_from_ellipsoids(far, 2, unit_ball(1, 8, 0)), 5)) == 0

    def test_dense_and_sparse_pair_tables_agree(self):
        crowd = random_ellipsoids(30, 2, 0, crowd=20)
        patterns = patterns_from_ellipsoids(crowd, 30, unit_ball(2, 16, 0))
        assert len(patterns.classes) > 0.05 * len(patterns) * 30
        spread = Patterns(patterns.starts, patterns.classes, patterns.weights, 30 * 60)  # the same, thinner
        np.testing.assert_allclose(
            patterns.pair_intersections(), spread.pair_intersections()[:30, :30], rtol=1e-12
        )


class TestVolumes:
    @pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 7])
    def test_the_ball_is_filled_evenly(self, dimensions):
        ball = unit_ball(dimensions, 512, 3)
        length = np.linalg.norm(ball, axis=1)
        assert ball.shape == (512 * REPLICATES, dimensions)
        assert length.max() <= 1
        for share in (0.1, 0.5, 0.9):
            assert (length**dimensions < share).mean() == pytest.approx(share, abs=0.01)
        np.testing.assert_allclose(ball.mean(0), 0, atol=0.01)
        np.testing.assert_allclose(np.cov(ball.T), np.eye(dimensions) / (dimensions + 2), atol=0.01)

    @pytest.mark.parametrize(("r", "s", "distance"), [(1, 1, 1.0), (2, 1, 2.2), (1, 0.3, 1.1), (1, 0.4, 0.2)])
    def test_sphere_pairs_have_the_lens_volume(self, r, s, distance):
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

    @pytest.mark.slow
    @given(seed=seeds)
    def test_overlaps_agree_with_points_in_a_box(self, seed):
        """An independent estimate: uniform points in the box around all ellipsoids."""
        ellipsoids = random_ellipsoids(5, 2, seed, crowd=4)
        found = best_sets(patterns_from_ellipsoids(ellipsoids, 5, unit_ball(2, 512, seed)), 26)
        low = (ellipsoids.centres - ellipsoids.half_widths).min(0)
        high = (ellipsoids.centres + ellipsoids.half_widths).max(0)
        box = np.random.default_rng(seed).uniform(low, high, (40_000, 2))
        truth = overlap_by_counting(ellipsoids.contain(box), np.ones(len(box)))
        for focal, overlap, error in zip(found.sets, found.overlaps, found.errors, strict=True):
            assert overlap == pytest.approx(truth.pop(focal), abs=0.02 + 5 * error)
        assert max(truth.values(), default=0) < 0.02  # what was not found hardly overlaps

    def test_the_stated_error_is_the_error(self):
        """Over many seeds, the spread of an overlap is what each run says of its own error."""
        pair = balls([[0, 0, 0], [0.8, 0, 0]], [1, 1])
        runs = [best_sets(patterns_from_ellipsoids(pair, 2, unit_ball(3, 64, s)), 1) for s in range(60)]
        spread = np.std([run.overlaps[0] for run in runs])
        assert 0.6 < spread / np.mean([run.errors[0] for run in runs]) < 1.6

    def test_a_mixture_is_the_union_of_its_ellipsoids(self):
        # class 0 is two intervals, [-1, 1] and [3, 5]; class 1 is [0, 4]
        parts = Ellipsoids.from_moments(
            np.array([[0.0], [4.0], [2.0]]), np.array([[[1.0]], [[1.0]], [[4.0]]]), [0, 0, 1], 1.0
        )
        found = top_overlaps(parts, 2, 1, grow=False)
        assert found.overlaps[0] == pytest.approx(2 / 6, abs=2e-3)


class TestGrowth:
    def test_sets_that_met_earlier_rank_first(self):
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

    def test_growth_can_be_off(self):
        far = balls([[0.0, 0], [1, 0], [9, 0]], [1] * 3)
        found = top_overlaps(far, 3, 3, grow=False)
        assert (found.sets, found.radius) == ([(0, 1)], 1.0)

    def test_every_set_is_found_in_the_end(self):
        assert len(top_overlaps(balls([[0.0], [3.0], [50.0], [51.0]], [1] * 4), 4, 2**4 - 5)) == 11

    def test_a_curve_belongs_to_one_radius(self):
        curve = overlap_curve(balls([[0.0, 0], [1, 0], [9, 0]], [1] * 3), 3, at_least=3, at_most=4)
        assert len(curve) >= 3
        assert len(set(curve.radii.tolist())) == 1
        assert curve.radius > 1

    def test_coverage_and_radius_are_inverse(self):
        assert radius_from_coverage(0.95, 3) ** 2 == pytest.approx(7.815, abs=1e-3)  # the paper's constant
        assert coverage_from_radius(radius_from_coverage(0.9, 5), 5) == pytest.approx(0.9)


class TestPoints:
    def test_points_grow_until_the_boundary_is_decided(self):
        # {0, 1} overlaps a little more than {2, 3}: few points cannot tell
        near = balls([[0, 0, 0], [0.8, 0, 0], [9, 0, 0], [9.802, 0, 0]], [1] * 4)
        found = top_overlaps(near, 4, 1, grow=False)
        assert found.sets == [(0, 1)]
        assert found.points > 1024 * REPLICATES
        easy = balls([[0, 0, 0], [0.3, 0, 0], [9, 0, 0], [10.2, 0, 0]], [1] * 4)
        found = top_overlaps(easy, 4, 1, grow=False)
        assert (found.points, found.undecided) == (1024 * REPLICATES, 0)

    def test_a_crowd_gets_fewer_points_and_a_higher_cap_more(self):
        crowd = random_ellipsoids(40, 2, 0, crowd=60)
        spread = random_ellipsoids(40, 2, 0, crowd=1)
        few, many = (top_overlaps(e, 40, 30, max_points=2**14).points for e in (crowd, spread))
        assert few < many
        assert top_overlaps(crowd, 40, 30, max_points=2**16).points > few

    def test_undecided_sets_belong_to_the_cut(self):
        curve = overlap_curve(balls([[0.0, 0], [1, 0], [1.9, 0]], [1] * 3), 3, at_least=3, at_most=4)
        assert curve.cut(1).undecided == 0
        assert curve.cut(1).sets == curve.sets[:1]

    def test_a_cap_is_kept_and_what_stays_open_is_counted(self):
        near = balls([[0, 0, 0], [0.8, 0, 0], [9, 0, 0], [9.8001, 0, 0]], [1] * 4)
        found = top_overlaps(near, 4, 1, grow=False, max_points=4096)
        assert found.points * 4 <= 4096
        assert found.undecided >= 1

    def test_exact_ties_do_not_ask_for_points_without_end(self):
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
