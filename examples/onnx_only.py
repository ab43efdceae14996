"""Classify images with an exported network: onnxruntime and numpy, nothing else.

First: randomset train digits --out run && randomset export run
Run:   python examples/onnx_only.py run/model.onnx images.npz
"""

import json
import sys

import numpy as np
import onnxruntime


def main(model: str, archive: str) -> None:
    """Print a line for each image."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    classes, sets = json.loads(about["classes"]), json.loads(about["sets"])
    wanted = json.loads(about["input"])
    images = np.load(archive)["images"].reshape(-1, *wanted["shape"])
    if images.dtype == np.uint8 and wanted["largest"] <= 1.5:
        images = images / 255  # the network knows pixels from 0 to 1
    elif images.dtype != np.uint8 and wanted["dtype"] == "uint8":
        images = (255 * images).round()
    images = images.astype(wanted["dtype"])
    names = [output.name for output in session.get_outputs()]
    for row, image in enumerate(images):
        answer = dict(zip(names, session.run(names, {"inputs": image[None]}), strict=True))
        label = int(answer["label"][0])
        low, high = answer["lower"][0, label], answer["upper"][0, label]
        heaviest = int(answer["mass"][0].argmax())
        known = "" if "known" not in answer or answer["known"][0] else ", but this is unlike what it knows"
        print(f"{row}: {classes[label]}, probability in [{low:.2f}, {high:.2f}]{known}; "
              f"most mass on {{{', '.join(sets[heaviest])}}}")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
