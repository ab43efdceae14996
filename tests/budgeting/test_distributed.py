"""Feature extraction in several processes."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from randomset.budgeting import extract_features
from tests.budgeting.conftest import Backwards


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_two_processes_give_the_same_features_in_order():
    torch.manual_seed(0)
    x, y = torch.randn(37, 4), torch.arange(37)
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    model = Backwards()
    one, two = extract_features(model, loader), extract_features(model, loader, devices=2, progress=False)
    np.testing.assert_allclose(one[0], two[0], atol=1e-6)
    assert one[1] is not None
    assert two[1] is not None
    assert one[1].tolist() == two[1].tolist() == list(range(37))
