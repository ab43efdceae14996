"""The page in a real browser: drawing gives a prediction, nothing leaves the machine, no error is logged."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest

from tests.commands import run

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def started(place, cwd):
    """Start the service on a free port; give the process and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "randomset", "serve", place, "--port", "0"]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True, env=environment) as process:
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


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


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


def test_every_control_has_a_name(page):
    names = page.evaluate(
        "[...document.querySelectorAll('input, button, textarea, canvas')].filter((e) => e.offsetParent)"
        ".map((e) => e.ariaLabel || e.textContent || e.labels?.[0]?.textContent"
        " || e.querySelector('img')?.alt)"
    )
    assert len(names) > 25
    assert all(names)


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
