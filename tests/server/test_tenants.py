"""Two tenants side by side: neither learns of the other, by anything it can ask."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from headwater.errors import BadSetting
from headwater.server.tenants import ANYONE, Tenant, Tenants
from tests.server.live import ADMIN, ALICE, BOB, said, wait_until

CHAT = "/v1/chat/completions"
SECRET = "the quick brown fox and its secrets, of which there are many"


@pytest.fixture
def alice(keyed):
    return keyed.http(ALICE)


@pytest.fixture
def bob(keyed):
    return keyed.http(BOB)


def _ask(http, message=SECRET, path=CHAT, **named):
    body = {"messages": said(message), "max_tokens": 2} | named
    found = http.post(path, json=body, headers={"X-Headwater-Report": "1"})
    assert found.status_code == 200, found.text
    return found.json()


def _cached(done):
    return done["usage"]["prompt_tokens_details"]["cached_tokens"]


def _all(done):
    return done["usage"]["prompt_tokens"]


def test_a_tenant_hits_its_own_and_never_anothers(alice, bob):
    assert _cached(_ask(alice)) == 0
    assert _cached(_ask(bob)) == 0
    for http in (alice, bob):
        again = _ask(http)
        assert _cached(again) == _all(again) - 1


def test_what_a_tenant_is_told_is_the_same_with_and_without_another(keyed, alice, bob):
    """Usage, report and explanation, byte by byte, but for ids and times."""

    def told():
        keyed.forget()
        if others:
            for _ in range(2):
                _ask(bob)
                _ask(bob, SECRET[:30])
        done = [_ask(alice), _ask(alice, SECRET[:30] + "?"), _ask(alice)]
        for each in done:
            del each["id"], each["created"], each["headwater"]["timing"], each["headwater"]["seed"]
            del each["headwater"]["cache"][0]["waits"]
        explained = alice.post("/v1/cache/explain", json={"messages": said(SECRET)}).json()
        pins = alice.get("/v1/cache/pin").json()
        return msgspec.json.encode([done, explained, pins])

    others = False
    quiet = told()
    others = True
    assert told() == quiet


def test_explain_does_not_see_another_tenants_prompts(alice, bob):
    _ask(alice)
    mine, theirs = (
        http.post("/v1/cache/explain", json={"messages": said(SECRET)}).json()
        for http in (alice, bob)
    )
    assert mine["cached_tokens"] > 0
    assert theirs["cached_tokens"] == 0
    assert theirs["why"]["kind"] == "never_seen"


def test_requests_are_listed_to_their_own_tenant(keyed, alice, bob):
    def listed(http):
        return http.get("/v1/cache/requests").json()["requests"]

    before = len(listed(bob))
    _ask(alice)
    wait_until(lambda: keyed.is_idle)
    assert listed(alice)[0]["tenant"] == "alice"
    assert len(listed(bob)) == before
    assert all(each["tenant"] == "bob" for each in listed(bob))


def test_a_tenant_flushes_only_its_own(alice, bob):
    tokens = _all(_ask(alice))
    _ask(bob)
    flushed = bob.post("/v1/cache/flush", json={}).json()
    assert flushed == {"flushed_tokens": tokens + 1, "in_use_tokens": 0}  # and one drawn
    again = _ask(alice)
    assert _cached(again) == _all(again) - 1
    assert _cached(_ask(bob)) == 0


def test_a_pin_is_its_own_tenants(alice, bob):
    pin = alice.post("/v1/cache/pin", json={"messages": said(SECRET)}).json()
    assert [each["id"] for each in alice.get("/v1/cache/pin").json()["pins"]] == [pin["id"]]
    assert bob.get("/v1/cache/pin").json() == {"pins": []}
    assert bob.delete(f"/v1/cache/pin/{pin['id']}").status_code == 404
    assert alice.delete(f"/v1/cache/pin/{pin['id']}").status_code == 200
    assert alice.delete(f"/v1/cache/pin/{pin['id']}").status_code == 404


def test_a_pins_name_does_not_tell_how_much_others_pin(alice, bob):
    mine = []
    for _ in range(2):
        mine.append(alice.post("/v1/cache/pin", json={"messages": said(SECRET)}).json()["id"])
        bob.post("/v1/cache/pin", json={"messages": said(SECRET)})
    assert abs(mine[0] - mine[1]) > 10**6
    assert max(mine) < 2**53  # a number to every JSON reader


def test_tenants_of_one_domain_share(live):
    server = live(
        tenants=(
            Tenant(name="alice", keys=(ALICE,), domain="house"),
            Tenant(name="bob", keys=(BOB,), domain="house"),
        )
    )
    assert _cached(_ask(server.http(ALICE))) == 0
    assert _cached(_ask(server.http(BOB))) > 0


# What a request may say about the cache


def test_a_salt_narrows_what_is_shared(alice):
    for salt in ({"headwater": {"salt": "x"}}, {"cache_salt": "y"}):
        _ask(alice)
        assert _cached(_ask(alice, **salt)) == 0
        assert _cached(_ask(alice, **salt)) > 0


def test_a_salt_reaches_no_other_tenant(alice, bob):
    for salt in ("alice", "", "\u0000bob", "bob"):
        _ask(bob, headwater={"salt": salt})
        assert _cached(_ask(alice, "Own " + salt, headwater={"salt": salt})) == 0
        assert _cached(_ask(alice, headwater={"salt": salt})) < 20  # its own words before this
        alice.post("/v1/cache/flush", json={})


def test_a_request_may_not_read(alice):
    _ask(alice)
    unread = _ask(alice, headwater={"read": False})
    assert _cached(unread) == 0
    assert unread["headwater"]["cache"][0]["why"]["kind"] == "not_shared"


def test_a_request_may_not_store(keyed, alice):
    _ask(alice, headwater={"store": False})
    wait_until(lambda: keyed.is_idle)
    assert keyed.hw.stats().pages.cached == 0
    assert _cached(_ask(alice)) == 0


@pytest.mark.parametrize(
    "named",
    [
        {"headwater": {"salt": 5}},
        {"headwater": {"salt": "x" * 300}},
        {"headwater": {"priority": 500}},
        {"headwater": {"deadline": 0}},
        {"headwater": {"domain": "bob"}},
        {"priority": 10**9},
    ],
)
def test_controls_that_cannot_be_are_refused(alice, named):
    found = alice.post(CHAT, json={"messages": said(), "max_tokens": 2} | named)
    assert found.status_code == 400
    assert next(iter(named)) in found.json()["error"]["param"]


def test_priority_decides_who_is_next(live):
    server = live(max_running=1)
    server.runner.delay = 0.05

    def ask(tokens, priority):
        body = {"messages": said(), "max_tokens": tokens, "ignore_eos": True}
        assert server.http().post(CHAT, json=body | {"priority": priority}).is_success

    with ThreadPoolExecutor(5) as pool:
        pool.submit(ask, 200, 0)  # ten seconds, while the others come
        wait_until(lambda: server.hw.stats().running == 1)
        for waiting, priority in enumerate((-5, 0, 7, 9)):
            pool.submit(ask, 10 + priority, priority)
            wait_until(lambda waiting=waiting: server.hw.stats().waiting == waiting + 1)
        server.runner.delay = 0
    ended = [entry.cache.generated for entry in server.service.recorder.last]
    assert ended == [200, 19, 17, 10, 5]


# Keys


def test_keys_may_be_given_as_their_digests():
    digest = "sha256:" + hashlib.sha256(ALICE.encode()).hexdigest()
    tenants = Tenants([Tenant(name="alice", keys=(digest,))])
    assert tenants.of(ALICE).name == "alice"
    assert tenants.of(digest) is None
    assert tenants.of(None) is None


def test_without_tenants_anyone_may_ask():
    assert Tenants([]).of(None) is ANYONE
    only_admin = Tenants([Tenant(name="root", keys=(ADMIN,), admin=True)])
    assert only_admin.of(None) is ANYONE
    assert only_admin.of("whatever it is").admin is False
    assert only_admin.of(ADMIN).admin is True


@pytest.mark.parametrize(
    "tenants",
    [
        [Tenant(name="a b", keys=(ALICE,))],
        [Tenant(name="a")],
        [Tenant(name="a", keys=("short",))],
        [Tenant(name="a", keys=(ALICE,)), Tenant(name="a", keys=(BOB,))],
        [Tenant(name="a", keys=(ALICE,)), Tenant(name="b", keys=(ALICE,))],
        [Tenant(name="a", keys=(ALICE,), max_requests=0)],
        [Tenant(name="a", keys=(ALICE,), pin_memory="much")],
        [Tenant(name="a", keys=(ALICE,), kv_floor=-1)],
        [Tenant(name="a", keys=(ALICE,), priority=10**7)],
    ],
)
def test_tenants_that_cannot_be_are_refused_at_the_start(tenants):
    with pytest.raises(BadSetting) as told:
        Tenants(tenants)
    assert ALICE not in str(told.value)
