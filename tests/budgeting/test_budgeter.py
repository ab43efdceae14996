"""The estimator: what it finds, what it tells, what it refuses."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

from randomset import Budget, Budgeter
from randomset.budgeting.ellipsoids import Ellipsoids
from randomset.budgeting.gaussians import ClassGaussians
from randomset.errors import BudgetError, LabelError, RandomSetError, RandomSetWarning, ShapeError


def clusters(n=5, per_class=60, features=6, seed=0, apart=2.0):
    draw = np.random.default_rng(seed)
    centres = draw.normal(0, apart, (n, features))
    labels = np.repeat(np.arange(n), per_class)
    return centres[labels] + draw.normal(size=(n * per_class, features)), labels


@pytest.fixture(scope="module")
def digits_network():
    """A small network trained on scikit-learn's digits, and its data."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        optimiser = torch.optim.Adam(network.parameters(), 1e-2)
        for _ in range(60):
            loss = torch.nn.functional.cross_entropy(network(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network, x, y


class TestFit:
    def test_what_a_fit_leaves_behind(self):
        x, y = clusters()
        budgeter = Budgeter(8).fit(x, y)
        assert isinstance(budgeter.budget_, Budget)
        assert budgeter.budget_.num_sets == 8 == len(budgeter.overlaps_) == len(budgeter.coverages_)
        assert budgeter.budget_.is_downward_closed
        assert budgeter.embedding_.shape == (300, 3)
        assert len(budgeter.ellipsoids_) == 5
        rank = {focal: v for focal, v in zip(budgeter.ranking_.sets, budgeter.ranking_.overlaps, strict=True)}
        assert [rank[focal] for focal in budgeter.budget_.sets[5:]] == budgeter.overlaps_.tolist()
        report = budgeter.report_
        assert (report.samples, report.used, report.dimensions) == (300, 300, 3)
        assert set(report.seconds) == {"features", "reduction", "Gaussians", "ellipsoids", "overlaps"}
        assert report.counts == dict.fromkeys("01234", 60)
        assert "300 of 300 samples" in str(report)

    @pytest.mark.parametrize("kind", ["list", "float16", "tensor", "integers", "bool"])
    def test_features_come_in_many_forms(self, kind):
        x, y = clusters()
        x = np.rint(x * 8)
        given = {
            "list": x.tolist(),
            "float16": x.astype(np.float16),
            "tensor": torch.tensor(x, requires_grad=True),
            "integers": x.astype(int),
            "bool": x > 0,
        }[kind]
        labels = torch.tensor(y) if kind == "tensor" else y
        found = Budgeter(5).fit(given, labels)
        if kind != "bool":
            assert found.budget_ == Budgeter(5).fit(x, y).budget_
        assert found.budget_.num_sets == 5

    def test_labels_may_be_names(self):
        x, y = clusters(3)
        names = np.array(["wolf", "cat", "dog"])
        assert Budgeter(2, classes=3).fit(x, y).budget_ == Budgeter(2).fit(x, y).budget_
        by_name = Budgeter(2).fit(x, names[y]).budget_
        assert by_name.classes == ("cat", "dog", "wolf")
        ordered = Budgeter(2, classes=["wolf", "cat", "dog"]).fit(x, names[y]).budget_
        assert ordered == Budgeter(2, classes=["wolf", "cat", "dog"]).fit(x, y).budget_
        assert {frozenset(s) for s in ordered} == {frozenset(s) for s in by_name}

    @pytest.mark.parametrize("labels", [[b"ant", b"bee"] * 50, np.array(["ant", "bee"] * 50, dtype=object)])
    def test_labels_as_bytes_and_objects(self, labels):
        x = np.random.default_rng(0).normal(size=(100, 2))
        assert Budgeter(1, reducer=None).fit(x, labels).budget_.classes == ("ant", "bee")

    def test_numbers_in_objects_keep_their_order(self):
        x, y = clusters(12, per_class=20)
        assert Budgeter(3).fit(x, y.astype(object)).budget_.classes == tuple(map(str, range(12)))

    @pytest.mark.parametrize("scale", [1e-20, 1e8])
    def test_single_precision_and_an_offset_cost_nothing(self, scale):
        x, y = clusters(6, apart=1.0)
        shifted = (scale * (x + 100)).astype(np.float32)
        exact = Budgeter(8).fit(shifted.astype(np.float64), y)
        np.testing.assert_allclose(Budgeter(8).fit(shifted, y).overlaps_, exact.overlaps_, rtol=1e-6)

    def test_it_is_deterministic_and_the_seed_matters(self):
        x, y = clusters()
        one, two = (Budgeter(6, seed=3).fit(x, y) for _ in range(2))
        assert one.overlaps_.tolist() == two.overlaps_.tolist()
        assert Budgeter(6, seed=4).fit(x, y).overlaps_.tolist() != one.overlaps_.tolist()

    @pytest.mark.parametrize("reducer", ["pca", "lda", None])
    def test_relabelling_and_rotating_the_data_change_nothing_but_names(self, reducer):
        x, y = clusters(6, features=4, apart=1.5)
        draw = np.random.default_rng(1)
        order, turn = draw.permutation(6), np.linalg.qr(draw.normal(size=(4, 4)))[0]
        one = Budgeter(9, reducer=reducer).fit(x, y)
        two = Budgeter(9, reducer=reducer).fit(10 * x @ turn + 5, order[y])
        renamed = {tuple(sorted(int(order[c]) for c in focal)) for focal in one.ranking_.sets}
        assert renamed == set(two.ranking_.sets)
        np.testing.assert_allclose(one.ranking_.overlaps, two.ranking_.overlaps, rtol=5e-3)

    def test_growth_is_recorded_in_report_and_budget(self):
        x, y = clusters(4, apart=30)
        budgeter = Budgeter(6).fit(x, y)
        assert budgeter.budget_.num_sets == 6
        assert budgeter.coverages_.min() > 0.95
        assert sum(budgeter.report_.growth.values()) == 6
        assert "grown beyond 95 %" in str(budgeter.report_)
        again = Budget.from_json(budgeter.budget_.to_json())
        assert again.origin["coverages"] == budgeter.coverages_.tolist()
        assert again.origin["coverage"] == 0.95

    def test_without_growth_fewer_sets_come_with_a_warning(self):
        x, y = clusters(4, apart=30)
        with pytest.warns(RandomSetWarning, match="only 0 of 6 sets overlap"):
            budgeter = Budgeter(6, grow=False).fit(x, y)
        assert budgeter.budget_ == Budget.singletons(4)
        assert budgeter.report_.growth == {}

    def test_no_sets_at_all_may_be_asked_for(self):
        assert Budgeter(0).fit(*clusters(3)).budget_ == Budget.singletons(3)

    def test_all_sets_may_be_asked_for(self):
        assert Budgeter(11).fit(*clusters(4)).budget_ == Budget.powerset(4)

    def test_more_coverage_means_more_overlap(self):
        x, y = clusters()
        small, large = (Budgeter(3, coverage=c).fit(x, y).ranking_.overlaps[0] for c in (0.5, 0.99))
        assert small < large

    def test_automatic_number_of_sets(self):
        # three pairs of twins, far apart: three sets matter
        draw = np.random.default_rng(0)
        centres = np.repeat(draw.normal(0, 12, (3, 5)), 2, axis=0)
        y = np.repeat(np.arange(6), 100)
        budgeter = Budgeter("auto").fit(centres[y] + draw.normal(size=(600, 5)), y)
        assert set(budgeter.budget_.sets[6:]) == {(0, 1), (2, 3), (4, 5)}
        assert budgeter.curve_ is not None
        assert len(budgeter.curve_) >= 6  # the curve goes on beyond them
        assert budgeter.ranking_.sets == budgeter.curve_.sets[:3]

    def test_several_gaussians_for_a_class(self):
        # class 0 lies on both sides of class 1, and overlaps it only if it is one Gaussian
        draw = np.random.default_rng(0)
        x = draw.normal(size=(600, 2)) * 0.3
        x[:200, 0] += np.where(np.arange(200) < 100, -4, 4)
        y = np.repeat([0, 1, 2], 200)
        x[400:, 1] += 1.0
        one = Budgeter(1, reducer=None).fit(x, y)
        two = Budgeter(1, reducer=None, components=2).fit(x, y)
        assert len(two.ellipsoids_) == 6
        assert two.ranking_.sets == [(1, 2)]
        pairs = (Budgeter(3, reducer=None, components=c).fit(x, y).ranking_ for c in (1, 2))
        near, far = (dict(zip(r.sets, r.radii, strict=True))[0, 1] for r in pairs)
        assert near < far
        assert len(one.ellipsoids_) == 3


class TestGaussians:
    def test_closed_form_is_a_mixture_of_one(self):
        x, y = clusters(3, features=4)
        floor = 1e-3
        covariances = ClassGaussians.from_points(x, y, 3).covariance(floor)
        for c in range(3):
            mixture = GaussianMixture(1, reg_covar=floor, random_state=0).fit(x[y == c])
            np.testing.assert_allclose(covariances[c], mixture.covariances_[0], rtol=1e-7, atol=1e-12)
            np.testing.assert_allclose(x[y == c].mean(0), mixture.means_[0], rtol=1e-7)

    def test_ellipsoids_hold_the_share_they_claim(self):
        draw = np.random.default_rng(0)
        x = draw.normal(size=(40_000, 3)) @ np.array([[3.0, 0, 0], [1, 1, 0], [0, 2, 0.2]])
        gaussians = ClassGaussians.from_points(x, np.zeros(len(x), int), 1)
        budget_radius = 7.815**0.5
        inside = Ellipsoids.from_gaussians(gaussians, 1e-9, budget_radius).contain(x)
        assert inside.mean() == pytest.approx(0.95, abs=0.004)

    def test_few_samples_share_the_common_covariance_and_are_reported(self):
        x, y = clusters(4)
        keep = (y != 2) | (np.arange(len(y)) == 130)  # one sample of class 2
        with pytest.warns(RandomSetWarning, match="class 2: at most 3 samples"):
            budgeter = Budgeter(5).fit(x[keep], y[keep])
        assert budgeter.budget_.num_classes == 4
        sums = budgeter.gaussians_
        common = sums.scatter.sum(0) / sums.count.sum()
        np.testing.assert_allclose(sums.covariance(0.0)[2], common)
        assert "class 2" in budgeter.report_.warnings[0]

    def test_absent_classes_stay_singletons_and_are_reported(self):
        x, y = clusters(3)
        with pytest.warns(RandomSetWarning, match="class ghost: no samples"):
            budgeter = Budgeter(3, classes=["a", "b", "c", "ghost"]).fit(x, y)
        assert all("ghost" not in focal for focal in budgeter.budget_ if len(focal) > 1)
        assert ("ghost",) in set(budgeter.budget_)

    def test_sets_are_limited_to_classes_that_have_samples(self):
        x, y = clusters(2)
        with pytest.warns(RandomSetWarning) as told:
            assert Budgeter(3, classes=list("abc")).fit(x, y).budget_.num_sets == 1
        assert "only 1 of 3 sets of classes that have samples exist" in [str(note.message) for note in told]

    def test_many_dimensions_are_warned_of(self):
        x, y = clusters(3, features=12)
        with pytest.warns(RandomSetWarning, match="in 12 dimensions .* overlaps vanish"):
            Budgeter(2, reducer=None).fit(x, y)

    def test_empty_components_are_dropped(self):
        y = np.repeat([0, 1, 2], 60)
        x = np.array([[9.0, 0], [0, 9], [9, 9]])[y] + 1e-3 * np.random.default_rng(0).normal(size=(180, 2))
        x[y == 0] = [9, 0]
        budgeter = Budgeter(3, reducer=None, components=3).fit(x, y)
        nearest = np.abs(budgeter.ellipsoids_.centres).max(1)
        assert (nearest > 8).all()  # none at the origin

    def test_a_class_of_equal_points_does_no_harm(self):
        x, y = clusters(3)
        x[y == 1] = x[y == 1][0]
        assert np.isfinite(Budgeter(3).fit(x, y).overlaps_).all()


class TestBadInput:
    def test_nan(self):
        x, y = clusters()
        x[7, 2] = np.nan
        with pytest.raises(ShapeError, match="1 NaN or infinite value, the first in row 7"):
            Budgeter().fit(x, y)

    def test_huge_values_that_only_sum_to_infinity_are_fine(self):
        x, y = clusters()
        assert Budgeter(3).fit(x.astype(np.float32) * 1e30, y).budget_.num_sets == 3

    def test_one_class(self):
        x, _ = clusters()
        for labels in (np.zeros(len(x), int), ["cat"] * len(x)):
            with pytest.raises(LabelError, match=r"one class only; got class (0|cat) for all 300"):
                Budgeter().fit(x, labels)

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (np.zeros(7, int), "do not match the features; got labels of shape \\(7,\\) for 300"),
            (np.zeros((300, 5), int), "do not match"),
            (None, "missing labels"),
            (np.array(["a", None] * 150, dtype=object), "must be a string or an integer; got None"),
            (np.arange(300) % 5 - 1, "a label is negative; got -1"),
            (np.arange(300) % 5 + 0.5, "labels must be integers or names"),
            (np.arange(300) % 5 * 1000, "labels have gaps; got 5 distinct labels up to 4000"),
        ],
    )
    def test_labels_that_do_not_match(self, labels, message):
        with pytest.raises(LabelError, match=message):
            Budgeter().fit(clusters()[0], labels)

    def test_labels_beyond_the_named_classes(self):
        x, y = clusters()
        with pytest.raises(LabelError, match="label is out of range; got 4; expected 0 to 2"):
            Budgeter(classes=["a", "b", "c"]).fit(x, y)
        with pytest.raises(LabelError, match="unknown label; got fox; expected one of a, b"):
            Budgeter(classes=["a", "b"]).fit(x[:3], ["a", "b", "fox"])

    def test_more_sets_than_exist(self):
        x, y = clusters(4)
        with pytest.raises(BudgetError, match=r"more sets are asked for than exist; got 12 .* = 11"):
            Budgeter(12).fit(x, y)

    def test_constant_features(self):
        with pytest.raises(RandomSetError, match="constant: every sample is the same"):
            Budgeter(1).fit(np.ones((20, 3)), np.arange(20) % 2)

    @pytest.mark.parametrize(
        "features", [np.ones((3, 4, 5)), np.ones(5), np.ones((0, 3)), [["a", "b"]], [[1, 2], [3]], None]
    )
    def test_features_that_are_no_matrix(self, features):
        with pytest.raises(ShapeError):
            Budgeter().fit(features, [0, 1])

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"num_sets": -1}, "num_sets"),
            ({"num_sets": 2.5}, "num_sets"),
            ({"num_sets": "many"}, "num_sets"),
            ({"coverage": 1.0}, "coverage"),
            ({"dimensions": 0}, "dimensions"),
            ({"components": 0}, "components"),
            ({"floor": 0}, "floor"),
            ({"max_samples": 0}, "max_samples"),
            ({"reducer": "pcb"}, "unknown reducer; got pcb; expected one of pca"),
            ({"reducer": 3}, "no fit_transform"),
            ({"reducer": PCA}, "a class, not an object; got PCA"),
            ({"seed": -1}, "seed"),
            ({"coverage": None}, "coverage"),
            ({"floor": np.inf}, "floor"),
            ({"num_sets": "20"}, "got '20'"),
            ({"max_samples": "many"}, "max_samples"),
            ({"classes": {"a", "b"}}, "unordered"),
        ],
    )
    def test_parameters(self, parameters, message):
        with pytest.raises(RandomSetError, match=message):
            Budgeter(**parameters).fit(*clusters())

    def test_a_failed_fit_leaves_no_trace(self):
        x, y = clusters()
        budgeter = Budgeter(3)
        with pytest.raises(ShapeError):
            budgeter.fit(np.full((300, 6), np.nan), y)
        with pytest.raises(RandomSetError, match="not fitted"):
            budgeter.transform(x)
        with pytest.raises(RandomSetError, match="the reducer failed on these features; got LinearDisc"):
            Budgeter(1, reducer="lda").fit(x[:5], np.arange(5))
        budgeter.fit(x, y)
        before = budgeter.transform(x)
        with pytest.raises(LabelError):
            budgeter.fit(2 * x, np.zeros(300, int))
        np.testing.assert_array_equal(budgeter.transform(x), before)

    def test_before_the_fit(self):
        with pytest.raises(RandomSetError, match="not fitted"):
            Budgeter().transform(np.ones((2, 2)))


class TestEcosystem:
    def test_scikit_learn_parameters(self):
        budgeter = Budgeter(7, reducer="lda", coverage=0.9)
        copy = clone(budgeter)
        assert copy.get_params() == budgeter.get_params()
        assert copy.set_params(num_sets=3).num_sets == 3

    def test_a_fitted_budgeter_survives_pickling(self):
        budgeter = Budgeter(4).fit(*clusters())
        again = pickle.loads(pickle.dumps(budgeter))
        assert again.budget_ == budgeter.budget_
        assert again.budget_.origin == budgeter.budget_.origin

    def test_new_data_is_placed_where_old_data_was(self):
        x, y = clusters()
        budgeter = Budgeter(4).fit(x, y)
        np.testing.assert_allclose(budgeter.transform(x), budgeter.embedding_, atol=1e-8)
        with pytest.raises(ShapeError, match="number of features differs"):
            budgeter.transform(x[:, :3])

    def test_a_reducer_of_the_user_is_not_touched(self):
        x, y = clusters()
        mine = PCA(2)
        first = Budgeter(3, reducer=mine).fit(x, y)
        Budgeter(3, reducer=mine).fit(5 * x[:, ::-1], y)
        np.testing.assert_allclose(first.transform(x), first.embedding_, atol=1e-8)
        assert not hasattr(mine, "components_")

    def test_tables_in_text_and_pandas(self):
        budgeter = Budgeter(4, classes=list("abcde")).fit(*clusters())
        frame = budgeter.to_frame()
        assert frame["overlap"].tolist() == budgeter.ranking_.overlaps.tolist()
        assert frame["set"][0].startswith("{")
        lines = budgeter.table(2).splitlines()
        assert len(lines) == 4
        assert frame["set"][0] in lines[1]
        assert lines[-1] == "and 2 more"

    def test_no_warning_comes_without_a_reason(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Budgeter(5).fit(*clusters())


class TestRealFeatures:
    def test_sets_of_digits_make_sense(self, digits_network):
        """Most chosen pairs are among those that the network itself finds hard to tell apart."""
        network, x, y = digits_network
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 256)
        budgeter = Budgeter(20).fit((network, loader))
        assert budgeter.n_features_in_ == 64
        with torch.no_grad():
            shares = torch.stack([network(x).softmax(1)[y == c].mean(0) for c in range(10)])
        confused = (shares + shares.T).numpy()
        pairs = [focal for focal in budgeter.ranking_.sets if len(focal) == 2][:8]
        all_pairs = sorted(itertools.combinations(range(10), 2), key=lambda p: -confused[p])
        place = [all_pairs.index(p) for p in pairs]
        table = "\n".join(
            f"{s}  {o:.3f}" for s, o in zip(budgeter.ranking_.sets, budgeter.ranking_.overlaps, strict=True)
        )
        assert np.mean(place) < 16, (
            f"chosen pairs stand at {place} of 45 by confusion; sets:\n{table}"
        )  # chance: 22
        assert budgeter.budget_.is_downward_closed, table
