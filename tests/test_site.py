"""What the site of the documentation adds to its theme."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "docs" / "scripts" / "iframe-worker.js"


@pytest.mark.slow
def test_a_page_from_disk_searches_in_a_frame(browser, tmp_path):
    (tmp_path / "more.js").write_text("self.factor = 3", encoding="utf-8")
    (tmp_path / "worker.js").write_text(
        """addEventListener("message", async (event) => {
             await importScripts("more.js");
             postMessage({ product: event.data.number * factor });
           });""",
        encoding="utf-8",
    )
    page = f"""<body><script>{SCRIPT.read_text(encoding="utf-8")}</script><script>
      const worker = new Worker("worker.js");
      worker.addEventListener("message", (event) => (document.title = event.data.product));
      worker.postMessage({{ number: 14 }});
    </script></body>"""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    view = browser.new_page()
    view.goto((tmp_path / "page.html").as_uri())
    view.wait_for_function("document.title === '42'", timeout=10_000)
