"""The compiled counters of `SharedMemoryStore`: rows in a mapped file, behind robust locks.

The locks are process-shared robust mutexes: when their holder dies, the kernel
hands them to the next one together with that news, who then undoes what was left
half-written (see ``layout.py``). A row of a single word needs no undoing, as one
word is written at once or not at all.

The system's clock is read while the lock is held: with a time from before it, a
process that was preempted in between would look like a clock that stepped back.

A lock is held for the time of one decision, some tens of nanoseconds, with the
GIL and without calling Python. It can still take long when its holder is stopped
(SIGSTOP, a debugger): after a second the caller gets an error instead of waiting
on.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close

from penstock.algorithms.base cimport ATTEMPT, HIT, LOOK, Algorithm
from penstock.clock import MONOTONIC, WALL
from penstock.decision cimport Decision, new_decision
from penstock.stores.base cimport Counters, check_cost, check_key, is_plain, pick

import struct

from penstock.errors import StoreError
from penstock.stores import layout as L

cdef extern from "_mapped.h":
    const int64_t WAYS
    const int EOWNERDEAD
    int make_lock(void* at) noexcept
    int take_lock(void* at) noexcept
    void mend_lock(void* at) noexcept
    void give_lock(void* at) noexcept
    int64_t load(const int64_t* p) noexcept
    void store(int64_t* p, int64_t v) noexcept
    void add(int64_t* p, int64_t v) noexcept
    void fence() noexcept
    uint64_t text_hash(object key, uint64_t k0, uint64_t k1) noexcept

cdef object ONE = 1
cdef int64_t SECOND = 1_000_000_000


@cython.final
cdef class Mapped:
    """A mapped file: finds sets, takes locks, undoes what was left half-done."""

    cdef unsigned char[::1] view    # keeps the mapping alive for as long as we are
    cdef unsigned char* base
    cdef int64_t sets, stripes, stripe_bytes, sets_at, set_bytes, row_words
    cdef int64_t* offset
    cdef int64_t* seen
    cdef int64_t* evictions
    cdef int64_t* recoveries
    cdef readonly bint closed
    cdef int fd                     # holds the lock that says that the file is in use

    def __cinit__(self, mapping, layout, int fd):
        self.fd = fd

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    def __init__(self, mapping, layout, fd):
        self.view = mapping
        self.base = &self.view[0]
        self.sets = layout.sets
        self.stripes = layout.stripes
        self.stripe_bytes = layout.stripe_bytes
        self.sets_at = layout.sets_at
        self.set_bytes = layout.set_bytes
        self.row_words = layout.row_words
        self.offset = <int64_t*> (self.base + <int64_t> L.OFFSET_AT)
        self.seen = <int64_t*> (self.base + <int64_t> L.SEEN_AT)
        self.evictions = <int64_t*> (self.base + <int64_t> L.EVICTIONS_AT)
        self.recoveries = <int64_t*> (self.base + <int64_t> L.RECOVERIES_AT)

    def tidy(self):
        """Make all locks anew. Only for who is alone with the file."""
        cdef int64_t stripe
        for stripe in range(self.stripes):
            self.undo(stripe)
            if make_lock(self.lock_of(stripe)):
                raise StoreError("this system has no robust process-shared mutexes")

    def close(self):
        cdef int fd = self.fd
        self.closed = True
        self.fd = -1
        if fd >= 0:
            close(fd)

    cdef inline void* lock_of(self, int64_t stripe) noexcept:
        return self.base + <int64_t> L_PAGE + stripe * self.stripe_bytes

    cdef inline int64_t* journal_of(self, int64_t stripe) noexcept:
        return <int64_t*> (<unsigned char*> self.lock_of(stripe) + L_LOCK)

    cdef inline int64_t set_of(self, uint64_t h) noexcept:
        return <int64_t> (((h >> 32) * <uint64_t> self.sets) >> 32)

    cdef inline int64_t* hashes_of(self, int64_t index) noexcept:
        return <int64_t*> (self.base + self.sets_at + index * self.set_bytes)

    cdef int take(self, int64_t stripe) except -1:
        """Take a stripe's lock; put right what a dead holder has left."""
        cdef int got = take_lock(self.lock_of(stripe))
        if got == 0:
            return 0
        if got == EOWNERDEAD:
            self.undo(stripe)
            mend_lock(self.lock_of(stripe))
            add(self.recoveries, 1)
            return 0
        raise StoreError(
            "a lock of the store could not be had within a second: its holder may be stopped"
            f" (error {got})"
        )

    cdef inline void give(self, int64_t stripe) noexcept:
        give_lock(self.lock_of(stripe))

    cdef inline void begin(self, int64_t stripe, int64_t* row) noexcept:
        """Note the row in the journal: from here on it may be half-written."""
        cdef int64_t* journal = self.journal_of(stripe)
        memcpy(journal + 1, row, <size_t> self.row_words * 8)
        store(journal, <unsigned char*> row - self.base)
        fence()

    cdef inline void end(self, int64_t stripe) noexcept:
        store(self.journal_of(stripe), 0)

    cdef void undo(self, int64_t stripe) noexcept:
        cdef int64_t* journal = self.journal_of(stripe)
        if journal[0] != 0:
            memcpy(self.base + journal[0], journal + 1, <size_t> self.row_words * 8)
            fence()
            store(journal, 0)

    cdef int64_t* find(self, uint64_t h) noexcept:
        """The row of ``h``, or NULL."""
        cdef int64_t* hashes = self.hashes_of(self.set_of(h))
        cdef int64_t turn, way
        for turn in range(WAYS):
            way = (<int64_t> h + turn) & (WAYS - 1)
            if hashes[way] == <int64_t> h:
                return hashes + WAYS + way * self.row_words
        return NULL

    cdef int64_t* insert(self, uint64_t h, int64_t now) noexcept:
        """A row of zeros for ``h``: a free one, or of whom would be forgotten soonest.

        ``now`` is the earlier of the clocks that rows may be meant by.
        """
        cdef int64_t* hashes = self.hashes_of(self.set_of(h))
        cdef int64_t* rows = hashes + WAYS
        cdef int64_t turn, way, best = <int64_t> h & (WAYS - 1)
        for turn in range(WAYS):
            way = (<int64_t> h + turn) & (WAYS - 1)
            if hashes[way] == 0:
                best = way
                break
            if rows[way * self.row_words] < rows[best * self.row_words]:
                best = way
        if hashes[best] != 0 and rows[best * self.row_words] > now:
            add(self.evictions, 1)
        # In this order: killed in between, the place is merely free.
        store(hashes + best, 0)
        memset(rows + best * self.row_words, 0, <size_t> self.row_words * 8)
        store(hashes + best, <int64_t> h)
        return rows + best * self.row_words

    cdef void remove(self, uint64_t h) noexcept:
        cdef int64_t* hashes = self.hashes_of(self.set_of(h))
        cdef int64_t way
        for way in range(WAYS):
            if hashes[way] == <int64_t> h:
                store(hashes + way, 0)


cdef int64_t L_PAGE = L.PAGE
cdef int64_t L_LOCK = L.LOCK_BYTES


@cython.final
cdef class MappedCounters(Counters):
    """The counters of one limit, in a mapped file."""

    cdef Mapped mapped
    cdef uint64_t k0, k1
    cdef int64_t* blank
    cdef bint custom

    def __cinit__(self, *args):
        self.blank = NULL

    def __init__(self, limit, clock, Mapped mapped, secret):
        Counters.__init__(self, limit, clock)
        self.mapped = mapped
        self.k0, self.k1 = struct.unpack("=QQ", secret)
        self.custom = self.clock is not MONOTONIC and self.clock is not WALL
        self.blank = <int64_t*> PyMem_RawCalloc(<size_t> self.algorithm.most_words, 8)
        if self.blank == NULL:
            raise MemoryError
        self.set_length(self.blank)
        self.algorithm.start(self.now())

    def __dealloc__(self):
        PyMem_RawFree(self.blank)

    cpdef int64_t now(self) except? -1:
        return self.clock.now() if self.custom else self.system_now()

    cpdef Decision hit(self, key, cost):
        cdef int64_t units = 1 if cost is ONE else check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef Decision out = new_decision(self.limit)
        cdef int64_t stripe = self.enter(h, &now)
        self.take(h, units, now, stripe, HIT, out)
        self.mapped.give(stripe)
        return out

    cpdef Decision peek(self, key, cost):
        cdef int64_t units = 1 if cost is ONE else check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef Decision out = new_decision(self.limit)
        cdef int64_t stripe = self.enter(h, &now)
        self.look(h, units, now, out)
        self.mapped.give(stripe)
        return out

    def attempt(self, key, cost, int64_t patience=-1):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef Decision out = new_decision(self.limit)
        cdef int64_t stripe = self.enter(h, &now)
        cdef bint late = False
        if patience >= 0:
            self.look(h, units, now, out)
            late = out._allowed and out._delay > patience
        if not late:
            self.take(h, units, now, stripe, ATTEMPT, out)
        self.mapped.give(stripe)
        return out.refused(out._delay - patience) if late else out

    def charge(self, key, cost):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t stripe = self.enter(h, &now)
        cdef int64_t* row = self.row(h, now)
        self.mapped.begin(stripe, row)
        self.algorithm.charge(row, units, now)
        self.mapped.end(stripe)
        self.mapped.give(stripe)

    def refund(self, key, cost, int64_t mark=-1, int64_t kept=0):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t stripe = self.enter(h, &now)
        cdef int64_t* row = self.mapped.find(h)
        if row != NULL:
            self.mapped.begin(stripe, row)
            self.algorithm.refund(row, units, now, mark, kept)
            self.mapped.end(stripe)
        self.mapped.give(stripe)

    def reset(self, key):
        cdef int64_t now
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t stripe = self.enter(h, &now)
        self.mapped.remove(h)
        self.mapped.give(stripe)

    cdef inline uint64_t hash_of(self, key) except 0:
        if is_plain(key):
            return text_hash(key, self.k0, self.k1)
        return text_hash(check_key(key), self.k0, self.k1)

    cdef inline int64_t stripe_of(self, uint64_t h) noexcept:
        return self.mapped.set_of(h) % self.mapped.stripes

    cdef inline int64_t enter(self, uint64_t h, int64_t* now) except -1:
        """Take the lock of ``h``, and then the time."""
        cdef int64_t stripe = self.stripe_of(h)
        while True:
            if self.mapped.closed:
                raise StoreError("the store is closed")
            if self.custom:
                now[0] = self.clock.now()
            self.mapped.take(stripe)
            if not self.custom:
                now[0] = self.system_now()
            if self.is_ready(now[0]):
                return stripe
            self.mapped.give(stripe)
            self.algorithm.refresh(now[0])

    cdef inline bint is_ready(self, int64_t now) noexcept:
        return self.algorithm.valid_from <= now < self.algorithm.valid_until

    cdef inline int64_t system_now(self) noexcept:
        """The wall clock, or the monotonic one counted on from the file's beginning."""
        cdef timespec time
        cdef int64_t now
        clock_gettime(CLOCK_REALTIME if self.algorithm.wall else CLOCK_MONOTONIC, &time)
        now = <int64_t> time.tv_sec * SECOND + time.tv_nsec
        if self.algorithm.wall:
            return now
        now += load(self.mapped.offset)
        if now - load(self.mapped.seen) > SECOND:
            store(self.mapped.seen, now)
        return now

    # Under the lock, and without Python ---------------------------------------

    cdef void take(
        self, uint64_t h, int64_t cost, int64_t now, int64_t stripe, int how, Decision out
    ) noexcept:
        cdef int64_t* row
        if cost > self.algorithm.most:
            self.look(h, cost, now, out)
            return
        row = self.row(h, now)
        if self.algorithm.most_words == 1:
            self.algorithm.decide(row, cost, now, 0, how, out)
        else:
            self.mapped.begin(stripe, row)
            self.algorithm.decide(row, cost, now, 0, how, out)
            self.mapped.end(stripe)

    cdef void look(self, uint64_t h, int64_t cost, int64_t now, Decision out) noexcept:
        cdef int64_t* row = self.mapped.find(h)
        if row != NULL and not self.algorithm.sound(row):
            row = NULL
        cdef bint never = cost > self.algorithm.most
        if never:
            cost = self.algorithm.most + 1
        self.algorithm.decide(row if row != NULL else self.blank, cost, now, 0, LOOK, out)
        if never:
            out._allowed = False
            out._retry = -1

    cdef inline int64_t* row(self, uint64_t h, int64_t now) noexcept:
        cdef int64_t* row = self.mapped.find(h)
        if row == NULL:
            row = self.mapped.insert(h, now if self.custom else self.earliest())
        self.set_length(row)
        if not self.algorithm.sound(row):
            # A machine that lost its power wrote one page of a set and not another.
            memset(row, 0, <size_t> self.mapped.row_words * 8)
            self.set_length(row)
        return row

    cdef int64_t earliest(self) noexcept:
        """Now by the wall or by the file's own time, whichever is behind the other."""
        cdef timespec time
        cdef int64_t wall, logical
        clock_gettime(CLOCK_REALTIME, &time)
        wall = <int64_t> time.tv_sec * SECOND + time.tv_nsec
        clock_gettime(CLOCK_MONOTONIC, &time)
        logical = <int64_t> time.tv_sec * SECOND + time.tv_nsec + load(self.mapped.offset)
        return wall if wall < logical else logical

    cdef inline void set_length(self, int64_t* row) noexcept:
        cdef int64_t at = self.algorithm.length_at
        if at >= 0:
            row[at] = self.algorithm.most_words - (at - 1)


def hit_each(list wanted, bint attempt=False):
    """See `Store.hit_each`; every item's counters are `MappedCounters` of one store."""
    cdef list items = [
        (
            counters,
            (<MappedCounters> counters).hash_of(key),
            check_cost(cost),
        )
        for counters, key, cost in wanted
    ]
    # In one order for everybody, so that two requests never wait for each other.
    cdef list stripes = sorted({
        (<MappedCounters> counters).stripe_of(h) for counters, h, _ in items
    })
    cdef list made = [new_decision((<MappedCounters> counters).limit) for counters, _, _ in items]
    while not try_each(items, made, stripes, ATTEMPT if attempt else HIT):
        pass
    return made


cdef bint try_each(list items, list made, list stripes, int how) except -1:
    """Decide on all under their locks; False: a calendar had to be turned first."""
    cdef MappedCounters counters = items[0][0]
    cdef Mapped mapped = counters.mapped
    cdef Decision out
    cdef bint refused = False
    cdef int64_t stripe
    cdef Py_ssize_t at, taken, held = 0
    cdef list moments = [counters.now() for counters, _, _ in items]
    if mapped.closed:
        raise StoreError("the store is closed")
    try:
        for stripe in stripes:
            mapped.take(stripe)
            held += 1
        for at in range(len(items)):
            counters, h, cost = items[at]
            if not counters.custom:
                moments[at] = counters.system_now()
            if not counters.is_ready(moments[at]):
                break
        else:
            for at in range(len(items)):
                counters, h, cost = items[at]
                out = made[at]
                counters.look(h, cost, moments[at], out)
                refused = refused or not out._allowed
            for at in range(len(items)):
                counters, h, cost = items[at]
                out = made[at]
                # A limit that refuses takes nothing, but it may want to know (lockout).
                if not refused or not out._allowed:
                    counters.take(h, cost, moments[at], counters.stripe_of(h), how, out)
            return True
    finally:
        for taken in range(held):
            mapped.give(stripes[taken])
    counters.algorithm.refresh(moments[at])
    return False
