"""Noise and rotation at every level."""

import pytest
import torch
from torch.utils.data import TensorDataset

from randomset.data.corruptions import gaussian_noise
from randomset.errors import ShapeError
from randomset.evaluation import as_predictor, evaluate
from randomset.evaluation.sweeps import corruption_rows, measured, pixels_of
from tests.evaluation.conftest import image_network


@pytest.mark.slow
class TestResult:
    def test_levels(self, result):
        assert [row["level"] for row in result["noise"]] == [None, 0.3]
        assert [row["level"] for row in result["rotation"]] == [None, [-30, 30]]
        assert result["noise"][0] == result["rotation"][0]


class TestNames:
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


class TestRows:
    def test_no_change_is_the_first_row(self):
        images, labels = torch.rand(40, 1, 8, 8), torch.arange(40) % 10
        predictor = as_predictor(image_network())
        rows = corruption_rows(predictor, images, labels, (0.2, 0.4), (), batch_size=16, progress=False)
        assert list(rows) == ["noise"]
        assert [row.pop("level") for row in rows["noise"]] == [None, 0.2, 0.4]
        expected = measured(predictor, images, labels)
        assert rows["noise"][0] == pytest.approx(expected, rel=1e-4)
        changed = measured(predictor, gaussian_noise(images, 0.2, seed=0), labels)
        assert rows["noise"][1] == pytest.approx(changed, rel=1e-4)

    def test_bytes_are_pixels(self):
        as_bytes = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8)
        assert torch.equal(pixels_of(as_bytes), as_bytes / 255)
        for wrong in (as_bytes.float(), torch.rand(5, 4), as_bytes.long()):
            with pytest.raises(ShapeError, match=r"pixels in \[0, 1\]"):
                pixels_of(wrong)
