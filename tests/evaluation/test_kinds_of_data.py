"""evaluate() over every kind of data and model, their names, scales and rows; one pass over each."""

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

from randomset.data import Source, load_source
from randomset.errors import LabelError, RandomSetError, ShapeError
from randomset.evaluation import as_predictor, evaluate
from tests.evaluation.clouds import (
    KINDS,
    TEST,
    UNKNOWN,
    Points,
    assert_alike,
    image_network,
    model,
    network,
    points,
)


class TestData:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind):
        expected = evaluate(model, TEST)
        found = evaluate(model, KINDS[kind](), batch_size=33)
        assert_alike(found["test"], expected["test"])

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

    def test_what_was_repaired(self):
        found = network()
        expected = found.predict(TEST[0]).validity.negative.double().mean().item()
        assert evaluate(found, TEST)["test"]["negative_mass"] == pytest.approx(expected)
        assert "negative_mass" not in evaluate(model, TEST)["test"]

    def test_a_module_gives_logits(self):
        layer = nn.Linear(2, 3)
        result = evaluate(layer, TEST)
        right = layer(TEST[0]).argmax(1) == TEST[1]
        assert result["test"]["accuracy"] == pytest.approx(right.double().mean().item())

    def test_names_and_paths(self, tmp_path):
        digits = load_source("digits")
        np.savez(tmp_path / "a.npz", images=digits.inputs[:40].numpy(), labels=digits.labels[:40].numpy())
        found = image_network()
        by_name = evaluate(found, "digits")
        assert by_name["test"]["samples"] == 1797
        path = evaluate(found, tmp_path / "a.npz", {"all": digits.inputs[100:]})
        assert path["test"]["samples"] == 40
        assert path["ood"]["all"]["samples"] == 1697

    def test_classes_are_matched_by_name(self, tmp_path):
        """The file numbers its classes in another order than the network."""
        inputs, labels = TEST
        names = np.array(["c", "a", "b"])
        np.savez(tmp_path / "a.npz", features=inputs.numpy(), labels=names[labels.numpy()])
        found = network()
        result = evaluate(found, tmp_path / "a.npz")
        right = np.array(found.predict(inputs).label_names) == names[labels.numpy()]
        assert result["test"]["accuracy"] == pytest.approx(right.mean())
        np.savez(
            tmp_path / "b.npz", features=inputs.numpy(), labels=np.array(["x", "a", "b"])[labels.numpy()]
        )
        with pytest.raises(LabelError, match="unknown class; got x"):
            evaluate(found, tmp_path / "b.npz")

    def test_names_hold_for_changed_images_too(self):
        """Noise of no size: the accuracy is that of the test, in whatever order the classes are named."""

        class Named(TensorDataset):
            classes = ("dark", "bright")

        images = torch.cat((torch.full((30, 1, 4, 4), 0.2), torch.full((30, 1, 4, 4), 0.8)))
        images += 0.01 * torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(60) // 30
        by_brightness = lambda x: torch.stack((x.mean((1, 2, 3)), 1 - x.mean((1, 2, 3))), 1)  # noqa: E731
        result = evaluate(by_brightness, Named(images, labels), classes=("bright", "dark"), noise=(1e-6,))
        assert result["test"]["accuracy"] == 1
        assert [row["accuracy"] for row in result["noise"]] == [1, 1]

    def test_images_are_made_to_fit_and_it_is_said(self):
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

    def test_one_pass_over_each_set(self):
        seen = []

        def counting(inputs):
            seen.append(len(inputs))
            return model(inputs)

        evaluate(counting, TEST, {"noise": UNKNOWN}, validation=points(60, seed=3), batch_size=1000)
        assert seen == [120, 50, 60]


class TestNames:
    """Labels mean what their names say, wherever the data come from."""

    def test_of_data_sets_in_python(self):
        class Named(Points):
            classes = ("c", "a", "b")

        names = np.array(Named.classes)[TEST[1].numpy()]
        found = network()
        expected = (np.array(found.predict(TEST[0]).label_names) == names).mean()
        assert evaluate(found, Named())["test"]["accuracy"] == pytest.approx(expected)
        Named.classes = ("x", "y", "z")
        assert evaluate(found, Named())["remarks"] == [
            "test: its class names differ from the model's; classes are matched by order"
        ]
        Named.classes = ("x", "y")
        with pytest.raises(LabelError, match="classes of test do not match the model's; got x, y"):
            evaluate(found, Named())

    def test_of_hugging_face(self):
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
        )
        rows = {"text": ["good", "bad", "good good"], "label": [1, 0, 1]}
        model = as_predictor(lambda words: [[0.9, 0.1] if "good" in w else [0.1, 0.9] for w in words])
        table = datasets.Dataset.from_dict(rows, features)
        assert evaluate(model, table, classes=["pos", "neg"])["test"]["accuracy"] == 1
        words = datasets.Dataset.from_dict({"text": rows["text"], "label": ["pos", "neg", "pos"]})
        assert evaluate(model, words, classes=["pos", "neg"])["test"]["accuracy"] == 1

    def test_as_many_names_as_outputs(self):
        with pytest.raises(RandomSetError, match="3 outputs for 2 names"):
            evaluate(model, TEST, classes=["a", "b"])


class TestScale:
    def test_bytes_beside_floats_of_another_range(self):
        large = torch.rand(20, 1, 8, 8) * 255, torch.arange(20) % 10
        as_bytes = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8)
        with pytest.raises(ShapeError, match=r"another scale than in training; got inputs with bytes"):
            evaluate(image_network(), large, {"bytes": as_bytes})
        with pytest.raises(ShapeError, match="another scale than in training"):
            evaluate(image_network(), (as_bytes, large[1]), {"floats": large[0]})
        small = large[0] / 255, large[1]
        with pytest.raises(ShapeError, match="another scale than in training"):
            evaluate(image_network(), small, {"floats": large[0] + 1})

    def test_numbers_of_tables_are_left_alone(self):
        table = (10 * points()[0]).to(torch.uint8), points()[1]
        result = evaluate(model, table, {"floats": UNKNOWN})
        assert result["remarks"] == []


class TestRows:
    def test_pictures_of_pillow(self):
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
        with pytest.raises(
            RandomSetError, match="too many tensors; got 3 tensors; expected inputs and labels"
        ):
            evaluate(model, TensorDataset(TEST[0], TEST[1], TEST[1]))

    def test_a_sampler_counts_what_it_gives(self):
        images = TensorDataset(torch.rand(500, 1, 8, 8), torch.arange(500) % 10)
        loader = DataLoader(images, batch_size=16, sampler=SubsetRandomSampler(range(50)))
        result = evaluate(image_network(), loader, noise=(0.1,), samples=40)
        assert result["changed_samples"] == 40
