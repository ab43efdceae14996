"""Streams and several sources: exact merging, a drift test that keeps its level, sets that come and go."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budgeter
from randomset.budgeting.drift import drift_p_values, level_of_look, moments
from randomset.budgeting.gaussians import ClassGaussians
from randomset.errors import LabelError, RandomSetError, RandomSetWarning
from tests.strategies import seeds

CENTRES = np.array([[0.0, 0, 0, 0], [1, 0, 0, 0], [9, 0, 0, 0], [9, 9, 0, 0]])


def batch(seed, size=800, centres=CENTRES):
    draw = np.random.default_rng(seed)
    y = np.arange(size) % len(centres)
    return centres[y] + draw.normal(size=(size, 4)), y


class TestMerging:
    @given(seed=seeds, cut=st.integers(0, 40), again=st.integers(0, 40))
    def test_parts_merge_to_the_whole(self, seed, cut, again):
        draw = np.random.default_rng(seed)
        x, y = draw.normal(5, 3, (40, 3)), draw.integers(0, 4, 40)
        a, b = sorted((cut, again))
        parts = [
            ClassGaussians.from_points(x[s], y[s], 4) for s in (slice(0, a), slice(a, b), slice(b, None))
        ]
        whole, merged = ClassGaussians.from_points(x, y, 4), parts[0].merge(parts[1]).merge(parts[2])
        assert merged.count.tolist() == whole.count.tolist()
        np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-10)
        np.testing.assert_allclose(merged.scatter, whole.scatter, atol=1e-9)

    def test_sources_merge_as_if_all_data_had_come_to_one(self):
        first, second, third = batch(0), batch(1), batch(2)
        here = Budgeter(4).fit(*first)
        there, elsewhere = here.new_source(), here.new_source()
        there.partial_fit(*second)
        elsewhere.partial_fit(*third)
        here.merge(there, elsewhere)
        x, y = (np.concatenate(parts) for parts in zip(first, second, third, strict=True))
        direct = Budgeter(4, reducer=None).fit(here.transform(x), y)
        assert here.budget_ == direct.budget_
        np.testing.assert_allclose(here.overlaps_, direct.overlaps_, rtol=1e-6)
        assert here.samples_seen_ == 2400
        assert here.changes_[-1].reason == "merged sources"

    def test_other_projections_and_classes_are_refused(self):
        here = Budgeter(4).fit(*batch(0))
        with pytest.raises(RandomSetError, match=r"different projections.*new_source"):
            here.merge(Budgeter(4).fit(*batch(1)))
        with pytest.raises(RandomSetError, match="different classes"):
            here.merge(Budgeter(4, classes=list("abcd")).fit(*batch(0)))

    def test_a_new_source_has_no_sets_yet(self):
        empty = Budgeter(4).fit(*batch(0)).new_source()
        for ask in (empty.table, empty.to_frame):
            with pytest.raises(
                RandomSetError, match=r"no sets are chosen yet; got .* 0 samples.*partial_fit"
            ):
                ask()
        for choose in (empty.refresh, empty.merge):
            with pytest.raises(RandomSetError, match="nothing to choose sets from"):
                choose()
        assert "overlap" in empty.partial_fit(*batch(1)).refresh().table()

    def test_nothing_is_counted_twice(self):
        here = Budgeter(4).fit(*batch(0))
        there = here.new_source().partial_fit(*batch(1))
        for sources in ((here,), (there, there)):
            with pytest.raises(RandomSetError, match="counted twice"):
                here.merge(*sources)
        with pytest.raises(RandomSetError, match="only fitted Budgeters can be merged; got list"):
            here.merge([there])  # type: ignore[arg-type]
        assert here.samples_seen_ == 800

    def test_a_refused_merge_changes_nothing(self):
        here = Budgeter(4).fit(*batch(0))
        good = here.new_source().partial_fit(*batch(1))
        before = here.gaussians_.count.tolist()
        with pytest.raises(RandomSetError):
            here.merge(good, Budgeter(4).fit(*batch(2)))
        assert here.gaussians_.count.tolist() == before


def sums(points, labels=None):
    """The moments of points, in coordinates that are fixed."""
    d = points.shape[1]
    labels = np.zeros(len(points), int) if labels is None else labels
    return ClassGaussians.from_points(moments(points, np.zeros(d), np.ones(d)), labels, int(labels.max()) + 1)


class TestDrift:
    @pytest.mark.parametrize("kind", ["normal", "exponential", "uniform"])
    @pytest.mark.parametrize("dimensions", [1, 3, 8])
    def test_p_values_are_uniform_without_drift_whatever_the_cluster(self, dimensions, kind):
        draw = np.random.default_rng(0)
        labels = np.repeat(np.arange(200), 400)

        def points():
            size = (len(labels), dimensions)
            mixed = getattr(draw, kind)(size=size)
            return mixed + 0.5 * mixed[:, :1]

        p = drift_p_values(sums(points(), labels), sums(points(), labels))
        for share in (0.05, 0.25, 0.5):
            assert (p < share).mean() == pytest.approx(share, abs=0.09)

    @pytest.mark.parametrize("change", ["move", "grow", "turn"])
    def test_each_kind_of_drift_is_seen(self, change):
        draw = np.random.default_rng(0)
        before = draw.normal(size=(300, 2)) * [2, 1]
        after = draw.normal(size=(300, 2)) * [2, 1]
        after = {"move": after + 0.6, "grow": after * 1.4, "turn": after[:, ::-1]}[change]
        assert drift_p_values(sums(before), sums(after))[0] < 1e-4

    def test_few_points_are_not_tested(self):
        few = sums(np.random.default_rng(0).normal(size=(8 * 5 - 1, 2)))
        assert drift_p_values(few, few).tolist() == [1.0]

    def test_clusters_that_are_flat_can_be_tested(self):
        flat = sums(np.ones((50, 2)))
        assert drift_p_values(flat, flat).tolist() == [1.0]

    @pytest.mark.slow
    def test_the_level_is_kept_over_all_looks(self):
        """On a stream without drift, recomputations stay about as rare as the level says."""
        alarms = 0
        for seed in range(20):
            budgeter = Budgeter(4, reducer=None, drift_level=0.05).fit(*batch(1000 + seed))
            for step in range(10):
                budgeter.partial_fit(*batch(10_000 + 100 * seed + step, 480))
            alarms += bool(budgeter.changes_)
        assert alarms <= 3  # expected: at most 1 of 20
        assert level_of_look(0.05, 1, 1) > level_of_look(0.05, 2, 1)


class TestStream:
    def test_without_drift_the_overlaps_are_not_computed_again(self, monkeypatch):
        budgeter = Budgeter(2).partial_fit(*batch(0))
        calls = []
        monkeypatch.setattr(type(budgeter), "_overlaps", lambda *a: calls.append(a))
        for seed in range(1, 6):
            budgeter.partial_fit(*batch(seed))
        assert (calls, budgeter.changes_, budgeter.samples_seen_) == ([], [], 4800)

    def test_a_cluster_that_moves_brings_new_sets(self):
        budgeter = Budgeter(1, classes=list("abcd")).partial_fit(*batch(0))
        assert budgeter.budget_.set_names[4:] == ("{a, b}",)
        moved = CENTRES.copy()
        moved[1] = [8.5, 0, 0, 0]  # b leaves a for c
        for seed in range(1, 6):
            budgeter.partial_fit(*batch(seed, 800, moved))
        assert budgeter.budget_.set_names[4:] == ("{b, c}",)
        change = budgeter.changes_[0]
        assert (change.reason, change.samples) == ("drift", 1600)
        assert "b" in change.classes
        assert {frozenset(s) for s in change.came} | {frozenset(s) for s in change.went} >= {
            frozenset("ab"),
            frozenset("bc"),
        }

    def test_a_sudden_change_forgets_all_before_it(self):
        """Quiet batches between the choice and the change do not blur the new place."""
        budgeter = Budgeter(2, reducer=None).partial_fit(*batch(0))
        for seed in (1, 2, 3):
            budgeter.partial_fit(*batch(seed))
        moved = batch(4, 800, CENTRES + np.array([0, 0, 6, 0]))
        budgeter.partial_fit(*moved)
        np.testing.assert_allclose(budgeter.gaussians_.mean[0], moved[0][moved[1] == 0].mean(0))
        assert budgeter.gaussians_.count.tolist() == [200] * 4

    def test_slow_drift_in_small_batches_is_seen(self):
        """Too few points in each batch to test alone: together they tell."""
        budgeter = Budgeter(2, reducer=None).partial_fit(*batch(0))
        for step in range(40):
            budgeter.partial_fit(*batch(step + 1, 40, CENTRES + np.array([0, 0, 0.05 * step, 0])))
        assert any(change.reason == "drift" for change in budgeter.changes_)

    def test_without_forgetting_old_samples_weigh_on(self):
        moved = CENTRES + np.array([0, 0, 6, 0])
        means = []
        for forget in (True, False):
            budgeter = Budgeter(2, reducer=None, forget=forget).partial_fit(*batch(0))
            budgeter.partial_fit(*batch(1, 800, moved))
            means.append(budgeter.gaussians_.mean[:, 2])
        np.testing.assert_allclose(means[0], 6, atol=0.5)
        np.testing.assert_allclose(means[1], 3, atol=0.5)

    def test_a_class_that_arrives_late(self):
        x, y = batch(0)
        with pytest.warns(RandomSetWarning, match="class 3: no samples"):
            budgeter = Budgeter(3, classes=list("0123")).partial_fit(x[y < 3], y[y < 3])
        budgeter.partial_fit(x[y == 3], y[y == 3])  # one class alone is fine here
        assert budgeter.changes_[-1].reason == "more data"
        assert budgeter.changes_[-1].classes == ("3",)
        assert len(budgeter.ellipsoids_) == 4

    def test_a_class_with_few_points_is_looked_at_again(self):
        x, y = batch(0)
        late = y == 3
        with pytest.warns(RandomSetWarning):
            budgeter = Budgeter(3, reducer=None, classes=list("0123")).partial_fit(x[~late], y[~late])
        for end in (5, 10, 40, 200):
            budgeter.partial_fit(x[late][:end], y[late][:end])
        assert [change.reason for change in budgeter.changes_] == ["more data"] * 4
        assert budgeter.chosen_counts_[3] == 255

    @pytest.mark.parametrize("reducer", ["pca", "lda"])
    def test_a_projection_that_learned_too_much_raises_no_alarm(self, reducer):
        """100 features and 150 samples: the first points lie apart by chance, and are no reference."""
        draw = np.random.default_rng(0)
        centres = draw.normal(size=(5, 100))

        def wide(size):
            y = np.arange(size) % 5
            return centres[y] + draw.normal(size=(size, 100)), y

        budgeter = Budgeter(5, reducer=reducer).partial_fit(*wide(150))
        for _ in range(8):
            budgeter.partial_fit(*wide(500))
        assert "drift" not in [change.reason for change in budgeter.changes_]
        moved, y = wide(500)
        budgeter.partial_fit(moved + 3 * centres[0], y)
        assert budgeter.changes_[-1].reason == "drift"

    @pytest.mark.parametrize("reducer", ["PCA", pytest.param("autoencoder", marks=pytest.mark.slow), None])
    def test_projections_that_stay(self, reducer):
        budgeter = Budgeter(3, reducer=reducer).partial_fit(*batch(0)).partial_fit(*batch(1))
        assert budgeter.samples_seen_ == 1600

    def test_a_choice_may_be_asked_for(self):
        budgeter = Budgeter(3, reducer=None).partial_fit(*batch(0)).partial_fit(*batch(1))
        assert budgeter.report_.used == 800
        budgeter.refresh()
        assert budgeter.report_.used == 1600
        assert budgeter.changes_[-1].reason == "asked for"
        x, y = (np.concatenate(parts) for parts in zip(batch(0), batch(1), strict=True))
        np.testing.assert_allclose(
            budgeter.overlaps_, Budgeter(3, reducer=None).fit(x, y).overlaps_, rtol=1e-6
        )

    def test_the_latest_places_are_kept_for_pictures(self):
        budgeter = Budgeter(3).fit(*batch(0, 4000)).partial_fit(*batch(1, 2000))
        assert budgeter.embedding_.shape == (5000, 3)
        np.testing.assert_allclose(budgeter.embedding_[-1], budgeter.transform(batch(1, 2000)[0])[-1])

    def test_a_new_fit_ends_the_stream(self):
        budgeter = Budgeter(3, reducer=None).partial_fit(*batch(0)).partial_fit(*batch(1))
        budgeter.fit(*batch(2)).partial_fit(*batch(3))
        assert budgeter.samples_seen_ == 1600
        assert budgeter.moments_.count.sum() == 1600

    def test_what_cannot_follow_a_stream(self):
        with pytest.raises(RandomSetError, match="cannot place new data, as a stream needs; got tsne"):
            Budgeter(3, reducer="tsne").partial_fit(*batch(0))
        with pytest.raises(RandomSetError, match="one Gaussian for each class"):
            Budgeter(3, components=2).partial_fit(*batch(0))

    def test_a_bad_batch_changes_nothing(self):
        budgeter = Budgeter(3).partial_fit(*batch(0))
        before = budgeter.gaussians_.count.tolist()
        x, y = batch(1)
        with pytest.raises(LabelError, match="a label is out of range"):
            budgeter.partial_fit(x, y + 1)
        x[0, 0] = np.inf
        with pytest.raises(RandomSetError, match="finite"):
            budgeter.partial_fit(x, y)
        assert budgeter.gaussians_.count.tolist() == before
        assert budgeter.samples_seen_ == 800
