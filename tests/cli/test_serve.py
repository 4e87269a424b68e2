"""`headwater serve` as a process: its settings, what it says, how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from queue import Queue

import httpx2
import pytest

from headwater.cli import main, serve
from headwater.server.config import ServerConfig
from tests.cli.typed import PATIENCE
from tests.server.live import ALICE

KEYED = f"""\
port = 0
kv-memory = "64 pages"
page = 8
served_name = "from-file"
deadline = 5

[[tenants]]
name = "alice"
keys = ["{ALICE}"]
kv-floor = "4KiB"

[[tenants]]
name = "root"
keys = ["key-of-the-admin3"]
admin = true
"""


class Serving:
    """A server in a process of its own. To be used in a `with` block."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "serve", *map(str, words)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self._lines = Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.said = self._until(r"reference (\S+)/docs$")
        self.url = re.search(r"reference (\S+)/docs$", self.said, re.MULTILINE)[1]

    def end(self, how=signal.SIGTERM):
        """The exit status, and what was said meanwhile."""
        self.process.send_signal(how)
        status = self.process.wait(PATIENCE)
        return status, self._until("$^")

    def _read(self):
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def _until(self, pattern):
        said = []
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            said.append(line)
            if re.search(pattern, line.rstrip("\n")):
                return "".join(said)
        return "".join(said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()


@pytest.fixture
def folder(home, loaded):
    """The model, linked to from where a home would have it."""
    (home / "mine").symlink_to(loaded.folder.path)
    return home / "mine"


def test_settings_come_from_a_file_and_flags_go_before_them(home, folder):
    file = home / "headwater.toml"
    file.write_text(KEYED)
    log = home / "requests.jsonl"
    words = ["--config", file, "--model", folder, "--page", "4", "--request-log", log]
    with Serving(*words) as serving:
        for said in (
            f"Headwater serves from-file at {serving.url}\n",
            "model     ~/mine\n",
            "KV        64 KiB: 64 pages of 4 tokens, 256 in all; cache prefix, policy lru\n",
            "tenants   alice, root (admin)\n",
            "limits    256 waiting, bodies of 8 MiB, 5 s a request\n",
            "logs      requests in ~/requests.jsonl\n",
        ):
            assert said in serving.said
        assert ALICE not in serving.said
        ask = {"messages": [{"role": "user", "content": "Hello"}], "model": "from-file"}
        with httpx2.Client(base_url=serving.url, timeout=PATIENCE) as client:
            assert client.post("/v1/chat/completions", json=ask).status_code == 401
            client.headers["Authorization"] = f"Bearer {ALICE}"
            assert client.post("/v1/chat/completions", json=ask).status_code == 200
        status, said = serving.end()
    assert status == 0
    assert said == "The server has ended.\n"
    assert len(log.read_text().splitlines()) == 1


def test_what_was_asked_in_time_is_answered_before_the_end(home, folder):
    """Ctrl-C ends it as SIGTERM does: what was let in is answered."""
    with Serving(folder, "--port", "0", "--kv-memory", "512 pages") as serving:
        assert "tenants   everyone, without a key\n" in serving.said
        body = {"prompt": "the fox", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        with (
            httpx2.Client(base_url=serving.url, timeout=PATIENCE) as client,
            client.stream("POST", "/v1/completions", json=body) as answer,
        ):
            lines = answer.iter_lines()
            next(lines)
            serving.process.send_signal(signal.SIGINT)
            assert list(lines)[-2] == "data: [DONE]"
        assert serving.process.wait(PATIENCE) == 0


def flags():
    parser = ArgumentParser()
    serve.COMMAND.arguments(parser)
    return {action.dest for action in parser._actions} - {"help", "config"}


def test_flags_and_the_file_have_the_same_names():
    assert flags() == {*ServerConfig.__struct_fields__} - {"tenants"}


def test_the_help_says_the_defaults_that_hold():
    parser = ArgumentParser()
    serve.COMMAND.arguments(parser)
    told = {
        action.dest: re.search(r"\(default: ([\w.]+)", action.help)[1]
        for action in parser._actions
        if "(default: " in (action.help or "")
    }
    for name, default in zip(
        ServerConfig.__struct_fields__, ServerConfig.__struct_defaults__, strict=True
    ):
        if isinstance(default, str | int | float) and not isinstance(default, bool):
            assert told[name] == (f"{default:g}" if isinstance(default, float) else str(default))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--order", "nonsense"], "There is no order 'nonsense'; known are fcfs"),
        (["--kv-memory", "2M"], "'2M' is no size; write a number and a unit"),
        (["--kv-memory", "0"], "holds nothing"),
        (["--page", "0"], "page must be 1 or more"),
        (["--max-running", "0"], "step_tokens (2048) must hold"),
        (["--max-body", "0"], "max_waiting and max_body must be 1 or more."),
        (["--deadline", "nan"], "deadline must be a number of seconds above 0."),
        (["--stall", "inf"], "stall must be a number of seconds above 0."),
        (["--drain", "-1"], "drain must be a number of seconds, 0 or more."),
        (["--port", "99999"], "port must lie in [0, 65535]"),
        (["--host", "0.0.0.0"], "configure some, or say --open to serve anyone."),
        (["--config", "/nope.toml"], "/nope.toml cannot be read: No such file or directory."),
        (["--secret-file", "/nope"], "The secret /nope cannot be read"),
        (["--event-log", "/nope/x"], "The log /nope/x cannot be made"),
        (["--request-log", "/nope/x"], "The log /nope/x cannot be written: No such file"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_work_is_refused_before_torch_is_there(words, said):
    code = f"""if True:
        import sys
        from headwater.cli import main
        status = main(["serve", *{words!r}])
        sys.exit(status if "torch" not in sys.modules else 99)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("headwater: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kv-memroy = 3", "unknown field `kv_memroy`"),
        ("port = 'x'", "`$.port`"),
        ("port", "is no TOML"),
        ("[[tenants]]\nname = 'a'", "Tenant a has no keys"),
        ("[[tenants]]\nname = 'a'\nkeys = ['short']", "is shorter than 16 characters"),
        (f"[[tenants]]\nname = 'a'\nkeys = ['{ALICE}']\nfloor = 1", "unknown field `floor`"),
    ],
)
def test_a_file_that_makes_no_sense_costs_one_sentence(text, said, home, capsys):
    (home / "bad.toml").write_text(text)
    assert main(["serve", "--config", "~/bad.toml"]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "No model lies at nowhere"),
        (["--dtype", "int3"], "dtype is 'int3'"),
        (["--device", "abacus"], "device is 'abacus'"),
        (["--kv-memory", "9000GiB"], "kv_memory asks for 9,000.0 GiB of KV"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_work_is_refused_before_the_model_is_loaded(words, said, home, capsys, folder):
    """The folder has no weights that could be loaded; whoever tried would say so."""
    bare = home / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (bare / name).write_bytes((folder / name).read_bytes())
    (bare / "model.safetensors").write_bytes(b"none")
    words = words if words == ["nowhere"] else [str(bare), *words]
    assert main(["serve", "--port", "0", *words]) == 2
    complaint = capsys.readouterr().err.splitlines()
    assert complaint[0] == "Loading the model ..."
    assert said in complaint[1]
    assert len(complaint) == 2


def test_a_port_that_is_taken_costs_one_sentence(server, capsys):
    assert main(["serve", "--port", str(server.port)]) == 2
    assert f"port {server.port} cannot be listened on: Address already in use." in (
        capsys.readouterr().err
    )
