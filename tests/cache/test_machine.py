"""The same operations as the random driver, chosen by hypothesis, which shrinks what it finds."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.cache.tokens import count, pack
from tests.cache.stories import a_rig

namespaces = st.sampled_from([b"a", b"b"])
tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(pack)
which = st.integers(0, 3)  # one of the running sequences, counted around


def when(condition):
    return precondition(lambda self: condition(self.rig))


running = when(lambda rig: rig.sequences)
idle_hands = when(lambda rig: any(not s.is_in_flight for s in rig.sequences))


class CacheMachine(RuleBasedStateMachine):
    @initialize(
        page=st.sampled_from([1, 2, 4]),
        pages=st.sampled_from([5, 9, 40]),
        ghosts=st.sampled_from([0, 6, None]),
    )
    def start(self, page, pages, ghosts):
        self.rig = a_rig(pages, page, ghosts)

    def one(self, which, among=None):
        sequences = self.rig.sequences if among is None else among
        return sequences[which % len(sequences)]

    def landed(self, which):
        return self.one(which, [s for s in self.rig.sequences if not s.is_in_flight])

    @when(lambda rig: len(rig.sequences) < 4)
    @rule(namespace=namespaces, key=tokens)
    def begin(self, namespace, key):
        self.rig.begin(namespace, key)

    @idle_hands
    @rule(which=which)
    def promise(self, which):
        self.rig.promise(self.landed(which))

    @running
    @rule(which=which, more=st.integers(0, 8), room=st.sampled_from([0, 2]))
    def grow(self, which, more, room):
        sequence = self.one(which)
        self.rig.grow(sequence, min(sequence.computed + more, count(sequence.key)), room)

    @running
    @rule(which=which)
    def copy(self, which):
        sequence = self.one(which)
        if sequence.lease.table.pages > sequence.lease.shared:
            self.rig.copy(sequence)

    @idle_hands
    @rule(which=which)
    def forgo_copy(self, which):
        self.rig.forgo_copy(self.landed(which))

    @running
    @rule(which=which, more=st.integers(1, 8))
    def write(self, which, more):
        sequence = self.one(which)
        room = sequence.lease.table.pages * self.rig.cache.page
        to = min(room, count(sequence.key), sequence.computed + more)
        if sequence.lease.copy is None and to > sequence.computed:
            self.rig.write(sequence, to)

    @running
    @rule(which=which)
    def commit(self, which):
        self.rig.commit(self.one(which))

    @running
    @rule(which=which, more=st.integers(1, 14))
    def run(self, which, more):
        sequence = self.one(which)
        self.rig.run(sequence, min(sequence.computed + more, count(sequence.key)))

    @running
    @rule(which=which, more=tokens)
    def generate(self, which, more):
        self.one(which).key += more[:8]

    @running
    @rule(which=which)
    def release(self, which):
        self.rig.release(self.one(which))

    @running
    @rule(which=which)
    def abort_in_transfer(self, which):
        self.rig.abort_in_transfer(self.one(which))

    @when(lambda rig: rig.transfers)
    @rule()
    def end_transfer(self):
        self.rig.end_transfer(0)

    @running
    @rule(which=which)
    def pin(self, which):
        self.rig.pin(self.one(which))

    @when(lambda rig: rig.stores)
    @rule()
    def unpin(self):
        self.rig.unpin(0)

    @rule(namespace=namespaces)
    def forget(self, namespace):
        self.rig.forget(namespace)

    @rule(namespace=namespaces, key=tokens)
    def look(self, namespace, key):
        self.rig.look(namespace, key)

    @rule(namespace=namespaces, key=tokens)
    def follow(self, namespace, key):
        self.rig.follow(namespace, key)

    @invariant()
    def laws(self):
        self.rig.check_watch()
        self.rig.check()
        self.rig.verify_all()

    def teardown(self):
        self.rig.finish()


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
