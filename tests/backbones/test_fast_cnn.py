"""The fast convolutional network: its shapes, the whitening of patches, and mirrored features."""

import pytest
import torch
from torch import nn

import randomset as rs
from randomset import backbones
from randomset.backbones import Standardise, Whitening, whiten
from randomset.errors import RandomSetError, ShapeError


def smooth_images(count, channels, size=12):
    """Images whose neighbouring pixels and channels are correlated, with an offset."""
    noise = torch.randn(count, channels, size + 2, size + 2)
    blurred = nn.functional.avg_pool2d(noise, 3, 1)
    return blurred + blurred.roll(1, 1) / 2 + 0.3


class TestShapes:
    @pytest.mark.parametrize("channels", [1, 3, 4])
    @pytest.mark.parametrize("size", [(16, 16), (28, 28), (32, 48), (64, 64)])
    def test_any_images_from_16_pixels(self, channels, size):
        network = backbones.fast_cnn(channels, 16)
        assert network(torch.randn(2, channels, *size)).shape == (2, network.num_features) == (2, 64)

    @pytest.mark.parametrize("width", [1, 4, 6, 16])
    def test_any_width_learns(self, width):
        """torch 2.13 crashed in the backward pass of channels-last convolutions with 4 channels."""
        network = backbones.fast_cnn(1, width)
        network(torch.randn(4, 1, 16, 16)).sum().backward()
        assert all(p.grad.isfinite().all() for p in network.parameters() if p.requires_grad)

    def test_the_widths_of_the_published_network(self):
        convolutions = [m for m in backbones.fast_cnn().modules() if isinstance(m, nn.Conv2d)]
        shapes = [(m.in_channels, m.out_channels) for m in convolutions]
        assert shapes == [(24, 64), (64, 64), (64, 256), (256, 256), (256, 256), (256, 256)]

    def test_convolutions_start_as_the_identity(self):
        first = next(m for m in backbones.fast_cnn(3, 16).modules() if isinstance(m, nn.Conv2d))
        second = next(m for m in backbones.fast_cnn(3, 32).modules() if isinstance(m, nn.Conv2d))
        maps = torch.randn(2, 24, 5, 5)
        assert torch.equal(first(maps), maps[:, :16])
        assert torch.equal(second(maps)[:, :24], maps)
        assert second(maps)[:, 24:].std() > 0.05

    @pytest.mark.parametrize("options", [{"in_channels": 0}, {"width": 0}])
    def test_mistakes(self, options):
        with pytest.raises(RandomSetError, match="must be at least 1"):
            backbones.fast_cnn(**options)


class TestWhitening:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_patches_are_uncorrelated_with_variance_one(self, channels):
        images = smooth_images(2000, channels)
        y = Whitening(channels).fit(images)(images).movedim(1, -1).flatten(0, 2)
        assert y.shape[1] == 8 * channels
        covariance = y[:, : 4 * channels].T.cov()
        # Components of small variance have a little less than 1, because of ε.
        assert torch.allclose(covariance, torch.eye(4 * channels), atol=0.05)
        assert torch.equal(y[:, 4 * channels :], -y[:, : 4 * channels])

    def test_by_hand(self):
        """Equal pixels have one component, their mean, of standard deviation 2σ; the floor is ε = 0.01 σ²."""
        images = 3 * torch.tensor([-1.0, 1.0])[:, None, None, None].expand(2, 1, 2, 2)
        weight = Whitening(1).fit(images, floor=0.01).weight[:4].flatten(1)
        mean, *differences = weight.flip(0)  # the largest eigenvalue comes last
        assert torch.allclose(mean, torch.full((4,), 0.5 / (4 * 9 + 0.09) ** 0.5))
        for difference in differences:
            assert difference.sum().item() == pytest.approx(0, abs=1e-5)
            assert difference.norm().item() == pytest.approx(1 / 0.3, rel=1e-4)

    def test_before_it_is_fitted(self):
        weight = Whitening(2).weight[:8].flatten(1)
        assert torch.allclose(weight @ weight.T, torch.eye(8))
        assert torch.allclose(weight[0], torch.tensor([0.5] * 4 + [0.0] * 4))

    def test_images_determine_it(self):
        images = smooth_images(50, 3)
        first, second = (Whitening(3).fit(images).weight for _ in range(2))
        assert torch.equal(first, second)
        # The same space, whatever signs the eigenvectors have: the largest entry of each is positive.
        largest = first[:12].flatten(1).gather(1, first[:12].flatten(1).abs().argmax(1, keepdim=True))
        assert (largest > 0).all()

    def test_constant_images(self):
        assert Whitening(1).fit(torch.zeros(3, 1, 4, 4)).weight.isfinite().all()
        network = backbones.fast_cnn(1, 16)
        whiten(network, torch.full((3, 1, 16, 16), 7, dtype=torch.uint8), Standardise([0.5], [1.0]))
        assert network(torch.zeros(2, 1, 16, 16)).isfinite().all()

    def test_whiten_uses_rows_and_preprocessing(self):
        images = (smooth_images(40, 3) * 30 + 128).clamp(0, 255).to(torch.uint8)
        rows, standardise = torch.arange(0, 40, 2), Standardise.from_data(images)
        network = backbones.fast_cnn(3, 16)
        whiten(network, images, standardise, rows)
        expected = Whitening(3).fit(standardise(images[rows])).weight
        assert torch.equal(network.state_dict()["layers.0.weight"], expected)
        whiten(backbones.mlp(4), images)  # without such a layer, nothing happens

    @pytest.mark.parametrize("shape", [(3, 1, 8, 8), (3, 3, 1, 8), (3, 8, 8)])
    def test_other_images(self, shape):
        with pytest.raises(ShapeError, match=r"expected \(n, 3, 2 or more, 2 or more\)"):
            Whitening(3).fit(torch.zeros(shape))

    def test_it_is_not_trained(self):
        network = backbones.fast_cnn(3, 16)
        assert "layers.0.weight" in network.state_dict()
        assert "layers.0.weight" not in dict(network.named_parameters())


class TestMirrored:
    def test_features_are_averaged_in_evaluation_mode(self):
        inner = backbones.fast_cnn(1, 16)
        network, images = backbones.mirrored(inner).eval(), torch.randn(3, 1, 16, 16)
        assert torch.allclose(network(images), (inner(images) + inner(images.flip(3))) / 2)
        inner.eval()
        network.train()
        inner.eval()
        assert torch.equal(network(images), inner(images))

    @pytest.mark.parametrize("mirror", [False, True])
    def test_saved_and_loaded(self, tmp_path, mirror):
        images = smooth_images(20, 3, 16)
        backbone = backbones.fast_cnn(3, 16)
        whiten(backbone, images)
        backbone = backbones.mirrored(backbone) if mirror else backbone
        network = rs.RandomSetNetwork(backbone, rs.Budget.from_sets([{0, 2}], 3)).eval()
        network.save(tmp_path)
        again = rs.models.load(tmp_path)
        assert torch.equal(network(images), again(images))
        assert backbones.names(again.backbone.spec) == ["mirrored", "fast_cnn"][not mirror :]
