"""Classify images with an exported network, using only onnxruntime and NumPy.

First: randomset train digits --out run && randomset export run
Run:   python examples/onnx_only.py run/model.onnx images.npz
"""

import json
import sys

import numpy as np
import onnxruntime


def main(model: str, archive: str) -> None:
    """Print one line per image."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    classes, sets = json.loads(metadata["classes"]), json.loads(metadata["sets"])
    spec = json.loads(metadata["input"])
    images = np.load(archive)["images"].reshape(-1, *spec["shape"])
    if images.dtype == np.uint8 and spec["largest"] <= 1.5:
        images = images / 255  # the network expects pixels in [0, 1]
    elif images.dtype != np.uint8 and spec["dtype"] == "uint8":
        images = (255 * images).round()
    images = images.astype(spec["dtype"])
    names = [output.name for output in session.get_outputs()]
    for row, image in enumerate(images):
        prediction = dict(zip(names, session.run(names, {"inputs": image[None]}), strict=True))
        label = int(prediction["label"][0])
        low, high = prediction["lower"][0, label], prediction["upper"][0, label]
        heaviest = int(prediction["mass"][0].argmax())
        notes = ""
        if "reliability" in prediction:
            familiar = "familiar" if prediction["familiar"][0] else "unlike the training data"
            notes += f", {familiar} (reliability {prediction['reliability'][0]:.3f})"
        if "known" in prediction and not prediction["known"][0]:
            notes += ", rejected as unknown"
        print(f"{row}: {classes[label]}, probability in [{low:.2f}, {high:.2f}]{notes}; "
              f"most mass on {{{', '.join(sets[heaviest])}}}")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
