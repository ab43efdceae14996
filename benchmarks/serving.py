"""Load test of the service: several concurrent clients, compared with the bare network.

A ResNet-18 for 32 × 32 images with random weights is served by `randomset serve` in its own process; clients
send PNG files, each waiting for its response before the next request. Prints the throughput, that of the bare
network in batches (measured before and after, with the same number of threads), latencies, failures, the
memory of the service after each quarter, and the restart time of a service of a small CNN after a kill.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.families import neighbouring_sets
from randomset import RandomSetNetwork
from randomset.backbones.base import resnet, small_cnn
from randomset.backbones.inputs import Standardise
from randomset.data.images import png_from_image
from randomset.evaluation import Threshold

CLASSES, SETS = 10, 20


def network(backbone: nn.Module) -> RandomSetNetwork:
    """Build a network with the notes of a trained run."""
    torch.manual_seed(0)
    budget = neighbouring_sets(CLASSES, SETS)
    found = RandomSetNetwork(backbone, budget, preprocess=Standardise([0.5] * 3, [0.25] * 3)).eval()
    found.notes = {"classes": list(budget.classes), "input_shape": [3, 32, 32], "largest_input": 1.0}
    return found


def bare(model: RandomSetNetwork, images: torch.Tensor, seconds: float) -> float:
    """Return the images per second of the bare network, in batches."""
    model.predict(images)
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        model.predict(images, batch_size=len(images)).entropy.sum()
        done += len(images)
    return done / (time.perf_counter() - start)


def body(images: torch.Tensor) -> bytes:
    """Encode images as a multipart form."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    return b"".join(head + png_from_image(image) + b"\r\n" for image in images) + b"--b--\r\n"


def client(port: int, content: bytes, until: float, found: list[float], failed: list[str]) -> None:
    """Send requests until a time; record the latency of each."""
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


@contextmanager
def started(folder: str, threads: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the service; yield its process and port once it listens."""
    command = [sys.executable, "-m", "randomset", "serve", folder, "--port", "0", "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        yield service, int(re.search(r":(\d+):", service.stdout.readline())[1])  # type: ignore[index]


def memory(pid: int) -> float:
    """Return the current memory of a process in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Run the load test and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--images", type=int, default=32, help="images per request")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = network(resnet(18))
    draw = torch.Generator().manual_seed(1)
    images = torch.randint(
        0, 256, (arguments.clients * arguments.images, 3, 32, 32), generator=draw, dtype=torch.uint8
    )
    first = bare(model, images, 10)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        Threshold("entropy", 2.0, 0.95).save(folder)
        with started(folder, arguments.threads) as (service, port):
            content, times, failed = body(images[: arguments.images]), list[float](), list[str]()
            client(port, content, time.perf_counter() + 3, [], failed)  # warm-up
            start = time.perf_counter()
            clients = [
                threading.Thread(
                    target=client, args=(port, content, start + arguments.seconds, times, failed)
                )
                for _ in range(arguments.clients)
            ]
            for thread in clients:
                thread.start()
            sizes = []
            for part in range(1, 5):
                time.sleep(max(0.0, start + part * arguments.seconds / 4 - time.perf_counter()))
                sizes.append(memory(service.pid))
            for thread in clients:
                thread.join()
            spent = time.perf_counter() - start
            service.terminate()
        network(small_cnn(3, 32)).save(folder)
        with started(folder, arguments.threads) as (service, port):
            service.kill()
        start = time.perf_counter()
        with started(folder, arguments.threads) as (service, port):
            again = list[float]()
            client(port, body(images[:1]), time.perf_counter() + 0.01, again, failed)
            back = time.perf_counter() - start
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
    print("memory of the service after each quarter, MB: " + ", ".join(f"{size:.0f}" for size in sizes))
    print(f"a small CNN, killed and started again, answers after {back:.2f} s")
    for line in failed[:5]:
        print(line)


if __name__ == "__main__":
    main()
