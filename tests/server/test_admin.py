"""`/v1/admin/...`: for operators alone."""

from __future__ import annotations

import pytest

from headwater.engine.loaded import LoadedModel
from tests.server.live import ADMIN, ALICE, BOB, TENANTS, Live, said, wait_until
from tests.server.models import SAYING

CHAT = "/v1/chat/completions"
TEXT = "the quick brown fox and its xylophone"
ROUTES = (
    ("GET", "tree", None),
    ("GET", "stats", None),
    ("GET", "requests", None),
    ("POST", "flush", {"tenant": "alice"}),
    ("POST", "weights", {"model": "/nowhere"}),
    ("POST", "drain", None),
)


@pytest.fixture
def admin(keyed):
    return keyed.http(ADMIN)


def _ask(http, message=TEXT):
    found = http.post(CHAT, json={"messages": said(message), "max_tokens": 50})
    assert found.status_code == 200, found.text
    return found.json()


def _cached(done):
    return done["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(("method", "what", "body"), ROUTES)
def test_it_takes_an_admins_key(keyed, parrot, method, what, body):
    for http, status in (
        (keyed.http(), 401),
        (keyed.http("nobody's-key-at-all"), 401),
        (keyed.http(ALICE), 403),
        (parrot.http(), 403),  # where anyone may ask, nobody is an admin
    ):
        found = http.request(method, f"/v1/admin/{what}", json=body)
        assert found.status_code == status
    assert "No tenant with admin = true" in found.json()["error"]["message"]
    assert keyed.http().get("/readyz").status_code == 200


def test_the_tree_shows_no_text_unless_asked_to(keyed, admin):
    _ask(keyed.http(ALICE))
    hidden, shown = admin.get("/v1/admin/tree"), admin.get("/v1/admin/tree?text=true")
    assert "xylophone" not in hidden.text
    assert "xylophone" in "".join(node["head"] for node in shown.json()["nodes"])
    for node in hidden.json()["nodes"]:
        assert "head" not in node
        assert node["bytes"] == node["pages"] * keyed.hw.page_bytes


def test_requests_of_all_tenants_are_listed_without_their_text(keyed, admin):
    _ask(keyed.http(ALICE))
    _ask(keyed.http(BOB), TEXT[:-4] + "!")
    _ask(keyed.http(BOB), TEXT)
    listed = admin.get("/v1/admin/requests")
    assert [each["tenant"] for each in listed.json()["requests"][:3]] == ["bob", "bob", "alice"]
    assert "xylo" not in listed.text


def test_stats_are_of_everything(keyed, admin):
    _ask(keyed.http(ALICE))
    wait_until(lambda: keyed.is_idle)
    stats = admin.get("/v1/admin/stats").json()
    pages = stats["pages"]
    assert pages["cached"] > 0
    assert pages["free"] + pages["cached"] == pages["total"]
    assert (stats["running"], stats["waiting"], stats["busy"]) == (0, 0, {})


def test_a_tenant_is_flushed_without_the_others(keyed, admin):
    alice, bob = keyed.http(ALICE), keyed.http(BOB)
    for http in (alice, bob):
        _ask(http)
    cached = {node["domain"]: 0 for node in admin.get("/v1/admin/tree").json()["nodes"]}
    for node in admin.get("/v1/admin/tree").json()["nodes"]:
        cached[node["domain"]] += node["ready"]
    done = admin.post("/v1/admin/flush", json={"tenant": "alice"}).json()
    assert done == {"flushed_tokens": cached["alice"], "in_use_tokens": 0}
    assert _cached(_ask(alice)) == 0
    assert _cached(_ask(bob)) > 0
    found = admin.post("/v1/admin/flush", json={"tenant": "nobody"})
    assert found.status_code == 404
    assert found.json()["error"]["param"] == "tenant"


@pytest.fixture
def own(folders):
    """A server whose weights no other shares."""
    server = Live(LoadedModel.load(folders["parrot"], "float32", "cpu"), tenants=TENANTS)
    yield server
    server.close()


def test_other_weights_answer_and_old_kv_is_out_of_reach(own, folders):
    alice, admin = own.http(ALICE), own.http(ADMIN)
    assert _ask(alice)["choices"][0]["message"]["content"] == SAYING
    assert _cached(_ask(alice)) > 0
    before = admin.get("/v1/admin/stats").json()["epoch"]
    done = admin.post("/v1/admin/weights", json={"model": str(folders["babbler"])})
    assert done.status_code == 200, done.text
    assert done.json()["epoch"] == admin.get("/v1/admin/stats").json()["epoch"] != before
    other = _ask(alice)
    assert other["choices"][0]["message"]["content"] != SAYING
    assert _cached(other) == 0


@pytest.mark.parametrize(
    "model", ["/nowhere", "x" * 5000, "~nobody/model", "a\u0000b", "/etc/passwd"]
)
def test_weights_that_are_none_change_nothing(keyed, admin, model):
    _ask(keyed.http(ALICE))
    found = admin.post("/v1/admin/weights", json={"model": model})
    assert found.status_code == 400, found.text
    assert _cached(_ask(keyed.http(ALICE))) > 0


def test_a_drain_lets_nobody_in_and_what_runs_go_on(live):
    server = live(tenants=TENANTS)
    server.runner.delay = 0.02
    body = {"messages": said(), "max_tokens": 50, "stream": True}
    with server.http(ALICE).stream("POST", CHAT, json=body) as streamed:
        lines = streamed.iter_lines()
        next(lines)
        drained = server.http(ADMIN).post("/v1/admin/drain").json()
        assert drained == {"draining": True, "unfinished": 1}
        assert server.http(ALICE).post(CHAT, json=body).status_code == 503
        assert server.http().get("/readyz").json()["reason"] == "The server is ending."
        assert [line for line in lines if line][-1] == "data: [DONE]"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_metrics_name_tenants_to_admins_only_where_others_can_ask(live, host):
    server = live(tenants=TENANTS, host=host)
    _ask(server.http(ALICE))
    seen = [server.http(key).get("/metrics").status_code for key in (None, ALICE, ADMIN)]
    assert seen == ([200, 200, 200] if host == "127.0.0.1" else [401, 403, 200])
    assert 'tenant="alice"' in server.http(ADMIN).get("/metrics").text
