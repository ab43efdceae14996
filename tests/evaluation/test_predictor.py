"""Anything that predicts, as a predictor."""

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

from randomset import Budget, RandomSetNetwork
from randomset.data import Source, load_source
from randomset.errors import InvalidBeliefError, RandomSetError, ShapeError
from randomset.evaluation import Prediction, as_predictor, evaluate, random_set_predictor, softmax_predictor
from randomset.evaluation.predictor import digests_of
from tests.evaluation.conftest import (
    KINDS,
    TEST,
    UNKNOWN,
    assert_alike,
    image_network,
    model,
    network,
    points,
)


class TestPredictors:
    def test_a_softmax_model(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
        x = torch.randn(6, 4)
        found = softmax_predictor(model)(x)
        assert torch.allclose(found.probabilities, model.eval()(x).softmax(1))
        entropy = torch.distributions.Categorical(found.probabilities).entropy() / np.log(2)
        assert torch.allclose(found.scores["entropy"], entropy, atol=1e-5)

    def test_a_random_set_network(self):
        network = RandomSetNetwork(nn.Linear(4, 8), Budget.from_sets([{0, 1}], 3))
        x = torch.randn(6, 4)
        found, answer = random_set_predictor(network)(x), network.predict(x)
        assert torch.equal(found.probabilities, answer.pignistic)
        assert torch.equal(found.scores["credal width"], answer.credal_width)
        assert torch.equal(found.upper, answer.upper)
        joined = Prediction.concatenate([found, found])
        assert len(joined) == 12
        assert joined.scores.keys() == found.scores.keys()
        assert torch.equal(joined.lower[6:], answer.lower)

    def test_a_function_with_scores_of_its_own(self):
        predict = as_predictor(lambda x: (np.full((len(x), 2), 0.5), {"distance": np.arange(len(x))}))
        found = predict(np.zeros((3, 1)))
        assert found.scores["distance"].tolist() == [0, 1, 2]
        assert found.confidence.tolist() == [0.5] * 3

    def test_invalid_predictions(self):
        with pytest.raises(InvalidBeliefError, match="input 1 of a batch"):
            Prediction(torch.tensor([[0.5, 0.5], [torch.nan, 0.5]]))
        with pytest.raises(InvalidBeliefError, match="sum to one"):
            as_predictor(lambda x: [[3.0, 1.0]])([0])
        with pytest.raises(ShapeError, match="expected class probabilities"):
            Prediction(torch.ones(3))
        with pytest.raises(ShapeError, match="distance"):
            Prediction(torch.full((2, 2), 0.5), {"distance": torch.zeros(3)})
        with pytest.raises(RandomSetError, match="as_predictor"):
            softmax_predictor(lambda x: x)


class TestKindsOfModels:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: model,
            lambda: as_predictor(model),
            lambda: lambda x: model(x).numpy(),
            lambda: lambda x: (model(x).tolist(), {"own": np.arange(len(x)).astype(float)}),
        ],
    )
    def test_every_kind_of_model(self, make):
        result = evaluate(make(), TEST)
        assert result["test"]["accuracy"] == evaluate(model, TEST)["test"]["accuracy"]

    def test_estimators_and_random_sets(self):
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression().fit(TEST[0].numpy(), TEST[1].numpy())
        assert evaluate(fitted, points(seed=3))["test"]["accuracy"] > 0.9
        found = network()
        assert_alike(evaluate(found.predict, TEST)["test"], evaluate(found, TEST)["test"])

    def test_a_module_gives_logits(self):
        layer = nn.Linear(2, 3)
        result = evaluate(layer, TEST)
        right = layer(TEST[0]).argmax(1) == TEST[1]
        assert result["test"]["accuracy"] == pytest.approx(right.double().mean().item())


class TestDigests:
    def test_bytes_and_floats_are_the_same_pixels(self):
        images = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8)
        assert torch.equal(digests_of(images), digests_of(images.float() / 255))
        assert (digests_of(torch.full((2, 1, 4, 4), 0.5)) == 0).all()  # empty pictures overlap with nothing


class TestData:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind):
        expected = evaluate(model, TEST)
        found = evaluate(model, KINDS[kind](), batch_size=33)
        assert_alike(found["test"], expected["test"])

    def test_names_and_paths(self, tmp_path):
        digits = load_source("digits")
        np.savez(tmp_path / "a.npz", images=digits.inputs[:40].numpy(), labels=digits.labels[:40].numpy())
        found = image_network()
        by_name = evaluate(found, "digits")
        assert by_name["test"]["samples"] == 1797
        path = evaluate(found, tmp_path / "a.npz", {"all": digits.inputs[100:]})
        assert path["test"]["samples"] == 40
        assert path["ood"]["all"]["samples"] == 1697

    def test_images_are_converted_with_a_remark(self):
        digits = load_source("digits")
        colour = torch.randint(0, 256, (30, 3, 32, 32), dtype=torch.uint8)
        result = evaluate(image_network(), digits, {"colour": colour, "same": torch.rand(9, 1, 8, 8)})
        assert result["remarks"] == [
            "colour: divided by 255",
            "colour: colour converted to grey",
            "colour: resized from 32 × 32 to 8 × 8",
        ]
        bytes_only = (digits.inputs * 255).round().to(torch.uint8), digits.labels
        back = evaluate(image_network(), bytes_only, {"floats": torch.rand(9, 1, 8, 8)})
        assert back["remarks"] == ["floats: multiplied by 255"]
        with pytest.raises(ShapeError, match=r"wrong input shape.*\(3, 5\).*n × 2 numbers"):
            evaluate(model, TEST, {"other": torch.zeros(3, 5)})

    def test_hugging_face(self):
        pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
        names = [str(c) for c in range(10)]
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
        rows = {"image": [Image.fromarray(one) for one in pixels], "label": [k % 10 for k in range(12)]}
        table = datasets.Dataset.from_dict(rows, features)
        result = evaluate(image_network(), table)
        expected = evaluate(image_network(), (torch.from_numpy(pixels)[:, None], torch.arange(12) % 10))
        assert_alike(result["test"], expected["test"])

    def test_texts(self):
        texts = ["good", "bad", "good good", "bad bad"]
        source = Source("words", "text", texts, torch.tensor([0, 1, 0, 1]), ("good", "bad"))
        result = evaluate(
            lambda words: [[0.9, 0.1] if "good" in word else [0.1, 0.9] for word in words],
            source,
            {"others": ["tree", "house"]},
        )
        assert result["test"]["accuracy"] == 1
        assert result["ood"]["others"]["scores"]["entropy"]["auroc"] == 0.5
        with pytest.raises(RandomSetError, match="1 of 2 inputs, the first in row 1"):
            evaluate(lambda words: [[1.0, 0.0]] * len(words), source, {"same": ["tree", "bad"]})


class TestScale:
    def test_bytes_beside_floats_of_another_range(self):
        large = torch.rand(20, 1, 8, 8) * 255, torch.arange(20) % 10
        as_bytes = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8)
        with pytest.raises(ShapeError, match=r"a different scale than in training; got inputs with bytes"):
            evaluate(image_network(), large, {"bytes": as_bytes})
        with pytest.raises(ShapeError, match="a different scale than in training"):
            evaluate(image_network(), (as_bytes, large[1]), {"floats": large[0]})
        small = large[0] / 255, large[1]
        with pytest.raises(ShapeError, match="a different scale than in training"):
            evaluate(image_network(), small, {"floats": large[0] + 1})

    def test_numbers_of_tables_are_left_alone(self):
        table = (10 * points()[0]).to(torch.uint8), points()[1]
        result = evaluate(model, table, {"floats": UNKNOWN})
        assert result["remarks"] == []


class TestRows:
    def test_pillow_images(self):
        pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), dtype=np.uint8)

        class Pictures(Dataset):
            def __len__(self):
                return 6

            def __getitem__(self, place):
                return Image.fromarray(pixels[place]), place

        result = evaluate(image_network(), Pictures())
        expected = evaluate(image_network(), (torch.from_numpy(pixels)[:, None], torch.arange(6)))
        assert_alike(result["test"], expected["test"])

    def test_inputs_by_name(self):
        tokens = {"x": TEST[0], "mask": torch.ones(120)}
        named = as_predictor(lambda batch: model(batch["x"] * batch["mask"][:, None]))
        assert_alike(evaluate(named, (tokens, TEST[1]), batch_size=50)["test"], evaluate(model, TEST)["test"])

    def test_three_tensors(self):
        with pytest.raises(RandomSetError, match=r"too many parts; got 3 parts; expected \(inputs, labels\)"):
            evaluate(model, TensorDataset(TEST[0], TEST[1], TEST[1]))

    def test_a_sampler_counts_what_it_gives(self):
        images = TensorDataset(torch.rand(500, 1, 8, 8), torch.arange(500) % 10)
        loader = DataLoader(images, batch_size=16, sampler=SubsetRandomSampler(range(50)))
        result = evaluate(image_network(), loader, noise=(0.1,), samples=40)
        assert result["changed_samples"] == 40
