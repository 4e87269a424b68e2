"""`headwater doctor`: healthy servers, and servers that each have one thing wrong."""

from __future__ import annotations

import json
import re

import pytest

from headwater.cli import main
from headwater.cli.checks import CHECKS
from tests.cli.meddler import Meddler, Says
from tests.server.live import ADMIN, ALICE, TENANTS
from tests.server.models import SAYING, TOOLS_AND_THINKING


@pytest.fixture
def doctor(capsys):
    """The exit status, and the findings by check."""

    def run(url, *words):
        status = main(["doctor", url, "--json", *words])
        told = json.loads(capsys.readouterr().out)
        assert told["ok"] == (status == 0)
        return status, {each["check"]: each for each in told["checks"]}

    return run


def verdicts(found):
    return {check: each["verdict"] for check, each in found.items()}


WELL = {check.name: "ok" for check in CHECKS}


def test_a_healthy_server_passes_every_check(server, doctor):
    status, found = doctor(server.url)
    assert status == 0
    assert verdicts(found) == WELL
    assert "context is 2048 tokens" in found["model"]["said"]


def test_what_was_asked_is_forgotten(server, doctor):
    doctor(server.url)
    assert server.hw.cache.tree() == []


def test_findings_are_printed_a_line_a_check(server, capsys):
    assert main(["doctor", server.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, check in zip(lines, CHECKS, strict=False):
        assert re.match(rf"ok {{7}}{check.name:<17} \S", line)
    assert lines[-1] == f"{len(CHECKS)} ok"


def test_what_to_do_stands_below_what_is_wrong(capsys):
    assert main(["doctor", "http://127.0.0.1:9"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("failed   reachable         http://127.0.0.1:9 cannot be reached")
    assert second.strip() == "Start it with `headwater serve`, or give its URL."
    assert last == "1 failed"


def test_other_requests_meanwhile_are_no_fault(server, doctor):
    def meanwhile(path, body):
        if path == "/metrics":
            chat = {"messages": [{"role": "user", "content": "Me, too"}], "max_tokens": 2}
            server.http().post("/v1/chat/completions", json=chat)
        return body

    with Meddler(server.url, meanwhile) as proxy:
        assert doctor(proxy.url)[1]["metrics"] == {
            "check": "metrics",
            "verdict": "ok",
            "said": "Counters rose by what the usage said, and by others' requests.",
            "todo": "",
        }


def test_a_server_that_is_ending_is_not_ready(live, doctor):
    server = live()
    server.service.desk.is_closed = True
    status, found = doctor(server.url)
    assert status == 1
    assert verdicts(found) == {"reachable": "ok", "ready": "failed"}
    assert found["ready"]["said"] == "The server is ending."


def test_keys_are_explained(keyed, doctor):
    status, found = doctor(keyed.url)
    assert (status, found["key"]["said"]) == (1, "No key was given.")
    assert "model" not in found
    status, found = doctor(keyed.url, "--key", "nobodys-key-at-all")
    assert (status, found["key"]["said"]) == (1, "The key is nobody's on this server.")
    assert "HEADWATER_API_KEY" in found["key"]["todo"]
    for key, whose in ((ALICE, "'alice', no admin"), (ADMIN, "'root', an admin")):
        status, found = doctor(keyed.url, "--key", key)
        assert verdicts(found) == WELL
        assert whose in found["key"]["said"]


def test_metrics_that_a_key_may_not_see_are_no_fault(live, doctor):
    """Where others can reach the server they are for admins: they name all tenants."""
    server = live(host="0.0.0.0", tenants=TENANTS)
    status, found = doctor(server.url, "--key", ALICE)
    assert status == 0
    assert verdicts(found) == WELL | {"metrics": "warning"}
    assert verdicts(doctor(server.url, "--key", ADMIN)[1]) == WELL


def test_a_cache_that_keeps_nothing_is_seen(live, doctor):
    status, found = doctor(live(cache="none").url)
    assert status == 1
    assert found["one prompt twice"]["verdict"] == "failed"
    assert "--cache none" in found["one prompt twice"]["todo"]


def test_a_template_that_writes_earlier_turns_in_another_way_is_seen(make_loaded, live, doctor):
    drifting = "<|start|>{{ messages | length }} messages\n" + TOOLS_AND_THINKING
    status, found = doctor(live(make_loaded("drifting", template=drifting)).url)
    assert status == 1
    assert verdicts(found) == WELL | {"template": "failed"}
    assert re.match(r"Turn 2 reuses 1 of the \d+ tokens of turn 1's", found["template"]["said"])
    assert "It goes on with '3 messages" in found["template"]["said"]


def test_an_answer_that_is_read_as_other_tokens_is_a_warning(make_loaded, live, doctor):
    status, found = doctor(live(make_loaded("speller", SAYING)).url)
    assert status == 0
    assert verdicts(found) == WELL | {"template": "warning"}
    assert "Turn 2 reuses turn 1's prompt, and 0 of the " in found["template"]["said"]
    assert "previous_response_id" in found["template"]["todo"]


def test_a_proxy_that_keeps_a_stream_is_seen(live, doctor):
    server = live()
    server.runner.delay = 0.05
    with Meddler(server.url) as proxy:
        status, found = doctor(proxy.url)
    assert status == 0
    assert verdicts(found) == WELL | {"streaming": "warning"}
    assert "buffering" in found["streaming"]["todo"]


def test_metrics_of_another_server_are_seen(server, doctor):
    """As behind a balancer: the counters that are read are not those that count."""
    kept = {}

    def stale(path, body):
        return kept.setdefault(path, body) if path == "/metrics" else body

    with Meddler(server.url, stale) as proxy:
        status, found = doctor(proxy.url)
    assert status == 1
    assert found["metrics"]["verdict"] == "failed"
    assert "headwater_requests_total rose by 0, not 1" in found["metrics"]["said"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (b"# TYPE a counter\na{b=\n", "is not in Prometheus' format"),
        (b"up 1\n", "has nothing of Headwater's KV pool"),
    ],
)
def test_metrics_that_are_none_are_seen(server, doctor, page, said):
    with Meddler(server.url, lambda path, body: page if path == "/metrics" else body) as proxy:
        found = doctor(proxy.url)[1]
    assert found["metrics"]["verdict"] == "failed"
    assert said in found["metrics"]["said"]


def test_pages_that_are_lost_are_seen(server, doctor):
    scrapes = []

    def leak(path, body):
        if path != "/metrics":
            return body
        scrapes.append(path)
        more = b'headwater_kv_pages{state="lost"} ' + str(len(scrapes)).encode()
        return body + more + b"\n"

    with Meddler(server.url, leak) as proxy:
        assert "pages, then" in doctor(proxy.url)[1]["metrics"]["said"]


def altered(change):
    """Chats whose answers say something else."""

    def alter(path, body):
        if path != "/v1/chat/completions" or body.startswith(b"data:"):
            return body
        answer = json.loads(body)
        change(answer)
        return json.dumps(answer).encode()

    return alter


def put(value, *path):
    def change(answer):
        *way, last = path
        for step in way:
            answer = answer[step]
        answer[last] = value(answer[last])

    return change


@pytest.mark.parametrize(
    ("change", "check", "verdict", "said"),
    [
        (put(lambda at: at + 7200, "created"), "clock", "warning", "s ahead of this machine's"),
        (put(lambda at: at - 7200, "created"), "clock", "warning", "s behind this machine's"),
        (
            put(lambda _: 1e6, "headwater", "timing", 0, "total"),
            "clock",
            "failed",
            "is told to have taken 1000000.000",
        ),
        (
            put(lambda n: max(n - 2, 0), "usage", "prompt_tokens_details", "cached_tokens"),
            "one prompt twice",
            "warning",
            "Only ",
        ),
        (
            put(lambda n: n or 1, "usage", "prompt_tokens_details", "cached_tokens"),
            "one prompt twice",
            "failed",
            "under a salt that nobody had used",
        ),
        (put(lambda _: 0, "usage", "completion_tokens"), "model", "failed", "drew no token"),
        (put(lambda _: "many", "usage", "prompt_tokens"), "model", "failed", "does not answer as"),
    ],
)
def test_answers_that_cannot_be_true_are_seen(server, doctor, change, check, verdict, said):
    with Meddler(server.url, altered(change)) as proxy:
        found = doctor(proxy.url)[1]
    assert found[check]["verdict"] == verdict
    assert said in found[check]["said"]


def test_another_server_is_not_taken_for_headwater(doctor):
    with Says(200, b"{}") as other:
        found = doctor(other.url)[1]
    assert found["key"]["verdict"] == "failed"
    with Says(404, b'{"detail": "Not Found"}') as other:
        assert "is that Headwater?" in doctor(other.url)[1]["reachable"]["said"]


@pytest.mark.parametrize("word", ["0", "-1", "inf", "nan", "x"])
def test_a_time_that_is_none_costs_one_sentence(word, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--timeout", word])
    assert stop.value.code == 2
    assert "invalid number of seconds value" in capsys.readouterr().err
