"""Shared helpers.

- `batches`: batches from data loaders: split, converted, moved to a device, passed to a model; progress bars
- `checks`: argument checks; labels, class names and sets of classes as users give them; stratified splits
- `distributed`: prediction on several devices through Lightning
- `files`: atomic writes; tensors and JSON with format and version; one process at a time in an output folder
- `torchvision`: imports of torchvision and timm beside a CPU-only torch
"""
