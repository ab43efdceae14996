"""The form of a model's inputs: what is converted, what is refused, and what a file keeps of it."""

import functools

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import randomset as rs
from randomset.backbones import Standardise, small_cnn
from randomset.backbones.inputs import InputSpec
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.models import Softmax

COLOUR = InputSpec((3, 8, 8), largest=1.0)
GREY = InputSpec((1, 8, 8), largest=1.0)
TABLE = InputSpec((4,), largest=3.0)


class TestFit:
    @pytest.mark.parametrize(
        ("inputs", "shape"),
        [
            (torch.rand(2, 3, 8, 8), (2, 3, 8, 8)),
            (torch.rand(3, 8, 8), (1, 3, 8, 8)),
            (torch.rand(8, 8, 3)[None], (1, 3, 8, 8)),
            (torch.rand(5, 8, 8, 3), (5, 3, 8, 8)),
            (torch.rand(5, 1, 8, 8), (5, 3, 8, 8)),
            (torch.rand(8, 8), (1, 3, 8, 8)),
            (torch.rand(5, 4, 8, 8), (5, 3, 8, 8)),
            (torch.rand(5, 3, 16, 12), (5, 3, 8, 8)),
        ],
        ids=["as it is", "one", "one, channels last", "channels last", "grey", "one grey", "alpha", "size"],
    )
    def test_layouts_of_colour_images(self, inputs, shape):
        converted, _ = COLOUR.fit(inputs)
        assert tuple(converted.shape) == shape

    def test_channels_last_are_the_same_image(self):
        images = torch.rand(5, 3, 8, 8)
        converted, done = COLOUR.fit(images.permute(0, 2, 3, 1))
        assert torch.equal(converted, images)
        assert done == []

    def test_grey_images_without_a_channel(self):
        images = torch.rand(5, 8, 8)
        assert torch.equal(GREY.fit(images)[0], images[:, None])
        assert torch.equal(GREY.fit(images[:1])[0], images[:1, None])

    def test_bytes_are_divided(self):
        images = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
        converted, done = COLOUR.fit(images)
        assert torch.equal(converted, images.float() / 255)
        assert done == ["divided by 255"]

    def test_a_model_of_bytes_takes_floats(self):
        spec, images = InputSpec((3, 8, 8), bytes=True, largest=255.0), torch.rand(5, 3, 8, 8)
        converted, done = spec.fit(images)
        assert converted.dtype == torch.uint8
        assert (converted.float() / 255 - images).abs().max() <= 0.5 / 255 + 1e-6
        assert done == ["multiplied by 255"]

    def test_the_size_is_kept_on_request(self):
        assert tuple(COLOUR.fit(torch.rand(2, 1, 16, 12), resize=False)[0].shape) == (2, 3, 16, 12)

    def test_rows_of_a_table(self):
        row = torch.rand(4)
        assert torch.equal(TABLE.fit(row)[0], row[None])
        with pytest.raises(
            ShapeError, match=r"wrong input shape.*rows of shape \(2, 5\); expected n × 4 numbers"
        ):
            TABLE.fit(torch.rand(2, 5), name="rows")

    @pytest.mark.parametrize(
        ("spec", "inputs", "message"),
        [
            (
                COLOUR,
                255 * torch.rand(2, 3, 8, 8) + 200,
                r"a different scale.*values up to about 1, or bytes",
            ),
            (
                InputSpec((3, 8, 8), largest=2.6),
                torch.zeros(2, 3, 8, 8).byte(),
                r"a different scale.*bytes up to 0",
            ),
            (
                InputSpec((3, 8, 8), bytes=True, largest=255.0),
                torch.full((2, 3, 8, 8), 7.0),
                "expected uint8",
            ),
            (COLOUR, torch.rand(2, 5, 8, 7), "1, 3 or 4 channels"),
            (COLOUR, torch.rand(2), "wrong input shape"),
            (COLOUR, torch.rand(2, 2, 3, 8, 8), "wrong input shape"),
        ],
    )
    def test_what_is_refused(self, spec, inputs, message):
        with pytest.raises(ShapeError, match=message):
            spec.fit(inputs)


class TestNotes:
    def test_what_a_file_keeps(self):
        spec = InputSpec((3, 8, 8), largest=0.75, columns=None, classes=("a", "b"))
        assert InputSpec.from_notes(spec.to_notes()) == spec
        table = InputSpec((2,), largest=9.0, columns=("height", "width"), classes=("a", "b"))
        assert InputSpec.from_notes(table.to_notes()) == table
        tokens = InputSpec.of(torch.randint(0, 9, (3, 16)))
        assert tokens.kind == "texts"
        assert InputSpec.from_notes(tokens.to_notes()).tokens

    def test_of_earlier_versions(self):
        notes = {"input_shape": [1, 8, 8], "largest_input": 1.0, "classes": ["a", "b"], "tokens": None}
        assert InputSpec.from_notes(notes) == InputSpec((1, 8, 8), largest=1.0, classes=("a", "b"))
        assert InputSpec.from_notes({}) is None

    @pytest.mark.parametrize(
        "notes", [{"input_shape": [0]}, {"input_shape": "x"}, {"classes": [1]}, {"largest_input": "much"}]
    )
    def test_damaged(self, notes):
        with pytest.raises(FileFormatError, match=f"damaged; got {next(iter(notes))}"):
            InputSpec.from_notes({"input_shape": [4], **notes})


@functools.cache
def trained(standardised=False):
    """A colour model that was trained, and its images."""
    torch.manual_seed(0)
    images = torch.rand(40, 3, 8, 8)
    preprocess = Standardise([0.5] * 3, [0.2] * 3) if standardised else None
    model = Softmax(small_cnn(3, 8), 2, preprocess=preprocess)
    rs.fit(model, (images, torch.arange(40) % 2), epochs=1, progress=False)
    return model, images


class TestColumns:
    """Data frames are read by the names of their columns."""

    spec = InputSpec((2,), columns=("width", "height"))
    frame = pandas.DataFrame({"height": [1.0, 2.0], "kind": ["a", "b"], "width": [3.0, 4.0]})

    def test_the_order_of_training(self):
        assert self.spec.by_name(self.frame).to_numpy().tolist() == [[3, 1], [4, 2]]

    def test_without_names(self):
        for given in (self.frame, pandas.DataFrame([[1.0, 2.0]]), np.ones((1, 2)), torch.ones(1, 2)):
            named = given is self.frame
            spec = InputSpec((2,)) if named else self.spec  # an array was trained on, or is predicted
            assert spec.by_name(given) is given

    def test_a_missing_column(self):
        with pytest.raises(ShapeError, match=r"lacks a column .*; got no width among height, kind"):
            self.spec.by_name(self.frame.drop(columns="width"))

    def test_predictions(self):
        model = Softmax(nn.Linear(2, 4), 2)
        model.notes = self.spec.to_notes()
        expected = model.predict(torch.tensor([[3.0, 1.0], [4.0, 2.0]])).probabilities
        assert torch.allclose(model.predict(self.frame).probabilities, expected)


def test_larger_unsigned_integers_are_refused_like_others():
    model, images = trained()
    for kind in (torch.uint16, torch.int16):
        with pytest.raises(ShapeError, match="a different scale"):
            model.predict((255 * images).to(kind))


class TestPredict:
    """Inputs of a trained model in another layout are converted, or refused with a sentence."""

    @pytest.mark.parametrize("standardised", [False, True])
    def test_layouts_that_mean_the_same(self, standardised):
        model, images = trained(standardised)
        expected = model.predict(images).probabilities
        assert torch.allclose(model.predict(images.permute(0, 2, 3, 1)).probabilities, expected, atol=1e-6)
        assert torch.allclose(model.predict(images[0]).probabilities, expected[:1], atol=1e-6)
        assert torch.allclose(model.predict(images.numpy()).probabilities, expected, atol=1e-6)
        pixels = (255 * images).round().to(torch.uint8)
        rounded = model.predict(pixels.float() / 255).probabilities
        assert torch.allclose(model.predict(pixels).probabilities, rounded, atol=1e-6)
        assert torch.allclose(model.predict(pixels.permute(0, 2, 3, 1)).probabilities, rounded, atol=1e-6)

    def test_grey_for_colour(self):
        model, images = trained()
        grey = images[:, :1]
        assert torch.equal(
            model.predict(grey).probabilities, model.predict(grey.expand(-1, 3, -1, -1)).probabilities
        )

    def test_batches_of_a_loader_are_converted_too(self):
        model, images = trained()
        batches = [(part.permute(0, 2, 3, 1), torch.zeros(len(part))) for part in images.split(16)]
        found = model.predict(batches).probabilities
        assert torch.allclose(found, model.predict(images).probabilities, atol=1e-6)

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            (torch.rand(2, 3, 9, 30), "the model cannot take these inputs"),
            (torch.rand(2, 5, 8, 8), "1, 3 or 4 channels"),
            (300 * torch.rand(2, 3, 8, 8), "a different scale"),
            (torch.rand(7), "wrong input shape"),
        ],
    )
    def test_a_sentence_instead_of_torchs_error(self, inputs, message):
        model, _ = trained()
        with pytest.raises(ShapeError, match=message):
            model.predict(inputs)

    def test_before_training_nothing_is_known_but_the_error_is_still_a_sentence(self):
        model = rs.RandomSetNetwork(small_cnn(3, 8), rs.Budget.powerset(3))
        with pytest.raises(ShapeError, match=r"cannot take these inputs.*\(3, 8, 8\).*samples first"):
            model.predict(torch.rand(3, 8, 8))

    def test_rows(self):
        rows = torch.randn(60, 4)
        model = Softmax(rs.backbones.mlp(4, (8,)), 2)
        rs.fit(model, (rows, torch.arange(60) % 2), epochs=1, progress=False)
        single = model.predict(np.asarray(rows[0])).probabilities
        assert torch.allclose(single, model.predict(rows[:1]).probabilities)
        with pytest.raises(ShapeError, match="expected n × 4 numbers"):
            model.predict(torch.randn(3, 5))


def test_images_and_tables():
    images = torch.randn(50, 3, 5, 5) * 4 + 1
    standard = Standardise.from_data(images)(images)
    assert standard.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
    assert standard.std((0, 2, 3), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)


def test_a_constant_feature_keeps_its_scale():
    table = torch.tensor([[1.0, 0.1], [2.0, 0.1], [4.0, 0.1]])
    assert Standardise.from_data(table).std[1] == 1


def test_invalid_arguments():
    with pytest.raises(RandomSetError, match="positive"):
        Standardise([0.0], [0.0])
    with pytest.raises(ShapeError, match=r"\(2, 4\).*\(batch, 3, …\)"):
        Standardise(torch.zeros(3), torch.ones(3))(torch.zeros(2, 4))


class TestAmbiguousLayouts:
    """One prediction for each image, or an error: never another number of predictions."""

    grey, colour = InputSpec.of(torch.rand(2, 1, 16, 16)), InputSpec.of(torch.rand(2, 3, 16, 16))

    def test_one_colour_image_with_channels_last(self):
        image = torch.rand(16, 16, 3)
        assert self.grey.batched(image).shape == self.colour.batched(image).shape == (1, 3, 16, 16)

    def test_flattened_images(self):
        for spec, width in ((self.grey, 256), (self.colour, 768)):
            with pytest.raises(ShapeError, match=rf"flattened; got inputs of shape \(4, {width}\)"):
                spec.batched(torch.rand(4, width))

    def test_four_grey_images_or_one_with_alpha(self):
        assert self.grey.batched(torch.rand(4, 16, 16)).shape == (4, 1, 16, 16)
        with pytest.raises(ShapeError, match="four grey images"):
            self.colour.batched(torch.rand(4, 16, 16))

    def test_several_grey_images_for_a_network_of_colours(self):
        images = torch.rand(5, 16, 16)
        assert torch.equal(self.colour.batched(images), images[:, None])
        assert self.colour.fit(images)[0].shape == (5, 3, 16, 16)
