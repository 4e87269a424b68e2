"""A peer's process answers, and whatever it does instead becomes a reason, never a hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import PEERS, Peer, worker
from bench.peers.worker import PeerMissing, Worker


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.setitem(PEERS, "fake", Peer("fake", str(Path(__file__).with_name("fake_peer.py"))))
    monkeypatch.setitem(PEERS, "absent", Peer("absent", "fake_peer.py", requires=("nothing",)))
    monkeypatch.setattr(worker, "HOME", tmp_path)
    monkeypatch.setattr(worker, "ROOT", tmp_path)
    return "fake"


def test_a_verb_is_answered_however_much_the_engine_prints(fake):
    with Worker(fake) as peer:
        assert peer.call("cold", tokens=[1, 2, 3]) == 0.003
        assert peer.call("cold", tokens=[]) == 0


def test_a_fault_is_a_reason_and_the_peer_goes_on(fake):
    with Worker(fake) as peer:
        with pytest.raises(PeerMissing, match="fake could not hit: ValueError: no such prompt"):
            peer.call("hit", tokens=[1])
        assert peer.call("cold", tokens=[1]) == 0.001


def test_a_verb_it_does_not_have_is_a_reason(fake):
    with Worker(fake) as peer, pytest.raises(PeerMissing, match="could not hash_match"):
        peer.call("hash_match", tokens=[1], cached_blocks=1)


def test_a_peer_that_dies_is_a_reason(fake):
    with Worker(fake) as peer:
        with pytest.raises(PeerMissing, match=r"ended during decode; its log is fake\.log"):
            peer.call("decode", prompts=[[1]], new_tokens=1)
        with pytest.raises(PeerMissing):
            peer.call("cold", tokens=[1])


def test_a_peer_that_was_not_built_is_a_reason(fake):
    with pytest.raises(PeerMissing, match=r"run `python -m bench\.peers absent`"):
        Worker("absent")


def test_closing_twice_does_nothing(fake):
    peer = Worker(fake)
    peer.close()
    peer.close()
