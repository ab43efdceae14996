"""Class Gaussians against scikit-learn, merging, and degenerate classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from randomset import Budgeter
from randomset.budgeting.gaussians import ClassGaussians
from randomset.errors import RandomSetWarning
from tests.budgeting.conftest import clusters
from tests.strategies import seeds


@given(seed=seeds, cut=st.integers(0, 40), again=st.integers(0, 40))
def test_merged_parts_equal_the_whole(seed, cut, again):
    draw = np.random.default_rng(seed)
    x, y = draw.normal(5, 3, (40, 3)), draw.integers(0, 4, 40)
    a, b = sorted((cut, again))
    parts = [ClassGaussians.from_points(x[s], y[s], 4) for s in (slice(0, a), slice(a, b), slice(b, None))]
    whole, merged = ClassGaussians.from_points(x, y, 4), parts[0].merge(parts[1]).merge(parts[2])
    assert merged.count.tolist() == whole.count.tolist()
    np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-10)
    np.testing.assert_allclose(merged.scatter, whole.scatter, atol=1e-9)


def test_closed_form_is_a_mixture_of_one():
    x, y = clusters(3, features=4)
    floor = 1e-3
    covariances = ClassGaussians.from_points(x, y, 3).covariance(floor)
    for c in range(3):
        mixture = GaussianMixture(1, reg_covar=floor, random_state=0).fit(x[y == c])
        np.testing.assert_allclose(covariances[c], mixture.covariances_[0], rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(x[y == c].mean(0), mixture.means_[0], rtol=1e-7)


def test_scarce_classes_use_the_pooled_covariance_with_a_warning():
    x, y = clusters(4)
    keep = (y != 2) | (np.arange(len(y)) == 130)  # one sample of class 2
    with pytest.warns(RandomSetWarning, match="class 2: at most 3 samples"):
        budgeter = Budgeter(5).fit(x[keep], y[keep])
    assert budgeter.budget_.num_classes == 4
    sums = budgeter.gaussians_
    common = sums.scatter.sum(0) / sums.count.sum()
    np.testing.assert_allclose(sums.covariance(0.0)[2], common)
    assert "class 2" in budgeter.report_.warnings[0]


def test_class_of_identical_points():
    x, y = clusters(3)
    x[y == 1] = x[y == 1][0]
    assert np.isfinite(Budgeter(3).fit(x, y).overlaps_).all()
