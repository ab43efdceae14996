"""Overlaps against closed forms, growth of the ellipsoids, number of points, and invariances."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budget, Budgeter
from randomset.budgeting import knee
from randomset.budgeting.gaussians import Ellipsoids
from randomset.budgeting.overlap import overlap_curve, top_overlaps
from randomset.budgeting.search import REPLICATES
from randomset.errors import BudgetError, RandomSetError, RandomSetWarning
from tests.budgeting.conftest import balls, clusters
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


def test_more_sets_than_exist():
    x, y = clusters(4)
    with pytest.raises(BudgetError, match=r"exceeds the number of sets that exist; got 12 .* = 11"):
        Budgeter(12).fit(x, y)


def test_constant_features():
    with pytest.raises(RandomSetError, match="constant: all samples are identical"):
        Budgeter(1).fit(np.ones((20, 3)), np.arange(20) % 2)


def test_cliff():
    assert knee([0.5, 0.48, 0.46, 0.05, 0.04, 0.03, 0.02]) == 4


@given(half=st.integers(3, 20))
def test_exponential_decay(half):
    assert knee(0.5 ** (np.arange(20 * half) / half)) == pytest.approx(2.2 * half, abs=2)


@given(scale=st.floats(1e-6, 1), tail=st.integers(0, 50))
def test_scale_and_negligible_sets_do_not_matter(scale, tail):
    curve = 0.7 ** np.arange(12)
    assert knee(scale * np.r_[curve, np.full(tail, 1e-4)]) == knee(curve)


def test_short_and_straight_curves_are_kept_entirely():
    assert [knee([]), knee([0.2]), knee([0.2, 0.1]), knee([0.2, 0.2, 0.2]), knee([4, 3, 2, 1])] == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_growth_is_recorded_in_report_and_budget():
    x, y = clusters(4, apart=30)
    budgeter = Budgeter(6).fit(x, y)
    assert budgeter.budget_.num_sets == 6
    assert budgeter.coverages_.min() > 0.95
    assert sum(budgeter.report_.growth.values()) == 6
    assert "grown beyond 95 %" in str(budgeter.report_)
    again = Budget.from_json(budgeter.budget_.to_json())
    assert again.origin["coverages"] == budgeter.coverages_.tolist()
    assert again.origin["coverage"] == 0.95


def test_absent_classes_are_singletons_with_a_warning():
    x, y = clusters(3)
    with pytest.warns(RandomSetWarning, match="class ghost: no samples"):
        budgeter = Budgeter(3, classes=["a", "b", "c", "ghost"]).fit(x, y)
    assert all("ghost" not in focal for focal in budgeter.budget_ if len(focal) > 1)
    assert ("ghost",) in set(budgeter.budget_)


def test_sets_are_limited_to_classes_with_samples():
    x, y = clusters(2)
    with pytest.warns(RandomSetWarning) as told:
        assert Budgeter(3, classes=list("abc")).fit(x, y).budget_.num_sets == 1
    assert "only 1 of 3 sets of classes with samples exist" in [str(note.message) for note in told]


def test_many_dimensions_give_a_warning():
    x, y = clusters(3, features=12)
    with pytest.warns(RandomSetWarning, match="in 12 dimensions .* overlaps vanish"):
        Budgeter(2, reducer=None).fit(x, y)


def test_clean_fit_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Budgeter(5).fit(*clusters())


def test_tables_as_text_and_data_frame():
    budgeter = Budgeter(4, classes=list("abcde")).fit(*clusters())
    frame = budgeter.to_frame()
    assert frame["overlap"].tolist() == budgeter.ranking_.overlaps.tolist()
    assert frame["set"][0].startswith("{")
    lines = budgeter.table(2).splitlines()
    assert len(lines) == 4
    assert frame["set"][0] in lines[1]
    assert lines[-1] == "and 2 more"


def test_sample_sizes_are_reported():
    draw = np.random.default_rng(0)
    y = np.arange(4000) % 40
    budgeter = Budgeter(3, reducer="lda", max_samples=1000).fit(draw.normal(size=(4000, 8)) + y[:, None], y)
    assert (budgeter.report_.samples, budgeter.report_.used) == (4000, 1000)
    assert np.bincount(budgeter.labels_).min() >= 20
