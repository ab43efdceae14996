"""The contract of every reducer, and their individual behaviour."""

import importlib.util
import sys

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from randomset import Budgeter
from randomset.budgeting.reduce import TSNE, Autoencoder, named_reducer, stratified_sample
from randomset.errors import MissingPackageError, RandomSetError

NAMES = [
    "pca",
    "lda",
    pytest.param("autoencoder", marks=pytest.mark.slow),
    pytest.param("tsne", marks=pytest.mark.slow),
    pytest.param("umap", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", NAMES)
class TestContract:
    """Requirements on every reducer."""

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Tensorflow:ImportWarning")
    def test_separates_digits_and_repeats_itself(self, name, digits):
        x, y = digits
        fits = [Budgeter(12, reducer=name, max_samples=300).fit(x, y) for _ in range(2)]
        points = fits[0].embedding_
        assert points.shape == (len(fits[0].sample_indices_), 3)
        np.testing.assert_array_equal(points, fits[1].embedding_)
        assert fits[0].budget_ == fits[1].budget_
        assert fits[0].budget_.num_sets == 12
        labels = fits[0].labels_
        centres = np.stack([points[labels == c].mean(0) for c in range(10)])
        nearest = np.square(points[:, None] - centres).sum(-1).argmin(1)
        assert (nearest == labels).mean() > 0.5  # chance: 0.1
        if name != "tsne":
            again = fits[0].transform(x[fits[0].sample_indices_])
            moved = np.abs(again - points).max() / points.std()
            assert moved < (1.0 if name == "umap" else 1e-4)


def test_pca_uses_all_samples(digits):
    assert len(Budgeter(3).fit(*digits).embedding_) == 500


def test_lda_has_fewer_dimensions_than_classes():
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    found = Budgeter(2, reducer="lda").fit(draw.normal(size=(90, 6)) + y[:, None], y)
    assert found.embedding_.shape == (90, 2)


def test_few_features_limit_the_dimensions():
    draw = np.random.default_rng(0)
    assert Budgeter(1).fit(draw.normal(size=(40, 2)), np.arange(40) % 2).embedding_.shape == (40, 2)


def test_any_object_with_fit_transform_works(digits):
    x, y = digits
    pipeline = make_pipeline(StandardScaler(), named_reducer("pca", 2, x.shape, 10, seed=0))
    budgeter = Budgeter(5, reducer=pipeline).fit(x, y)
    assert budgeter.embedding_.shape == (500, 2)
    assert budgeter.transform(x[:3]).shape == (3, 2)
    assert budgeter.budget_.origin["reducer"] == "Pipeline"


def test_reducer_that_drops_samples_is_rejected(digits):
    class Half:
        def fit_transform(self, features, labels=None):
            return features[::2, :3]

    with pytest.raises(RandomSetError, match="one finite point per sample; got shape \\(250, 3\\) from Half"):
        Budgeter(3, reducer=Half()).fit(*digits)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning")  # raised by umap at first import
def test_torch_keeps_its_threads():
    """numba, used by UMAP, sets the number of OpenMP threads of the process."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        named_reducer("umap", 2, (60, 8), 3, seed=0).fit_transform(
            np.random.default_rng(0).normal(size=(60, 8))
        )
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "package", "extra"), [("umap", "umap", "umap")])
def test_missing_package_error_names_the_extra(name, package, extra, digits, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=f"randomset\\[{extra}\\]"):
        Budgeter(3, reducer=name).fit(*digits)


@pytest.mark.slow
def test_tsne_falls_back_to_scikit_learn(digits, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openTSNE" else found(name))
    points = TSNE(2).fit_transform(digits[0][:150])
    assert points.shape == (150, 2)
    assert "openTSNE" not in type(points).__module__


@pytest.mark.slow
def test_tsne_cannot_transform_new_data(digits):
    x, y = digits
    budgeter = Budgeter(3, reducer="tsne", dimensions=2, max_samples=200).fit(x, y)
    with pytest.raises(RandomSetError, match="cannot transform new data; got TSNE"):
        budgeter.transform(x)


class TestSampling:
    def test_proportions_and_minimum(self):
        labels = np.repeat([0, 1, 2], [8000, 1000, 12])
        taken = stratified_sample(labels, 900, seed=1)
        assert np.bincount(labels[taken]).tolist() == [799, 100, 12]
        assert (np.diff(taken) > 0).all()

    @pytest.mark.parametrize(
        ("name", "size"), [("tsne", 3000), ("t-SNE", 3000), ("umap", 10_000), ("pca", 40_000)]
    )
    def test_defaults(self, name, size):
        assert Budgeter(reducer=name)._samples(40_000) == size


@pytest.mark.slow
def test_codes_explain_most_of_the_variance(digits):
    x = digits[0]
    coder = Autoencoder(8, steps=400)
    codes = coder.fit_transform(x)
    # a linear read-out of the codes explains most of the variance of the features
    read = np.c_[codes, np.ones(len(codes))]
    rest = x - read @ np.linalg.lstsq(read, x, rcond=None)[0]
    assert rest.var() < 0.5 * (x - x.mean(0)).var()
    with pytest.raises(RandomSetError, match="not trained"):
        Autoencoder(2).transform(x)
