"""The table's layout, and what its users inline."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport clockid_t

cdef extern from *:
    """
    #define EMPTY UINT64_MAX
    #define SEGMENT_MOST 4096u
    #define SEGMENT_LEAST 16u
    #define PAD_MOST 64u
    #define SAMPLE 16u
    #define SAMPLE_MORE 64u
    #define SWEEP_EVERY 512u
    #define LOOK_EVERY_MOST 256
    #define TABLES_MOST 8
    #define CUSTOM -1
    /* The hash that a str keeps once it was asked for; -1 until then. */
    static inline uint64_t str_hash(PyObject *key) {
        Py_hash_t kept = ((PyASCIIObject *)key)->hash;
        return (uint64_t)(kept == -1 ? PyObject_Hash(key) : kept);
    }
    #define prefetch(p) __builtin_prefetch(p, 1)
    """
    const uint64_t EMPTY
    const uint32_t SEGMENT_MOST
    const uint32_t SEGMENT_LEAST
    const uint32_t PAD_MOST
    const uint32_t SAMPLE
    const uint32_t SAMPLE_MORE
    const uint32_t SWEEP_EVERY
    const int64_t LOOK_EVERY_MOST
    const Py_ssize_t TABLES_MOST
    const clockid_t CUSTOM
    uint64_t str_hash(object key)
    void prefetch(const void* p) noexcept

# As in levels.py.
cdef enum:
    LITTLE, HALF, REFUSED, LOCKED
    RUN_OUT = -1

cdef struct Segment:
    uint64_t* slots   # in front of them stands how many are in use
    uint32_t size     # homes; behind them lies a pad for what overflows the last ones
    uint32_t depth    # how many top bits of the hash all its keys have in common


@cython.final
cdef class Bound:
    cdef readonly int64_t max_keys
    cdef readonly int64_t keys
    cdef readonly int64_t evictions
    cdef list tables
    cdef Py_ssize_t turn           # which table to look through for expired keys next
    cdef int64_t since_look, look_every
    cdef Table crowded     # one that had its share of the keys when it was last looked for


# What a look-up needs: a plain struct, which can be passed on without counting references.
cdef struct Core:
    Segment* directory
    uint32_t bits             # the directory has 2**bits entries
    uint32_t width            # words of a slot: hash and row
    uint64_t secret
    uint64_t factor


@cython.final
cdef class Table:
    cdef Core core
    cdef bint owns            # the row is memory of its own; the slot points to it
    cdef Bound bound
    cdef readonly int64_t keys
    cdef int64_t bytes
    cdef uint32_t inserted, cursor
    cdef clockid_t clock      # by which its times are meant; the user's own is CUSTOM

    cdef void make_room(self, uint64_t h, int64_t now) noexcept
    cdef int64_t time_of(self, Table other, int64_t now) noexcept
    cdef uint64_t* insert(self, uint64_t h, uint64_t* slot, int64_t now) noexcept
    cdef void evict(self, uint64_t h, int64_t now) noexcept
    cdef int64_t evict_near(self, uint64_t h, int64_t now, bint locked) noexcept
    cdef int64_t level_of(self, uint64_t* slot, int64_t now) noexcept
    cdef void remove(self, Segment* segment, uint64_t* slot) noexcept
    cdef bint rebuild(self, uint64_t h, int64_t now) noexcept
    cdef bint lay_out(
        self, Segment* segment, uint64_t* slot, uint64_t* end, uint32_t depth, uint32_t live,
        uint32_t size_before, int64_t now,
    ) noexcept
    cdef uint32_t clear(self, uint64_t* slots, uint32_t start, uint32_t stop) noexcept
    cdef void point(self, uint32_t first, uint32_t span, Segment segment) noexcept
    cdef bint double_directory(self) noexcept
    cdef int64_t sweep_next(self, int64_t now, int64_t least) noexcept
    cdef uint64_t* new_slots(self, uint32_t size) noexcept
    cdef void free_slots(self, uint64_t* slots, uint32_t size) noexcept
    cdef void free_segment(self, Segment* segment) noexcept
    cdef void free_rows(self, uint64_t* slot, uint64_t* end, int64_t now) noexcept
    cdef void free_row(self, uint64_t* slot) noexcept
    cdef void drop_row(self, int64_t* row) noexcept
    cdef int64_t* new_row(self, int64_t words) noexcept


cdef inline uint64_t* used(uint64_t* slots) noexcept:
    """How many slots of a segment are in use: kept in the word before them."""
    return slots - 1


cdef inline uint32_t pad_of(uint32_t size) noexcept:
    return size if size < PAD_MOST else PAD_MOST


cdef inline uint64_t home_of(uint64_t h, uint32_t depth, uint32_t size) noexcept:
    """The next 32 bits of the hash, scaled to the segment's size: monotone in the hash."""
    return (((h << depth) >> 32) * size) >> 32


cdef inline uint64_t mix(const Core* core, object key) noexcept:
    """A str's hash, mixed with the table's secret; never 0, which means an error.

    Its two lowest bits are left for the level of the key.
    """
    cdef uint64_t h = (str_hash(key) ^ core.secret) * core.factor
    h = (h ^ (h >> 32)) & ~<uint64_t> LOCKED
    return h if h != EMPTY - LOCKED and h != 0 else 4


cdef inline uint32_t entry(const Core* core, uint64_t h) noexcept:
    return <uint32_t> ((h >> 1) >> (63 - core.bits))


cdef inline uint64_t* find(const Core* core, uint64_t h) noexcept:
    """The slot of ``h`` (see `is_of`), or the one before which it belongs."""
    cdef Segment* segment = core.directory + entry(core, h)
    cdef uint64_t* slot = segment.slots + home_of(h, segment.depth, segment.size) * core.width
    while slot[0] < h:
        slot += core.width
    return slot


cdef inline bint is_of(uint64_t* slot, uint64_t h) noexcept:
    """Whether a slot holds the key with this hash, on whatever level."""
    return (slot[0] ^ h) <= LOCKED


cdef inline void fetch(const Core* core, uint64_t h) noexcept:
    """Begin to load the cache line in which ``h`` has its home."""
    cdef Segment* segment = core.directory + entry(core, h)
    prefetch(segment.slots + home_of(h, segment.depth, segment.size) * core.width)
