"""The page in a real browser: drawing gives a prediction, nothing leaves the machine, no error is logged."""

import base64
import io
import json
import re
import time
import urllib.request

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_iris

from randomset import backbones
from randomset.evaluation import Threshold
from tests.commands import run
from tests.serving.conftest import network_of, noted, started

pytestmark = pytest.mark.slow


@pytest.fixture(params=[(1100, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(request, browser, service):
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, log = context.new_page(), []
    page.on("console", lambda message: log.append(message.text))
    page.on("pageerror", lambda error: log.append(str(error)))
    page.on(
        "request",
        lambda sent: None if sent.url.startswith((service[1], "data:", "blob:")) else log.append(sent.url),
    )
    page.goto(service[1])
    page.wait_for_selector("#samples button:nth-child(24)")
    yield page
    assert log == []  # no error, no warning, no request elsewhere
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
    assert "Enter an input" in page.locator("#answer").inner_text()


def test_rotating_a_sample_raises_its_entropy(page):
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


def test_page_fits_the_screen(page):
    draw(page, (90, 60), (190, 60), (120, 240))
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_samples_are_predicted_like_their_files(page, service):
    """Without rotation and noise the page shows what the service predicts for the file."""
    with urllib.request.urlopen(service[1] + "/samples") as reply:
        samples = json.load(reply)
    shown, answered = [], []
    for sample, button in zip(samples, page.locator("#samples button").all(), strict=True):
        request = urllib.request.Request(
            service[1] + "/predict", base64.b64decode(sample["png"]), {"Content-Type": "image/png"}
        )
        with urllib.request.urlopen(request) as reply:
            (answer,) = json.load(reply)["predictions"]
        answered.append((answer["label"], round(answer["entropy"], 2)))
        button.click()
        shown.append(settled(page))
    assert shown == [(label, pytest.approx(entropy, abs=0.006)) for label, entropy in answered]


def test_board_stays_in_place_while_drawing(page):
    before = page.locator("#board").bounding_box()
    draw(page, (90, 60), (190, 60), (120, 240))
    settled(page)
    assert page.locator("#board").bounding_box() == before


def test_late_answers_are_dropped_after_clearing(page):
    def late(route):
        time.sleep(0.5)
        route.continue_()

    page.route("**/predict*", late)
    page.locator("#samples button").first.click()
    page.click("#clear")
    page.wait_for_timeout(1000)
    assert "Enter an input" in page.locator("#answer").inner_text()
    assert page.locator("#bars").is_hidden()


def test_dropped_pasted_and_chosen_files(page, service):
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


def test_rectangular_images(browser, tmp_path):
    """The board has the network's proportions, and samples are not distorted."""
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
            page.locator("#noise").fill("2")  # now the page draws the image: nearly the same
            pixels = page.evaluate(
                "[...document.getElementById('seen').getContext('2d').getImageData(0, 0, 8, 4).data]"
            )
            sent = np.asarray(Image.open(io.BytesIO(base64.b64decode(sample["png"]))).convert("L"), float)
            assert np.abs(np.reshape(pixels, (4, 8, 4))[..., 0] - sent).mean() < 6
        page.close()


def test_page_for_numbers(browser, tmp_path):
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


@pytest.mark.parametrize("reliability", [True, False])
def test_verdicts(browser, tmp_path, reliability):
    """The page says whether an input is like the training data, and what the threshold makes of it."""
    network = noted(network_of(backbones.mlp(4)), (4,), largest_input=100.0)
    inputs = torch.randn(200, 4)
    if reliability:
        network.fit_reliability((inputs, torch.arange(200) % 10), (inputs[:50], torch.arange(50) % 10))
    first = network.predict(inputs).reliability
    near = int(first.argmax())
    if reliability:  # just too low, as where nearly all inputs have r > 0.999
        network.reliability.familiar_from.fill_(float(first[near]) + 2e-5)
    rows = torch.stack((inputs[near], torch.full((4,), 50.0)))
    answer = network.predict(rows)
    network.save(tmp_path / "run")
    Threshold("entropy", 2.5, 0.95).save(tmp_path / "run")
    with started("run", tmp_path) as (_, address):
        page = browser.new_page()
        page.goto(address)
        limit = answer.familiar_from
        for row, r, entropy in zip(rows.tolist(), answer.reliability, answer.entropy, strict=True):
            page.fill("#text", "")
            page.wait_for_selector("#answer .hint")
            page.fill("#text", " ".join(map(str, row)))
            settled(page)
            n = next((n for n in (3, 4, 5, 6) if f"{r:.{n}f}" != f"{limit:.{n}f}"), 3)
            words = f"({limit:.{n}f} or more for 95 % of known inputs)"
            familiar = [f"unlike the training data: reliability {r:.{n}f} {words}"]
            accepted = "accepted: entropy within 2.5" if entropy <= 2.5 else "rejected: entropy above 2.5"
            found = page.locator("#answer .badge").all_inner_texts()
            assert found == [*(familiar if reliability else []), accepted]
        assert (answer.reliability[1] < 0.5) == reliability
        page.close()
