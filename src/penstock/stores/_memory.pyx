"""The compiled counters of `MemoryStore`: an algorithm applied to a slot of a table.

Each method finds the key's row, lets the algorithm decide on it and returns. It is atomic because
it keeps the GIL and calls no Python code in between. What may call Python (a custom clock, the
calendar) comes first.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec

from penstock.algorithms.base cimport ATTEMPT, HIT, LOOK, Algorithm
from penstock.algorithms import words
from penstock.clock import MONOTONIC, WALL
from penstock.decision cimport Decision, new_decision
from penstock.stores._table cimport (
    CUSTOM, HALF, LOCKED, REFUSED, Bound, Table, entry, fetch, find, is_of, mix,
)
from penstock.stores.levels import half_of
from penstock.stores.base cimport Counters, check_cost, check_key, is_plain, pick

cdef enum:
    BATCH = 64

cdef int NO_ROOM = words.NO_ROOM
cdef object ONE = 1


@cython.final
cdef class MemoryCounters(Counters):
    """The counters of one limit, in this process."""

    cdef Table table
    cdef int64_t* blank        # the row of a key that was never seen
    cdef clockid_t system      # which of the system's clocks, or CUSTOM
    cdef int64_t half
    cdef bint locks

    def __cinit__(self, *args):
        self.blank = NULL

    def __init__(self, limit, clock, Bound bound):
        Counters.__init__(self, limit, clock)
        self.system = system_clock(self.clock)
        self.half = half_of(limit)
        self.locks = limit.lockout_ns > 0
        cdef bint grows = self.algorithm.length_at >= 0
        self.table = Table(2 if grows else self.algorithm.words, grows, bound, self.system)
        self.blank = <int64_t*> PyMem_RawCalloc(<size_t> self.algorithm.words, 8)
        if self.blank == NULL:
            raise MemoryError
        self.set_length(self.blank, self.algorithm.words)
        self.algorithm.start(self.now())

    def __dealloc__(self):
        PyMem_RawFree(self.blank)

    cpdef int64_t now(self) except? -1:
        cdef timespec time
        if self.system == CUSTOM:
            return self.clock.now()
        clock_gettime(self.system, &time)
        return <int64_t> time.tv_sec * 1_000_000_000 + time.tv_nsec

    cpdef Decision hit(self, key, cost):
        cdef int64_t units = whole(cost)
        return self.take(self.hash_of(key), units, self.ready(), HIT)

    cpdef Decision peek(self, key, cost):
        cdef int64_t units = whole(cost)
        return self.look(self.hash_of(key), units, self.ready())

    def attempt(self, key, cost, int64_t patience=-1):
        cdef int64_t units = whole(cost)
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t now = self.ready()
        cdef Decision seen
        if patience >= 0:
            seen = self.look(h, units, now)
            if seen._allowed and seen._delay > patience:
                return seen.refused(seen._delay - patience)
        return self.take(h, units, now, ATTEMPT)

    def charge(self, key, cost):
        cdef int64_t units = whole(cost)
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t now = self.ready()
        cdef Decision out = new_decision(self.limit)
        cdef uint64_t* slot = self.slot(h, now)
        while self.algorithm.charge(self.row(slot), units, now) == NO_ROOM:
            self.grow(slot)
        self.expire(slot)
        self.algorithm.decide(self.row(slot), 1, now, 0, LOOK, out)
        self.rise(slot, out, HALF)

    def refund(self, key, cost, int64_t mark=-1, int64_t kept=0):
        cdef int64_t units = whole(cost)
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t now = self.ready()
        cdef uint64_t* slot = find(&self.table.core, h)
        if is_of(slot, h):
            self.algorithm.refund(self.row(slot), units, now, mark, kept)
            self.expire(slot)

    def reserve(self, key, cost, int64_t patience=-1):
        cdef int64_t units = whole(cost)
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t now = self.ready()
        cdef Decision out
        cdef uint64_t* slot
        if units > self.algorithm.most:
            return self.look(h, units, now)
        out = new_decision(self.limit)
        slot = self.slot(h, now)
        self.algorithm.reserve(self.row(slot), units, now, patience, out)
        self.expire(slot)
        self.rise(slot, out, REFUSED)
        return out

    def cancel(self, key, cost, int64_t mark, int64_t kept=0):
        cdef int64_t units = whole(cost)
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t now = self.ready()
        cdef uint64_t* slot = find(&self.table.core, h)
        if is_of(slot, h):
            self.algorithm.cancel(self.row(slot), units, now, mark, kept)
            self.expire(slot)

    def reset(self, key):
        cdef uint64_t h = self.hash_of(key)
        self.now()  # raises if the store is closed
        cdef uint64_t* slot = find(&self.table.core, h)
        if is_of(slot, h):
            self.table.remove(self.table.core.directory + entry(&self.table.core, h), slot)

    def hit_many(self, keys, cost):
        """Hash and prefetch a batch of keys before deciding on the first of them."""
        cdef int64_t units = whole(cost)
        cdef uint64_t hashes[BATCH]
        cdef list names = [key if is_plain(key) else check_key(key) for key in keys]
        cdef list out = []
        cdef Py_ssize_t start, at, stop
        cdef int64_t now = self.ready()
        for start in range(0, len(names), BATCH):
            stop = min(start + BATCH, len(names))
            for at in range(start, stop):
                hashes[at - start] = self.hash_of(names[at])
                fetch(&self.table.core, hashes[at - start])
            for at in range(start, stop):
                out.append(self.take(hashes[at - start], units, now, HIT))
        return out

    def sweep(self, segments):
        """Look through so many segments for expired keys; how many were dropped."""
        return self.table.sweep(self.ready(), segments)

    def clear(self):
        """Forget every key."""
        self.table.sweep(INT64_MAX, UINT32_MAX)  # to the end, wherever the last sweep stopped
        self.table.sweep(INT64_MAX, UINT32_MAX)

    def close(self, clock):
        """Forget every key. From now on the clock, which raises, is asked first."""
        self.clear()
        self.clock = clock
        self.system = CUSTOM

    def restart(self, clock, Algorithm algorithm not None):
        """Forget every key, and go on by another clock and algorithm, as tests want it.

        A row of the algorithm must not be longer than one of the limit's own.
        """
        self.clear()
        self.clock = clock
        self.system = self.table.clock = system_clock(clock)
        self.algorithm = algorithm
        algorithm.start(self.now())

    def retire(self):
        """Give all memory back, unless a key is left that matters; whether it did."""
        return self.table.retire(self.ready())

    @property
    def keys(self):
        return self.table.keys

    @property
    def bytes(self):
        return self.table.memory()

    # The rest holds the GIL and calls no Python -------------------------------

    cdef inline uint64_t hash_of(self, key) except 0:
        return mix(&self.table.core, key) if is_plain(key) else mix(&self.table.core, check_key(key))

    cdef inline int64_t ready(self) except? -1:
        """The time, with the algorithm prepared for it."""
        cdef int64_t now = self.now()
        if now >= self.algorithm.valid_until or now < self.algorithm.valid_from:
            self.algorithm.refresh(now)
        return now

    cdef inline Decision take(self, uint64_t h, int64_t cost, int64_t now, int how):
        cdef Decision out
        cdef uint64_t* slot
        if cost > self.algorithm.most:
            return self.look(h, cost, now)
        out = new_decision(self.limit)
        slot = find(&self.table.core, h)
        if slot[0] != h:
            if not is_of(slot, h):
                slot = self.slot(h, now)
            elif <int64_t> slot[1] <= now:
                slot[0] = h  # it begins anew
        while self.algorithm.decide(self.row(slot), cost, now, 0, how, out) == NO_ROOM:
            self.grow(slot)
        if self.table.owns:
            self.expire(slot)
        self.rise(slot, out, LOCKED if self.locks and how == HIT else REFUSED)
        return out

    cdef inline void rise(self, uint64_t* slot, Decision out, uint64_t refused) noexcept:
        """Bring the key to the level that it has earned: see levels.py."""
        cdef uint64_t level
        if not out._allowed:
            level = refused
        elif out._room <= self.half:
            level = HALF
        else:
            return
        if level > slot[0] & LOCKED:
            slot[0] = (slot[0] & ~<uint64_t> LOCKED) | level

    cdef Decision look(self, uint64_t h, int64_t cost, int64_t now):
        cdef Decision out = new_decision(self.limit)
        cdef uint64_t* slot = find(&self.table.core, h)
        cdef int64_t* row = self.row(slot) if is_of(slot, h) else self.blank
        cdef bint never = cost > self.algorithm.most
        if never:
            cost = self.algorithm.most + 1
        self.algorithm.decide(row, cost, now, 0, LOOK, out)
        if never:
            out._allowed = False
            out._retry = -1
        return out

    cdef inline int64_t* row(self, uint64_t* slot) noexcept:
        return <int64_t*> slot[2] if self.table.owns else <int64_t*> (slot + 1)

    cdef uint64_t* slot(self, uint64_t h, int64_t now) except NULL:
        """The slot of ``h``, inserted if there is none."""
        cdef uint64_t* slot = find(&self.table.core, h)
        if is_of(slot, h):
            if slot[0] & LOCKED and <int64_t> slot[1] <= now:
                slot[0] = h  # it begins anew
            return slot
        cdef int64_t* row = NULL
        if self.table.owns:  # before there is a slot that would want one
            row = self.table.new_row(self.algorithm.words)
            if row == NULL:
                raise MemoryError
            self.set_length(row, self.algorithm.words)
        slot = self.table.insert(h, slot, now)
        if slot == NULL:
            self.table.drop_row(row)
            raise MemoryError
        if self.table.owns:
            slot[2] = <uint64_t> row
        return slot

    cdef int grow(self, uint64_t* slot) except -1:
        """Twice the row, as long as the algorithm can use it."""
        cdef int64_t* old = self.row(slot)
        cdef int64_t words = min(2 * (old - 1)[0], self.algorithm.most_words)
        cdef int64_t* row = self.table.new_row(words)
        if row == NULL:
            raise MemoryError
        self.set_length(row, words)
        self.algorithm.carry(old, row)
        self.table.free_row(slot)
        slot[2] = <uint64_t> row
        return 0

    cdef inline void set_length(self, int64_t* row, int64_t words) noexcept:
        cdef int64_t at = self.algorithm.length_at
        if at >= 0:
            row[at] = words - (at - 1)

    cdef inline void expire(self, uint64_t* slot) noexcept:
        """Where the row lies elsewhere, its slot repeats when it ends."""
        if self.table.owns:
            slot[1] = (<uint64_t*> slot[2])[0]


cdef clockid_t system_clock(clock):
    if clock is MONOTONIC:
        return CLOCK_MONOTONIC
    return CLOCK_REALTIME if clock is WALL else CUSTOM


cdef inline int64_t whole(cost) except -1:
    """Almost every cost is the default, which is always the same object."""
    return 1 if cost is ONE else check_cost(cost)


def hit_each(list wanted, bint attempt=False):
    """See `Store.hit_each`; every item's counters are `MemoryCounters`."""
    cdef MemoryCounters counters
    cdef Decision seen
    cdef bint refused = False
    cdef Py_ssize_t at, count = len(wanted)
    cdef list items = [
        ((<MemoryCounters> counters), (<MemoryCounters> counters).hash_of(key), whole(cost),
         (<MemoryCounters> counters).ready())
        for counters, key, cost in wanted
    ]
    cdef list looked = [None] * count
    # From here on nothing is allocated that the garbage collector watches: it could run
    # somebody's finalizer, and that another decision, between the looks and the takes.
    for at in range(count):
        counters, h, cost, now = items[at]
        seen = counters.look(h, cost, now)
        looked[at] = seen
        refused = refused or not seen._allowed
    for at in range(count):
        seen = looked[at]
        # A limit that refuses takes nothing, but it may want to know (lockout).
        if not refused or not seen._allowed:
            counters, h, cost, now = items[at]
            looked[at] = counters.take(h, cost, now, ATTEMPT if attempt else HIT)
    return looked
