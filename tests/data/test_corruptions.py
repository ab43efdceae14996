"""Image corruptions."""

import math

import pytest
import torch

from randomset.data.corruptions import (
    gaussian_blur,
    gaussian_noise,
    lower_contrast,
    occluded,
    rotated,
    rotated_between,
)
from randomset.errors import RandomSetError, ShapeError

IMAGES = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class TestNoise:
    def test_scale_and_range(self):
        middle = torch.full((4, 1, 100, 100), 0.5)
        noisy = gaussian_noise(middle, 0.1, seed=1)
        assert (noisy - middle).std().item() == pytest.approx(0.1, rel=0.02)
        strong = gaussian_noise(IMAGES, 2.0)
        assert (strong.min().item(), strong.max().item()) == (0, 1)
        assert torch.equal(gaussian_noise(IMAGES, 0.3, seed=5), gaussian_noise(IMAGES, 0.3, seed=5))
        assert not torch.equal(gaussian_noise(IMAGES, 0.3, seed=5), gaussian_noise(IMAGES, 0.3, seed=6))

    def test_clipped_after_adding(self):
        """Half of the noise on white pixels is positive and clipped."""
        assert (gaussian_noise(torch.ones(1, 1, 100, 100), 0.5) == 1).float().mean().item() == pytest.approx(
            0.5, abs=0.02
        )


class TestRotation:
    @pytest.mark.parametrize("size", [12, 13])
    def test_quarter_turns_are_exact(self, size):
        images = torch.rand(3, 2, size, size, generator=torch.Generator().manual_seed(1))
        for turns in range(-4, 5):
            expected = torch.rot90(images, turns, (2, 3))
            assert torch.allclose(rotated(images, 90.0 * turns), expected, atol=1e-4)

    def test_rotation_is_about_the_centre(self):
        """The centre of mass of a blob rotates about the centre of the image."""
        images = torch.zeros(1, 1, 41, 41)
        images[0, 0, 18:23, 28:33] = 1  # ten pixels to the right of the centre
        turned = rotated(images, 30.0)[0, 0]
        rows, columns = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
        y, x = ((turned * axis).sum() / turned.sum() - 20 for axis in (rows, columns))
        assert (x.item(), -y.item()) == pytest.approx((10 * math.cos(math.pi / 6), 5), abs=0.05)

    def test_oblong_images_are_not_sheared(self):
        images = torch.zeros(1, 1, 21, 61)
        images[0, 0, 10, 24:37] = 1
        turned = rotated(images, 90.0)[0, 0]
        assert turned[4:17, 30].mean() > 0.9
        assert turned.sum().item() == pytest.approx(13, abs=0.5)

    def test_random_angles(self):
        same = rotated_between(IMAGES, 30, 30)
        assert torch.allclose(same, rotated(IMAGES, 30.0), atol=1e-5)
        spread = rotated_between(IMAGES[:1].expand(8, -1, -1, -1), -60, 60, seed=2)
        assert len({tuple(image.flatten().tolist()) for image in spread}) == 8
        with pytest.raises(RandomSetError, match="range of angles"):
            rotated_between(IMAGES, 3, 2)


def test_blur_is_a_gaussian():
    dot = torch.zeros(1, 1, 31, 31)
    dot[0, 0, 15, 15] = 1
    blurred = gaussian_blur(dot, 2.0)[0, 0]
    row = blurred[15] / blurred[15].max()
    expected = torch.exp(-((torch.arange(31.0) - 15) ** 2) / 8)
    assert torch.allclose(row[10:21], expected[10:21], atol=1e-3)
    assert blurred.sum().item() == pytest.approx(1, abs=1e-4)


def test_contrast():
    assert torch.allclose(lower_contrast(IMAGES, 1.0), IMAGES)
    flat = lower_contrast(IMAGES, 0.0)
    assert flat.flatten(1).std(1).max() < 1e-6
    assert torch.allclose(lower_contrast(IMAGES, 0.3).mean((1, 2, 3)), IMAGES.mean((1, 2, 3)), atol=1e-5)


def test_occlusion():
    covered = occluded(torch.ones(200, 2, 10, 20), 0.5, seed=1) == 0
    assert covered.sum((1, 2, 3)).tolist() == [2 * 5 * 10] * 200
    assert covered.any(0).all()  # every position is covered in some image


def test_invalid_arguments():
    with pytest.raises(ShapeError, match="Divide bytes"):
        gaussian_noise(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 0.1)
    for call in (
        lambda: gaussian_noise(IMAGES, -1),
        lambda: gaussian_blur(IMAGES, 0),
        lambda: lower_contrast(IMAGES, 2),
        lambda: occluded(IMAGES, 1.5),
    ):
        with pytest.raises(RandomSetError):
            call()
