"""The methods that RS-NN is compared with: one contract for all."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_matrix
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import randomset as rs
from randomset import backbones
from randomset.backbones.inputs import InputSpec
from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation.robustness import attack_rows
from randomset.models import FSVI, Ensemble, Epinet, LaplaceBridge, MCDropout, Softmax
from randomset.models import load as load_model
from tests.models.conftest import MAKERS, X, Y, body, make

BOUNDED = {"credal width", "non-specificity", "mass on Θ", "1 - reliability"}
SCORES = {
    **{"softmax": set(), "evidential": {"vacuity"}, "wrapped": BOUNDED},
    "random-set-ensemble": BOUNDED | {"mutual information"},
    "random-set-ensemble dempster": BOUNDED | {"mutual information"},
}


@pytest.mark.parametrize("name", MAKERS)
class TestContract:
    def test_probabilities_and_scores(self, name):
        found = make(name).predict(X)
        p, scores = found.probabilities, found.scores
        assert p.shape == (90, 3)
        assert p.dtype == torch.float32
        assert torch.allclose(p.sum(1), torch.ones(90), atol=1e-5)
        assert (p >= 0).all()
        assert set(scores) == {"entropy", "1 - maximum"} | SCORES.get(name, {"mutual information"})
        assert all(score.shape == (90,) and score.isfinite().all() for score in scores.values())
        assert all((score >= 0).all() for score in scores.values())

    def test_the_same_answer_every_time_and_in_every_batch(self, name):
        model = make(name)
        found = model.predict(X)
        assert torch.equal(found.probabilities, model.predict(X).probabilities)
        parts = type(found).concatenate([model.predict(part) for part in X.split(7)])
        assert torch.allclose(found.probabilities, parts.probabilities, atol=1e-5)
        for key, score in found.scores.items():
            assert torch.allclose(score, parts.scores[key], atol=1e-4)

    def test_nothing_to_predict(self, name):
        for nothing in (X[:0], []):
            with pytest.raises(RandomSetError, match="no inputs to predict"):
                make(name).predict(nothing)

    def test_anything_that_gives_batches(self, name):
        model, data = make(name), TensorDataset(X, Y)
        whole = model.predict(X)
        for inputs in (X.numpy(), data, DataLoader(data, 32), [(X[:50], Y[:50]), X[50:]], iter(X.split(40))):
            found = model.predict(inputs)
            assert torch.allclose(found.probabilities, whole.probabilities, atol=1e-5)
            for key, score in whole.scores.items():
                assert torch.allclose(found.scores[key], score, atol=1e-4)

    def test_the_mode_is_restored(self, name):
        model = make(name).train()
        model.predict(X)
        assert model.training

    def test_weights_carry_everything(self, name):
        first, second = make(name), make(name)
        with torch.no_grad():
            for tensor in second.state_dict().values():
                tensor.mul_(0.5) if tensor.is_floating_point() else None
        assert not torch.equal(first.predict(X).probabilities, second.predict(X).probabilities)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.predict(X).probabilities, second.predict(X).probabilities)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_other_precision_and_device(self, name, dtype):
        model = make(name).to("cpu", dtype)
        assert model.device.type == "cpu"
        p = model.predict(X.to(dtype)).probabilities
        tolerance = 0.15 if dtype == torch.bfloat16 else 1e-4
        assert torch.allclose(p.float(), make(name).predict(X).probabilities, atol=tolerance)

    def test_a_copy_after_a_step(self, name):
        model = make(name).train()
        outputs = model(X)
        model.default_loss()(outputs, Y)
        assert torch.equal(copy.deepcopy(model).predict(X).probabilities, model.predict(X).probabilities)

    def test_files(self, name, tmp_path):
        model = make(name)
        model.notes = {"classes": list("abc")}
        model.save(tmp_path)
        again = load_model(tmp_path)
        assert (type(again), again.notes) == (type(model), model.notes)
        assert torch.equal(again.predict(X).probabilities, model.predict(X).probabilities)

    @pytest.mark.slow
    def test_scores_grow_away_from_the_data(self, name):
        """Trained for a while, every score is higher between the classes than in their middle."""
        model = make(name).train()
        for part in [*getattr(model, "members", []), getattr(model, "network", model)]:
            if isinstance(part, (Ensemble, LaplaceBridge)):
                continue
            loss = part.train().default_loss()
            optimiser = torch.optim.Adam([p for p in part.parameters() if p.requires_grad], 0.01)
            for step in range(80):
                torch.manual_seed(step)
                optimiser.zero_grad()
                loss(part(X), Y).backward()
                optimiser.step()
        if isinstance(model, LaplaceBridge):
            model.fit_posterior([(X, Y)])
        for part in (model, *getattr(model, "members", [])):
            if hasattr(part, "fit_reliability"):
                part.fit_reliability((X, Y), (X, Y))
        middle = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
        between = torch.tensor([[0.1, -0.4], [1.5, 0.5], [-1.5, 0.5]])
        for score, value in model.predict(between).scores.items():
            assert value.mean() > model.predict(middle).scores[score].mean(), score


@pytest.mark.parametrize("name", ["softmax", "mc-dropout", "evidential", "epinet", "fsvi"])
def test_it_can_be_trained(name):
    """Steps down the gradient of its loss make that loss smaller; the others are made of trained parts."""
    model = make(name).train()
    loss = model.default_loss()
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    values = []
    for _ in range(30):
        torch.manual_seed(0)
        value = loss(model(X), Y)
        values.append(value.item())
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    assert values[-1] < 0.8 * values[0]


@pytest.mark.parametrize("name", ["softmax", "mc-dropout", "evidential", "epinet", "fsvi"])
def test_its_loss_takes_class_probabilities(name):
    """As smoothed labels are; a certain label has the same loss in both forms."""
    model = make(name).train()
    values = []
    for labels in (Y, nn.functional.one_hot(Y, 3).float()):
        torch.manual_seed(0)
        values.append(model.default_loss()(model(X), labels).item())
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_attacks_find_a_gradient(name):
    """Images of two pixels, labelled by the model itself: an attack makes it less sure."""
    images = (X / 20 + 0.5).clamp(0, 1).reshape(-1, 1, 1, 2)
    model = make(name).eval()
    labels = model.predict(images.flatten(1)).probabilities.argmax(1)
    rows = attack_rows(nn.Sequential(nn.Flatten(), _Logits(model)), images, labels, (0.4,), progress=False)
    assert rows[0]["accuracy"] == 1
    attacked = next(row for row in rows if row["attack"] == "PGD, own loss")
    assert attacked["1 - maximum"] > rows[0]["1 - maximum"]


class _Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return self.model.probabilities(self.model(inputs)).log()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Softmax(nn.Flatten(), 3), "cannot infer the number of features"),
        (lambda: Softmax("resnet18", 3), "must be a torch.nn.Module; got str"),
        (lambda: Softmax(body(), 1), "two or more classes"),
        (lambda: Ensemble([]), "at least one member"),
        (lambda: Ensemble([Softmax(body(), 3), Softmax(body(), 4)]), "same number of classes"),
        (lambda: MCDropout(body(), 3, rate=1.5), "dropout rate"),
        (lambda: Epinet(body(), 3, index_dim=0), "at least 1; got 0"),
        (lambda: FSVI(body(), 3, num_train=0), "num_train 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(RandomSetError, match=message):
        call()


def test_backbones_with_maps_and_tokens():
    class Output:
        def __init__(self, hidden):
            self.last_hidden_state = hidden

    class Encoder(nn.Module):
        """Yields tokens in an object, as those of Hugging Face do."""

        num_features = 5

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 5)

        def forward(self, x):
            return Output(self.layer(x)[:, None].expand(-1, 4, -1))

    assert Softmax(nn.Linear(4, 8), 3).in_features == 8
    assert Softmax(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()), 3).predict(
        torch.randn(2, 1, 5, 5)
    ).probabilities.shape == (2, 3)
    encoder = Encoder()
    assert torch.allclose(Softmax(encoder, 3).features(X), encoder.layer(X), atol=1e-6)


def test_images_as_arrays(digit_images):
    images = digit_images[0][:5]
    model = Softmax(backbones.small_cnn(1, 8), 8, preprocess=None)
    as_array = model.predict(images.numpy())
    assert np.allclose(as_array.probabilities, model.predict(images).probabilities)


class TestUnusualInputs:
    """What is not a tensor is converted or refused with a sentence."""

    @pytest.fixture
    def model(self):
        model = Softmax(nn.Flatten(), 3, in_features=4)
        model.notes = InputSpec.of(torch.rand(30, 1, 2, 2)).to_notes()
        return model

    def test_lists_and_pictures(self, model):
        images = torch.rand(3, 1, 2, 2)
        expected = model.predict(images).probabilities
        assert torch.allclose(model.predict(images.tolist()).probabilities, expected)
        picture = Image.fromarray(np.full((2, 2), 255, "uint8"))
        found = model.predict([picture, picture]).probabilities
        assert torch.allclose(found, model.predict(torch.ones(2, 1, 2, 2)).probabilities)
        assert torch.allclose(model.predict(picture).probabilities, found[:1])
        colour = picture.convert("P")  # a palette: its indices are no pixels
        assert torch.allclose(model.predict([colour]).probabilities, found[:1])
        with pytest.raises(ShapeError, match="differ in shape"):
            model.predict([picture, picture.resize((3, 3))])

    def test_arrays_that_cannot_be_written(self, model):
        images = np.random.default_rng(0).random((3, 1, 2, 2)).astype("float32")
        expected = model.predict(images).probabilities
        images.flags.writeable = False
        assert torch.equal(model.predict(images).probabilities, expected)
        assert torch.equal(model.predict([images]).probabilities, expected)

    @pytest.mark.parametrize(
        "inputs",
        [
            "digits",
            ["a.png"],
            np.array([object()]),
            np.zeros((1, 1, 2, 2), complex),
            torch.zeros(1, 2, 2) * 1j,
        ],
    )
    def test_no_numbers(self, model, inputs):
        with pytest.raises(ShapeError, match="expected numbers; got"):
            model.predict(inputs)

    def test_sparse_matrices(self, model):
        for inputs in (csr_matrix(np.ones((2, 4))), torch.ones(2, 1, 2, 2).to_sparse()):
            with pytest.raises(ShapeError, match="sparse inputs are not supported"):
                model.predict(inputs)

    def test_pictures_with_labels(self, model):
        picture = Image.fromarray(np.full((2, 2), 255, "uint8"))
        with pytest.raises(ShapeError, match=r"^expected images; got tuple"):
            model.predict([(picture, 0)])

    def test_wrong_types(self, model):
        for inputs in ({"x": torch.rand(1, 1, 2, 2)}, torch.ones(1, 1, 2, 2, dtype=torch.bool)):
            with pytest.raises(ShapeError, match="cannot take these inputs"):
                model.predict(inputs)
        with pytest.raises(ShapeError, match="differ in shape"):
            model.predict([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("random_set", [False, True])
def test_logits_never_change_the_model(random_set):
    backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    model = (
        rs.RandomSetNetwork(backbone, rs.Budget.powerset(3), in_features=8)
        if random_set
        else Softmax(backbone, 3, in_features=8)
    )
    inputs = torch.rand(6, 4)
    logits = model.train().as_logits()
    assert model.training
    assert not logits.training
    mean = backbone[1].running_mean.clone()
    first = logits.train()(inputs)
    assert torch.equal(first, logits(inputs))
    assert torch.equal(backbone[1].running_mean, mean)
    assert model.training
    assert backbone[2].training
