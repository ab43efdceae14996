"""Muon: orthogonalised directions for convolutions, AdamW for the others."""

import pytest
import torch
from torch import nn

from randomset.training.muon import Muon, orthogonalised


class TestOrthogonalised:
    @pytest.mark.parametrize("shape", [(8, 8), (4, 30), (30, 4)])
    def test_singular_vectors_stay_and_values_come_near_one(self, shape):
        matrix = torch.randn(shape)
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        inner = left.T @ orthogonalised(matrix, 5) @ right.T
        assert torch.allclose(inner, inner.diagonal().diag(), atol=1e-4)
        assert (inner.diagonal().median() - 1).abs() < 0.35

    def test_one_iteration_by_hand(self):
        """Of a matrix with one singular value, s = 1: 3.4445 − 4.775 + 2.0315 = 0.701."""
        result = orthogonalised(torch.tensor([[3.0, 4.0]]), 1)
        assert torch.allclose(result, 0.701 * torch.tensor([[0.6, 0.8]]))

    def test_the_scale_does_not_matter(self):
        matrix = torch.randn(3, 5)
        assert torch.allclose(orthogonalised(matrix), orthogonalised(1e-4 * matrix), atol=1e-4)
        assert torch.equal(orthogonalised(torch.zeros(2, 3)), torch.zeros(2, 3))


class TestMuon:
    def test_a_convolution_by_hand(self):
        """Two filters of norm 1, then a step of 24 · 0.01 against the direction of gradient + momentum."""
        kernel = nn.Parameter(torch.tensor([[3.0, 0.0], [0.0, 4.0]]).view(2, 1, 1, 2))
        optimizer = Muon([kernel], 0.01)
        first = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        second = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
        expected, momentum = kernel.detach().flatten(1).clone(), torch.zeros(2, 2)
        for gradient in (first, second):
            kernel.grad = gradient.view_as(kernel)
            optimizer.step()
            momentum = 0.6 * momentum + gradient
            expected = 2**0.5 * expected / expected.norm()
            expected = expected - 0.24 * orthogonalised(gradient + 0.6 * momentum)
            assert torch.allclose(kernel.detach().flatten(1), expected, atol=1e-6)

    def test_all_others_are_those_of_adamw(self):
        ours = nn.Linear(3, 2)
        theirs = nn.Linear(3, 2)
        theirs.load_state_dict(ours.state_dict())
        one = Muon([{"params": ours.parameters(), "weight_decay": 0.1}], 0.05)
        other = torch.optim.AdamW(theirs.parameters(), 0.05, betas=(0.9, 0.95), weight_decay=0.1)
        for _ in range(5):
            inputs = torch.randn(4, 3)
            for network, optimizer in ((ours, one), (theirs, other)):
                optimizer.zero_grad()
                network(inputs).square().sum().backward()
                optimizer.step()
        assert torch.allclose(ours.weight, theirs.weight, atol=1e-5)
        assert torch.allclose(ours.bias, theirs.bias, atol=1e-5)

    def test_the_scale_of_the_loss_does_not_matter(self):
        torch.manual_seed(0)
        weights = []
        for scale in (1.0, 1e-3):
            torch.manual_seed(0)
            network = nn.Sequential(
                nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)
            )
            optimizer, images = Muon(network.parameters(), 0.01), torch.randn(8, 1, 4, 4)
            for _ in range(3):
                optimizer.zero_grad()
                (scale * network(images).square().mean()).backward()
                optimizer.step()
            weights.append(network[0].weight.detach())
        assert torch.allclose(weights[0], weights[1], atol=1e-2)

    def test_a_closure_and_weights_without_a_gradient(self):
        used, unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        optimizer = Muon([used, unused], 0.1)

        def closure():
            optimizer.zero_grad()
            loss = (used**2).sum()
            loss.backward()
            return loss

        assert optimizer.step(closure) == 1
        assert used.item() == pytest.approx(0.9)
        assert unused.item() == 1
