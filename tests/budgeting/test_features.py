"""Feature extraction from various networks and batch formats, and in several processes."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from randomset import Budgeter
from randomset.budgeting import extract_features
from randomset.errors import LabelError, RandomSetError, ShapeError
from tests.budgeting.conftest import Backwards


class NamedInputs(nn.Module):
    """A token model with keyword inputs, like those of Hugging Face."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 5)
        self.classifier = nn.Linear(5, 2)

    def forward(self, input_ids, attention_mask):
        return self.classifier(self.embed(input_ids) * attention_mask[..., None])


def convolution():
    return nn.Sequential(
        nn.Conv2d(1, 7, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(7, 3)
    )


def test_features_are_the_input_of_the_layer_that_runs_last():
    model, x = Backwards(), torch.randn(10, 4)
    features, labels = extract_features(model, [x[:6], x[6:]])
    model.eval()
    np.testing.assert_allclose(features, model.body(x).detach(), atol=1e-6)
    assert labels is None


def test_modes_and_hooks_are_restored():
    model = Backwards()
    model.body[0].eval()
    extract_features(model, [torch.randn(3, 4)])
    assert model.training
    assert not model.body[0].training
    assert all(not m._forward_pre_hooks and not m._forward_hooks for m in model.modules())


def test_named_layer_with_maps_averaged_over_space():
    model, x = convolution(), torch.randn(5, 1, 8, 8)
    features, _ = extract_features(model, [x], layer="1")
    np.testing.assert_allclose(features, model[:2](x).mean((2, 3)).detach(), atol=1e-6)
    assert extract_features(model, [x])[0].shape == (5, 7)


def test_channel_dimension_depends_on_the_layer():
    last = nn.Sequential(nn.Linear(16, 3))
    assert extract_features(last, [torch.randn(5, 7, 9, 16)])[0].shape == (5, 16)
    line = nn.Sequential(nn.Conv1d(2, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 48, 3))
    assert extract_features(line, [torch.randn(5, 2, 50)], layer="0")[0].shape == (5, 12)


def test_layer_called_by_keyword_and_string_labels():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(input=x)

    features, labels = extract_features(Named(), [(torch.ones(2, 4), ["cat", "dog"])])
    assert features.tolist() == [[1.0] * 4] * 2
    assert labels is not None
    assert labels.tolist() == ["cat", "dog"]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.ones(2, 4), torch.ones(2, 4), torch.ones(2)), "3 parts"),
        ((torch.ones(2, 4), torch.tensor(1)), "one label per input"),
    ],
)
def test_invalid_batches(batch, message):
    with pytest.raises(RandomSetError, match=message):
        extract_features(Backwards(), [batch])


def test_batches_as_mappings():
    batch = {
        "input_ids": torch.randint(10, (4, 6)),
        "attention_mask": torch.ones(4, 6),
        "labels": torch.tensor([0, 1, 1, 0]),
    }
    model = NamedInputs()
    features, labels = extract_features(model, [batch])
    np.testing.assert_allclose(features, model.embed(batch["input_ids"]).mean(1).detach(), atol=1e-6)
    assert labels is not None
    assert labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("model", "layer", "message"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten()), None, "no linear layer;.*one of 0, 1"),
        (convolution(), "fc", "unknown layer; got fc; expected one of 0, 1, 2, 3, 4"),
    ],
)
def test_missing_layers(model, layer, message):
    with pytest.raises(RandomSetError, match=message):
        extract_features(model, [torch.randn(2, 1, 4, 4)], layer=layer)


def test_empty_loader():
    with pytest.raises(ShapeError, match="loader is empty"):
        extract_features(convolution(), [])


def test_budget_from_model_and_loader():
    torch.manual_seed(0)
    x, y = torch.randn(200, 4), torch.arange(200) % 4
    model = Backwards()
    budgeter = Budgeter(3).fit((model, DataLoader(TensorDataset(x + y[:, None], y), 32)))
    model.eval()
    direct = Budgeter(3).fit(model.body(x + y[:, None]), y)
    assert budgeter.budget_ == direct.budget_
    data = TensorDataset(x + y[:, None], y)
    for given in ((model, data), (model, DataLoader(data, 64, shuffle=True)), ([model, data],)):
        assert Budgeter(3).fit(*given).budget_ == direct.budget_
    plain: DataLoader[Tensor] = DataLoader(x + y[:, None], 32)  # type: ignore[arg-type]
    assert Budgeter(3).fit((model, plain), y).budget_ == direct.budget_


def test_labels_that_do_not_belong_to_the_features():
    x, y = torch.randn(40, 4), torch.arange(40) % 4
    with pytest.raises(LabelError, match="differ from those of the loader"):
        Budgeter(3).fit((Backwards(), DataLoader(TensorDataset(x, y), 8)), y.flip(0))
    mixed: DataLoader[Tensor] = DataLoader(x, 8, shuffle=True)  # type: ignore[arg-type]
    with pytest.raises(LabelError, match="the loader shuffles"):
        Budgeter(3).fit((Backwards(), mixed), y)


def test_invalid_model_or_data():
    with pytest.raises(RandomSetError, match=r"must be a torch\.nn\.Module; got str"):
        extract_features("model", [])  # type: ignore[arg-type]
    with pytest.raises(RandomSetError, match="must be iterable; got int"):
        extract_features(Backwards(), 3)


def test_empty_sequential_is_a_valid_layer():
    """An identity shortcut may be an empty nn.Sequential, which is falsy."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.short, self.head = nn.Linear(4, 4), nn.Sequential(), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.body(x) + self.short(x))

    x = torch.randn(5, 4)
    np.testing.assert_array_equal(extract_features(Residual(), [x], layer="short")[0], x)


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
