"""The values printed in the paper, by table."""

# Accuracies and areas are in percent, entropies in bits.

ACCURACY = {  # Table 1
    "mnist": {"rsnn": 99.71, "laplace-bridge": 99.58, "fsvi": 99.18, "ensemble": 99.25, "epinet": 99.07, "softmax": 99.12},
    "cifar10": {"rsnn": 93.53, "laplace-bridge": 89.95, "fsvi": 80.29, "ensemble": 92.73, "epinet": 91.55, "softmax": 92.08},
    "intel": {"rsnn": 94.22, "laplace-bridge": 90.49, "fsvi": 88.92, "ensemble": 91.98, "epinet": 91.49, "softmax": 90.89},
    "cifar100": {"rsnn": 71.61, "laplace-bridge": 59.89, "fsvi": 53.34, "ensemble": 70.53, "epinet": 68.02, "softmax": 65.50},
    "imagenet": {"rsnn": 79.92, "laplace-bridge": 72.48, "fsvi": 62.56, "ensemble": 78.77, "epinet": 71.82, "softmax": 78.56},
}  # fmt: skip
MILLISECONDS = {  # Table 1
    "rsnn": 1.91, "laplace-bridge": 7.11, "fsvi": 340.25, "ensemble": 13163.50, "epinet": 3.10, "softmax": 1.91,
}  # fmt: skip
MINUTES = {  # Table 6
    "rsnn": 113.23, "laplace-bridge": 107.9, "fsvi": 1518.35, "ensemble": 426.66, "epinet": 712.302, "softmax": 85.333,
}  # fmt: skip
DETECTION = {  # Table 2: entropy, ECE, then AUROC, AUPRC and entropy on each unknown set
    "cifar10": {
        "rsnn": (0.088, 0.0484, {"svhn": (94.91, 93.72, 1.132), "intel": (97.39, 90.27, 1.517)}),
        "laplace-bridge": (0.191, 0.0585, {"svhn": (88.14, 81.96, 0.828), "intel": (82.21, 55.17, 0.763)}),
        "fsvi": (0.118, 0.0521, {"svhn": (80.59, 80.84, 0.413), "intel": (74.27, 72.51, 0.289)}),
        "ensemble": (0.154, 0.0482, {"svhn": (93.84, 91.88, 0.939), "intel": (94.25, 79.36, 1.166)}),
        "epinet": (0.126, 0.0556, {"svhn": (92.76, 89.05, 0.887), "intel": (85.67, 58.09, 0.600)}),
        "softmax": (0.114, 0.0669, {"svhn": (93.11, 91.0, 0.930), "intel": (87.75, 65.54, 0.719)}),
    },
    "mnist": {
        "rsnn": (0.010, 0.0029, {"fashion-mnist": (93.89, 93.98, 0.530), "kmnist": (96.75, 96.58, 0.740)}),
        "laplace-bridge": (0.001, 0.0032, {"fashion-mnist": (89.65, 90.36, 0.287), "kmnist": (95.61, 95.65, 0.540)}),
        "fsvi": (0.006, 0.0047, {"fashion-mnist": (92.79, 91.17, 0.264), "kmnist": (91.65, 95.75, 0.313)}),
        "ensemble": (0.031, 0.0031, {"fashion-mnist": (92.30, 92.05, 0.584), "kmnist": (95.81, 94.71, 0.564)}),
        "epinet": (0.022, 0.0039, {"fashion-mnist": (81.79, 82.92, 0.313), "kmnist": (95.94, 95.45, 0.503)}),
        "softmax": (0.023, 0.0052, {"fashion-mnist": (83.77, 84.14, 0.278), "kmnist": (94.46, 93.94, 0.616)}),
    },
    "imagenet": {
        "rsnn": (2.972, 0.1416, {"imagenet-o": (60.38, 55.16, 3.659)}),
        "laplace-bridge": (2.471, 0.5812, {"imagenet-o": (41.08, 30.99, 1.383)}),
        "fsvi": (1.328, 0.3890, {"imagenet-o": (50.55, 49.88, 1.637)}),
        "ensemble": (1.532, 0.1940, {"imagenet-o": (55.37, 53.20, 1.775)}),
        "epinet": (1.395, 0.5961, {"imagenet-o": (54.67, 43.73, 1.617)}),
        "softmax": (6.386, 0.4004, {"imagenet-o": (54.28, 48.73, 6.575)}),
    },
}  # fmt: skip
WIDTH = {  # Table 3: on the test data, then on each unknown set
    "cifar10": (0.007, {"svhn": 0.260, "intel": 0.587}),
    "mnist": (0.001, {"fashion-mnist": 0.070, "kmnist": 0.103}),
    "imagenet": (0.238, {"imagenet-o": 0.272}),
}
ARCHITECTURES = {  # Table 4: accuracy and parameters in millions, of RS-NN and CNN
    "ResNet-50, pretrained": (94.42, 94.38, 2.69, 2.62),
    "WideResNet-28-10": (93.58, 92.79, 37.0, 36.7),
    "VGG16": (87.87, 84.14, 15.12, 15.11),
    "Inception V3": (78.24, 76.89, 31.22, 31.21),
    "EfficientNet-B2": (92.10, 90.02, 7.72, 7.71),
    "ViT-B/16": (86.75, 87.21, 9.53, 9.52),
}
TRANSFORMER = {  # Table 7: width and entropy of RS-NN, entropy of CNN
    "known": (0.1082, 2.7401, 2.3442),
    "unknown": (0.1948, 4.4238, 2.8619),
}
NEAR = {  # Table 8
    "entropy": 0.0802, "width": 0.0061, "auroc": 88.01, "auprc": 84.93, "far entropy": 0.5778, "far width": 0.0721,
}  # fmt: skip
NOISE = {  # Table 11: accuracy at 0.2, 0.3 … 0.8
    "softmax": (93.40, 79.08, 79.15, 58.33, 40.19, 28.15, 28.59),
    "rsnn": (96.90, 85.36, 85.91, 68.33, 51.46, 37.18, 38.05),
    "laplace-bridge": (98.47, 95.26, 80.18, 61.56, 43.28, 31.41, 24.55),
    "epinet": (97.81, 90.76, 75.41, 58.99, 45.70, 36.97, 31.51),
}
ROTATION = {  # Table 12: from −180° to 180° in steps of 60°, then 0° to 360°
    "softmax": (36.41, 21.86, 74.41, 80.80, 23.89, 37.53, 45.86),
    "rsnn": (37.84, 23.54, 78.44, 81.46, 26.31, 38.48, 47.71),
    "laplace-bridge": (37.56, 20.19, 75.12, 77.67, 23.18, 37.83, 46.07),
    "epinet": (36.40, 19.43, 71.70, 78.59, 18.70, 36.38, 44.14),
}
FGSM = {  # Table 13: accuracy at ε = 0, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05
    "mnist": {
        "softmax": (99.12, 98.25, 94.82, 72.62, 49.75, 38.08, 32.43),
        "rsnn": (99.71, 98.46, 95.84, 91.90, 90.62, 90.10, 89.72),
        "laplace-bridge": (99.58, 99.07, 98.64, 97.15, 80.51, 47.65, 34.25),
        "epinet": (99.07, 98.56, 92.98, 51.51, 35.04, 27.03, 9.47),
    },
    "cifar10": {
        "softmax": (92.08, 41.54, 20.88, 9.18, 5.81, 4.43, 4.05),
        "rsnn": (93.53, 63.42, 61.73, 61.67, 61.53, 61.12, 60.35),
        "laplace-bridge": (89.95, 23.95, 10.54, 6.17, 5.96, 6.26, 6.47),
        "epinet": (91.55, 62.29, 42.64, 24.12, 16.39, 12.78, 11.20),
    },
}
PGD = {  # Table 14: the same
    "mnist": {
        "softmax": (99.12, 98.90, 55.44, 14.03, 8.11, 6.58, 6.58),
        "rsnn": (99.71, 99.13, 93.39, 91.06, 89.25, 89.07, 89.02),
        "laplace-bridge": (99.58, 99.35, 99.01, 33.67, 16.35, 13.64, 13.64),
        "epinet": (99.07, 98.43, 78.09, 20.64, 9.94, 3.78, 0.93),
    },
    "cifar10": {
        "softmax": (92.08, 23.82, 2.47, 0.04, 0, 0, 0),
        "rsnn": (93.53, 60.23, 59.98, 59.97, 59.97, 59.97, 59.97),
        "laplace-bridge": (89.95, 6.28, 0.51, 0.55, 0.59, 0.59, 0.59),
        "epinet": (91.55, 33.95, 4.40, 0.15, 0.02, 0, 0),
    },
}
BUDGETS = {  # Tables 16, 17 and 18: accuracy, ECE, entropy, width, then AUROC, AUPRC, entropy, width
    "every set": (92.66, 0.0501, 0.286, 0.048, {"svhn": (93.39, 91.38, 1.205, 0.408), "intel": (95.84, 89.33, 1.490, 0.669)}),
    "20 sets": (93.53, 0.0484, 0.088, 0.007, {"svhn": (94.91, 93.72, 1.132, 0.260), "intel": (97.39, 90.27, 1.517, 0.587)}),
    "UMAP": (92.97, 0.0482, 0.082, 0.007, {"svhn": (94.31, 92.46, 1.119, 0.341), "intel": (96.22, 89.66, 1.423, 0.582)}),
}  # fmt: skip
TEXT = {  # Table 19: accuracy, entropy, then AUROC, AUPRC and entropy on tweets
    "rsnn": (96.85, 0.541, 95.19, 95.93, 1.510),
    "softmax": (94.15, 0.027, 56.71, 57.54, 0.059),
}
