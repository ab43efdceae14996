"""Streams and several sources: merging, drift, and recomputed sets."""

import numpy as np
import pytest

from randomset import Budgeter
from randomset.budgeting.gaussians import ClassGaussians
from randomset.budgeting.stream import drift_p_values, level_of_look, moments
from randomset.errors import LabelError, RandomSetError, RandomSetWarning
from tests.budgeting.conftest import CENTRES, batch


class TestMerging:
    def test_merged_sources_equal_one_source_with_all_data(self):
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

    def test_different_projections_and_classes_are_rejected(self):
        here = Budgeter(4).fit(*batch(0))
        with pytest.raises(RandomSetError, match=r"different projections.*new_source"):
            here.merge(Budgeter(4).fit(*batch(1)))
        with pytest.raises(RandomSetError, match="different classes"):
            here.merge(Budgeter(4, classes=list("abcd")).fit(*batch(0)))

    def test_new_source_has_no_sets(self):
        empty = Budgeter(4).fit(*batch(0)).new_source()
        for ask in (empty.table, empty.to_frame):
            with pytest.raises(
                RandomSetError, match=r"no sets have been chosen; got .* 0 samples.*partial_fit"
            ):
                ask()
        for choose in (empty.refresh, empty.merge):
            with pytest.raises(RandomSetError, match="no samples to choose sets from"):
                choose()
        assert "overlap" in empty.partial_fit(*batch(1)).refresh().table()

    def test_no_source_is_counted_twice(self):
        here = Budgeter(4).fit(*batch(0))
        there = here.new_source().partial_fit(*batch(1))
        for sources in ((here,), (there, there)):
            with pytest.raises(RandomSetError, match="counted twice"):
                here.merge(*sources)
        with pytest.raises(RandomSetError, match="only fitted Budgeters can be merged; got list"):
            here.merge([there])  # type: ignore[arg-type]
        assert here.samples_seen_ == 800

    def test_failed_merge_changes_nothing(self):
        here = Budgeter(4).fit(*batch(0))
        good = here.new_source().partial_fit(*batch(1))
        before = here.gaussians_.count.tolist()
        with pytest.raises(RandomSetError):
            here.merge(good, Budgeter(4).fit(*batch(2)))
        assert here.gaussians_.count.tolist() == before


class TestStream:
    def test_overlaps_are_not_recomputed_without_drift(self, monkeypatch):
        budgeter = Budgeter(2).partial_fit(*batch(0))
        calls = []
        monkeypatch.setattr(type(budgeter), "_overlaps", lambda *a: calls.append(a))
        for seed in range(1, 6):
            budgeter.partial_fit(*batch(seed))
        assert (calls, budgeter.changes_, budgeter.samples_seen_) == ([], [], 4800)

    def test_moving_cluster_changes_the_sets(self):
        budgeter = Budgeter(1, classes=list("abcd")).partial_fit(*batch(0))
        assert budgeter.budget_.set_names[4:] == ("{a, b}",)
        moved = CENTRES.copy()
        moved[1] = [8.5, 0, 0, 0]  # b moves from a to c
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

    def test_sudden_drift_discards_earlier_samples(self):
        """Batches between the last choice and the drift do not affect the new mean."""
        budgeter = Budgeter(2, reducer=None).partial_fit(*batch(0))
        for seed in (1, 2, 3):
            budgeter.partial_fit(*batch(seed))
        moved = batch(4, 800, CENTRES + np.array([0, 0, 6, 0]))
        budgeter.partial_fit(*moved)
        np.testing.assert_allclose(budgeter.gaussians_.mean[0], moved[0][moved[1] == 0].mean(0))
        assert budgeter.gaussians_.count.tolist() == [200] * 4

    @pytest.mark.slow
    def test_slow_drift_in_small_batches_is_detected(self):
        """Each batch is too small for the test; together they are enough."""
        budgeter = Budgeter(2, reducer=None).partial_fit(*batch(0))
        for step in range(40):
            budgeter.partial_fit(*batch(step + 1, 40, CENTRES + np.array([0, 0, 0.05 * step, 0])))
        assert any(change.reason == "drift" for change in budgeter.changes_)

    def test_old_samples_count_without_forgetting(self):
        moved = CENTRES + np.array([0, 0, 6, 0])
        means = []
        for forget in (True, False):
            budgeter = Budgeter(2, reducer=None, forget=forget).partial_fit(*batch(0))
            budgeter.partial_fit(*batch(1, 800, moved))
            means.append(budgeter.gaussians_.mean[:, 2])
        np.testing.assert_allclose(means[0], 6, atol=0.5)
        np.testing.assert_allclose(means[1], 3, atol=0.5)

    def test_class_that_arrives_late(self):
        x, y = batch(0)
        with pytest.warns(RandomSetWarning, match="class 3: no samples"):
            budgeter = Budgeter(3, classes=list("0123")).partial_fit(x[y < 3], y[y < 3])
        budgeter.partial_fit(x[y == 3], y[y == 3])  # a single class is allowed here
        assert budgeter.changes_[-1].reason == "more data"
        assert budgeter.changes_[-1].classes == ("3",)
        assert len(budgeter.ellipsoids_) == 4

    @pytest.mark.slow
    def test_sets_are_recomputed_while_a_class_has_few_points(self):
        x, y = batch(0)
        late = y == 3
        with pytest.warns(RandomSetWarning):
            budgeter = Budgeter(3, reducer=None, classes=list("0123")).partial_fit(x[~late], y[~late])
        for end in (5, 10, 40, 200):
            budgeter.partial_fit(x[late][:end], y[late][:end])
        assert [change.reason for change in budgeter.changes_] == ["more data"] * 4
        assert budgeter.chosen_counts_[3] == 255

    @pytest.mark.slow
    @pytest.mark.parametrize("reducer", ["pca", "lda"])
    def test_overfitted_projection_raises_no_alarm(self, reducer):
        """With 100 features and 150 samples, the fitted points are too well separated to be a reference."""
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
    def test_reducers_that_support_streams(self, reducer):
        budgeter = Budgeter(3, reducer=reducer).partial_fit(*batch(0)).partial_fit(*batch(1))
        assert budgeter.samples_seen_ == 1600

    def test_refresh_recomputes_the_sets(self):
        budgeter = Budgeter(3, reducer=None).partial_fit(*batch(0)).partial_fit(*batch(1))
        assert budgeter.report_.used == 800
        budgeter.refresh()
        assert budgeter.report_.used == 1600
        assert budgeter.changes_[-1].reason == "requested"
        x, y = (np.concatenate(parts) for parts in zip(batch(0), batch(1), strict=True))
        np.testing.assert_allclose(
            budgeter.overlaps_, Budgeter(3, reducer=None).fit(x, y).overlaps_, rtol=1e-6
        )

    def test_latest_points_are_kept_for_plots(self):
        budgeter = Budgeter(3).fit(*batch(0, 4000)).partial_fit(*batch(1, 2000))
        assert budgeter.embedding_.shape == (5000, 3)
        np.testing.assert_allclose(budgeter.embedding_[-1], budgeter.transform(batch(1, 2000)[0])[-1])

    def test_fit_ends_the_stream(self):
        budgeter = Budgeter(3, reducer=None).partial_fit(*batch(0)).partial_fit(*batch(1))
        budgeter.fit(*batch(2)).partial_fit(*batch(3))
        assert budgeter.samples_seen_ == 1600
        assert budgeter.moments_.count.sum() == 1600

    def test_parameters_that_do_not_support_streams(self):
        with pytest.raises(RandomSetError, match="new data, which streaming requires; got tsne"):
            Budgeter(3, reducer="tsne").partial_fit(*batch(0))
        with pytest.raises(RandomSetError, match="one component per class"):
            Budgeter(3, components=2).partial_fit(*batch(0))

    def test_invalid_batch_changes_nothing(self):
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


def moment_statistics(points, labels=None):
    """Return statistics of the moments of points, without standardisation."""
    d = points.shape[1]
    labels = np.zeros(len(points), int) if labels is None else labels
    return ClassGaussians.from_points(moments(points, np.zeros(d), np.ones(d)), labels, int(labels.max()) + 1)


@pytest.mark.parametrize("kind", ["normal", "exponential", "uniform"])
@pytest.mark.parametrize("dimensions", [1, 3, 8])
def test_p_values_are_uniform_without_drift(dimensions, kind):
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(200), 400)

    def points():
        size = (len(labels), dimensions)
        mixed = getattr(draw, kind)(size=size)
        return mixed + 0.5 * mixed[:, :1]

    p = drift_p_values(moment_statistics(points(), labels), moment_statistics(points(), labels))
    for share in (0.05, 0.25, 0.5):
        assert (p < share).mean() == pytest.approx(share, abs=0.09)


@pytest.mark.parametrize("change", ["move", "grow", "turn"])
def test_each_kind_of_drift_is_detected(change):
    draw = np.random.default_rng(0)
    before = draw.normal(size=(300, 2)) * [2, 1]
    after = draw.normal(size=(300, 2)) * [2, 1]
    after = {"move": after + 0.6, "grow": after * 1.4, "turn": after[:, ::-1]}[change]
    assert drift_p_values(moment_statistics(before), moment_statistics(after))[0] < 1e-4


def test_too_few_points_are_not_tested():
    few = moment_statistics(np.random.default_rng(0).normal(size=(8 * 5 - 1, 2)))
    assert drift_p_values(few, few).tolist() == [1.0]


def test_degenerate_clusters_can_be_tested():
    flat = moment_statistics(np.ones((50, 2)))
    assert drift_p_values(flat, flat).tolist() == [1.0]


@pytest.mark.slow
def test_false_alarm_rate_over_all_looks():
    """On a stream without drift, recomputations are about as rare as the nominal level."""
    alarms = 0
    for seed in range(20):
        budgeter = Budgeter(4, reducer=None, drift_level=0.05).fit(*batch(1000 + seed))
        for step in range(10):
            budgeter.partial_fit(*batch(10_000 + 100 * seed + step, 480))
        alarms += bool(budgeter.changes_)
    assert alarms <= 3  # expected: at most 1 of 20
    assert level_of_look(0.05, 1, 1) > level_of_look(0.05, 2, 1)
