"""The service under load: several clients at once against the bare network on the same images.

A ResNet-18 for images of 32 × 32 with random weights is served by `randomset serve` in a process of its own;
clients send PNG files, each waiting for its answer before the next request. Printed are the throughput beside
that of the bare network in batches, measured before and after in this process with as many threads, the
latencies, failures, and the memory of the service at the start and at the end.

Run: python -m benchmarks.serving
"""

from __future__ import annotations

import argparse
import http.client
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.families import neighbouring_sets
from randomset import RandomSetNetwork
from randomset.data.conversion import png_from_image
from randomset.evaluation import Threshold
from randomset.nn.backbones import resnet
from randomset.nn.preprocessing import Standardise

CLASSES, SETS = 10, 20


def network() -> RandomSetNetwork:
    """Build the network, with notes as a run has them."""
    torch.manual_seed(0)
    budget = neighbouring_sets(CLASSES, SETS)
    found = RandomSetNetwork(resnet(18), budget, preprocess=Standardise([0.5] * 3, [0.25] * 3)).eval()
    found.notes = {"classes": list(budget.classes), "input_shape": [3, 32, 32], "largest_input": 1.0}
    return found


def bare(model: RandomSetNetwork, images: torch.Tensor, seconds: float) -> float:
    """Return images per second of the network alone, in batches."""
    model.predict(images)
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        model.predict(images, batch_size=len(images)).entropy.sum()
        done += len(images)
    return done / (time.perf_counter() - start)


def body(images: torch.Tensor) -> bytes:
    """Write images as the files of a form."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    return b"".join(head + png_from_image(image) + b"\r\n" for image in images) + b"--b--\r\n"


def client(port: int, content: bytes, until: float, found: list[float], failed: list[str]) -> None:
    """Ask again and again; note how long each answer took."""
    line = http.client.HTTPConnection("127.0.0.1", port)
    while time.perf_counter() < until:
        start = time.perf_counter()
        try:
            line.request("POST", "/predict", content, {"Content-Type": "multipart/form-data; boundary=b"})
            reply = line.getresponse()
            text = reply.read()
            if reply.status != 200:
                failed.append(f"{reply.status} {text[:100]!r}")
        except (OSError, http.client.HTTPException) as error:
            failed.append(repr(error))
            line = http.client.HTTPConnection("127.0.0.1", port)
        found.append(time.perf_counter() - start)


def memory(pid: int) -> float:
    """Return the memory of a process now, in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Serve, load, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--images", type=int, default=32, help="in a request")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = network()
    draw = torch.Generator().manual_seed(1)
    images = torch.randint(
        0, 256, (arguments.clients * arguments.images, 3, 32, 32), generator=draw, dtype=torch.uint8
    )
    first = bare(model, images, 10)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        Threshold("entropy", 2.0, 0.95).save(folder)
        command = [
            sys.executable,
            "-m",
            "randomset",
            "serve",
            folder,
            "--port",
            "0",
            "--threads",
            str(arguments.threads),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            port = int(re.search(r":(\d+):", service.stdout.readline())[1])  # type: ignore[index]
            content, times, failed = body(images[: arguments.images]), list[float](), list[str]()
            client(port, content, time.perf_counter() + 3, [], failed)  # warm
            before, start = memory(service.pid), time.perf_counter()
            crowd = [
                threading.Thread(
                    target=client, args=(port, content, start + arguments.seconds, times, failed)
                )
                for _ in range(arguments.clients)
            ]
            for one in crowd:
                one.start()
            for one in crowd:
                one.join()
            spent, after = time.perf_counter() - start, memory(service.pid)
            service.terminate()
    second = bare(model, images, 10)
    alone, served = (first + second) / 2, len(times) * arguments.images / spent
    middle, late = np.quantile(times, [0.5, 0.99])
    print(f"bare network, batches of {len(images)}: {first:.0f} and {second:.0f} images/s")
    print(
        f"service, {arguments.clients} clients with {arguments.images} images a request: "
        f"{served:.0f} images/s over {spent:.0f} s"
    )
    print(f"ratio {served / alone:.2f}; {len(times)} requests, {len(failed)} failed")
    print(f"latency: median {1000 * middle:.0f} ms, 99th percentile {1000 * late:.0f} ms")
    print(f"memory of the service: {before:.0f} MB, then {after:.0f} MB")
    for line in failed[:5]:
        print(line)


if __name__ == "__main__":
    main()
