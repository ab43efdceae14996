"""Augmentation of whole training batches, with random numbers of torch's CPU generator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta

from randomset._core.torchvision import torchvision
from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "SHIFT",
    "augmented",
    "check_augmentation",
    "mixed",
    "rand_augmented",
    "shifted_and_flipped",
    "varied",
]

_NAMES = ("none", "flip", "shift", "photos", "randaugment", "mixup")
SHIFT = 0.125
"""The largest shift of "shift", as a share of the width and height: 4 pixels of 32."""

_CROP = 0.8, 1.0  # sides of the crop of "photos", as shares of those of the image
_BEYOND = 0.1  # how far the crop may reach beyond the image, as a share of its sides
_BRIGHTNESS = 0.1  # largest change, as a share of the range of values
_CONTRAST = 0.2
_MIXUP = 0.2  # both parameters of the beta distribution


def check_augmentation(text: Any) -> frozenset[str]:
    """Return the names in a text such as "flip+mixup"; raise for unknown ones.

    >>> sorted(check_augmentation("flip+mixup")), check_augmentation("none")
    (['flip', 'mixup'], frozenset())
    """
    names = [name.strip() for name in text.split("+")] if isinstance(text, str) else [text]
    if unknown := [name for name in names if name not in _NAMES]:
        raise RandomSetError(
            "unknown augmentation",
            got=unknown[0],
            expected=f"{', '.join(_NAMES)}, or several, such as flip+mixup",
        )
    if "none" in names and len(names) > 1:
        raise RandomSetError('"none" cannot be combined with other augmentations', got=text)
    return frozenset(names) - {"none"}


def augmented(images: Tensor, names: frozenset[str], shift: float = SHIFT) -> Tensor:
    """Apply the transforms of images among `names` to a batch (B × C × H × W), of the same type and shape."""
    if names & {"shift", "flip"}:
        images = shifted_and_flipped(images, shift if "shift" in names else 0.0, "flip" in names)
    if "photos" in names:
        images = varied(images)
    return rand_augmented(images) if "randaugment" in names else images


def shifted_and_flipped(images: Tensor, shift: float = 0.0, flip: bool = False) -> Tensor:
    """Shift each image by up to `shift` of its size in each direction, and flip half of the images.

    (B × C × H × W) → (B × C × H × W). Edges are replicated. Random numbers come from the CPU generator, so
    that a seed gives the same result on every device.

    >>> _ = torch.manual_seed(1)
    >>> shifted_and_flipped(torch.arange(4.0).expand(1, 1, 1, 4), shift=0.5)
    tensor([[[[0., 0., 0., 1.]]]])
    """
    count, channels, height, width = images.shape
    rows, columns = _moved(count, height, shift), _moved(count, width, shift)
    if flip:
        mirrored = torch.rand(count) < 0.5
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    device = images.device
    return images[
        torch.arange(count, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows.to(device)[:, None, :, None],
        columns.to(device)[:, None, None, :],
    ]


def _moved(count: int, size: int, shift: float) -> Tensor:
    """Return the source index of each pixel along one axis: (count × size)."""
    reach = int(shift * size)
    places = torch.arange(size).expand(count, size)
    if not reach:
        return places
    return (places + torch.randint(-reach, reach + 1, (count, 1))).clamp(0, size - 1)


def varied(images: Tensor) -> Tensor:
    """Vary photographs: flip half of them, crop, and change brightness and contrast.

    (B × C × H × W) → (B × C × H × W). The sides of the crop are 0.8 to 1 of those of the image, and it may
    reach beyond the image by a tenth of its sides, where the image is reflected. Brightness changes by up to
    a tenth of the range of values in the batch (255 for bytes), contrast by up to a fifth.

    >>> varied(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 3, 8, 8])
    """
    count, _, height, width = images.shape
    low, high = (0, 255) if images.dtype == torch.uint8 else (images.min(), images.max())
    drawn = torch.rand(6, count, 1)
    side = _CROP[0] + (_CROP[1] - _CROP[0]) * drawn[0]
    right, down = (2 * drawn[1:3] - 1) * (1 - side + 2 * _BEYOND)
    mirror = torch.where(drawn[3] < 0.5, -1.0, 1.0)
    columns = mirror * side * _centres(width) + right
    rows = side * _centres(height) + down
    places = torch.stack(
        (columns[:, None].expand(-1, height, -1), rows[:, :, None].expand(-1, -1, width)), -1
    )
    values = images if images.dtype in (torch.float32, torch.float64) else images.float()
    cropped = torch.nn.functional.grid_sample(
        values, places.to(values), padding_mode="reflection", align_corners=False
    )
    mean = cropped.mean((1, 2, 3), keepdim=True)
    brightness, contrast = (2 * drawn[4:, :, :, None, None] - 1).to(values)
    changed = mean + (cropped - mean) * (1 + _CONTRAST * contrast) + _BRIGHTNESS * (high - low) * brightness
    changed = changed.clamp(low, high)
    return (changed if images.is_floating_point() else changed.round()).to(images.dtype)


def _centres(size: int) -> Tensor:
    """Return the centres of pixels between −1 and 1."""
    return (2 * torch.arange(size) + 1) / size - 1


def rand_augmented(images: Tensor) -> Tensor:
    """Apply torchvision's RandAugment to each image: two transforms of random kinds (Cubuk et al. 2020).

    Bytes, or floats between 0 and 1: (B × C × H × W) → (B × C × H × W). This is a loop over images, since
    torchvision applies the same transforms to all images of a batch.
    """
    transform = torchvision().transforms.RandAugment()
    whole = images.dtype == torch.uint8
    if images.shape[1] not in (1, 3) or not (whole or (images.min() >= 0 and images.max() <= 1)):
        raise ShapeError(
            "randaugment cannot transform these images",
            got=f"{images.shape[1]} channels with values from {images.min():.3g} to {images.max():.3g}",
            expected="1 or 3 channels, and bytes or values from 0 to 1",
            remedy="Leave the scaling to the network's preprocess, or use another augmentation",
        )
    pixels = images.cpu() if whole else (255 * images.cpu()).round().byte()
    changed = torch.stack([transform(image) for image in pixels])
    return (changed if whole else changed / 255).to(images)


def mixed(inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mix each sample with another one (mixup; Zhang et al. 2018): λ x_i + (1 − λ) x_j, λ ~ Beta(0.2, 0.2).

    Return the mixtures, of the same type and shape, the other samples j (B), and the shares λ (B).
    """
    if inputs.dtype != torch.uint8 and not inputs.is_floating_point():
        raise ShapeError(
            "mixup needs numbers that can be averaged",
            got=f"inputs of type {inputs.dtype}",
            expected="images or features",
        )
    others = torch.randperm(len(inputs)).to(inputs.device)
    shares = Beta(_MIXUP, _MIXUP).sample((len(inputs),)).to(inputs.device)
    values = inputs if inputs.is_floating_point() else inputs.float()
    mixtures = torch.lerp(values[others], values, shares.to(values).view(-1, *[1] * (inputs.dim() - 1)))
    return (mixtures if inputs.is_floating_point() else mixtures.round()).to(inputs.dtype), others, shares
