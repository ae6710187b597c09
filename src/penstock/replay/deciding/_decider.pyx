"""The compiled replay: from columns of values to decisions, by the algorithms themselves.

`Shape` walks the matcher's tree for each request. What a value leads to is asked of Python once,
and kept in arrays. `Decider` applies the real `Algorithm.decide` to dense rows: one row for each
key of a rule, in each set of its limits. It does what `MemoryStore.hit_each` and
`rules.deciding.decide` do together; `test_replay_properties.py` compares them line by line.

An *entry* is what applies to a descriptor: a rule, a set of its limits, and the row of its key.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from penstock.algorithms import words as algorithm_words
from penstock.algorithms.base cimport HIT, LOOK, Algorithm
from penstock.decision cimport Decision, new_decision
from penstock.replay.reading._scanner cimport Interner

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
    # A constant, so that the compiler divides by it without a division.
    SECOND = 1_000_000_000

cdef int NO_ROOM = algorithm_words.NO_ROOM

cdef struct KeyStat:
    int64_t first, last
    double gaps2
    int32_t asked, refused, assets, errors
    int32_t agent
    uint32_t agents, paths, hours

cdef struct Entry:
    int32_t rule, limits, row, flags
    int32_t shape, node, value   # whose key it is; a shape below zero: see `Decider.names`

cdef struct Node:
    int32_t constant       # the child for every value; UNKNOWN if it depends on the value
    int32_t* children
    int64_t size
    int kind               # as the last node
    int dead_end           # for ways that end here too soon: 1: nothing, 2: a deny list may refuse
    int32_t entry
    int position           # of BY_VALUE
    int quick              # 1: an IPv4 address is its own key; 2: every value is
    int32_t rule, limits, flags
    int32_t* entries
    int64_t entries_size


@cython.final
cdef class Tally:
    """What one rule did: for each key, and for each moment."""

    cdef KeyStat* stats
    cdef readonly int64_t keys
    cdef int64_t room
    cdef readonly int64_t asked, refused
    cdef int64_t* bins
    cdef readonly int64_t width, start, bins_used

    def __cinit__(self):
        self.room = 256
        self.stats = <KeyStat*> calloc(self.room, sizeof(KeyStat))
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
            larger = realloc(self.stats, 2 * self.room * sizeof(KeyStat))
            if larger == NULL:
                raise MemoryError
            self.stats = <KeyStat*> larger
            memset(self.stats + self.room, 0, self.room * sizeof(KeyStat))
            self.room *= 2
        self.keys += 1
        return <int32_t> (self.keys - 1)

    cdef inline void note(
        self, int32_t row, int64_t now, bint refused, int32_t agent, int32_t path, bint asset,
        int64_t status,
    ) noexcept:
        cdef KeyStat* stat = self.stats + row
        cdef int64_t at
        cdef double gap
        self.asked += 1
        if stat.asked == 0:
            stat.first = now
            stat.agent = agent
        else:
            gap = (now - stat.last) * 1e-9
            stat.gaps2 += gap * gap
        stat.last = now
        stat.asked += 1
        stat.assets += asset
        stat.errors += 400 <= status < 500
        stat.agents |= <uint32_t> 1 << (agent & 31)
        stat.paths |= <uint32_t> 1 << (path & 31)
        stat.hours |= <uint32_t> 1 << (now // 3_600_000_000_000 % 24)
        if self.start < 0:
            self.start = now - now % SECOND
        at = (now - self.start) // self.width
        if at < 0:
            at = 0
        while at >= BINS_MOST:
            self.coarser()
            at = (now - self.start) // self.width
        if at >= self.bins_used:
            self.bins_used = at + 1
        self.bins[2 * at] += 1
        if refused:
            self.refused += 1
            stat.refused += 1
            self.bins[2 * at + 1] += 1

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
            larger = realloc(self.rows, room * self.words * 8)
            if larger == NULL:
                raise MemoryError
            self.rows = <int64_t*> larger
            memset(self.rows + self.room * self.words, 0, (room - self.room) * self.words * 8)
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
    cdef list ipv4_texts    # of each node, the interner of its value

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
        self.ipv4_texts = []
        self.add_node(UNKNOWN)

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            free(self.nodes[i].children)
            free(self.nodes[i].entries)
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
        self.ipv4_texts.append(None)
        self.count += 1
        return self.count - 1

    def set_constant(self, int64_t node, int32_t child):
        self.nodes[node].constant = child

    def ends(self, int64_t node, int kind, int32_t entry=NOTHING, int position=0, int quick=0,
             texts=None, int32_t rule=0, int32_t limits=-1, int32_t flags=0):
        """How a node makes entries."""
        cdef Node* it = self.nodes + node
        it.kind = kind
        it.entry = entry
        it.position = position
        it.quick = quick
        it.rule, it.limits, it.flags = rule, limits, flags
        self.ipv4_texts[node] = texts
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
        cdef int32_t entry
        if it.quick == 1:
            texts = self.ipv4_texts[node]
            if is_ipv4(texts.arena + texts.offsets[value], texts.lengths[value]):
                return self.entry_of_value(node, value, decider)
        elif it.quick == 2:
            return self.entry_of_value(node, value, decider)
        entry = self.owner.entry(self, node, [values[i][at] for i in range(self.levels)])
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
        number = numbers.get(<const char*> packed, 4 * self.levels)
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


def is_plain_ipv4(bytes text not None):
    return is_ipv4(text, len(text))


@cython.final
cdef class Decider:
    """Decides on requests whose entries are known."""

    cdef Entry* entries
    cdef readonly int64_t count
    cdef int64_t room
    cdef list tallies, limit_sets
    cdef readonly dict names      # of entries that Python made: the text of the key
    cdef list costs               # of each rule
    cdef object owner
    cdef int32_t* scheduled       # for each schedule, the set in force
    cdef int64_t schedules, second
    cdef readonly int64_t allowed, refused, ambiguous, unmatched

    def __cinit__(self):
        self.entries = NULL
        self.scheduled = NULL

    def __init__(self, owner):
        self.owner = owner
        self.tallies = []
        self.limit_sets = []
        self.names = {}
        self.costs = []
        self.second = -1

    def __dealloc__(self):
        free(self.entries)
        free(self.scheduled)

    def add_rule(self, Tally tally not None, int64_t cost):
        self.tallies.append(tally)
        self.costs.append(cost)
        return len(self.tallies) - 1

    def add_limits(self, list counters):
        self.limit_sets.append(counters)
        return len(self.limit_sets) - 1

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
            self.room = max(1024, 2 * self.room)
            larger = realloc(self.entries, self.room * sizeof(Entry))
            if larger == NULL:
                raise MemoryError
            self.entries = <Entry*> larger
        self.entries[self.count] = Entry(rule, limits, row, flags, -1, 0, 0)
        self.count += 1
        return <int32_t> (self.count - 1)

    def entry(self, int64_t number):
        """rule, limits, row, flags; and shape, node and value, where these make the key"""
        cdef Entry* it = self.entries + number
        return it.rule, it.limits, it.row, it.flags, it.shape, it.node, it.value

    def rows_of(self, const int32_t[::1] matched, int64_t n, int32_t[::1] out):
        """The row of each request's entry, or NOTHING."""
        cdef int64_t i
        for i in range(n):
            out[i] = self.entries[matched[i]].row if matched[i] >= 0 else NOTHING

    def decide(self, const int64_t[::1] times, int64_t n, list matched, listed, hits, agents,
               paths, assets, statuses, int8_t[::1] out):
        """Decide on n requests. ``matched`` has the entries of each shape."""
        cdef int shapes = len(matched), shape, items, k, of
        cdef int32_t* found[LEVELS_MOST * 4]
        cdef int32_t[::1] view
        cdef const int8_t[::1] list_view, asset_view
        cdef const int64_t[::1] hits_view, status_view
        cdef const int32_t[::1] agent_view, path_view
        cdef int64_t i, now, cost, hit
        cdef bint refused, denied, by_list, ok, group_ok, any_match, asset
        cdef int32_t number, limits, agent, path
        cdef int64_t status
        cdef Entry* it
        cdef void* counters[ITEMS_MOST]
        cdef int32_t rows[ITEMS_MOST]
        cdef int64_t costs[ITEMS_MOST]
        cdef int owners[ITEMS_MOST]
        cdef bint looked[ITEMS_MOST]
        cdef bint entry_refused[LEVELS_MOST * 4]
        cdef list limit_set
        cdef Tally tally
        if shapes > LEVELS_MOST * 4:
            raise OverflowError
        for shape in range(shapes):
            view = matched[shape]
            found[shape] = &view[0]
        if listed is not None:
            list_view = listed
        if hits is not None:
            hits_view = hits
        if agents is not None:
            agent_view = agents
        if paths is not None:
            path_view = paths
            asset_view = assets
        if statuses is not None:
            status_view = statuses
        for i in range(n):
            now = times[i]
            by_list = False
            if listed is not None and list_view[i]:
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
            hit = 1
            if hits is not None and hits_view[i] > 1:
                hit = hits_view[i]
            refused = by_list
            denied = by_list
            any_match = False
            items = 0
            # What refuses without a limit, and the items of all limits that may refuse.
            for shape in range(shapes):
                number = found[shape][i]
                if number < 0:
                    continue
                any_match = True
                it = self.entries + number
                entry_refused[shape] = False
                if it.flags & (CLOSED | DENIED):
                    if not it.flags & SHADOW:
                        refused = True
                        entry_refused[shape] = True
                        denied = denied or it.flags & DENIED
                    continue
                if it.flags & (SHADOW | UNCOUNTED):
                    continue
                limits = self.scheduled[it.limits] if it.flags & SCHEDULED else it.limits
                if limits < 0:
                    continue
                limit_set = self.limit_sets[limits]
                cost = cost_of(hit, self.costs[it.rule])
                for k in range(len(limit_set)):
                    if items == ITEMS_MOST:
                        raise OverflowError
                    counters[items] = <void*> limit_set[k]
                    rows[items] = it.row
                    costs[items] = cost
                    owners[items] = shape
                    items += 1
            if refused:
                if not denied:
                    for k in range(items):
                        if not (<Counter> counters[k]).decide(rows[k], costs[k], now, False):
                            entry_refused[owners[k]] = True
            elif items == 1:
                if not (<Counter> counters[0]).decide(rows[0], costs[0], now, True):
                    refused = True
                    entry_refused[owners[0]] = True
            elif items:
                for k in range(items):
                    looked[k] = (<Counter> counters[k]).decide(rows[k], costs[k], now, False)
                    if not looked[k]:
                        refused = True
                for k in range(items):
                    # A limit that refuses takes nothing, but may have to record it (lockout).
                    if not refused or not looked[k]:
                        if not (<Counter> counters[k]).decide(rows[k], costs[k], now, True):
                            entry_refused[owners[k]] = True
            # Rules in shadow count for themselves.
            for shape in range(shapes):
                number = found[shape][i]
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
                cost = cost_of(hit, self.costs[it.rule])
                of = len(limit_set)
                group_ok = True
                if of > 1:
                    for k in range(of):
                        looked[k] = (<Counter> limit_set[k]).decide(it.row, cost, now, False)
                        group_ok = group_ok and looked[k]
                for k in range(of):
                    if of == 1 or group_ok or not looked[k]:
                        ok = (<Counter> limit_set[k]).decide(it.row, cost, now, True)
                        if not ok:
                            entry_refused[shape] = True
            agent = agent_view[i] if agents is not None else 0
            path = path_view[i] if paths is not None else 0
            asset = asset_view[path] if paths is not None else False
            status = status_view[i] if statuses is not None else 0
            for shape in range(shapes):
                number = found[shape][i]
                if number < 0:
                    continue
                it = self.entries + number
                if by_list:
                    break
                tally = self.tallies[it.rule]
                tally.note(it.row, now, entry_refused[shape], agent, path, asset, status)
            if refused:
                out[i] = REFUSED
                self.refused += 1
            else:
                out[i] = ALLOWED
                self.allowed += 1
                self.unmatched += not any_match


cdef inline int64_t cost_of(int64_t hit, cost) except -1:
    """As `Check` works it out; a cost above 2**62 is answered like that."""
    cdef int64_t units = cost
    if hit == 1:
        return units
    if hit > (<int64_t> 1 << 62) // units:
        return <int64_t> 1 << 62
    return hit * units


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
        out[i] = numbers.get(<const char*> packed, 4 * width)


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
