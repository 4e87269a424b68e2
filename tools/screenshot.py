"""Writes docs/images/page.png: the page of a server that two tenants use, as an admin sees it.

python tools/screenshot.py      needs Chromium and the default model; takes two minutes
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from playwright.sync_api import Page, expect, sync_playwright

FILE = Path(__file__).resolve().parent.parent / "docs" / "images" / "page.png"
PATIENCE = 300
"""Seconds."""

KEYS = {name: f"key-of-{name}-0123456789" for name in ("shop", "library", "operator")}
# So little memory that some of it has to be evicted.
CONFIG = "port = 0\nserved-name = 'smollm2-135m-instruct'\nkv-memory = '20MiB'\n" + "".join(
    f"[[tenants]]\nname = '{name}'\nkeys = ['{key}']\nadmin = {str(name == 'operator').lower()}\n"
    for name, key in KEYS.items()
)

HANDBOOK = """\
You answer the customers of a small shop for bicycles. Be brief and friendly. These are the rules.
Orders of at least 50 euros are sent free of charge; below that, sending costs 4 euros 90. Parcels
leave the shop on weekdays before noon and take two days. Whoever does not like a thing may send it
back within 30 days, unused and in its box; the money is returned within a week. Tyres, chains and
brake pads wear out and are not taken back once they were fitted. Repairs are made by appointment
only, on Tuesdays and Thursdays; a small service costs 39 euros, a big one 89, parts not included.
Children's bicycles may be exchanged for the next size within two years at half the price."""

ARTICLE = """\
You explain to visitors of a public library what they ask, from this text alone. A river begins
where water first flows on the surface: at a spring, at the foot of a glacier, or in a bog on high
ground. That place is called its headwater. Small streams join there and form larger ones, and
every one of them keeps the shape of the land it came through. Most of the length of a river system
lies in these small streams, and most of what lives in the river depends on them: they bring cool
water, gravel, leaves and insects. When one of them is dammed or dries up, the change is seen far
below, in the height of floods and in the number of fish."""

# Whose, the system prompt, what is asked one after the other.
CONVERSATIONS = (
    ("shop", HANDBOOK, ("What does it cost to send a helmet for 35 euros?", "And two of them?")),
    ("library", ARTICLE, ("What is a headwater?", "Why do small streams matter?")),
    ("shop", HANDBOOK, ("Can I send back a chain that I have fitted?",)),
    ("shop", HANDBOOK, ("What does a big service cost?", "On which days?", "And a small one?")),
    ("library", ARTICLE, ("What is a headwater in one word?",)),
    ("shop", "You translate into French.", ("Good morning, where is the shop?",)),
    ("library", ARTICLE, ("What happens when a stream is dammed?",)),
    ("shop", HANDBOOK, ("What does a big service include?",)),
)
CHAT = ("Where does a river begin?", "What lives there?")


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not installed; apt-get install chromium.")
        return 1
    expect.set_options(timeout=1000 * PATIENCE)
    with serving() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 1200})
        page.set_default_timeout(1000 * PATIENCE)
        page.goto(f"{url}/#key={KEYS['operator']}")
        for tenant, system, questions in CONVERSATIONS:
            converse(url, tenant, system, questions)
        talk(page)
        with answering(url):
            page.wait_for_timeout(3000)  # one more look
            FILE.parent.mkdir(exist_ok=True)
            page.screenshot(path=FILE, full_page=True)
        browser.close()
    return 0


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that ends with the block."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "headwater.toml"
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "headwater", "serve", "--config", str(config)]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - ours
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if " at http" in line:
                    yield line.split(" at ")[1].strip()
                    return
            raise SystemExit("The server did not start.")
        finally:
            server.terminate()
            server.communicate()


def converse(url: str, tenant: str, system: str, questions: tuple[str, ...]) -> None:
    """A conversation of a tenant's; with pauses, so that it has columns of its own in the chart."""
    messages = [{"role": "system", "content": system}]
    for question in questions:
        messages.append({"role": "user", "content": question})
        answer = httpx2.post(
            f"{url}/v1/chat/completions",
            json={"messages": messages, "max_tokens": 40, "temperature": 0},
            headers=as_tenant(tenant),
            timeout=PATIENCE,
        )
        messages.append(answer.raise_for_status().json()["choices"][0]["message"])
        time.sleep(4)


def as_tenant(tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[tenant]}"}


def talk(page: Page) -> None:
    """A chat of two turns, a forecast of the third, and an account that is open."""
    page.fill("#chat-system", ARTICLE)
    page.fill("#chat-most", "40")
    for turn, message in enumerate(CHAT):
        page.fill("#chat-message", message)
        page.press("#chat-message", "Enter")
        expect(page.locator("#chat-log .assistant .foot").nth(turn)).not_to_be_empty()
    page.fill("#chat-message", "What brings the cool water?")
    page.click("#chat-explain")
    expect(page.locator("#chat-forecast .bar")).to_be_visible()
    page.check("#show-text")
    expect(page.locator("#tree q").first).to_be_visible()
    page.locator("#requests .fold").first.click()
    page.evaluate("document.querySelector('#chat-system').scrollTop = 0")
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)


@contextmanager
def answering(url: str) -> Iterator[None]:
    """Within the block a long answer is under way."""
    body = {
        "messages": [
            {"role": "system", "content": HANDBOOK},
            {"role": "user", "content": "Write a long poem about all of these rules."},
        ],
        "max_tokens": 300,
        "stream": True,
    }
    address = f"{url}/v1/chat/completions"
    with httpx2.stream(
        "POST", address, json=body, headers=as_tenant("shop"), timeout=PATIENCE
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        yield
        lines.close()


if __name__ == "__main__":
    sys.exit(main())
