"""The compiled counters of `SharedMemoryStore`: rows in a mapped file, behind robust locks.

The locks are process-shared robust mutexes. When a holder dies, the kernel hands the mutex to
the next process and reports the death, and that process undoes what was half-written (see
``layout.py``). A row of one word needs no undo: a word is written at once or not at all.

The system's clock is read while the lock is held. With an earlier time, a process that was
preempted in between would look like a clock that stepped back.

A lock is held for one decision, some tens of nanoseconds, with the GIL and without calling
Python. If its holder is stopped (SIGSTOP, a debugger), others get an error after a second.

Nothing in the file is trusted. Sizes come from the header that was checked when the file was
opened; a journal must name a row of its own stripe; a row that its algorithm cannot have written
starts afresh. A file that is truncated while it is in use is an error: see ``_guard.h``.
"""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close

from penstock.algorithms.base cimport ATTEMPT, HIT, LOOK, Algorithm
from penstock.algorithms import words as W
from penstock.clock import MONOTONIC, WALL
from penstock.decision cimport Decision, new_decision
from penstock.stores.base cimport Counters, check_cost, check_key, is_plain

import mmap
import os
import struct

from penstock.errors import StoreError, StoreFileError
from penstock.stores import layout as L
from penstock.stores.levels import half_of
from penstock.stores.shared_file import open_again

cdef extern from "_mapped.h":
    const int64_t WAYS
    const int EOWNERDEAD
    const int EINVAL
    int note_kind() noexcept
    int make_lock(void* at) noexcept
    int take_lock(void* at) noexcept
    void mend_lock(void* at) noexcept
    void give_lock(void* at) noexcept
    int64_t load(const int64_t* p) noexcept
    void store(int64_t* p, int64_t v) noexcept
    void add(int64_t* p, int64_t v) noexcept
    void fence() noexcept
    uint64_t text_hash(object key, uint64_t k0, uint64_t k1) noexcept

cdef extern from "_guard.h":
    ctypedef struct Guard:
        int lost
    Guard* new_guard(void* base, size_t size) noexcept
    void free_guard(Guard* guard) noexcept

# As in levels.py.
cdef enum:
    LITTLE, HALF, REFUSED, LOCKED
    RUN_OUT = -1

cdef object ONE = 1
cdef int NO_ROOM = W.NO_ROOM
cdef int64_t SECOND = 1_000_000_000
cdef int64_t L_PAGE = L.PAGE
cdef int64_t L_LOCK = L.LOCK_BYTES
# Mappings of truncated files are kept until the process ends: a lock that was held in one is
# still in its thread's list of robust locks.
cdef list LOST = []

if note_kind():
    raise ImportError("this system has no robust process-shared mutexes")


@cython.final
cdef class Mapped:
    """A mapped file: finds sets, takes locks, undoes what was left half-written."""

    cdef object mapping             # kept as long as this object
    cdef unsigned char* base
    cdef Guard* guard
    cdef int64_t sets, stripes, stripe_bytes, sets_at, set_bytes, row_words
    cdef int64_t offset             # of the file's clock: read once, as the file may be damaged
    cdef int64_t* seen
    cdef int64_t* evictions
    cdef int64_t* recoveries
    cdef int64_t* repairs
    cdef readonly bint closed
    cdef object path
    cdef int fd                     # holds the lock that says that the file is in use

    def __cinit__(self, int fd, layout, path):
        self.fd = fd
        self.guard = NULL

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        if self.guard != NULL:
            free_guard(self.guard)

    def __init__(self, fd, layout, path):
        cdef const unsigned char[::1] view
        # The mapping keeps its own descriptor, which must not keep our lock.
        other = open_again(fd)
        try:
            self.mapping = mmap.mmap(other, layout.file_bytes)
        except (OSError, ValueError) as error:  # truncated since it was checked, or too large
            raise StoreFileError(f"cannot map {path}: {error}") from error
        finally:
            os.close(other)
        view = self.mapping
        self.base = <unsigned char*> &view[0]
        self.guard = new_guard(self.base, layout.file_bytes)
        if self.guard == NULL:
            raise MemoryError
        self.path = path
        self.sets = layout.sets
        self.stripes = layout.stripes
        self.stripe_bytes = layout.stripe_bytes
        self.sets_at = layout.sets_at
        self.set_bytes = layout.set_bytes
        self.row_words = layout.row_words
        self.seen = <int64_t*> (self.base + <int64_t> L.SEEN_AT)
        self.evictions = <int64_t*> (self.base + <int64_t> L.EVICTIONS_AT)
        self.recoveries = <int64_t*> (self.base + <int64_t> L.RECOVERIES_AT)
        self.repairs = <int64_t*> (self.base + <int64_t> L.REPAIRS_AT)

    def tidy(self):
        """Create all locks again; only if no other process uses the file."""
        cdef int64_t stripe
        for stripe in range(self.stripes):
            self.undo(stripe)
            if make_lock(self.lock_of(stripe)):
                raise StoreError("this system has no robust process-shared mutexes")
        self.check()

    def set_clock(self, int64_t offset):
        self.offset = offset

    def count_at(self, int64_t at):
        """One of the header's counters."""
        cdef int64_t count = load(<int64_t*> (self.base + at))
        self.check()
        return count

    def close(self):
        cdef int fd = self.fd
        self.closed = True
        self.fd = -1
        if fd >= 0:
            close(fd)

    cdef inline int check(self) except -1:
        """Called before anything that was read from the file is returned."""
        if self.guard.lost:
            self.raise_lost()
        return 0

    cdef int raise_lost(self) except -1:
        if self.mapping not in LOST:
            LOST.append(self.mapping)
        raise StoreError(
            f"{self.path} was cut off while it was in use: stop the processes that use it,"
            " delete it, and start them again"
        )

    cdef inline void* lock_of(self, int64_t stripe) noexcept:
        return self.base + L_PAGE + stripe * self.stripe_bytes

    cdef inline int64_t* journal_of(self, int64_t stripe) noexcept:
        """The row's offset in the file (0: none), its length, and its words."""
        return <int64_t*> (<unsigned char*> self.lock_of(stripe) + L_LOCK)

    cdef inline int64_t set_of(self, uint64_t h) noexcept:
        return <int64_t> (((h >> 32) * <uint64_t> self.sets) >> 32)

    cdef inline int64_t* hashes_of(self, int64_t index) noexcept:
        return <int64_t*> (self.base + self.sets_at + index * self.set_bytes)

    cdef int take(self, int64_t stripe) except -1:
        """Take a stripe's lock; undo what a dead holder left half-written."""
        cdef int got = take_lock(self.lock_of(stripe))
        if got == 0:
            return 0
        if got == EOWNERDEAD:
            self.undo(stripe)
            mend_lock(self.lock_of(stripe))
            add(self.recoveries, 1)
            return 0
        self.check()
        if got == EINVAL:
            raise StoreError(
                f"{self.path} is damaged: one of its locks is none; stop the processes that use"
                " it and start them again"
            )
        raise StoreError(
            "a lock of the store could not be had within a second: its holder may be stopped"
            f" (error {got})"
        )

    cdef inline void give(self, int64_t stripe) noexcept:
        give_lock(self.lock_of(stripe))

    cdef inline void begin(self, int64_t stripe, int64_t* row, int64_t words) noexcept:
        """Copy the row to the journal: from here on it may be half-written."""
        cdef int64_t* journal = self.journal_of(stripe)
        journal[1] = words
        memcpy(journal + 2, row, <size_t> words * 8)
        store(journal, <unsigned char*> row - self.base)
        fence()

    cdef inline void end(self, int64_t stripe) noexcept:
        store(self.journal_of(stripe), 0)

    cdef void undo(self, int64_t stripe) noexcept:
        cdef int64_t* journal = self.journal_of(stripe)
        cdef int64_t row = journal[0], words = journal[1]
        if row == 0:
            return
        if self.is_row(row, stripe) and 0 < words <= self.row_words:
            memcpy(self.base + row, journal + 2, <size_t> words * 8)
        else:
            add(self.repairs, 1)
        fence()
        store(journal, 0)

    cdef bint is_row(self, int64_t at, int64_t stripe) noexcept:
        """Whether a row of this stripe begins at this byte of the file."""
        cdef int64_t offset = at - self.sets_at
        if at < self.sets_at or offset >= self.sets * self.set_bytes:
            return False
        if offset // self.set_bytes % self.stripes != stripe:
            return False
        offset = offset % self.set_bytes - 8 * WAYS
        return offset >= 0 and offset % (8 * self.row_words) == 0

    cdef inline int64_t* find(self, uint64_t h, int64_t** word) noexcept:
        """The row of ``h``, or NULL; and the word with its hash and level."""
        cdef int64_t* hashes = self.hashes_of(self.set_of(h))
        cdef int64_t turn, way
        for turn in range(WAYS):
            way = (<int64_t> (h >> 2) + turn) & (WAYS - 1)
            if (<uint64_t> hashes[way] ^ h) <= LOCKED:
                word[0] = hashes + way
                return hashes + WAYS + way * self.row_words
        return NULL

    cdef int64_t* insert(
        self, uint64_t h, int64_t now, const int64_t* blank, int64_t words, int64_t** word
    ) noexcept:
        """A blank row for ``h``: a free one, or that of the key with the lowest level.

        ``now`` is the earlier of the clocks that rows may use.
        """
        cdef int64_t* hashes = self.hashes_of(self.set_of(h))
        cdef int64_t* rows = hashes + WAYS
        cdef int64_t* row
        cdef int64_t turn, way, level, best = 0, lowest = LOCKED + 1
        for turn in range(WAYS):
            way = (<int64_t> (h >> 2) + turn) & (WAYS - 1)
            if hashes[way] == 0:
                best = way
                lowest = RUN_OUT
                break
            row = rows + way * self.row_words
            level = self.level_of(hashes[way], row, now)
            if level < lowest or (level == lowest and row[0] < rows[best * self.row_words]):
                best = way
                lowest = level
        if lowest != RUN_OUT:
            add(self.evictions, 1)
        # In this order: killed in between, the place is merely free.
        store(hashes + best, 0)
        memcpy(rows + best * self.row_words, blank, <size_t> words * 8)
        store(hashes + best, <int64_t> h)
        word[0] = hashes + best
        return rows + best * self.row_words

    cdef inline int64_t level_of(self, int64_t word, int64_t* row, int64_t now) noexcept:
        if row[0] <= now:
            return RUN_OUT
        # The second word of a lockout is the time at which it ends.
        if word & LOCKED == LOCKED and (self.row_words < 2 or row[1] <= now):
            return REFUSED
        return word & LOCKED

    def clear(self):
        """Forget every key, one stripe after the other."""
        cdef int64_t stripe, index, way
        cdef int64_t* hashes
        if self.closed:
            raise StoreError("the store is closed")
        for stripe in range(self.stripes):
            self.take(stripe)
            index = stripe
            while index < self.sets:
                hashes = self.hashes_of(index)
                for way in range(WAYS):
                    if hashes[way] != 0:  # an untouched page stays untouched
                        store(hashes + way, 0)
                index += self.stripes
            self.give(stripe)
        self.check()

    cdef void remove(self, uint64_t h) noexcept:
        cdef int64_t* hashes = self.hashes_of(self.set_of(h))
        cdef int64_t way
        for way in range(WAYS):
            if (<uint64_t> hashes[way] ^ h) <= LOCKED:
                store(hashes + way, 0)


@cython.final
cdef class MappedCounters(Counters):
    """The counters of one limit, in a mapped file."""

    cdef Mapped mapped
    cdef uint64_t k0, k1
    cdef int64_t* blank
    cdef int64_t half
    cdef bint custom, locks

    def __cinit__(self, *args):
        self.blank = NULL

    def __init__(self, limit, clock, Mapped mapped, secret):
        Counters.__init__(self, limit, clock)
        self.mapped = mapped
        self.k0, self.k1 = struct.unpack("=QQ", secret)
        self.custom = self.clock is not MONOTONIC and self.clock is not WALL
        self.half = half_of(limit)
        self.locks = limit.lockout_ns > 0
        self.blank = <int64_t*> PyMem_RawCalloc(<size_t> self.algorithm.words, 8)
        if self.blank == NULL:
            raise MemoryError
        if self.algorithm.length_at >= 0:
            # A row has its full length from the beginning. The unused part is never touched,
            # so it takes no memory.
            self.blank[self.algorithm.length_at] = (
                self.algorithm.most_words - (self.algorithm.length_at - 1)
            )
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
        self.mapped.check()
        return out

    cpdef Decision peek(self, key, cost):
        cdef int64_t units = 1 if cost is ONE else check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef Decision out = new_decision(self.limit)
        cdef int64_t stripe = self.enter(h, &now)
        self.look(h, units, now, out)
        self.mapped.give(stripe)
        self.mapped.check()
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
        self.mapped.check()
        return out.refused(out._delay - patience) if late else out

    def charge(self, key, cost):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef Decision out = new_decision(self.limit)
        cdef int64_t stripe = self.enter(h, &now)
        cdef int64_t* word
        cdef int64_t* row = self.row(h, now, &word)
        self.begin(stripe, row)
        while self.algorithm.charge(row, units, now) == NO_ROOM:
            self.clear(row)
        self.mapped.end(stripe)
        self.algorithm.decide(row, 1, now, 0, LOOK, out)
        self.rise(word, out, HALF)
        self.mapped.give(stripe)
        self.mapped.check()

    def refund(self, key, cost, int64_t mark=-1, int64_t kept=0):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t stripe = self.enter(h, &now)
        cdef int64_t* word
        cdef int64_t* row = self.sound_row(h, &word)
        if row != NULL:
            self.begin(stripe, row)
            self.algorithm.refund(row, units, now, mark, kept)
            self.mapped.end(stripe)
        self.mapped.give(stripe)
        self.mapped.check()

    def reserve(self, key, cost, int64_t patience=-1):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef Decision out = new_decision(self.limit)
        cdef int64_t stripe = self.enter(h, &now)
        cdef int64_t* word
        cdef int64_t* row
        if units > self.algorithm.most:
            self.look(h, units, now, out)
        else:
            row = self.row(h, now, &word)
            self.begin(stripe, row)
            self.algorithm.reserve(row, units, now, patience, out)
            self.mapped.end(stripe)
            self.rise(word, out, REFUSED)
        self.mapped.give(stripe)
        self.mapped.check()
        return out

    def cancel(self, key, cost, int64_t mark, int64_t kept=0):
        cdef int64_t units = check_cost(cost), now
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t stripe = self.enter(h, &now)
        cdef int64_t* word
        cdef int64_t* row = self.sound_row(h, &word)
        if row != NULL:
            self.begin(stripe, row)
            self.algorithm.cancel(row, units, now, mark, kept)
            self.mapped.end(stripe)
        self.mapped.give(stripe)
        self.mapped.check()

    def reset(self, key):
        cdef int64_t now
        cdef uint64_t h = self.hash_of(key)
        cdef int64_t stripe = self.enter(h, &now)
        self.mapped.remove(h)
        self.mapped.give(stripe)
        self.mapped.check()

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
        """The wall clock's time, or the file's own: the monotonic clock plus an offset."""
        cdef timespec time
        cdef int64_t now
        clock_gettime(CLOCK_REALTIME if self.algorithm.wall else CLOCK_MONOTONIC, &time)
        now = <int64_t> time.tv_sec * SECOND + time.tv_nsec
        if self.algorithm.wall:
            return now
        now += self.mapped.offset
        # Also if it is in the future: then it is damaged.
        if <uint64_t> (now - load(self.mapped.seen)) > <uint64_t> SECOND:
            store(self.mapped.seen, now)
        return now

    # Under the lock, and without Python ---------------------------------------

    cdef void take(
        self, uint64_t h, int64_t cost, int64_t now, int64_t stripe, int how, Decision out
    ) noexcept:
        cdef int64_t* row
        cdef int64_t* word
        if cost > self.algorithm.most:
            self.look(h, cost, now, out)
            return
        row = self.row(h, now, &word)
        if self.algorithm.most_words == 1:
            self.algorithm.decide(row, cost, now, 0, how, out)
        else:
            self.begin(stripe, row)
            while self.algorithm.decide(row, cost, now, 0, how, out) == NO_ROOM:
                self.clear(row)
            self.mapped.end(stripe)
        self.rise(word, out, LOCKED if self.locks and how == HIT else REFUSED)

    cdef inline void begin(self, int64_t stripe, int64_t* row) noexcept:
        """Copy to the journal what is in use of a row that may be long."""
        cdef int64_t words = self.algorithm.most_words
        self.mapped.begin(
            stripe, row, words if self.algorithm.length_at < 0 else self.algorithm.extent(row)
        )

    cdef void clear(self, int64_t* row) noexcept:
        """A row has its full length from the beginning: one without room is damaged."""
        memcpy(row, self.blank, <size_t> self.algorithm.words * 8)
        add(self.mapped.repairs, 1)

    cdef inline void rise(self, int64_t* word, Decision out, int64_t refused) noexcept:
        """Raise the key's level after a decision: see levels.py."""
        cdef int64_t level
        if not out._allowed:
            level = refused
        elif out._room <= self.half:
            level = HALF
        else:
            return
        if level > word[0] & LOCKED:
            store(word, (word[0] & ~<int64_t> LOCKED) | level)

    cdef void look(self, uint64_t h, int64_t cost, int64_t now, Decision out) noexcept:
        cdef int64_t* word
        cdef int64_t* row = self.sound_row(h, &word)
        cdef bint never = cost > self.algorithm.most
        if never:
            cost = self.algorithm.most + 1
        self.algorithm.decide(row if row != NULL else self.blank, cost, now, 0, LOOK, out)
        if never:
            out._allowed = False
            out._retry = -1

    cdef inline int64_t* row(self, uint64_t h, int64_t now, int64_t** word) noexcept:
        cdef int64_t* row = self.sound_row(h, word)
        if row == NULL:
            return self.mapped.insert(
                h, now if self.custom else self.earliest(), self.blank, self.algorithm.words, word
            )
        if word[0][0] & LOCKED and row[0] <= now:
            store(word[0], <int64_t> h)  # it starts afresh
        return row

    cdef inline int64_t* sound_row(self, uint64_t h, int64_t** word) noexcept:
        """The row of a key, or NULL if there is none or it is damaged and was dropped."""
        cdef int64_t* row = self.mapped.find(h, word)
        if row == NULL or self.algorithm.sound(row):
            return row
        # Damaged, or written only in part when the machine lost power.
        store(word[0], 0)
        add(self.mapped.repairs, 1)
        return NULL

    cdef int64_t earliest(self) noexcept:
        """The wall clock's time or the file's own, whichever is earlier."""
        cdef timespec time
        cdef int64_t wall, logical
        clock_gettime(CLOCK_REALTIME, &time)
        wall = <int64_t> time.tv_sec * SECOND + time.tv_nsec
        clock_gettime(CLOCK_MONOTONIC, &time)
        logical = <int64_t> time.tv_sec * SECOND + time.tv_nsec + self.mapped.offset
        return wall if wall < logical else logical


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
    # In the same order everywhere, so that two requests never wait for each other.
    cdef list stripes = sorted({
        (<MappedCounters> counters).stripe_of(h) for counters, h, _ in items
    })
    cdef list decisions = [
        new_decision((<MappedCounters> counters).limit) for counters, _, _ in items
    ]
    while not try_each(items, decisions, stripes, ATTEMPT if attempt else HIT):
        pass
    return decisions


cdef bint try_each(list items, list decisions, list stripes, int how) except -1:
    """Decide on all under their locks; False if a calendar had to be refreshed first."""
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
                out = decisions[at]
                counters.look(h, cost, moments[at], out)
                refused = refused or not out._allowed
            for at in range(len(items)):
                counters, h, cost = items[at]
                out = decisions[at]
                # A limit that refuses takes nothing, but may have to record it (lockout).
                if not refused or not out._allowed:
                    counters.take(h, cost, moments[at], counters.stripe_of(h), how, out)
            return True
    finally:
        for taken in range(held):
            mapped.give(stripes[taken])
        mapped.check()
    counters.algorithm.refresh(moments[at])
    return False
