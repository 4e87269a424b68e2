"""docs/server.md and examples/: every command line and program in them works, and nothing that can
be asked or set is missing."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from headwater.server.app import create_app
from headwater.server.caller import Controls
from headwater.server.config import ServerConfig, read_config
from headwater.server.tenants import Tenant
from tests.server.live import PATIENCE, Live

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GUIDE = (ROOT / "docs" / "server.md").read_text("utf-8")
URL, KEY = "http://127.0.0.1:8000", "acme-key-0123456789"  # as the guide has them


def blocks(language):
    """The code of the guide in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(models):
    live = Live(models["parrot"], tenants=(Tenant(name="acme", keys=(KEY,)),))
    yield live
    live.close()


@pytest.fixture
def addressed(server, monkeypatch):
    """The examples find the server by the variables that they name."""
    monkeypatch.setenv("HEADWATER_URL", server.url)
    monkeypatch.setenv("HEADWATER_API_KEY", KEY)
    return server


# Command lines and programs


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are for curl")
@pytest.mark.parametrize("script", blocks("sh"))
def test_every_command_line_works(server, script):
    failing = 'set -euo pipefail; curl() { command curl -sS --fail-with-body "$@"; echo; }\n'
    done = subprocess.run(
        ["bash", "-c", failing + script],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HW": server.url, "KEY": KEY},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in filter(None, done.stdout.splitlines()):
        assert "error" not in msgspec.json.decode(line) or '"error":null' in line


@pytest.mark.parametrize("program", blocks("python"))
def test_every_program_works(server, capsys, program):
    assert URL in program
    exec(compile(program.replace(URL, server.url), "server.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_conversation_reuses_its_turns(addressed, capsys):
    runpy.run_path(str(EXAMPLES / "conversation.py"), run_name="__main__")
    turns = re.findall(r"\[(\d+) of (\d+) tokens were cached\]", capsys.readouterr().out)
    assert len(turns) == 3
    for (_, before), (cached, _) in pairwise(turns):
        assert int(cached) >= int(before)


def test_the_document_is_read_by_all(addressed, capsys):
    pins = addressed.http(KEY).get("/v1/cache/pin").json()["pins"]
    runpy.run_path(str(EXAMPLES / "fan_out.py"), run_name="__main__")
    said = capsys.readouterr().out
    [(pinned, prompt)] = re.findall(r"(\d+) of (\d+) tokens are pinned", said)
    assert pinned == prompt
    cached = re.findall(r"\[(\d+) of \d+ tokens cached\]", said)
    assert len(cached) == 3
    assert all(int(each) > int(pinned) // 2 for each in cached)
    left = addressed.http(KEY).get("/v1/cache/pin").json()["pins"]
    assert [each["id"] for each in left] == [each["id"] for each in pins]


def test_the_library_reuses_the_document(home, folders, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["library.py", str(folders["parrot"])])
    runpy.run_path(str(EXAMPLES / "library.py"), run_name="__main__")
    first, second = re.findall(r"(\d+) of \d+ tokens were cached", capsys.readouterr().out)
    assert (int(first), int(second) > 20) == (0, True)


# Paths, settings and fields


def test_the_guide_names_exactly_the_paths(server):
    served = set(create_app(server.service).openapi()["paths"])
    served |= {"/docs", "/openapi.json", "/"}
    tables = "\n".join(line for line in GUIDE.splitlines() if line.startswith("| `"))
    named = {
        re.sub(r"\{\w+\}", "{}", path)
        for path in re.findall(r"(?:GET|POST|DELETE) (/[\w/.{}-]*)", tables)
    }
    assert named == {re.sub(r"\{\w+(:path)?\}", "{}", path) for path in served}


def table(heading):
    """First cells to second ones, of the table under a row of headings."""
    rows = GUIDE.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in rows]
    return {row[0]: row[1] for row in cells}


def test_the_guide_lists_exactly_the_controls():
    written = table("| field | default | what it does |")
    assert list(written) == list(Controls.model_fields)
    for name in ("read", "store", "priority"):
        assert str(Controls.model_fields[name].default).lower() == written[name]


def test_the_guide_lists_exactly_the_settings_of_a_tenant():
    written = table("| setting | default | what it is |")
    assert [name.replace("-", "_") for name in written] == list(Tenant.__struct_fields__)
    plain = Tenant(name="x")
    for name in ("max_requests", "kv_floor", "priority", "admin"):
        assert str(getattr(plain, name)).lower() == written[name.replace("_", "-")]


def test_the_example_configuration_can_be_served(home):
    config = read_config(EXAMPLES / "headwater.toml", {})
    assert [tenant.name for tenant in config.tenants] == ["acme", "umbrella", "ops"]


def test_the_example_configuration_shows_every_setting_at_its_default(tmp_path):
    """Behind a # stands what holds without it; settings that have no default are only shown."""
    text = (EXAMPLES / "headwater.toml").read_text("utf-8")
    whole = tmp_path / "whole.toml"
    whole.write_text(re.sub(r"^# (\S+ = )", r"\1", text, flags=re.MULTILINE))
    config, plain = read_config(whole, {}), ServerConfig()
    shown = set(re.findall(r"^(\S+) = ", whole.read_text(), re.MULTILINE))
    settings = {name.replace("_", "-") for name in ServerConfig.__struct_fields__} - {"tenants"}
    settings |= {name.replace("_", "-") for name in Tenant.__struct_fields__} - {"domain"}
    assert shown == settings
    for name in set(ServerConfig.__struct_fields__) - {"tenants"}:
        if getattr(plain, name) is not None:
            assert getattr(config, name) == getattr(plain, name), name
