"""Plumbing without a subject of its own.

- `batches`: what data loaders yield: split, converted, moved to a device, passed to a model
- `checks`: argument checks
- `distributed`: prediction on several devices through Lightning
- `files`: atomic writes; tensors and JSON with format and version
- `labels`: labels and class names as integers and text
- `locks`: one process at a time in an output folder
- `progress`: progress bars
- `splits`: stratified splits
- `torchvision`: imports of torchvision and timm beside a CPU-only torch
"""
