"""The compiled replay: from columns of values to decisions, by the algorithms themselves.

`Shape` walks the matcher's tree for each request. What a value leads to is asked of Python once,
and kept in arrays. `Decider` applies the real `Algorithm.decide` to dense rows: one row for each
key of a rule, in each set of its limits. It does what `MemoryStore.hit_each` and
`rules.deciding.decide` do together; `test_replay_properties.py` compares them line by line.

An *entry* is what applies to a descriptor: a rule, a set of its limits, and the row of its key.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from penstock.algorithms import words as algorithm_words
from penstock.algorithms.base cimport HIT, LOOK, Algorithm
from penstock.decision cimport Decision, new_decision
from penstock.replay.reading._scanner cimport Interner, texts_number

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) nogil

cdef extern from "pages.h":
    void* pages_new(size_t size)
    void* pages_larger(void* old, size_t used, size_t size)

cdef extern from "<arpa/inet.h>":
    int AF_INET6
    int inet_pton(int family, const char* text, void* out)

cdef enum:
    UNKNOWN = -2
    NOTHING = -1
    LEVELS_MOST = 16
    ITEMS_MOST = 64
    # Flags of an entry.
    SHADOW = 1
    CLOSED = 2
    DENIED = 4
    SCHEDULED = 8
    UNCOUNTED = 16   # on an allow list
    # What became of a request.
    ALLOWED = 0
    REFUSED = 1
    AMBIGUOUS = 2
    # What a list for all rules says.
    ON_ALLOW_LIST = 1
    ON_DENY_LIST = 2
    UNCLEAR_PATH = 3
    # What a node of the tree is at the end of a descriptor.
    ONE_ENTRY = 1
    BY_VALUE = 2
    BY_VALUES = 3
    BINS_MOST = 16384
    NOT_NOTED = -1
    # A constant, so that the compiler divides by it without a division.
    SECOND = 1_000_000_000
    SHAPES_MOST = 64
    # Requests whose memory is asked for before it is used: there are many keys.
    AHEAD_ENTRY = 32
    AHEAD_ROW = 16

cdef int NO_ROOM = algorithm_words.NO_ROOM
# Not a literal: Cython computes with those above 32 bits as Python's integers.
cdef int64_t HOUR = 3600 * <int64_t> SECOND

cdef struct KeyStat:
    int64_t first, last
    double gaps2
    int32_t asked, refused, assets, errors
    int32_t agent
    uint32_t agents, paths, hours
    int64_t unused         # a whole cache line

cdef struct RuleInfo:
    void* tally
    int64_t cost

cdef struct LimitSet:
    int first, count       # in `Decider.counters`

cdef struct Asking:
    # What a request tells about who asks.
    int32_t agent
    uint32_t agent_bit, path_bit, hour_bit
    bint asset, error

cdef struct Entry:
    int32_t rule, limits, row, flags
    int32_t shape, node, value   # whose key it is; a shape below zero: see `Decider.names`
    int32_t unused               # half a cache line

cdef struct Node:
    int32_t constant       # the child for every value; UNKNOWN if it depends on the value
    int32_t* children
    int64_t size
    int kind               # as the last node
    int dead_end           # for ways that end here too soon: 1: nothing, 2: a deny list may refuse
    int32_t entry
    int position           # of BY_VALUE
    int quick              # 1: an IPv4 address is its own key; 2: every value is
    int ipv6_bits          # of the networks that count together; 0: Python says
    int32_t rule, limits, flags
    int32_t* entries
    int64_t entries_size
    int32_t* networks      # the same, by the numbers of IPv6 networks
    int64_t networks_size


@cython.final
cdef class Tally:
    """What one rule did: for each key, and for each moment."""

    cdef KeyStat* stats
    cdef readonly int64_t keys
    cdef int64_t room
    cdef readonly int64_t asked, refused
    cdef int64_t* bins
    cdef readonly int64_t width, start, bins_used
    cdef int64_t bin_at, bin_start, bin_end     # that of the last request

    def __cinit__(self):
        self.room = 256
        self.stats = <KeyStat*> pages_new(self.room * sizeof(KeyStat))
        self.bins = <int64_t*> calloc(BINS_MOST, 16)
        self.width = SECOND
        self.start = -1
        if self.stats == NULL or self.bins == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.stats)
        free(self.bins)

    cpdef int32_t new_row(self) except -1:
        cdef void* larger
        if self.keys == self.room:
            larger = pages_larger(
                self.stats, self.room * sizeof(KeyStat), 2 * self.room * sizeof(KeyStat))
            if larger == NULL:
                raise MemoryError
            self.stats = <KeyStat*> larger
            self.room *= 2
        self.keys += 1
        return <int32_t> (self.keys - 1)

    cdef inline void note(self, int32_t row, int64_t now, bint refused, Asking* by) noexcept:
        cdef KeyStat* stat = self.stats + row
        cdef double gap
        self.asked += 1
        if stat.asked == 0:
            stat.first = now
            stat.agent = by.agent
        else:
            gap = (now - stat.last) * 1e-9
            stat.gaps2 += gap * gap
        stat.last = now
        stat.asked += 1
        stat.assets += by.asset
        stat.errors += by.error
        stat.agents |= by.agent_bit
        stat.paths |= by.path_bit
        stat.hours |= by.hour_bit
        if not self.bin_start <= now < self.bin_end:
            self.find_bin(now)
        self.bins[2 * self.bin_at] += 1
        if refused:
            self.refused += 1
            stat.refused += 1
            self.bins[2 * self.bin_at + 1] += 1

    cdef void find_bin(self, int64_t now) noexcept:
        cdef int64_t at
        if self.start < 0:
            self.start = now - now % SECOND
        at = (now - self.start) // self.width if now > self.start else 0
        while at >= BINS_MOST:
            self.coarser()
            at = (now - self.start) // self.width
        if at >= self.bins_used:
            self.bins_used = at + 1
        self.bin_at = at
        self.bin_start = self.start + at * self.width
        self.bin_end = self.bin_start + self.width

    cdef void coarser(self) noexcept:
        """Join two bins to one."""
        cdef int64_t i
        for i in range(BINS_MOST // 2):
            self.bins[2 * i] = self.bins[4 * i] + self.bins[4 * i + 2]
            self.bins[2 * i + 1] = self.bins[4 * i + 1] + self.bins[4 * i + 3]
        memset(self.bins + BINS_MOST, 0, BINS_MOST * 8)
        self.width *= 2
        self.bins_used = (self.bins_used + 1) // 2

    def timeline(self):
        """(asked, refused) of each bin."""
        return [(self.bins[2 * i], self.bins[2 * i + 1]) for i in range(self.bins_used)]

    def touched(self):
        """How many keys were refused at least once."""
        cdef int64_t i, n = 0
        for i in range(self.keys):
            n += self.stats[i].refused > 0
        return n

    def top(self, int64_t most, bint by_refused=True):
        """The rows with the most refusals, or the most requests."""
        cdef int64_t i
        import heapq
        if by_refused:
            rows = [(self.stats[i].refused, -i) for i in range(self.keys) if self.stats[i].refused]
        else:
            rows = [(self.stats[i].asked, -i) for i in range(self.keys) if self.stats[i].asked]
        return [-row for _, row in heapq.nlargest(most, rows)]

    def stat(self, int64_t row):
        """asked, refused, first, last, sum of squared gaps, assets, errors, agent, agents, paths,
        hours: the last three as bits."""
        cdef KeyStat* stat = self.stats + row
        return (
            stat.asked, stat.refused, stat.first, stat.last, stat.gaps2, stat.assets, stat.errors,
            stat.agent, stat.agents, stat.paths, stat.hours,
        )

    def asked_by_key(self):
        cdef int64_t i
        return [self.stats[i].asked for i in range(self.keys)]


@cython.final
cdef class Counter:
    """One limit, with a row for each key."""

    cdef Algorithm algorithm
    cdef Decision scratch
    cdef int64_t* rows
    cdef int64_t** own         # where rows grow, each lies by itself
    cdef int64_t room, words
    cdef bint grows

    def __cinit__(self):
        self.rows = NULL
        self.own = NULL

    def __init__(self, Algorithm algorithm, int64_t now):
        self.algorithm = algorithm
        self.scratch = new_decision(algorithm.limit)
        self.words = algorithm.words
        self.grows = algorithm.length_at >= 0
        algorithm.start(now)

    def __dealloc__(self):
        cdef int64_t i
        free(self.rows)
        if self.own != NULL:
            for i in range(self.room):
                free(self.own[i])
            free(self.own)

    cdef int make_room(self, int64_t row) except -1:
        cdef int64_t room = max(256, 2 * self.room, row + 1)
        cdef void* larger
        if self.grows:
            larger = realloc(self.own, room * sizeof(int64_t*))
            if larger == NULL:
                raise MemoryError
            self.own = <int64_t**> larger
            memset(self.own + self.room, 0, (room - self.room) * sizeof(int64_t*))
        else:
            larger = pages_larger(self.rows, self.room * self.words * 8, room * self.words * 8)
            if larger == NULL:
                raise MemoryError
            self.rows = <int64_t*> larger
        self.room = room
        return 0

    cdef inline int64_t* row(self, int32_t row) except NULL:
        if row >= self.room:
            self.make_room(row)
        if not self.grows:
            return self.rows + row * self.words
        if self.own[row] == NULL:
            self.own[row] = self.new_row(self.words)
        return self.own[row]

    cdef int64_t* new_row(self, int64_t words) except NULL:
        cdef int64_t* row = <int64_t*> calloc(words, 8)
        if row == NULL:
            raise MemoryError
        row[self.algorithm.length_at] = words - (self.algorithm.length_at - 1)
        return row

    cdef int grow(self, int32_t row) except -1:
        cdef int64_t* old = self.own[row]
        cdef int64_t at = self.algorithm.length_at
        cdef int64_t words = min(2 * (old[at] + at - 1), self.algorithm.most_words)
        cdef int64_t* new = self.new_row(words)
        self.algorithm.carry(old, new)
        free(old)
        self.own[row] = new
        return 0

    cdef inline bint decide(self, int32_t row, int64_t cost, int64_t now, bint take) except -1:
        """Whether it is allowed; as the counters of `MemoryStore` decide."""
        if now >= self.algorithm.valid_until or now < self.algorithm.valid_from:
            self.algorithm.refresh(now)
        if cost > self.algorithm.most:
            return False
        cdef int64_t* state = self.row(row)
        if not take:
            self.algorithm.decide(state, cost, now, 0, LOOK, self.scratch)
            return self.scratch._allowed
        while self.algorithm.decide(state, cost, now, 0, HIT, self.scratch) == NO_ROOM:
            self.grow(row)
            state = self.row(row)
        return self.scratch._allowed


@cython.final
cdef class Shape:
    """One sequence of keys, and the nodes of the tree that requests reach by it.

    ``owner`` answers ``child``, ``ending`` and ``entry``: see `FastReplay`.
    """

    cdef readonly int number
    cdef int levels
    cdef int columns[LEVELS_MOST]
    cdef Node* nodes
    cdef int64_t count, room
    cdef object owner
    cdef readonly object keys
    cdef list interners     # for nodes that depend on several values: (Interner, entries)
    cdef list addresses     # of each node, the interner of its values, and one for networks

    def __cinit__(self):
        self.nodes = NULL

    def __init__(self, owner, int number, keys, columns):
        self.owner = owner
        self.number = number
        self.keys = keys
        self.levels = len(columns)
        if self.levels > LEVELS_MOST:
            raise OverflowError
        for level, column in enumerate(columns):
            self.columns[level] = column
        self.interners = []
        self.addresses = []
        self.add_node(UNKNOWN)

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            free(self.nodes[i].children)
            free(self.nodes[i].entries)
            free(self.nodes[i].networks)
        free(self.nodes)

    def add_node(self, int32_t constant):
        """A node; its number."""
        cdef void* larger
        if self.count == self.room:
            self.room = max(8, 2 * self.room)
            larger = realloc(self.nodes, self.room * sizeof(Node))
            if larger == NULL:
                raise MemoryError
            self.nodes = <Node*> larger
        memset(self.nodes + self.count, 0, sizeof(Node))
        self.nodes[self.count].constant = constant
        self.interners.append(None)
        self.addresses.append(None)
        self.count += 1
        return self.count - 1

    def set_constant(self, int64_t node, int32_t child):
        self.nodes[node].constant = child

    def ends(self, int64_t node, int kind, int32_t entry=NOTHING, int position=0, int quick=0,
             texts=None, int32_t rule=0, int32_t limits=-1, int32_t flags=0, int ipv6_bits=0):
        """How a node makes entries."""
        cdef Node* it = self.nodes + node
        it.kind = kind
        it.entry = entry
        it.position = position
        it.quick = quick
        it.rule, it.limits, it.flags = rule, limits, flags
        it.ipv6_bits = ipv6_bits
        self.addresses[node] = (texts, Interner())
        if kind == BY_VALUES:
            self.interners[node] = (Interner(), [])

    def match(self, list columns, int64_t n, int32_t[::1] out, Decider decider):
        """The entry of each request, or NOTHING."""
        cdef int32_t[::1] view
        cdef int32_t* values[LEVELS_MOST]
        cdef int64_t i
        cdef int level
        cdef int32_t value, child
        cdef int64_t node
        cdef Node* it
        cdef bint complete
        for level in range(self.levels):
            view = columns[self.columns[level]]
            values[level] = &view[0]
        for i in range(n):
            complete = True
            for level in range(self.levels):
                if values[level][i] <= 0:
                    complete = False
                    break
            if not complete:
                out[i] = NOTHING
                continue
            node = 0
            for level in range(self.levels):
                it = self.nodes + node
                if it.constant != UNKNOWN:
                    child = it.constant
                else:
                    value = values[level][i]
                    child = it.children[value] if value < it.size else UNKNOWN
                    if child == UNKNOWN:
                        child = self.owner.child(self, node, level, value)
                        self.remember_child(node, value, child)
                if child == NOTHING:
                    break
                node = child
            else:
                level = self.levels
            it = self.nodes + node
            if level < self.levels and it.dead_end == 1:
                out[i] = NOTHING
            elif it.kind == ONE_ENTRY and level == self.levels:
                out[i] = it.entry
            elif it.kind == BY_VALUE and level == self.levels:
                value = values[it.position][i]
                child = it.entries[value] if value < it.entries_size else UNKNOWN
                if child == UNKNOWN:
                    child = self.entry_of(node, value, decider, values, i)
                out[i] = child
            else:
                out[i] = self.slow_entry(node, level, decider, values, i)

    cdef int remember_child(self, int64_t node, int32_t value, int32_t child) except -1:
        cdef Node* it = self.nodes + node
        if it.constant != UNKNOWN:
            return 0
        if value >= it.size:
            it.children = larger_table(it.children, &it.size, value)
        it.children[value] = child
        return 0

    cdef int32_t entry_of(self, int64_t node, int32_t value, Decider decider, int32_t** values,
                          int64_t at) except? -3:
        """The entry of a value that was not seen here before."""
        cdef Node* it = self.nodes + node
        cdef Interner texts
        cdef const char* text
        cdef int32_t entry
        cdef unsigned char address[16]
        if it.quick == 1:
            texts, _ = self.addresses[node]
            text = texts.table.arena + texts.table.offsets[value]
            if is_ipv4(text, texts.table.lengths[value]):
                return self.entry_of_value(node, value, decider)
            if it.ipv6_bits and read_ipv6(text, texts.table.lengths[value], address):
                return self.entry_of_network(node, address, value, decider)
        elif it.quick == 2:
            return self.entry_of_value(node, value, decider)
        entry = self.owner.entry(self, node, [values[i][at] for i in range(self.levels)])
        self.remember_entry(node, value, entry)
        return entry

    def entry_of_ipv6(self, int64_t node, bytes address, int32_t value, Decider decider not None):
        """The entry of an address that is spelled in an unusual way."""
        cdef unsigned char packed[16]
        assert len(address) == 16
        for i in range(16):
            packed[i] = address[i]
        return self.entry_of_network(node, packed, value, decider)

    cdef int32_t entry_of_network(self, int64_t node, unsigned char* address, int32_t value,
                                  Decider decider) except? -3:
        """The entry of an address of IPv6: its network is the key, and ``value`` names it."""
        cdef Node* it = self.nodes + node
        cdef Interner networks
        cdef int i
        cdef int32_t network, entry
        for i in range(16):
            if 8 * i >= it.ipv6_bits:
                address[i] = 0
            elif 8 * (i + 1) > it.ipv6_bits:
                address[i] &= 0xFF << (8 * (i + 1) - it.ipv6_bits)
        _, networks = self.addresses[node]
        network = texts_number(&networks.table, <const char*> address, 16)
        if networks.table.failed:
            raise MemoryError
        if network >= it.networks_size:
            it.networks = larger_table(it.networks, &it.networks_size, network)
        if it.networks[network] == UNKNOWN:
            it.networks[network] = self.entry_of_value(node, value, decider)
        entry = it.networks[network]
        self.remember_entry(node, value, entry)
        return entry

    cpdef int32_t entry_of_value(self, int64_t node, int32_t value, Decider decider) except? -3:
        """The entry of a value that is its own key."""
        cdef Node* it = self.nodes + node
        cdef int32_t entry = it.entries[value] if value < it.entries_size else UNKNOWN
        cdef Tally tally
        if entry == UNKNOWN:
            tally = decider.tallies[it.rule]
            entry = decider.add_entry(it.rule, it.limits, tally.new_row(), it.flags)
            decider.entries[entry].shape = self.number
            decider.entries[entry].node = <int32_t> node
            decider.entries[entry].value = value
            self.remember_entry(node, value, entry)
        return entry

    cdef int remember_entry(self, int64_t node, int32_t value, int32_t entry) except -1:
        cdef Node* it = self.nodes + node
        if value >= it.entries_size:
            it.entries = larger_table(it.entries, &it.entries_size, value)
        it.entries[value] = entry
        return 0

    cdef int32_t slow_entry(self, int64_t node, int level, Decider decider, int32_t** values,
                            int64_t at) except? -3:
        """Of a node that was not reached before, or that depends on several values."""
        cdef int32_t packed[LEVELS_MOST]
        cdef int i
        cdef int32_t number
        cdef Interner numbers
        cdef list entries
        if self.nodes[node].kind == 0 or level < self.levels:
            # Ways that end before their last key, and deny lists on them: by all values.
            if self.nodes[node].kind == 0 and level == self.levels:
                self.owner.ending(self, node)
                if self.nodes[node].kind == ONE_ENTRY:
                    return self.nodes[node].entry
                if self.nodes[node].kind == BY_VALUE:
                    return self.entry_of(
                        node, values[self.nodes[node].position][at], decider, values, at)
            elif self.nodes[node].dead_end == 0:
                self.nodes[node].dead_end = 2 if self.owner.may_deny(self, node) else 1
                if self.nodes[node].dead_end == 1:
                    return NOTHING
        if self.interners[node] is None:
            self.interners[node] = (Interner(), [])
        numbers, entries = self.interners[node]
        for i in range(self.levels):
            packed[i] = values[i][at]
        number = texts_number(
            &numbers.table, <const char*> packed, 4 * self.levels)
        while len(entries) <= number:
            entries.append(UNKNOWN)
        if entries[number] == UNKNOWN:
            entries[number] = self.owner.entry(
                self, node, [values[i][at] for i in range(self.levels)])
        return entries[number]


cdef int32_t* larger_table(int32_t* table, int64_t* size, int64_t value) except NULL:
    cdef int64_t room = max(256, 2 * size[0], value + 1), i
    cdef int32_t* larger = <int32_t*> realloc(table, room * 4)
    if larger == NULL:
        raise MemoryError
    for i in range(size[0], room):
        larger[i] = UNKNOWN
    size[0] = room
    return larger


cdef bint is_ipv4(const char* s, int64_t n) noexcept:
    """Whether it is an address of IPv4 in its usual spelling."""
    cdef int64_t i = 0, digits
    cdef int part, parts = 0
    if n < 7 or n > 15:
        return False
    while True:
        part = 0
        digits = 0
        while i < n and 48 <= s[i] <= 57:
            if digits and part == 0:
                return False  # a zero in front
            part = part * 10 + s[i] - 48
            digits += 1
            i += 1
            if digits > 3:
                return False
        if digits == 0 or part > 255:
            return False
        parts += 1
        if i == n:
            return parts == 4
        if s[i] != 46:
            return False
        i += 1


cdef bint read_ipv6(const char* s, int64_t n, unsigned char* out) noexcept:
    """Whether it is an address of IPv6 that stands for itself, and which."""
    cdef char text[48]
    cdef int i, zeros = 0
    if n < 2 or n > 39:
        return False
    for i in range(<int> n):
        if s[i] == 46:
            return False  # one of IPv4 in it
        text[i] = s[i]
    text[n] = 0
    if inet_pton(AF_INET6, text, out) != 1:
        return False
    for i in range(10):
        zeros += out[i] == 0
    return not (zeros == 10 and out[10] == 0xFF and out[11] == 0xFF)  # IPv4, mapped


def is_plain_ipv4(bytes text not None):
    return is_ipv4(text, len(text))


@cython.final
cdef class Decider:
    """Decides on requests whose entries are known."""

    cdef Entry* entries
    cdef readonly int64_t count
    cdef int64_t room
    cdef list tallies, all_counters   # they own what the next three point to
    cdef RuleInfo* rules
    cdef LimitSet* limit_sets
    cdef void** counters
    cdef int sets
    cdef readonly dict names      # of entries that Python made: the text of the key
    cdef object owner
    cdef int32_t* scheduled       # for each schedule, the set in force
    cdef int64_t schedules, second
    cdef int8_t* noted
    cdef int64_t noted_room
    cdef readonly int64_t allowed, refused, ambiguous, unmatched

    def __cinit__(self):
        self.entries = NULL
        self.scheduled = NULL
        self.rules = NULL
        self.limit_sets = NULL
        self.counters = NULL
        self.noted = NULL

    def __init__(self, owner):
        self.owner = owner
        self.tallies = []
        self.all_counters = []
        self.names = {}
        self.second = -1

    def __dealloc__(self):
        free(self.entries)
        free(self.scheduled)
        free(self.rules)
        free(self.limit_sets)
        free(self.counters)
        free(self.noted)

    def add_rule(self, Tally tally not None, int64_t cost):
        cdef int number = len(self.tallies)
        self.rules = <RuleInfo*> enlarged(self.rules, (number + 1) * sizeof(RuleInfo))
        self.rules[number] = RuleInfo(<void*> tally, cost)
        self.tallies.append(tally)
        return number

    def add_limits(self, list counters):
        cdef int first = len(self.all_counters), count = len(counters), k
        cdef Counter counter
        self.limit_sets = <LimitSet*> enlarged(
            self.limit_sets, (self.sets + 1) * sizeof(LimitSet))
        self.counters = <void**> enlarged(self.counters, (first + count) * sizeof(void*))
        for k in range(count):
            counter = counters[k]
            self.counters[first + k] = <void*> counter
        self.all_counters += counters
        self.limit_sets[self.sets] = LimitSet(first, count)
        self.sets += 1
        return self.sets - 1

    def add_schedule(self):
        """Something that has other limits at other times; `owner.in_force` says which."""
        cdef void* larger = realloc(self.scheduled, (self.schedules + 1) * 4)
        if larger == NULL:
            raise MemoryError
        self.scheduled = <int32_t*> larger
        self.scheduled[self.schedules] = NOTHING
        self.schedules += 1
        self.second = -1
        return self.schedules - 1

    cpdef int32_t add_entry(self, int32_t rule, int32_t limits, int32_t row, int32_t flags) except -1:
        cdef void* larger
        if self.count == self.room:
            larger = pages_larger(
                self.entries, self.count * sizeof(Entry),
                max(1024, 2 * self.room) * sizeof(Entry))
            if larger == NULL:
                raise MemoryError
            self.entries = <Entry*> larger
            self.room = max(1024, 2 * self.room)
        self.entries[self.count] = Entry(rule, limits, row, flags, -1, 0, 0, 0)
        self.count += 1
        return <int32_t> (self.count - 1)

    @property
    def bytes(self):
        """Memory for keys: of rules, of limits (rows that grow at their first size), and tables."""
        cdef int64_t size = self.room * sizeof(Entry)
        for tally in self.tallies:
            size += (<Tally> tally).room * sizeof(KeyStat) + BINS_MOST * 16
        for counter in self.all_counters:
            size += (<Counter> counter).room * ((<Counter> counter).words * 8 + 8)
        return size

    def entry(self, int64_t number):
        """rule, limits, row, flags; and shape, node and value, where these make the key"""
        cdef Entry* it = self.entries + number
        return it.rule, it.limits, it.row, it.flags, it.shape, it.node, it.value

    def entry_of_row(self, int32_t rule, int64_t rows):
        """For each row of a rule, the first entry that counts there."""
        cdef int64_t i
        cdef Entry* it
        cdef list out = [NOTHING] * rows
        for i in range(self.count - 1, -1, -1):
            it = self.entries + i
            if it.rule == rule:
                out[it.row] = i
        return out

    def rows_of(self, const int32_t[::1] matched, int64_t n, int32_t[::1] out):
        """The row of each request's entry, or NOTHING."""
        cdef int64_t i
        for i in range(n):
            out[i] = self.entries[matched[i]].row if matched[i] >= 0 else NOTHING

    def decide(self, const int64_t[::1] times, int64_t n, list matched, listed, hits, agents,
               paths, assets, statuses, int8_t[::1] out):
        """Decide on n requests. ``matched`` has the entries of each shape."""
        cdef int shapes = len(matched), shape, items, k
        cdef int32_t* found[SHAPES_MOST]
        cdef int32_t[::1] view
        cdef const int8_t[::1] list_view
        cdef const int64_t[::1] hits_view
        cdef bint has_list = listed is not None, has_hits = hits is not None
        cdef int64_t i, now, cost, hit
        cdef bint refused, denied, by_list, any_match, any_shadow
        cdef int32_t number, limits
        cdef Entry* it
        cdef void* counter
        cdef LimitSet limit_set
        cdef int8_t* noted            # of each request and shape: refused, or NOT_NOTED
        cdef void* counters[ITEMS_MOST]
        cdef int32_t rows[ITEMS_MOST]
        cdef int64_t costs[ITEMS_MOST]
        cdef int owners[ITEMS_MOST]
        cdef bint looked[ITEMS_MOST]
        cdef bint entry_refused[SHAPES_MOST]
        if shapes > SHAPES_MOST:
            raise OverflowError
        for shape in range(shapes):
            view = matched[shape]
            found[shape] = &view[0]
        if has_list:
            list_view = listed
        if has_hits:
            hits_view = hits
        if n * shapes > self.noted_room:
            self.noted = <int8_t*> enlarged(self.noted, n * shapes)
            self.noted_room = n * shapes
        for i in range(n):
            noted = self.noted + i
            now = times[i]
            # Ask for the memory of the requests that come soon. (Not in a function of its own:
            # gcc takes one that does nothing else for one that does nothing.)
            if i + AHEAD_ENTRY < n:
                for shape in range(shapes):
                    number = found[shape][i + AHEAD_ENTRY]
                    if number >= 0:
                        prefetch(self.entries + number)
                    number = found[shape][i + AHEAD_ROW]
                    if number >= 0 and self.entries[number].limits >= 0:
                        it = self.entries + number
                        limits = it.limits if not it.flags & SCHEDULED else 0
                        if self.sets > limits:
                            counter = self.counters[self.limit_sets[limits].first]
                            if not (<Counter> counter).grows and it.row < (<Counter> counter).room:
                                prefetch(
                                    (<Counter> counter).rows + it.row * (<Counter> counter).words)
            by_list = False
            if has_list and list_view[i]:
                for shape in range(shapes):
                    noted[shape * n] = NOT_NOTED
                if list_view[i] == UNCLEAR_PATH:
                    out[i] = AMBIGUOUS
                    self.ambiguous += 1
                    continue
                if list_view[i] == ON_ALLOW_LIST:
                    out[i] = ALLOWED
                    self.allowed += 1
                    continue
                by_list = True
            if self.schedules and now // SECOND != self.second:
                self.second = now // SECOND
                for k in range(self.schedules):
                    self.scheduled[k] = self.owner.in_force(k, now)
            hit = hits_view[i] if has_hits and hits_view[i] > 1 else 1
            refused = denied = by_list
            any_match = any_shadow = False
            items = 0
            # What refuses without a limit, and the items of all limits that may refuse.
            for shape in range(shapes):
                number = found[shape][i]
                if number < 0:
                    continue
                any_match = True
                it = self.entries + number
                entry_refused[shape] = False
                if it.flags:
                    any_shadow = any_shadow or it.flags & SHADOW
                    if it.flags & (CLOSED | DENIED):
                        if not it.flags & SHADOW:
                            refused = entry_refused[shape] = True
                            denied = denied or it.flags & DENIED
                        continue
                    if it.flags & (SHADOW | UNCOUNTED):
                        continue
                limits = self.scheduled[it.limits] if it.flags & SCHEDULED else it.limits
                if limits < 0:
                    continue
                limit_set = self.limit_sets[limits]
                if items + limit_set.count > ITEMS_MOST:
                    raise OverflowError
                cost = cost_of(hit, self.rules[it.rule].cost)
                for k in range(limit_set.count):
                    counters[items] = self.counters[limit_set.first + k]
                    rows[items] = it.row
                    costs[items] = cost
                    owners[items] = shape
                    items += 1
            if refused:
                if not denied:
                    for k in range(items):
                        if not (<Counter> counters[k]).decide(rows[k], costs[k], now, False):
                            entry_refused[owners[k]] = True
            elif items:
                # All but the last are looked at. Where they allow it, the last one decides.
                for k in range(items - 1):
                    looked[k] = (<Counter> counters[k]).decide(rows[k], costs[k], now, False)
                    refused = refused or not looked[k]
                k = items - 1
                looked[k] = (<Counter> counters[k]).decide(rows[k], costs[k], now, not refused)
                if not looked[k]:
                    entry_refused[owners[k]] = True
                    if refused:  # it was only looked at, and may have to record it (lockout)
                        (<Counter> counters[k]).decide(rows[k], costs[k], now, True)
                    refused = True
                for k in range(items - 1):
                    # A limit that refuses takes nothing, but may have to record it.
                    if not refused or not looked[k]:
                        if not (<Counter> counters[k]).decide(rows[k], costs[k], now, True):
                            entry_refused[owners[k]] = True
            if any_shadow:
                self.decide_shadows(found, shapes, i, now, hit, entry_refused)
            if not by_list:
                for shape in range(shapes):
                    if found[shape][i] >= 0:
                        noted[shape * n] = entry_refused[shape]
            if refused:
                out[i] = REFUSED
                self.refused += 1
            else:
                out[i] = ALLOWED
                self.allowed += 1
                self.unmatched += not any_match
        for shape in range(shapes):
            self.note(times, n, found[shape], self.noted + shape * n, agents, paths, assets, statuses)

    cdef int note(self, const int64_t[::1] times, int64_t n, int32_t* found, int8_t* noted, agents,
                  paths, assets, statuses) except -1:
        """Count the requests of one shape. After deciding: memory is then waited for at once."""
        cdef bint has_agents = agents is not None, has_paths = paths is not None
        cdef bint has_statuses = statuses is not None
        cdef const int8_t[::1] asset_view
        cdef const int64_t[::1] status_view
        cdef const int32_t[::1] agent_view, path_view
        cdef int64_t i, now, hour_end = 0
        cdef Asking by
        cdef Entry* it
        if has_agents:
            agent_view = agents
        if has_paths:
            path_view = paths
            asset_view = assets
        if has_statuses:
            status_view = statuses
        memset(&by, 0, sizeof(Asking))
        by.agent_bit = by.path_bit = 1
        for i in range(n):
            if i + AHEAD_ENTRY < n:
                if found[i + AHEAD_ENTRY] >= 0:
                    prefetch(self.entries + found[i + AHEAD_ENTRY])
                if found[i + AHEAD_ROW] >= 0:
                    it = self.entries + found[i + AHEAD_ROW]
                    prefetch((<Tally> self.rules[it.rule].tally).stats + it.row)
            if found[i] < 0 or noted[i] == NOT_NOTED:
                continue
            now = times[i]
            if has_agents:
                by.agent = agent_view[i]
                by.agent_bit = <uint32_t> 1 << (by.agent & 31)
            if has_paths:
                by.path_bit = <uint32_t> 1 << (path_view[i] & 31)
                by.asset = asset_view[path_view[i]]
            if has_statuses:
                by.error = 400 <= status_view[i] < 500
            if not hour_end - HOUR <= now < hour_end:
                hour_end = (now // HOUR + 1) * HOUR
                by.hour_bit = <uint32_t> 1 << (now // HOUR % 24)
            it = self.entries + found[i]
            (<Tally> self.rules[it.rule].tally).note(it.row, now, noted[i], &by)
        return 0

    cdef int decide_shadows(self, int32_t** found, int shapes, int64_t at, int64_t now,
                            int64_t hit, bint* entry_refused) except -1:
        """Rules in shadow count for themselves."""
        cdef int shape, k
        cdef int64_t cost
        cdef int32_t number, limits
        cdef bint group_ok
        cdef bint looked[ITEMS_MOST]
        cdef void** counters
        cdef LimitSet limit_set
        cdef Entry* it
        for shape in range(shapes):
            number = found[shape][at]
            if number < 0:
                continue
            it = self.entries + number
            if not it.flags & SHADOW or it.flags & UNCOUNTED:
                continue
            if it.flags & (CLOSED | DENIED):
                entry_refused[shape] = True
                continue
            limits = self.scheduled[it.limits] if it.flags & SCHEDULED else it.limits
            if limits < 0:
                continue
            limit_set = self.limit_sets[limits]
            counters = self.counters + limit_set.first
            cost = cost_of(hit, self.rules[it.rule].cost)
            group_ok = True
            if limit_set.count > 1:
                for k in range(limit_set.count):
                    looked[k] = (<Counter> counters[k]).decide(it.row, cost, now, False)
                    group_ok = group_ok and looked[k]
            for k in range(limit_set.count):
                if limit_set.count == 1 or group_ok or not looked[k]:
                    if not (<Counter> counters[k]).decide(it.row, cost, now, True):
                        entry_refused[shape] = True
        return 0


cdef void* enlarged(void* memory, size_t size) except NULL:
    cdef void* larger = realloc(memory, size)
    if larger == NULL:
        raise MemoryError
    return larger


cdef inline int64_t cost_of(int64_t hit, int64_t units) noexcept nogil:
    """As `Check` works it out; a cost above 2**62 is answered like that."""
    cdef int64_t most = <int64_t> 1 << 62
    if hit == 1:
        return units
    return most if hit > most // units else hit * units


def map_values(const int32_t[::1] source, int64_t n, const int32_t[::1] table, int32_t[::1] out):
    """Each number by a table."""
    cdef int64_t i
    with nogil:
        for i in range(n):
            out[i] = table[source[i]]


def pack(list columns, int64_t n, Interner numbers not None, int32_t[::1] out):
    """A number for each distinct combination of values."""
    cdef int32_t packed[LEVELS_MOST]
    cdef int32_t* values[LEVELS_MOST]
    cdef int32_t[::1] view
    cdef int64_t i
    cdef int k, width = len(columns)
    for k in range(width):
        view = columns[k]
        values[k] = &view[0]
    for i in range(n):
        for k in range(width):
            packed[k] = values[k][i]
        out[i] = texts_number(&numbers.table, <const char*> packed, 4 * width)


def flag_values(const int32_t[::1] source, int64_t n, const int8_t[::1] table, int8_t[::1] out):
    """Raise each flag to that of its value; whether one is above zero."""
    cdef int64_t i
    cdef int8_t most = 0
    with nogil:
        for i in range(n):
            if table[source[i]] > out[i]:
                out[i] = table[source[i]]
            if out[i] > most:
                most = out[i]
    return most > 0


def replaced(const int32_t[::1] source, int64_t n, int32_t one, int32_t other, int32_t by,
             int32_t[::1] out):
    """Copy a column with two numbers replaced; whether any was."""
    cdef int64_t i
    cdef bint changed = False
    with nogil:
        for i in range(n):
            if source[i] == one or source[i] == other:
                changed = True
                break
        if changed:
            for i in range(n):
                out[i] = by if source[i] == one or source[i] == other else source[i]
    return changed
