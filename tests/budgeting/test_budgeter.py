"""The Budgeter: results, invariances, invalid input, and scikit-learn conventions."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from randomset import Budget, Budgeter
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError
from tests.budgeting.conftest import clusters


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
    def test_fitted_attributes(self):
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
    def test_feature_types(self, kind):
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

    def test_string_labels(self):
        x, y = clusters(3)
        names = np.array(["wolf", "cat", "dog"])
        assert Budgeter(2, classes=3).fit(x, y).budget_ == Budgeter(2).fit(x, y).budget_
        by_name = Budgeter(2).fit(x, names[y]).budget_
        assert by_name.classes == ("cat", "dog", "wolf")
        ordered = Budgeter(2, classes=["wolf", "cat", "dog"]).fit(x, names[y]).budget_
        assert ordered == Budgeter(2, classes=["wolf", "cat", "dog"]).fit(x, y).budget_
        assert {frozenset(s) for s in ordered} == {frozenset(s) for s in by_name}

    @pytest.mark.parametrize("labels", [[b"ant", b"bee"] * 50, np.array(["ant", "bee"] * 50, dtype=object)])
    def test_bytes_and_object_labels(self, labels):
        x = np.random.default_rng(0).normal(size=(100, 2))
        assert Budgeter(1, reducer=None).fit(x, labels).budget_.classes == ("ant", "bee")

    def test_integers_in_object_arrays_keep_their_order(self):
        x, y = clusters(12, per_class=20)
        assert Budgeter(3).fit(x, y.astype(object)).budget_.classes == tuple(map(str, range(12)))

    @pytest.mark.parametrize("scale", [1e-20, 1e8])
    def test_single_precision_and_an_offset_do_not_lose_accuracy(self, scale):
        x, y = clusters(6, apart=1.0)
        shifted = (scale * (x + 100)).astype(np.float32)
        exact = Budgeter(8).fit(shifted.astype(np.float64), y)
        np.testing.assert_allclose(Budgeter(8).fit(shifted, y).overlaps_, exact.overlaps_, rtol=1e-6)

    def test_results_depend_on_the_seed_only(self):
        x, y = clusters()
        one, two = (Budgeter(6, seed=3).fit(x, y) for _ in range(2))
        assert one.overlaps_.tolist() == two.overlaps_.tolist()
        assert Budgeter(6, seed=4).fit(x, y).overlaps_.tolist() != one.overlaps_.tolist()

    @pytest.mark.parametrize("reducer", ["pca", "lda", None])
    def test_invariance_to_relabelling_and_rotation(self, reducer):
        x, y = clusters(6, features=4, apart=1.5)
        draw = np.random.default_rng(1)
        order, turn = draw.permutation(6), np.linalg.qr(draw.normal(size=(4, 4)))[0]
        one = Budgeter(9, reducer=reducer).fit(x, y)
        two = Budgeter(9, reducer=reducer).fit(10 * x @ turn + 5, order[y])
        renamed = {tuple(sorted(int(order[c]) for c in focal)) for focal in one.ranking_.sets}
        assert renamed == set(two.ranking_.sets)
        np.testing.assert_allclose(one.ranking_.overlaps, two.ranking_.overlaps, rtol=5e-3)

    def test_without_growth_fewer_sets_give_a_warning(self):
        x, y = clusters(4, apart=30)
        with pytest.warns(RandomSetWarning, match="only 0 of 6 sets overlap"):
            budgeter = Budgeter(6, grow=False).fit(x, y)
        assert budgeter.budget_ == Budget.singletons(4)
        assert budgeter.report_.growth == {}

    def test_zero_sets(self):
        assert Budgeter(0).fit(*clusters(3)).budget_ == Budget.singletons(3)

    def test_all_sets(self):
        assert Budgeter(11).fit(*clusters(4)).budget_ == Budget.powerset(4)

    def test_more_coverage_means_more_overlap(self):
        x, y = clusters()
        small, large = (Budgeter(3, coverage=c).fit(x, y).ranking_.overlaps[0] for c in (0.5, 0.99))
        assert small < large

    def test_automatic_number_of_sets(self):
        # three distant pairs of coinciding classes
        draw = np.random.default_rng(0)
        centres = np.repeat(draw.normal(0, 12, (3, 5)), 2, axis=0)
        y = np.repeat(np.arange(6), 100)
        budgeter = Budgeter("auto").fit(centres[y] + draw.normal(size=(600, 5)), y)
        assert set(budgeter.budget_.sets[6:]) == {(0, 1), (2, 3), (4, 5)}
        assert budgeter.curve_ is not None
        assert len(budgeter.curve_) >= 6  # the curve continues beyond the knee
        assert budgeter.ranking_.sets == budgeter.curve_.sets[:3]


class TestInvalidInput:
    def test_nan(self):
        x, y = clusters()
        x[7, 2] = np.nan
        with pytest.raises(ShapeError, match="1 NaN or infinite value, the first in row 7"):
            Budgeter().fit(x, y)

    def test_huge_values_are_valid(self):
        x, y = clusters()
        assert Budgeter(3).fit(x.astype(np.float32) * 1e30, y).budget_.num_sets == 3

    def test_single_class(self):
        x, _ = clusters()
        for labels in (np.zeros(len(x), int), ["cat"] * len(x)):
            with pytest.raises(LabelError, match=r"only one class; got class (0|cat) for all 300"):
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
    def test_invalid_labels(self, labels, message):
        with pytest.raises(LabelError, match=message):
            Budgeter().fit(clusters()[0], labels)

    def test_labels_beyond_the_named_classes(self):
        x, y = clusters()
        with pytest.raises(LabelError, match="label is out of range; got 4; expected 0 to 2"):
            Budgeter(classes=["a", "b", "c"]).fit(x, y)
        with pytest.raises(LabelError, match="unknown label; got fox; expected one of a, b"):
            Budgeter(classes=["a", "b"]).fit(x[:3], ["a", "b", "fox"])

    @pytest.mark.parametrize(
        "features", [np.ones((3, 4, 5)), np.ones(5), np.ones((0, 3)), [["a", "b"]], [[1, 2], [3]], None]
    )
    def test_features_that_are_not_a_matrix(self, features):
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
            ({"reducer": PCA}, "a class, not an instance; got PCA"),
            ({"seed": -1}, "seed"),
            ({"coverage": None}, "coverage"),
            ({"floor": np.inf}, "floor"),
            ({"num_sets": "20"}, "got '20'"),
            ({"max_samples": "many"}, "max_samples"),
            ({"classes": {"a", "b"}}, "unordered"),
        ],
    )
    def test_invalid_parameters(self, parameters, message):
        with pytest.raises(RandomSetError, match=message):
            Budgeter(**parameters).fit(*clusters())

    def test_failed_fit_changes_nothing(self):
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

    def test_transform_before_fit(self):
        with pytest.raises(RandomSetError, match="not fitted"):
            Budgeter().transform(np.ones((2, 2)))


class TestEstimator:
    def test_scikit_learn_parameters(self):
        budgeter = Budgeter(7, reducer="lda", coverage=0.9)
        copy = clone(budgeter)
        assert copy.get_params() == budgeter.get_params()
        assert copy.set_params(num_sets=3).num_sets == 3

    def test_pickling(self):
        budgeter = Budgeter(4).fit(*clusters())
        again = pickle.loads(pickle.dumps(budgeter))
        assert again.budget_ == budgeter.budget_
        assert again.budget_.origin == budgeter.budget_.origin

    def test_transform_matches_the_embedding(self):
        x, y = clusters()
        budgeter = Budgeter(4).fit(x, y)
        np.testing.assert_allclose(budgeter.transform(x), budgeter.embedding_, atol=1e-8)
        with pytest.raises(ShapeError, match="number of features has changed"):
            budgeter.transform(x[:, :3])

    def test_given_reducer_is_not_modified(self):
        x, y = clusters()
        mine = PCA(2)
        first = Budgeter(3, reducer=mine).fit(x, y)
        Budgeter(3, reducer=mine).fit(5 * x[:, ::-1], y)
        np.testing.assert_allclose(first.transform(x), first.embedding_, atol=1e-8)
        assert not hasattr(mine, "components_")


@pytest.mark.slow
def test_sets_of_digits_match_the_confusions_of_a_network(digits_network):
    """Most chosen pairs are among those that the network confuses most."""
    network, x, y = digits_network
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 256)
    budgeter = Budgeter(20).fit((network, loader))
    assert budgeter.n_features_in_ == 64
    with torch.no_grad():
        shares = torch.stack([network(x).softmax(1)[y == c].mean(0) for c in range(10)])
    confused = (shares + shares.T).numpy()
    pairs = [focal for focal in budgeter.ranking_.sets if len(focal) == 2][:8]
    all_pairs = sorted(itertools.combinations(range(10), 2), key=lambda p: -confused[p])
    ranks = [all_pairs.index(p) for p in pairs]
    table = "\n".join(
        f"{s}  {o:.3f}" for s, o in zip(budgeter.ranking_.sets, budgeter.ranking_.overlaps, strict=True)
    )
    assert np.mean(ranks) < 16, (
        f"ranks of the chosen pairs by confusion: {ranks} of 45; sets:\n{table}"
    )  # chance: 22
    assert budgeter.budget_.is_downward_closed, table
