"""The page at `/` in a real browser: what an operator and a tenant see, and what nobody may."""

from __future__ import annotations

import re
import shutil
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.server.live import ADMIN, ALICE, BOB, PATIENCE, said, wait_until
from tests.server.models import SAYING

CHROMIUM = shutil.which("chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: install Chromium (apt-get install chromium)"
)
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Opens a server's page. Whatever it complains of, or asks of another host, fails the test.

    known: complaints that the test means to cause.
    """
    tabs = []

    def open_page(server, key=None, known=None, **how):
        tab = browser.new_context(viewport={"width": 1440, "height": 1200}, **how).new_page()
        tab.set_default_timeout(1000 * PATIENCE)
        wrong = []
        tab.on(
            "console", lambda line: line.type in {"error", "warning"} and wrong.append(line.text)
        )
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on(
            "request",
            lambda asked: urlsplit(asked.url).port != server.port and wrong.append(asked.url),
        )
        tabs.append((tab, wrong, known))
        tab.goto(server.url + ("/" if key is None else f"/#key={key}"))
        return tab

    yield open_page
    for tab, wrong, known in tabs:
        tab.context.close()
        assert [each for each in wrong if known is None or not re.search(known, each)] == []


def send(tab, message):
    """Send a message and wait for the end of the answer; what was said about it."""
    turns = tab.locator("#chat-log li.assistant")
    before = turns.count()
    tab.fill("#chat-message", message)
    tab.press("#chat-message", "Enter")
    foot = turns.nth(before).locator(".foot")
    expect(foot).not_to_be_empty()
    expect(tab.locator("#chat-send")).to_be_visible()
    return foot.inner_text()


def cached_of(told):
    """(cached, prompt) tokens, as a turn tells them."""
    found = re.search(r"([\d,]+) of ([\d,]+) prompt tokens cached", told)
    return tuple(int(number.replace(",", "")) for number in found.groups())


def ask(server, key=None, message="Hello"):
    """A chat of somebody else."""
    body = {"messages": said(message)}
    answer = server.http(key).post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return answer.json()


def rows(tab, table):
    return tab.locator(f"#{table} tbody tr:not(.domain):not(.account)")


# The chat


def test_the_second_turn_of_a_chat_shows_its_hit(parrot, visit):
    parrot.forget()
    tab = visit(parrot)
    tab.fill("#chat-system", "You are a parrot of few words. " * 8)
    first = cached_of(send(tab, "What do you say?"))
    second = cached_of(send(tab, "And now?"))
    assert first[0] == 0
    assert second[0] >= first[1] - 1, "the whole first prompt, but for its last token at most"
    assert second[1] > first[1]
    expect(tab.locator("#chat-log .assistant .said")).to_have_text([SAYING, SAYING])
    expect(tab.locator("#chat-log .assistant .foot").last).to_contain_text("first token after")
    expect(rows(tab, "requests").first.locator(".bar .reused")).to_be_visible()
    [newest, oldest] = parrot.http().get("/v1/cache/requests").json()["requests"][:2]
    assert newest["cache"]["sources"]["device"] == second[0]
    assert oldest["cache"]["sources"]["computed"] == first[1]


def test_a_message_is_forecast_without_being_sent(parrot, visit):
    parrot.forget()
    tab = visit(parrot)
    first = cached_of(send(tab, "What do you say?"))
    steps = parrot.hw.progress.steps
    tab.fill("#chat-message", "And now?")
    tab.click("#chat-explain")
    forecast = tab.locator("#chat-forecast")
    expect(forecast).to_contain_text("are cached")
    found = re.search(r"Of (\d+) tokens (\d+) are cached", forecast.inner_text())
    assert parrot.hw.progress.steps == steps
    assert int(found[2]) >= first[1] - 1
    assert cached_of(send(tab, "And now?")) == (int(found[2]), int(found[1]))
    expect(forecast).to_be_empty()


def test_a_forecast_of_nothing_asks_for_a_message(parrot, visit):
    tab = visit(parrot)
    tab.click("#chat-explain")
    expect(tab.locator("#chat-forecast")).to_have_text("Write a message first.")


def test_a_chat_may_leave_the_cache_alone(parrot, visit):
    tab = visit(parrot)
    send(tab, "What do you say?")
    tab.uncheck("#chat-read")
    told = send(tab, "And now?")
    assert cached_of(told)[0] == 0
    assert "asked not to read" in told


def test_stop_ends_the_request_and_keeps_what_was_said(live, visit):
    server = live()
    server.runner.delay = 0.2
    tab = visit(server)
    tab.fill("#chat-message", "Talk")
    tab.click("#chat-send")
    expect(tab.locator("#chat-log .assistant .said")).not_to_be_empty()
    tab.click("#chat-stop")
    expect(tab.locator("#chat-log .assistant .foot")).to_have_text("Stopped.")
    server.runner.delay = 0
    wait_until(lambda: server.is_idle)
    said_so_far = tab.locator("#chat-log .assistant .said").inner_text()
    assert SAYING.startswith(said_so_far)
    assert len(said_so_far) < len(SAYING)
    assert cached_of(send(tab, "Go on"))[0] > 0
    expect(rows(tab, "requests").last).to_contain_text("cut off")


def test_a_new_chat_begins_with_nothing(parrot, visit):
    tab = visit(parrot)
    send(tab, "What do you say?")
    first = parrot.http().get("/v1/cache/requests").json()["requests"][0]
    tab.click("#chat-new")
    expect(tab.locator("#chat-log li")).to_have_count(0)
    told = cached_of(send(tab, "What do you say?"))
    assert told[1] == sum(first["cache"]["sources"].values())


def test_an_error_is_the_sentence_of_the_server(parrot, visit):
    tab = visit(parrot, known="400")
    told = send(tab, "too long " * 3000)
    assert re.fullmatch(r"The prompt has \d+ bytes, .*; shorten the prompt\.", told)
    assert cached_of(send(tab, "Hello"))[1] < 100, "the message that failed is not sent again"


# What is seen


def test_an_admin_sees_the_tree_of_all_domains(keyed, visit):
    for message in ("What do you say?", "What do you want?"):
        ask(keyed, ALICE, message)
    ask(keyed, BOB, "Hello")
    tab = visit(keyed, ADMIN)
    expect(tab.locator("#tree .domain th")).to_have_text(["alice", "bob"])
    expect(tab.locator("#who")).to_have_text("root, admin")
    alice = tab.locator("#tree tbody").first.locator("tr:not(.domain)")
    expect(alice).to_have_count(3)
    trunk, branch = (row.locator(".bar .reused").bounding_box() for row in alice.all()[:2])
    assert branch["x"] == pytest.approx(trunk["x"] + trunk["width"], abs=1.5)
    expect(tab.locator("#requests .for-admin:visible").nth(1)).to_have_text("bob")


def test_prefixes_are_shown_as_text_only_when_asked_for(keyed, visit):
    ask(keyed, ALICE, EVIL)
    tab = visit(keyed, ADMIN)
    expect(rows(tab, "tree")).to_have_count(1)
    assert "img" not in tab.locator("main").inner_text()
    tab.check("#show-text")
    expect(tab.locator("#tree q")).to_contain_text(EVIL[:12])


def test_a_branch_shows_its_text_from_where_it_differs(keyed, visit):
    for message in ("What do you say?", "What do you want?"):
        ask(keyed, ALICE, message)
    tab = visit(keyed, ADMIN)
    tab.check("#show-text")
    expect(tab.locator("#tree q")).to_have_text(
        [re.compile("What do"), *[re.compile("^…(say|want)")] * 2]
    )
    expect(tab.locator("#tree q").first).not_to_contain_text("…")


def test_a_branch_folds_and_unfolds_by_key(keyed, visit):
    for message in ("What do you say?", "What do you want?"):
        ask(keyed, ALICE, message)
    tab = visit(keyed, ADMIN)
    expect(rows(tab, "tree")).to_have_count(3)
    fold = tab.locator("#tree .fold").first
    fold.focus()
    tab.keyboard.press("Enter")
    expect(rows(tab, "tree")).to_have_count(1)
    expect(fold).to_have_attribute("aria-expanded", "false")
    expect(fold).to_be_focused()
    tab.keyboard.press("Enter")
    expect(rows(tab, "tree")).to_have_count(3)


def test_a_tenant_sees_its_own_and_is_told_why_not_more(keyed, visit):
    ask(keyed, ALICE, "What do you say?")
    pin = {"messages": said("What do you say?"), "ttl": 100}
    assert keyed.http(ALICE).post("/v1/cache/pin", json=pin).status_code == 200
    ask(keyed, BOB, "bobs secret " * 9)
    tab = visit(keyed, ALICE)
    expect(tab.locator("#tree-note")).to_contain_text("admin's key")
    expect(tab.locator("#pins tbody tr")).to_have_count(1)
    expect(tab.locator("#tiles")).to_contain_text("Reused in your last")
    assert "bob" not in tab.locator("body").inner_text()
    assert (
        tab.locator("#tree, #pages-chart, .for-admin:visible").locator("visible=true").count() == 0
    )


def test_on_an_open_server_the_page_is_of_use_without_a_key(parrot, visit):
    ask(parrot)
    tab = visit(parrot)
    expect(tab.locator("#tree-note")).to_contain_text("no tenant with admin = true")
    expect(tab.locator("#pages-chart")).to_be_visible()
    expect(tab.locator("#tiles")).to_contain_text("0 unfinished")
    expect(rows(tab, "requests").first).to_be_visible()
    expect(tab.locator("#model")).to_have_text("parrot, context 2,048 tokens")


def test_the_account_of_a_request_opens_by_key(parrot, visit):
    parrot.forget()
    ask(parrot, None, "What do you say?")
    ask(parrot, None, "What do you want?")
    tab = visit(parrot)
    tab.locator("#requests .fold").first.focus()
    tab.keyboard.press("Enter")
    account = tab.locator("#requests .account")
    expect(account).to_contain_text("Up to token")
    expect(account.locator(".kept")).to_contain_text("What do you")
    expect(account.locator(".new")).to_contain_text("want")
    tab.wait_for_timeout(2500)
    expect(account).to_be_visible()
    expect(tab.locator("#requests .fold").first).to_be_focused()


def test_tokens_are_drawn_over_time_and_read_by_key(parrot, visit):
    parrot.forget()
    tab = visit(parrot)
    send(tab, "What do you say?")
    send(tab, "And now?")
    chart = tab.locator("#reuse-chart svg")
    expect(chart.locator("path.reused")).to_have_attribute("d", re.compile("M"))
    chart.focus()
    for _ in range(3):
        tab.keyboard.press("ArrowLeft")
    expect(tab.locator("#reuse-chart .when")).to_have_text("10 s ago")
    expect(chart).to_have_attribute("aria-label", re.compile(r"10 s ago: reused .*, computed "))


def test_an_engine_that_has_stopped_shows(live, visit):
    server = live()
    tab = visit(server, known="50[03]")
    expect(tab.locator("#state")).to_have_text("ready")
    server.runner.fault = RuntimeError("planted")
    told = send(tab, "Hello")
    assert "planted" in told or "stopped" in told
    expect(tab.locator("#state")).to_have_text("The engine has stopped.")


# Keys


def test_a_key_in_the_address_leaves_it_and_stays_in_this_tab(keyed, visit):
    tab = visit(keyed, ADMIN)
    expect(tab.locator("#who")).to_have_text("root, admin")
    assert tab.url == f"{keyed.url}/"
    assert tab.evaluate("Object.values(sessionStorage)") == [ADMIN]
    assert tab.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    tab.reload()
    expect(tab.locator("#who")).to_have_text("root, admin")


def test_without_a_key_the_page_asks_for_one_and_shows_nothing(keyed, visit):
    tab = visit(keyed)
    expect(tab.locator("#notice")).to_contain_text("Enter yours above.")
    expect(tab.locator("main")).to_be_hidden()
    tab.fill("#key", ALICE)
    tab.press("#key", "Enter")
    expect(tab.locator("#who")).to_have_text("alice")
    expect(tab.locator("main")).to_be_visible()


def test_an_unknown_key_is_said_to_be_one(keyed, visit):
    tab = visit(keyed, "nobody's")
    expect(tab.locator("#notice")).to_contain_text("This API key is unknown.")
    expect(tab.locator("main")).to_be_hidden()


def test_who_takes_another_key_sees_nothing_of_the_last_one(keyed, visit):
    ask(keyed, BOB, "bobs secret")
    tab = visit(keyed, ADMIN)
    expect(tab.locator("#requests")).to_contain_text("bob")
    send(tab, "roots secret")
    tab.fill("#key", ALICE)
    tab.click("#key-form button[type=submit]")
    expect(tab.locator("#who")).to_have_text("alice")
    expect(tab.locator("#chat-log li")).to_have_count(0)
    expect(tab.locator("#requests")).not_to_contain_text("bob")
    assert tab.locator("#tree").is_hidden()


# Safety


def test_text_from_the_server_is_never_markup(live, visit):
    server = live(served_name=EVIL)
    tab = visit(server)
    tab.fill("#chat-system", EVIL)
    send(tab, EVIL)
    send(tab, EVIL * 2)
    tab.fill("#chat-message", EVIL)
    tab.click("#chat-explain")
    expect(tab.locator("#chat-forecast")).to_contain_text("are cached")
    tab.locator("#requests .fold").first.click()
    expect(tab.locator("#requests .account")).to_be_visible()
    expect(tab.locator("#chat-log .user .said")).to_have_text([EVIL, EVIL * 2])
    expect(tab.locator("#model")).to_contain_text(EVIL)
    assert tab.locator("main img, main script, .brand script").count() == 0
    assert not tab.title().startswith("owned")


def test_the_page_may_be_framed_by_nobody_and_runs_only_its_own_files(parrot):
    for path in ("/", "/main.js", "/style.css"):
        headers = parrot.http().get(path).headers
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-cache"


def test_a_script_that_gets_into_the_page_does_not_run(parrot, visit):
    tab = visit(parrot, known="Content Security Policy")
    tab.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'document.title = \"owned\"'}))"
    )
    assert tab.title() != "owned"


def test_who_the_server_takes_me_for_is_no_secret_and_never_an_error(keyed, parrot):
    def caller(server, key=None):
        answer = server.http(key).get("/v1/caller")
        assert answer.status_code == 200
        return answer.json()

    assert caller(keyed, ALICE) == {
        "tenant": "alice",
        "admin": False,
        "open": False,
        "has_admin": True,
    }
    assert caller(keyed, ADMIN)["admin"] is True
    assert caller(keyed)["tenant"] is caller(keyed, "nobody's")["tenant"] is None
    assert caller(parrot) == {"tenant": "default", "admin": False, "open": True, "has_admin": False}


# How it looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(parrot, visit, scheme):
    ask(parrot)
    tab = visit(parrot, color_scheme=scheme)
    send(tab, "Hello")
    expect(tab.locator("#state")).to_have_text("ready")
    for colour, ground, ratio in tab.evaluate(CONTRASTS):
        assert ratio >= 4.5, (colour, ground)
    is_dark = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") < "rgb(2"
    assert is_dark == (scheme == "dark")


def test_a_narrow_window_scrolls_down_only(parrot, visit):
    tab = visit(parrot)
    send(tab, "Hello")
    for width in (1440, 900, 390):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_long_chat_in_a_low_window_leaves_room_to_write(parrot, visit):
    tab = visit(parrot)
    tab.set_viewport_size({"width": 1440, "height": 600})
    for _ in range(4):
        send(tab, "Hello")
    assert tab.locator(".chat").bounding_box()["height"] <= 600
    for field in ("#chat-system", "#chat-message"):
        assert tab.locator(field).bounding_box()["height"] >= 50
    last = tab.locator("#chat-log .assistant").last.bounding_box()
    log = tab.locator("#chat-log").bounding_box()
    assert last["y"] + last["height"] <= log["y"] + log["height"] + 1, "the end is in sight"


CONTRASTS = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = channels(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *")].filter((node) =>
    node.checkVisibility() && [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim()));
  return texts.map((node) => {
    const colour = channels(getComputedStyle(node).color), behind = ground(node);
    const [a, b] = [light(colour), light(behind)].sort((x, y) => y - x);
    return [`${node.tagName}.${node.className}: ${colour}`, `${behind}`, (a + 0.05) / (b + 0.05)];
  });
}"""
