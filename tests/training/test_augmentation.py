"""Augmentation: what each kind does to a batch, and what it leaves as it is."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetLoss, RandomSetNetwork, Recipe, backbones, fit
from randomset.belief.transforms import belief_from_classes, belief_from_label_sets
from randomset.errors import MissingPackageError, RandomSetError, ShapeError
from randomset.models import CrossEntropy, Softmax
from randomset.training import augmentation
from randomset.training.augmentation import (
    check_augmentation,
    mixed,
    rand_augmented,
    shifted_and_flipped,
    varied,
)
from tests.training.conftest import network, quick


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


class TestPhotos:
    photos = torch.rand(300, 3, 12, 16, generator=torch.Generator().manual_seed(0))

    def test_shape_type_and_range_are_kept(self):
        for images in (self.photos, self.photos.double(), self.photos.half(), (255 * self.photos).byte()):
            found = varied(images)
            assert (found.shape, found.dtype) == (images.shape, images.dtype)
            assert found.min() >= (0 if images.dtype == torch.uint8 else images.min())
            assert found.max() <= (255 if images.dtype == torch.uint8 else images.max())

    def test_every_image_changes_in_its_own_way(self):
        same = self.photos[:1].expand(50, -1, -1, -1)
        found = varied(same)
        assert len({tuple(image.flatten().tolist()) for image in found}) == 50

    def test_the_changes_are_mild(self):
        """A ramp from left to right stays a ramp, in one direction or the other, of about the same mean."""
        ramp = torch.linspace(0.3, 0.7, 16).expand(200, 1, 12, 16)
        found = varied(ramp)
        rising = found[:, :, :, 12] > found[:, :, :, 3]
        assert (rising.flatten(1).all(1) | (~rising).flatten(1).all(1)).all()
        assert 60 < int(rising.flatten(1).all(1).sum()) < 140
        assert (found.mean((1, 2, 3)) - 0.5).abs().max() < 0.2

    def test_random_numbers_are_those_of_torchs_generator(self):
        torch.manual_seed(1)
        first = varied(self.photos)
        assert not torch.equal(first, varied(self.photos))
        torch.manual_seed(1)
        assert torch.equal(first, varied(self.photos))


class TestMixup:
    @pytest.mark.parametrize("shape", [(64, 5), (64, 3, 4, 4)])
    def test_mixtures_of_two_samples(self, shape):
        inputs = torch.randn(shape)
        found, others, shares = mixed(inputs)
        assert sorted(others.tolist()) == list(range(64))
        assert ((shares >= 0) & (shares <= 1)).all()
        by_hand = [s * a + (1 - s) * inputs[j] for a, j, s in zip(inputs, others, shares, strict=True)]
        assert torch.allclose(found, torch.stack(by_hand), atol=1e-5)

    def test_bytes_stay_bytes_and_tokens_are_refused(self):
        pixels = torch.randint(0, 256, (8, 1, 4, 4), dtype=torch.uint8)
        found, others, shares = mixed(pixels)
        expected = shares[3] * pixels[3] + (1 - shares[3]) * pixels[others[3]]
        assert found.dtype == torch.uint8
        assert (found[3] - expected).abs().max() <= 0.51
        with pytest.raises(ShapeError, match=r"averaged; got inputs of type torch\.int64"):
            mixed(torch.zeros(4, 7, dtype=torch.long))


class TestNames:
    def test_combinations(self):
        assert check_augmentation("flip + mixup") == {"flip", "mixup"}
        assert check_augmentation("none") == frozenset()

    @pytest.mark.parametrize("text", ["", "blur", "flip+", "flip,mixup", 3, "none+flip"])
    def test_mistakes(self, text):
        with pytest.raises(RandomSetError, match=r"unknown augmentation|cannot be combined"):
            check_augmentation(text)


class Inverting:
    """Stands for torchvision's RandAugment."""

    def __call__(self, image):
        assert (image.dtype, image.dim()) == (torch.uint8, 3)
        return 255 - image


class TestRandAugment:
    """With a stand-in for torchvision; tests/vision has the real one."""

    @pytest.fixture(autouse=True)
    def torchvision(self, monkeypatch):
        library = SimpleNamespace(transforms=SimpleNamespace(RandAugment=Inverting))
        monkeypatch.setattr(augmentation, "torchvision", lambda: library)

    def test_bytes_and_floats(self):
        pixels = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8)
        assert torch.equal(rand_augmented(pixels), 255 - pixels)
        found = rand_augmented(pixels / 255)
        assert found.dtype == torch.float32
        assert torch.allclose(found, 1 - pixels / 255, atol=1e-6)

    @pytest.mark.parametrize(
        "images", [torch.rand(2, 2, 4, 4), 3 * torch.rand(2, 3, 4, 4), -torch.rand(2, 1, 4, 4)]
    )
    def test_images_that_it_cannot_transform(self, images):
        with pytest.raises(ShapeError, match="expected 1 or 3 channels, and bytes or values from 0 to 1"):
            rand_augmented(images)


def test_without_torchvision_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingPackageError, match=r"randomset\[vision\]"):
        fit(
            nn.Linear(4, 2),
            (torch.zeros(4, 4), torch.arange(4) % 2),
            loss=CrossEntropy(),
            augment="randaugment",
        )


class TestInTraining:
    def classifier(self):
        torch.manual_seed(0)
        return Softmax(backbones.small_cnn(1, 8, width=4), 10)

    def loss(self, augment, data=None):
        if data is None:
            data = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
        return quick(self.classifier(), data, augment=augment, batch_size=16).last["loss"]

    def test_every_kind_changes_the_loss(self):
        data = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
        losses = [
            self.loss(kind, data) for kind in ("none", "flip", "shift", "photos", "mixup", "photos+mixup")
        ]
        assert len(set(losses)) == len(losses)
        assert self.loss("none", data) == losses[0]
        assert self.loss("shift+flip", data) == self.loss("flip+shift", data)

    def test_names_replace_shift_and_flip(self):
        paper = Recipe.named("paper", epochs=1)
        assert paper.augmentations == {"flip", "shift"}
        assert Recipe.named(paper, augment="none").augmentations == frozenset()
        assert Recipe.named(paper, augment="mixup").augmentations == {"mixup"}

    def test_images_only(self, digits):
        with pytest.raises(ShapeError, match=r"got flip for inputs of shape \(64, 64\); expected images"):
            quick(network(), digits[0], augment="flip+mixup")
        assert quick(network(), digits[0], augment="mixup").last["loss"] > 0
        assert quick(network(), digits[0], recipe=Recipe(flip=True)).last["loss"] > 0  # as ever


class TestMixedLabels:
    """A mixture has the mass λ on the label of one sample, and 1 − λ on that of the other."""

    @pytest.mark.parametrize("kind", ["class", "set"])
    def test_the_target_of_a_mixture(self, monkeypatch, kind):
        budget = Budget.from_sets([{0, 1}, {1, 2}], 3)
        shares, others = torch.tensor([0.25, 1.0, 0.6]), torch.tensor([1, 2, 0])
        from randomset.training import engine  # needs Lightning, which takes seconds

        monkeypatch.setattr(engine, "mixed", lambda inputs: (inputs, others, shares))
        torch.manual_seed(0)
        model = RandomSetNetwork(nn.Linear(4, 6), budget)
        inputs, labels = torch.randn(3, 4), torch.tensor([0, 1, 2])
        if kind == "set":
            labels = torch.tensor([[True, True, False], [False, True, True], [False, False, True]])
        loss = RandomSetLoss(budget, alpha=0.5, beta=0.5, disambiguate=False)
        target = []
        for label in (labels, labels[others]):
            if kind == "set":
                target.append(belief_from_label_sets(label, model.operators, torch.float32))
            else:
                target.append(belief_from_classes(label, model.operators, torch.float32))
        mixture = shares[:, None] * target[0] + (1 - shares[:, None]) * target[1]
        model.train()
        expected = loss._loss(model(inputs), mixture, None, labels)
        found = quick(model, [(inputs, labels)], loss=loss, augment="mixup", precision="32-true")
        assert found.last["loss"] == pytest.approx(expected.item(), rel=1e-5)
