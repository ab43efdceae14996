"""The autoencoder as a reducer."""

import numpy as np
import pytest

from randomset.budgeting.autoencoder import Autoencoder
from randomset.errors import RandomSetError


def test_codes_explain_most_of_the_variance(digits):
    x = digits[0]
    coder = Autoencoder(8, steps=400)
    places = coder.fit_transform(x)
    # the places tell the features: a linear read-out explains most of their variance
    read = np.c_[places, np.ones(len(places))]
    rest = x - read @ np.linalg.lstsq(read, x, rcond=None)[0]
    assert rest.var() < 0.5 * (x - x.mean(0)).var()
    with pytest.raises(RandomSetError, match="not trained"):
        Autoencoder(2).transform(x)
