"""Augmentation: what each kind does to a batch, and what it leaves as it is."""

import torch

from randomset.training.augmentation import (
    shifted_and_flipped,
)


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
