"""Random shifts and flips of images."""

import pytest
import torch
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import backbones
from randomset.training.augmentation import shifted_and_flipped
from tests.training.conftest import BUDGET, quick


@pytest.mark.slow
class TestTraining:
    def test_augmentation_changes_the_loss(self):
        x, y = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
        losses = []
        for shift in (0.0, 0.3):
            torch.manual_seed(0)
            model = rs.RandomSetNetwork(backbones.small_cnn(1, 8, width=4), BUDGET)
            recipe = rs.Recipe.named("fast", shift=shift, flip=bool(shift), batch_size=16)
            losses.append(quick(model, TensorDataset(x, y), recipe=recipe, batch_size=None).last["loss"])
        assert losses[0] != losses[1]


class TestAugmentation:
    images = torch.rand(200, 2, 10, 20, generator=torch.Generator().manual_seed(0))

    def test_every_image_is_a_shift_of_its_own(self):
        torch.manual_seed(0)
        moved = shifted_and_flipped(self.images, shift=0.1)
        found = set()
        for before, after in zip(self.images, moved, strict=True):
            rows, columns = torch.arange(10), torch.arange(20)
            shifts = [
                (dy, dx)
                for dy in (-1, 0, 1)
                for dx in (-2, -1, 0, 1, 2)
                if torch.equal(after, before[:, (rows + dy).clamp(0, 9)][:, :, (columns + dx).clamp(0, 19)])
            ]
            assert len(shifts) == 1
            found.add(shifts[0])
        assert len(found) == 15  # every shift occurs

    def test_half_are_mirrored(self):
        torch.manual_seed(0)
        moved = shifted_and_flipped(self.images, flip=True)
        same = (moved == self.images).flatten(1).all(1)
        mirrored = (moved == self.images.flip(3)).flatten(1).all(1)
        assert (same ^ mirrored).all()
        assert 70 < same.sum() < 130

    def test_bytes_stay_bytes(self):
        pixels = (self.images * 255).byte()
        assert shifted_and_flipped(pixels, 0.2, True).dtype == torch.uint8
