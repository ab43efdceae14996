"""Shared helpers.

- `batches`: batches from data loaders: split, converted, moved to a device, passed to a model
- `checks`: argument checks
- `distributed`: prediction on several devices through Lightning
- `files`: atomic writes; tensors and JSON with format and version
- `labels`: labels and class names as integers and text; stratified splits
- `locks`: one process at a time in an output folder
- `progress`: progress bars
- `torchvision`: imports of torchvision and timm beside a CPU-only torch
"""
