"""The paper's architectures: parameters, and the time of a training step as a random-set network.

Claim: with any backbone, a step with 10 classes and 20 sets costs within a few percent of a softmax step, and
the parameters grow by those of 20 outputs. The softmax and the random-set network take turns, call by call,
on small images, beside the numbers of the paper (Table 4, in millions). The published networks come from
torchvision, the wide ResNet is ours.

Run: .venv-vision/bin/python -m benchmarks.architectures (after `make test-vision`)
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from benchmarks.families import neighbouring_sets, ratios
from benchmarks.training import step
from randomset import RandomSetLoss, RandomSetNetwork
from randomset._core.batches import feature_tensor
from randomset.training.preparation import backbone_for

# name: backbone, image size, hidden layers of the head, millions of parameters in the paper
PAPER: dict[str, tuple[str, int, tuple[int, ...], tuple[float, float]]] = {
    "ResNet-50, head 1024/512": ("torchvision:resnet50", 64, (1024, 512), (2.69, 2.62)),
    "WideResNet-28-10": ("wide_resnet", 32, (), (37.0, 36.7)),
    "VGG16": ("torchvision:vgg16", 64, (), (15.12, 15.11)),
    "Inception V3": ("torchvision:inception_v3", 96, (), (31.22, 31.21)),
    "EfficientNet-B2": ("torchvision:efficientnet_b2", 64, (), (7.72, 7.71)),
    "ViT-B/16": ("torchvision:vit_b_16", 64, (), (9.53, 9.52)),
}


class Plain(nn.Module):
    """The same backbone with the same hidden layers and N logits."""

    def __init__(self, backbone: nn.Module, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        widths = [int(backbone.num_features), *hidden]  # type: ignore[arg-type]
        layers: list[nn.Module] = [backbone]
        for before, after in zip(widths, [*hidden, outputs], strict=True):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.backbone, self.head = backbone, nn.Sequential(*layers[1:-1])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return self.head(feature_tensor(self.backbone(images)))


def millions(module: nn.Module) -> float:
    """Return the number of parameters in millions."""
    return sum(p.numel() for p in module.parameters()) / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=8, help="images per step")
    parser.add_argument("--pairs", type=int, default=6, help="number of timed pairs")
    arguments = parser.parse_args()
    budget = neighbouring_sets(10, 20)
    print(f"{arguments.batch} images in a step, {torch.get_num_threads()} threads")
    print("| architecture | side | plain, M | random-set, M | paper, M | step, s | ratio | quartiles |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (backbone, side, hidden, printed) in PAPER.items():
        torch.manual_seed(0)
        images, labels = torch.rand(arguments.batch, 3, side, side), torch.arange(arguments.batch) % 10
        plain = Plain(backbone_for(backbone, images), hidden, 10).train()
        network = RandomSetNetwork(backbone_for(backbone, images), budget, hidden=hidden).train()
        low, middle, high, _, time = ratios(
            step(plain, nn.CrossEntropyLoss(), images, labels),
            step(network, RandomSetLoss(budget), images, labels),
            pairs=arguments.pairs,
        )
        counts = f"{millions(plain):.2f} | {millions(network):.2f} | {printed[1]} and {printed[0]}"
        spread = f"{low:.3f} to {high:.3f}"
        print(f"| {name} | {side} | {counts} | {time:.2f} | {middle:.3f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
