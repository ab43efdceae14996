"""The page in a real browser: drawing gives a prediction, nothing leaves the machine, no error is logged."""

import base64
import http.client
import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_iris

from tests.commands import run

pytestmark = pytest.mark.slow


@contextmanager
def started(place, cwd, *options, before=None):
    """Start the service on a free port; give the process and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "randomset", "serve", place, "--port", "0", *options]
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=before
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://[\d.]+:\d+", line)
            assert found, line
            yield process, found[0]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    out = run("train", "digits", "--out", "run", "--epochs", 8, cwd=folder)
    assert out.returncode == 0, out.stderr
    with started("run", folder) as (process, address):
        yield folder, address
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.fixture(params=[(1100, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(request, browser, service):
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda sent: None if sent.url.startswith((service[1], "data:", "blob:")) else said.append(sent.url),
    )
    page.goto(service[1])
    page.wait_for_selector("#samples button:nth-child(24)")
    yield page
    assert said == []  # no error, no warning, no request elsewhere
    context.close()


def draw(page, *points):
    box = page.locator("#board").bounding_box()
    place = [(box["x"] + x * box["width"] / 280, box["y"] + y * box["height"] / 280) for x, y in points]
    page.mouse.move(*place[0])
    page.mouse.down()
    for point in place[1:]:
        page.mouse.move(*point, steps=6)
    page.mouse.up()


def settled(page):
    """Wait until no request is under way, and return the label and the entropy that are shown."""
    page.wait_for_selector("#answer[aria-busy=false] .label")
    text = page.locator("#answer").inner_text()
    entropy = re.search(r"Entropy ([\d.]+)", text)
    assert entropy, text
    return text.split("\n")[0], float(entropy[1])


def test_drawing_gives_a_prediction(page):
    draw(page, (140, 40), (140, 240))
    label, _ = settled(page)
    assert label == "1"
    assert page.locator("#intervals .name").count() == 10
    assert page.locator("#masses .name").count() >= 1
    page.click("#clear")
    assert "Give it something" in page.locator("#answer").inner_text()


def test_a_sample_is_turned_until_it_is_no_longer_known(page):
    for sample in page.locator("#samples button").all():
        sample.click()
        _, upright = settled(page)
        if upright < 0.5:
            break
    entropies = []
    for turn in range(0, 181, 30):
        page.locator("#rotation").fill(str(turn))
        entropies.append(settled(page)[1])
    assert entropies[0] == upright
    assert max(entropies) > upright + 0.3
    assert page.locator("#trace circle").count() == 7
    page.locator("#rotation").fill("0")
    page.locator("#noise").fill("80")
    assert settled(page)[1] > upright


def test_nothing_is_wider_than_the_screen(page):
    draw(page, (90, 60), (190, 60), (120, 240))
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_sample_is_answered_as_its_file(page, service):
    """At rotation 0 and noise 0 the page and the service say the same, to the last digit shown."""
    with urllib.request.urlopen(service[1] + "/samples") as reply:
        samples = json.load(reply)
    said, answered = [], []
    for sample, button in zip(samples, page.locator("#samples button").all(), strict=True):
        request = urllib.request.Request(
            service[1] + "/predict", base64.b64decode(sample["png"]), {"Content-Type": "image/png"}
        )
        with urllib.request.urlopen(request) as reply:
            (answer,) = json.load(reply)["predictions"]
        answered.append((answer["label"], round(answer["entropy"], 2)))
        button.click()
        said.append(settled(page))
    assert said == [(label, pytest.approx(entropy, abs=0.006)) for label, entropy in answered]


def test_the_board_keeps_its_place_while_it_is_drawn_on(page):
    before = page.locator("#board").bounding_box()
    draw(page, (90, 60), (190, 60), (120, 240))
    settled(page)
    assert page.locator("#board").bounding_box() == before


def test_what_was_cleared_does_not_come_back(page):
    def late(route):
        time.sleep(0.5)
        route.continue_()

    page.route("**/predict*", late)
    page.locator("#samples button").first.click()
    page.click("#clear")
    page.wait_for_timeout(1000)
    assert "Give it something" in page.locator("#answer").inner_text()
    assert page.locator("#bars").is_hidden()


def test_files_dropped_pasted_and_chosen(page, service):
    with urllib.request.urlopen(service[1] + "/samples") as reply:
        png = json.load(reply)[0]["png"]
    page.locator("#samples button").first.click()
    expected = settled(page)
    for kind in ("drop", "paste", "choose"):
        page.click("#clear")
        if kind == "choose":
            page.set_input_files(
                "#file", {"name": "a.png", "mimeType": "image/png", "buffer": base64.b64decode(png)}
            )
        else:
            page.evaluate(
                """([png, kind]) => {
                  const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
                  const data = new DataTransfer();
                  data.items.add(new File([bytes], "a.png", { type: "image/png" }));
                  const event = kind === "drop"
                    ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
                    : new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
                  document.body.dispatchEvent(event);
                }""",
                [png, kind],
            )
        assert settled(page) == expected


def test_every_control_has_a_name(page):
    names = page.evaluate(
        "[...document.querySelectorAll('input, button, textarea, canvas')].filter((e) => e.offsetParent)"
        ".map((e) => e.ariaLabel || e.textContent || e.labels?.[0]?.textContent"
        " || e.querySelector('img')?.alt)"
    )
    assert len(names) > 25
    assert all(names)


def test_images_that_are_not_square(browser, tmp_path):
    """The board has the network's proportions, and a sample is not bent."""
    digits = load_digits()
    np.savez(tmp_path / "wide.npz", images=(digits.images[:, 2:6] / 16).astype("f4"), labels=digits.target)
    assert run("train", "wide.npz", "--out", "run", "--epochs", 4, cwd=tmp_path).returncode == 0
    with started("run", tmp_path) as (_, address):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#samples button:nth-child(24)")
        box = page.locator("#board").bounding_box()
        assert box["width"] == 2 * box["height"]
        with urllib.request.urlopen(address + "/samples") as reply:
            samples = json.load(reply)
        for sample, button in zip(samples[:6], page.locator("#samples button").all(), strict=False):
            button.click()
            label, _ = settled(page)
            request = urllib.request.Request(
                address + "/predict", base64.b64decode(sample["png"]), {"Content-Type": "image/png"}
            )
            with urllib.request.urlopen(request) as reply:
                assert json.load(reply)["predictions"][0]["label"] == label
            page.locator("#noise").fill("2")  # now the page makes the image: it is still nearly the same
            pixels = page.evaluate(
                "[...document.getElementById('seen').getContext('2d').getImageData(0, 0, 8, 4).data]"
            )
            sent = np.asarray(Image.open(io.BytesIO(base64.b64decode(sample["png"]))).convert("L"), float)
            assert np.abs(np.reshape(pixels, (4, 8, 4))[..., 0] - sent).mean() < 6
        page.close()


def test_a_page_for_numbers(browser, tmp_path):
    iris = load_iris()
    np.savez(tmp_path / "iris.npz", features=iris.data.astype("f4"), labels=iris.target)
    assert run("train", "iris.npz", "--out", "run", "--epochs", 4, cwd=tmp_path).returncode == 0
    with started("run", tmp_path) as (_, address):
        page = browser.new_page()
        page.goto(address)
        page.fill("#text", "5.1, 3.5, 1.4, 0.2")
        settled(page)
        assert page.locator("#intervals .name").count() == 3
        page.fill("#text", "5.1, 3.5")
        page.wait_for_selector("#answer .error")
        page.fill("#text", "")
        page.wait_for_selector("#answer .hint")
        page.close()


def test_silent_connections_do_not_stop_the_service(service):
    """Half a header, more often than files may be open: others are still answered, and nothing is logged."""
    folder, _ = service

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    with started("run", folder, before=few_files) as (_, address):
        port, lines = int(address.rpartition(":")[2]), []
        for _ in range(60):
            lines.append(socket.create_connection(("127.0.0.1", port)))
            lines[-1].sendall(b"POST /predict HTTP/1.1\r\nHost: loc")
        with urllib.request.urlopen(address + "/health", timeout=10) as reply:
            assert reply.status == 200
        lines += [socket.create_connection(("127.0.0.1", port)) for _ in range(140)]
        assert lines[-1].recv(100).startswith(b"HTTP/1.1 503")  # too many: come back later
        for line in lines[60:]:
            line.close()
        assert lines[0].recv(100) == b""  # closed after ten seconds
        with urllib.request.urlopen(address + "/health", timeout=10) as reply:
            assert reply.status == 200
        for line in lines[:60]:
            line.close()


@pytest.mark.parametrize("kind", ["image/png", "application/json"])
def test_who_sends_too_much_hears_so(service, kind):
    """The refusal arrives although the client has not finished sending."""
    connection = http.client.HTTPConnection(service[1].removeprefix("http://"))
    connection.request("POST", "/predict", b"x" * 40_000_000, {"Content-Type": kind})
    reply = connection.getresponse()
    assert (reply.status, "too long" in reply.read().decode()) == (413, True)
    connection.close()


def test_killed_it_is_back_at_once(service):
    folder, _ = service
    with started("run", folder) as (process, _):
        process.kill()
    with started("run", folder) as (process, address):
        with urllib.request.urlopen(address + "/health") as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_request_under_way_is_finished(service):
    """Stopped in the middle of a body, the service still answers it, and only then ends."""
    folder, _ = service
    body = json.dumps({"inputs": np.zeros((200, 1, 8, 8)).tolist()}).encode()
    head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with started("run", folder) as (process, address):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as line:
            line.sendall(head.encode() + body[:100])
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert process.poll() is None
            line.sendall(body[100:])
            found = b""
            while part := line.recv(65536):
                found += part
        assert found.startswith(b"HTTP/1.1 200")
        assert found.count(b'"label"') == 200
        assert process.wait(20) == 0
