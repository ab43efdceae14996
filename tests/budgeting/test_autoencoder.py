"""The autoencoder as a reducer."""

import numpy as np
import pytest

from randomset.budgeting.autoencoder import Autoencoder
from randomset.errors import RandomSetError


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
