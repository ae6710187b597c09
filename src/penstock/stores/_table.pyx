"""The key table of `MemoryStore`: open addressing in segments, 64-bit words, no objects.

A slot is the key's 64-bit hash, followed by the row of its algorithm, whose first word is the time
at which it expires. Keys themselves are not kept: two of n keys share a slot with a probability of
about n * n / 2**65.

- *Segments.* The top bits of a hash choose a segment through a directory, the
  next ones a home in it. A segment has at most `SEGMENT_MOST` slots. To make room,
  one segment is rebuilt, never the table, so the longest call stays short at any size.
- *Order.* Slots of a segment are sorted by hash (linear probing with a monotone
  home function), so a search ends at the first hash that is not smaller, and
  there are no tombstones.
- *Time.* An expired slot is free: an insertion shifts over it, and a rebuild leaves it
  out. Every `SWEEP_EVERY` insertions one segment is swept as well, so that memory is
  freed without a thread and without a pause.
- *Bound.* All tables of a store share a `Bound`. When it is reached and no key has
  expired, one of `SAMPLE` neighbours is evicted: the one with the lowest level, see
  ``levels.py``. If none is on the lowest level, more are looked at; if all are locked
  out, the rest of the segment and other tables.

A table is used under the GIL, which is kept between finding a slot and writing it. What its
users must inline is in ``_table.pxd``.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset
from posix.time cimport clock_gettime, clockid_t, timespec

import secrets


cdef class Bound:
    """How many keys a store may hold, over all its tables."""

    def __init__(self, int64_t max_keys):
        self.max_keys = max_keys
        self.tables = []
        self.look_every = 1


cdef uint32_t size_for(uint32_t count) noexcept:
    """Smallest size, in steps of a quarter, that ``count`` slots fill to 72 % at most."""
    cdef uint32_t base = SEGMENT_LEAST, quarter
    while True:
        for quarter in range(4):
            if count * 32 <= (base + base * quarter // 4) * 23:
                return base + base * quarter // 4
        base *= 2


cdef class Table:
    def __cinit__(self, uint32_t row, bint owns, Bound bound, clockid_t clock):
        self.clock = clock
        self.core.width = 1 + row
        self.owns = owns
        self.bound = bound
        # Mixed into every hash: PYTHONHASHSEED may be fixed and known.
        self.core.secret = <uint64_t> secrets.randbits(64)
        self.core.factor = <uint64_t> secrets.randbits(64) | 1
        self.core.directory = <Segment*> PyMem_RawMalloc(sizeof(Segment))
        if self.core.directory == NULL:
            raise MemoryError
        self.core.directory[0].slots = self.new_slots(SEGMENT_LEAST)
        self.core.directory[0].size = SEGMENT_LEAST
        self.core.directory[0].depth = 0
        if self.core.directory[0].slots == NULL:
            raise MemoryError
        self.clear(self.core.directory[0].slots, 0, SEGMENT_LEAST + pad_of(SEGMENT_LEAST) + 1)
        bound.tables.append(self)
        if bound.crowded is None:
            bound.crowded = self

    def __dealloc__(self):
        cdef uint32_t at = 0
        if self.core.directory == NULL:
            return
        while at < (<uint32_t> 1 << self.core.bits):
            self.free_segment(&self.core.directory[at])
            at += <uint32_t> 1 << (self.core.bits - self.core.directory[at].depth)
        PyMem_RawFree(self.core.directory)

    def memory(self):
        """Bytes in use, the directory and rows of their own included."""
        return self.bytes + (<int64_t> 1 << self.core.bits) * <int64_t> sizeof(Segment)

    # Making room -------------------------------------------------------------

    cdef uint64_t* insert(self, uint64_t h, uint64_t* slot, int64_t now) noexcept:
        """A slot for ``h``, its row zero. ``slot`` is what `find` said; NULL: no memory."""
        cdef Segment* segment
        cdef uint64_t *free
        cdef uint64_t *end
        cdef bint fresh
        self.inserted += 1
        if self.inserted % SWEEP_EVERY == 0:
            self.sweep_next(now, 0)
            slot = find(&self.core, h)
        while True:
            segment = self.core.directory + entry(&self.core, h)
            end = segment.slots + <size_t> (segment.size + pad_of(segment.size)) * self.core.width
            free = slot
            while free[0] != EMPTY and <int64_t> free[1] > now:
                free += self.core.width
            fresh = free[0] == EMPTY
            if not fresh:
                self.free_row(free)
                break
            if self.bound.keys >= self.bound.max_keys:
                self.make_room(h, now)
                slot = find(&self.core, h)
                continue
            if free < end and (used(segment.slots)[0] + 1) * 32 <= <uint64_t> segment.size * 27:
                break
            if not self.rebuild(h, now):
                return NULL
            slot = find(&self.core, h)
        memmove(slot + self.core.width, slot, <size_t> (free - slot) * sizeof(uint64_t))
        memset(slot, 0, self.core.width * sizeof(uint64_t))
        slot[0] = h
        if fresh:
            used(segment.slots)[0] += 1
            self.keys += 1
            self.bound.keys += 1
        return slot

    cdef void make_room(self, uint64_t h, int64_t now) noexcept:
        """Find a key that has expired, anywhere in the store; else evict one.

        Looking costs some microseconds, so the longer nothing was found, the more
        insertions pass before the next look.
        """
        cdef Bound bound = self.bound
        cdef Table other
        bound.since_look += 1
        if bound.since_look >= bound.look_every:
            bound.since_look = 0
            other = bound.tables[bound.turn % len(bound.tables)]
            if other.sweep_next(self.time_of(other, now), 1) > 0:
                bound.look_every = 1
                return
            if other.cursor >= (<uint32_t> 1 << other.core.bits):
                bound.turn += 1
            bound.look_every = min(2 * bound.look_every, LOOK_EVERY_MOST)
        self.evict(h, now)

    cdef int64_t time_of(self, Table other, int64_t now) noexcept:
        """Now, by the other table's clock."""
        cdef timespec time
        if other.clock == self.clock:
            return now
        clock_gettime(other.clock, &time)
        return <int64_t> time.tv_sec * 1_000_000_000 + time.tv_nsec

    cdef void evict(self, uint64_t h, int64_t now) noexcept:
        """Make one key of the store give way, in a table that has its share of them."""
        cdef Bound bound = self.bound
        cdef Table victim = self, other
        cdef Py_ssize_t tables = len(bound.tables), turn = 0
        cdef int64_t level
        if self.keys * tables < bound.keys:
            if bound.crowded.keys * tables < bound.keys:
                for other in bound.tables:
                    if other.keys > bound.crowded.keys:
                        bound.crowded = other
            victim = bound.crowded
        bound.evictions += 1
        level = victim.evict_near(h, self.time_of(victim, now), False)
        while level == LOCKED and turn < min(tables, TABLES_MOST):
            other = bound.tables[(bound.turn + turn) % tables]
            turn += 1
            if other.keys > 0:
                level = other.evict_near(h, self.time_of(other, now), False)
        if level == LOCKED:
            victim.evict_near(h, self.time_of(victim, now), True)
        elif level == RUN_OUT:
            bound.evictions -= 1

    cdef int64_t evict_near(self, uint64_t h, int64_t now, bint locked) noexcept:
        """Remove the slot around ``h`` that gives away least; answers its level.

        One that is locked out is removed only if ``locked``.
        """
        cdef uint32_t at = entry(&self.core, h)
        cdef Segment* segment = self.core.directory + at
        cdef uint64_t *slot
        cdef uint64_t *end
        cdef uint64_t *best = NULL
        cdef uint64_t seen = 0
        cdef int64_t level, lowest = LOCKED + 1
        while used(segment.slots)[0] == 0:
            at = (at + 1) & ((<uint32_t> 1 << self.core.bits) - 1)
            segment = self.core.directory + at
        end = segment.slots + <size_t> (segment.size + pad_of(segment.size)) * self.core.width
        slot = segment.slots + home_of(h, segment.depth, segment.size) * self.core.width
        # Further, if all that was seen so far would give away much; once round at most.
        while seen < used(segment.slots)[0] and (
            seen < SAMPLE or (lowest > LITTLE and seen < SAMPLE_MORE) or lowest == LOCKED
        ):
            if slot >= end:
                slot = segment.slots
            if slot[0] != EMPTY:
                seen += 1
                level = self.level_of(slot, now)
                if level < lowest or (level == lowest and <int64_t> slot[1] < <int64_t> best[1]):
                    best = slot
                    lowest = level
            slot += self.core.width
        if lowest != LOCKED or locked:
            self.remove(segment, best)
        return lowest

    cdef inline int64_t level_of(self, uint64_t* slot, int64_t now) noexcept:
        cdef int64_t level = <int64_t> (slot[0] & LOCKED)
        if <int64_t> slot[1] <= now:
            return RUN_OUT
        if level == LOCKED:
            # A lockout keeps the time until which it lasts in its second word.
            if (<int64_t*> slot[2])[1] <= now if self.owns else <int64_t> slot[2] <= now:
                return REFUSED
        return level

    cdef void remove(self, Segment* segment, uint64_t* slot) noexcept:
        """Close the gap: slots that were pushed away from their home move back."""
        cdef uint64_t* following = slot + self.core.width
        cdef uint64_t place
        self.free_row(slot)
        while following[0] != EMPTY:
            place = <uint64_t> (following - segment.slots) / self.core.width
            if home_of(following[0], segment.depth, segment.size) == place:
                break
            following += self.core.width
        memmove(
            slot, slot + self.core.width,
            <size_t> (following - slot - self.core.width) * sizeof(uint64_t),
        )
        (following - self.core.width)[0] = EMPTY
        used(segment.slots)[0] -= 1
        self.keys -= 1
        self.bound.keys -= 1

    cdef bint rebuild(self, uint64_t h, int64_t now) noexcept:
        """Lay the segment of ``h`` out anew: larger, smaller, or as two."""
        cdef uint32_t at = entry(&self.core, h)
        cdef Segment old = self.core.directory[at]
        cdef uint32_t span = <uint32_t> 1 << (self.core.bits - old.depth)
        cdef uint32_t first = at & ~(span - 1)
        cdef uint64_t half = <uint64_t> 1 << (63 - old.depth)
        cdef uint64_t* slot = old.slots
        cdef uint64_t* end = slot + <size_t> (old.size + pad_of(old.size)) * self.core.width
        cdef uint64_t* middle = end
        cdef uint32_t live = 0, low = 0
        cdef Segment left, right
        while slot < end:
            if slot[0] != EMPTY:
                if slot[0] & half and slot < middle:
                    middle = slot
                if <int64_t> slot[1] > now:
                    live += 1
                    low += middle == end
            slot += self.core.width
        if (live + 1) * 32 <= SEGMENT_MOST * 23:
            if not self.lay_out(&left, old.slots, end, old.depth, live, old.size, now):
                return False
            self.point(first, span, left)
        else:
            if span == 1:
                if not self.double_directory():
                    return False
                first *= 2
                span = 2
            if not self.lay_out(&left, old.slots, middle, old.depth + 1, low, 0, now):
                return False
            if not self.lay_out(&right, middle, end, old.depth + 1, live - low, 0, now):
                self.free_slots(left.slots, left.size)
                return False
            self.point(first, span // 2, left)
            self.point(first + span // 2, span // 2, right)
        self.keys += <int64_t> live - <int64_t> used(old.slots)[0]
        self.bound.keys += <int64_t> live - <int64_t> used(old.slots)[0]
        self.free_rows(old.slots, end, now)
        self.free_slots(old.slots, old.size)
        return True

    cdef bint lay_out(
        self, Segment* segment, uint64_t* slot, uint64_t* end, uint32_t depth, uint32_t live,
        uint32_t size_before, int64_t now,
    ) noexcept:
        """Copy the live slots of a sorted stretch into a new segment, each to its home."""
        cdef uint32_t size = size_for(live + 1)
        cdef uint64_t* slots
        cdef uint64_t* source
        cdef uint32_t at, total
        if size == size_before:
            size += size // 4  # it was not full: its pad was. A larger one spreads them
        while True:
            slots = self.new_slots(size)
            if slots == NULL:
                return False
            used(slots)[0] = live
            at = 0
            total = size + pad_of(size)
            source = slot
            while source < end:
                if source[0] != EMPTY and <int64_t> source[1] > now:
                    at = self.clear(slots, at, <uint32_t> home_of(source[0], depth, size))
                    if at >= total:
                        break
                    memcpy(slots + <size_t> at * self.core.width, source, self.core.width * 8)
                    at += 1
                source += self.core.width
            if source == end:
                break
            self.free_slots(slots, size)
            size += size // 2
        self.clear(slots, at, total + 1)
        segment.slots, segment.size, segment.depth = slots, size, depth
        return True

    cdef inline uint32_t clear(self, uint64_t* slots, uint32_t start, uint32_t stop) noexcept:
        """Mark slots as empty; returns the larger of both."""
        while start < stop:
            slots[<size_t> start * self.core.width] = EMPTY
            start += 1
        return start

    cdef void point(self, uint32_t first, uint32_t span, Segment segment) noexcept:
        cdef uint32_t at
        for at in range(first, first + span):
            self.core.directory[at] = segment

    cdef bint double_directory(self) noexcept:
        cdef uint32_t size = <uint32_t> 1 << self.core.bits, at
        cdef Segment* larger = <Segment*> PyMem_RawMalloc(2 * <size_t> size * sizeof(Segment))
        if larger == NULL:
            return False
        for at in range(2 * size):
            larger[at] = self.core.directory[at // 2]
        PyMem_RawFree(self.core.directory)
        self.core.directory = larger
        self.core.bits += 1
        return True

    cdef int64_t sweep_next(self, int64_t now, int64_t least) noexcept:
        """Look through one segment; lay it out anew if so many of it have expired.

        ``least`` 0 stands for a quarter of those in use. Returns how many were dropped.
        """
        cdef Segment segment
        cdef uint64_t* slot
        cdef uint64_t* end
        cdef int64_t dead = 0, before = self.keys
        if self.cursor >= (<uint32_t> 1 << self.core.bits):
            self.cursor = 0
        segment = self.core.directory[self.cursor]
        slot = segment.slots
        end = slot + <size_t> (segment.size + pad_of(segment.size)) * self.core.width
        while slot < end:
            dead += slot[0] != EMPTY and <int64_t> slot[1] <= now
            slot += self.core.width
        if dead >= (least or 1 + <int64_t> used(segment.slots)[0] // 4):
            self.rebuild(<uint64_t> self.cursor << (64 - self.core.bits) if self.core.bits else 0, now)
        # The rebuilt segment may have been split; its aliases follow each other.
        segment = self.core.directory[self.cursor]
        self.cursor |= (<uint32_t> 1 << (self.core.bits - segment.depth)) - 1
        self.cursor += 1
        return before - self.keys

    def sweep(self, int64_t now, uint32_t segments):
        """Look through so many segments; returns how many keys were dropped."""
        cdef int64_t dropped = 0
        cdef uint32_t turn
        for turn in range(segments):
            dropped += self.sweep_next(now, 0)
            if self.cursor >= (<uint32_t> 1 << self.core.bits):
                break
        return dropped

    def retire(self, int64_t now):
        """Leave the store, unless a key is left that matters; whether it did."""
        self.sweep(now, UINT32_MAX)  # to the end, wherever the last sweep stopped
        self.sweep(now, UINT32_MAX)
        if self.keys > 0:
            return False
        if self in self.bound.tables:
            self.bound.tables.remove(self)
        if self.bound.crowded is self:
            self.bound.crowded = self.bound.tables[0] if self.bound.tables else None
        return True

    # Memory ------------------------------------------------------------------

    cdef uint64_t* new_slots(self, uint32_t size) noexcept:
        cdef size_t words = 1 + <size_t> (size + pad_of(size) + 1) * self.core.width
        cdef uint64_t* memory = <uint64_t*> PyMem_RawMalloc(words * sizeof(uint64_t))
        if memory == NULL:
            return NULL
        self.bytes += <int64_t> (words * sizeof(uint64_t))
        memory[0] = 0
        return memory + 1

    cdef void free_slots(self, uint64_t* slots, uint32_t size) noexcept:
        self.bytes -= <int64_t> (
            (1 + <size_t> (size + pad_of(size) + 1) * self.core.width) * sizeof(uint64_t)
        )
        PyMem_RawFree(slots - 1)

    cdef void free_segment(self, Segment* segment) noexcept:
        cdef uint64_t* end = (
            segment.slots + <size_t> (segment.size + pad_of(segment.size)) * self.core.width
        )
        self.free_rows(segment.slots, end, INT64_MAX)
        self.free_slots(segment.slots, segment.size)

    cdef void free_rows(self, uint64_t* slot, uint64_t* end, int64_t now) noexcept:
        """Free what expired slots own."""
        if not self.owns:
            return
        while slot < end:
            if slot[0] != EMPTY and <int64_t> slot[1] <= now:
                self.free_row(slot)
            slot += self.core.width

    cdef inline void free_row(self, uint64_t* slot) noexcept:
        if self.owns:
            self.drop_row(<int64_t*> slot[2])
            slot[2] = 0

    cdef void drop_row(self, int64_t* row) noexcept:
        if row != NULL:
            self.bytes -= ((row - 1)[0] + 1) * 8
            PyMem_RawFree(row - 1)

    cdef int64_t* new_row(self, int64_t words) noexcept:
        """A row of zeros for a slot that owns its row; the word before it is its length."""
        cdef int64_t* memory = <int64_t*> PyMem_RawCalloc(<size_t> words + 1, 8)
        if memory == NULL:
            return NULL
        memory[0] = words
        self.bytes += (words + 1) * 8
        return memory + 1
