"""The compiled scanner: lines of a log to columns, without a Python object for each line.

`Interner` gives every distinct text a number, from 1 on in order of appearance; 0 is what a line
does not say ("-" or nothing). `Scanner.scan` reads whole lines from a buffer into a `Block`.
`_scanner_pure.py` behaves the same.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

import os

from penstock.replay.reading import kinds

cdef enum:
    SKIP = 0
    WORD = 1
    TARGET = 2
    REQUEST = 3
    NUMBER = 4
    DURATION = 5
    CLF = 6
    ISO = 7
    EPOCH = 8
    PEER_PORT = 9
    OBJECT = 10
    LITERAL_MOST = 64
    STEPS_MOST = 96
    SHOWN_MOST = 5
    NAME_MOST = 64
    DEPTH_MOST = 4
    WAITING_MOST = 64
    GAPS_MOST = 32
    GAP_LONGEST = 56

assert (kinds.SKIP, kinds.WORD, kinds.TARGET, kinds.REQUEST, kinds.NUMBER, kinds.DURATION) == (
    SKIP, WORD, TARGET, REQUEST, NUMBER, DURATION)
assert (kinds.CLF, kinds.ISO, kinds.EPOCH, kinds.PEER_PORT, kinds.OBJECT) == (
    CLF, ISO, EPOCH, PEER_PORT, OBJECT)
assert kinds.SHOWN_MOST == SHOWN_MOST and kinds.LITERAL_MOST == LITERAL_MOST
assert kinds.STEPS_MOST == STEPS_MOST

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")
cdef int64_t SECOND = 1_000_000_000
cdef int64_t NO_TIME = -1
# A number with more digits is cut: no count of bytes and no time has them.
cdef int64_t MOST_NUMBER = 1 << 62


@cython.final
cdef class Interner:
    """Texts to numbers: see texts.h."""

    def __cinit__(self):
        if texts_init(&self.table, SEED) < 0:
            raise MemoryError

    def __dealloc__(self):
        texts_free(&self.table)

    def __len__(self):
        return self.table.used

    def text(self, int64_t number):
        """The bytes of a number; None for 0."""
        if number <= 0 or number >= self.table.used:
            if number == 0:
                return None
            raise IndexError(number)
        return PyBytes_FromStringAndSize(
            self.table.arena + self.table.offsets[number], self.table.lengths[number]
        )

    def number(self, bytes text not None):
        """The number of a text, which is added if it is new."""
        cdef int32_t number = 0
        if not is_nothing(text, len(text)):
            number = texts_number(&self.table, text, len(text))
        if self.table.failed:
            raise MemoryError
        return number

    @property
    def bytes(self):
        """Memory in use."""
        return (
            self.table.arena_size
            + (self.table.mask + 1) * sizeof(TextSlot) + self.table.capacity * 12
        )


cdef struct Step:
    int kind
    int column
    int parent             # of JSON: the object that it is in; 0 is the line itself
    int64_t scale
    int length
    int name_length
    bint quoted
    char literal[LITERAL_MOST]
    char name[NAME_MOST]


cdef struct Gap:
    # Of JSON, what stands before the value of a field, from the end of the value before it.
    int length             # 0: not known
    int step               # what the field is; below zero if it is not read
    int before, after      # the hints where names are looked for
    bint quoted
    char text[GAP_LONGEST]


cdef struct WaitingText:
    TextTable* table
    TextKey key
    int32_t* to


@cython.final
cdef class Scanner:
    """Reads lines of one format into blocks. Not for two threads at once."""

    cdef Step steps[STEPS_MOST]
    cdef int count, words, numbers
    cdef bytes head
    cdef str how
    cdef char separator
    cdef const char* end       # of the memory that is scanned
    cdef WaitingText texts[WAITING_MOST]
    cdef Gap gaps[GAPS_MOST]
    cdef int waiting, complete     # texts; those of lines that were read to their end
    cdef list interners
    cdef int64_t zone
    cdef char last[32]
    cdef int last_length
    cdef int64_t last_time
    cdef readonly int64_t lines, malformed
    cdef readonly list shown

    def __init__(self, str how, bytes head, steps, list interners, int numbers, bytes separator,
                 int64_t zone=0):
        cdef int i = 0, j
        if len(steps) > STEPS_MOST:
            raise ValueError(f"a format has at most {STEPS_MOST} fields, not {len(steps)}")
        self.how = how
        self.head = head
        self.separator = separator[0]
        self.interners = interners
        self.words = len(interners)
        self.numbers = numbers
        self.count = len(steps)
        self.zone = zone
        self.shown = []
        for kind, column, literal, scale, name, parent in steps:
            if len(literal) > LITERAL_MOST or len(name) > NAME_MOST:
                raise ValueError(f"a text between fields has at most {LITERAL_MOST} characters")
            self.steps[i].kind = kind
            self.steps[i].column = column
            self.steps[i].scale = scale
            self.steps[i].parent = parent
            self.steps[i].length = len(literal)
            self.steps[i].name_length = len(name)
            self.steps[i].quoted = literal[:1] == b'"'
            for j in range(len(literal)):
                self.steps[i].literal[j] = literal[j]
            for j in range(len(name)):
                self.steps[i].name[j] = name[j]
            i += 1

    def scan(self, const uint8_t[::1] data, int64_t start, block):
        """Read whole lines from ``start`` until the data or the block ends.

        Returns where it stopped: after the last line feed, or where the block was full.
        """
        cdef const char* begin = <const char*> &data[0] if data.shape[0] else NULL
        cdef const char* p = begin + start
        cdef const char* end = begin + data.shape[0]
        cdef const char* eol
        cdef const char* stop
        cdef int64_t[::1] times = block.times
        cdef int64_t n = block.n, room = times.shape[0]
        cdef int32_t* words[STEPS_MOST]
        cdef int64_t* numbers[STEPS_MOST]
        cdef void* tables[STEPS_MOST]
        cdef int32_t[::1] word_view
        cdef int64_t[::1] number_view
        cdef int i, ok, how = {"text": 0, "json": 1, "csv": 2}[self.how]
        cdef const char* head = self.head
        cdef int64_t head_length = len(self.head)
        cdef const char* wrong[SHOWN_MOST]
        cdef int64_t wrong_lengths[SHOWN_MOST]
        cdef int64_t wrong_lines[SHOWN_MOST]
        cdef int wrongs = 0, room_for_wrong = SHOWN_MOST - len(self.shown)
        self.end = end
        for i in range(self.words):
            word_view = block.words[i]
            words[i] = &word_view[0]
            tables[i] = &(<Interner> self.interners[i]).table
        for i in range(self.numbers):
            number_view = block.numbers[i]
            numbers[i] = &number_view[0]
        with nogil:
            while p < end and n < room:
                eol = <const char*> memchr(p, 10, end - p)
                if eol == NULL:
                    break
                stop = eol
                if stop > p and (stop - 1)[0] == 13:
                    stop -= 1
                self.lines += 1
                if stop == p:  # an empty line is no request
                    p = eol + 1
                    continue
                for i in range(self.words):
                    words[i][n] = 0
                for i in range(self.numbers):
                    numbers[i][n] = -1
                times[n] = NO_TIME
                if how == 0:
                    ok = head_length <= stop - p and memcmp(p, head, head_length) == 0
                    if ok:
                        ok = self.text(p + head_length, stop, n, &times[0], words, numbers, tables)
                elif how == 1:
                    ok = self.json(p, stop, n, &times[0], words, numbers, tables)
                else:
                    ok = self.csv(p, stop, n, &times[0], words, numbers, tables)
                if ok and times[n] >= 0:
                    self.complete = self.waiting
                    if self.waiting > WAITING_MOST - 8:
                        self.find_texts(self.waiting)
                    n += 1
                else:
                    self.waiting = self.complete
                    self.malformed += 1
                    if wrongs < room_for_wrong:
                        wrong[wrongs] = p
                        wrong_lengths[wrongs] = stop - p if stop - p < 200 else 200
                        wrong_lines[wrongs] = self.lines
                        wrongs += 1
                p = eol + 1
            self.find_texts(self.complete)
        block.n = n
        for i in range(wrongs):
            self.shown.append((wrong_lines[i], wrong[i][:wrong_lengths[i]]))
        for table in self.interners:
            if (<Interner> table).table.failed:
                raise MemoryError("too many distinct texts")
        return p - begin

    cdef int text(self, const char* p, const char* stop, int64_t n, int64_t* times,
                  int32_t** words, int64_t** numbers, void** tables) noexcept nogil:
        cdef int i
        cdef Step* step
        cdef const char* q
        for i in range(self.count):
            step = &self.steps[i]
            if step.length == 0:
                q = stop
            else:
                q = p
                while True:
                    q = find_byte(q, stop, self.end, step.literal[0])
                    if q == NULL:
                        return 0
                    if stop - q >= step.length and same(q, step.literal, step.length) and not (
                        step.quoted and escaped(p, q)
                    ):
                        break
                    q += 1
            if step.kind != SKIP and not self.put(step, p, q, n, times, words, numbers, tables):
                return 0
            p = q + step.length
        return 1

    cdef int csv(self, const char* p, const char* stop, int64_t n, int64_t* times,
                 int32_t** words, int64_t** numbers, void** tables) noexcept nogil:
        cdef int i
        cdef Step* step
        cdef const char* q
        for i in range(self.count):
            step = &self.steps[i]
            if p > stop:
                return 0  # fewer columns than there are names
            if p < stop and p[0] == 34:
                p += 1
                q = p
                while True:
                    q = <const char*> memchr(q, 34, stop - q)
                    if q == NULL:
                        return 0
                    if q + 1 < stop and (q + 1)[0] == 34:
                        q += 2
                    else:
                        break
                if step.kind != SKIP and not self.put(step, p, q, n, times, words, numbers, tables):
                    return 0
                p = q + 1
                if p < stop and p[0] != self.separator:
                    return 0
                p += 1
            else:
                q = <const char*> memchr(p, self.separator, stop - p)
                if q == NULL:
                    q = stop
                if step.kind != SKIP and not self.put(step, p, q, n, times, words, numbers, tables):
                    return 0
                p = q + 1
        return 1

    cdef int json(self, const char* p, const char* stop, int64_t n, int64_t* times,
                  int32_t** words, int64_t** numbers, void** tables) noexcept nogil:
        """Objects, one in another at most DEPTH_MOST deep; of a list, the first text."""
        cdef int parents[DEPTH_MOST]
        cdef int depth = 0, parent = 0, i, hint = 0, at = 0, before
        cdef int64_t length
        cdef Gap* gap
        cdef const char* start
        cdef const char* name
        cdef const char* value
        cdef const char* q
        cdef Step* step
        while p < stop and is_space(p[0]):
            p += 1
        if p >= stop or p[0] != 123 or (stop - 1)[0] != 125:
            return 0
        p += 1
        while True:
            start, before = p, hint
            if depth == 0 and at < GAPS_MOST:
                # Most lines have the same text before the value as the line before.
                gap = &self.gaps[at]
                if gap.length and gap.before == hint and stop - p > gap.length and same_gap(
                    p, gap.text, gap.length
                ):
                    value = p + gap.length
                    q = NULL
                    if gap.quoted:
                        q = quote_end(value, stop, self.end)
                        if q == NULL:
                            return 0
                        p = q + 1
                    elif value[0] != 34 and value[0] != 123 and value[0] != 91:
                        q = plain_end(value, stop)
                        if q > value:
                            p = q
                        else:  # there is space before it, this time
                            q = NULL
                    if q != NULL:
                        at += 1
                        hint = gap.after
                        if not gap.quoted and is_null(value, q):
                            continue
                        if gap.step >= 0 and not self.put(
                            &self.steps[gap.step], value, q, n, times, words, numbers, tables
                        ):
                            return 0
                        continue
            while p < stop and (is_space(p[0]) or p[0] == 44):
                p += 1
            if p >= stop:
                return 0
            if p[0] == 125:
                p += 1
                if depth == 0:
                    return p == stop or only_space(p, stop)
                depth -= 1
                parent = parents[depth]
                continue
            if p[0] != 34:
                return 0
            name = p + 1
            q = quote_end(name, stop, self.end)
            if q == NULL:
                return 0
            length = q - name
            p = q + 1
            while p < stop and is_space(p[0]):
                p += 1
            if p >= stop or p[0] != 58:
                return 0
            p += 1
            while p < stop and is_space(p[0]):
                p += 1
            if p >= stop:
                return 0
            step = NULL
            # Most lines have their names in the same order: begin after the last one found.
            for i in range(self.count):
                if hint >= self.count:
                    hint = 0
                if (
                    self.steps[hint].name_length == length
                    and self.steps[hint].parent == parent
                    and memcmp(self.steps[hint].name, name, length) == 0
                ):
                    step = &self.steps[hint]
                    hint += 1
                    break
                hint += 1
            if step != NULL and step.kind != OBJECT and p[0] == 91:  # the first of a list
                value = p + 1
                while value < stop and is_space(value[0]):
                    value += 1
                if value < stop and value[0] == 34:
                    q = quote_end(value + 1, stop, self.end)
                    if q == NULL:
                        return 0
                    if step.kind != SKIP and not self.put(
                        step, value + 1, q, n, times, words, numbers, tables
                    ):
                        return 0
                p = skip_nested(p, stop)
                if p == NULL:
                    return 0
            elif p[0] == 123 or p[0] == 91:
                if step != NULL and step.kind == OBJECT and p[0] == 123 and depth < DEPTH_MOST:
                    parents[depth] = parent
                    depth += 1
                    parent = step.column
                    p += 1
                else:
                    p = skip_nested(p, stop)
                    if p == NULL:
                        return 0
            else:
                value = p + 1 if p[0] == 34 else p
                if depth == 0 and at < GAPS_MOST:
                    gap = &self.gaps[at]
                    gap.length = 0
                    if value - start <= GAP_LONGEST:
                        memcpy(gap.text, start, value - start)
                        gap.length = <int> (value - start)
                        gap.quoted = p[0] == 34
                        gap.before, gap.after = before, hint
                        gap.step = -1
                        if step != NULL and step.kind != SKIP and step.kind != OBJECT:
                            gap.step = <int> (step - &self.steps[0])
                if p[0] == 34:
                    q = quote_end(value, stop, self.end)
                    if q == NULL:
                        return 0
                    p = q + 1
                else:
                    q = plain_end(value, stop)
                    if q == value:
                        return 0
                    p = q
                    if is_null(value, q):
                        at += depth == 0
                        continue
                at += depth == 0
                if step != NULL and step.kind != SKIP and step.kind != OBJECT and not self.put(
                    step, value, q, n, times, words, numbers, tables
                ):
                    return 0

    cdef inline void put_text(
        self, TextTable* table, const char* text, int64_t length, int32_t* to
    ) noexcept nogil:
        """Look a text up some lines later: until then, the table's memory is on its way."""
        if self.waiting == WAITING_MOST:
            self.find_texts(self.waiting)
        self.texts[self.waiting].table = table
        self.texts[self.waiting].key = texts_key(
            table, text, 0 if is_nothing(text, length) else length)
        self.texts[self.waiting].to = to
        self.waiting += 1

    cdef void find_texts(self, int count) noexcept nogil:
        cdef int i
        for i in range(count):
            self.texts[i].to[0] = texts_find(self.texts[i].table, self.texts[i].key)
        self.waiting = self.complete = 0

    cdef inline int put(self, Step* step, const char* p, const char* q, int64_t n, int64_t* times,
                        int32_t** words, int64_t** numbers, void** tables) noexcept nogil:
        """Write the field from p to q into its column; 0 if it cannot be read."""
        cdef int64_t value
        cdef const char* e
        if step.kind == WORD:
            self.put_text(<TextTable*> tables[step.column], p, q - p, words[step.column] + n)
        elif step.kind == CLF:
            value = self.clf(p, q)
            if value < 0:
                return 0
            times[n] = value
        elif step.kind == REQUEST:
            # "GET /a?b HTTP/1.1"; anything else was no request that could be read.
            e = find_byte(p, q, self.end, 32)
            if e == NULL:
                return 1
            if step.column >= 0:
                self.put_text(<TextTable*> tables[step.column], p, e - p, words[step.column] + n)
            if step.scale >= 0:
                p = e + 1
                e = q - 9
                if e <= p or (q - 1)[0] == 32 or memcmp(e, b" HTTP/1.", 8) != 0:
                    e = q - 1
                    while e > p and e[0] != 32:
                        e -= 1
                # Without a protocol (HTTP/0.9), the target is the rest.
                if e <= p or e + 1 >= q or (e + 1)[0] != 72:
                    e = q
                self.put_text(<TextTable*> tables[step.scale], p, path_end(p, e, self.end) - p, words[step.scale] + n)
        elif step.kind == TARGET:
            self.put_text(<TextTable*> tables[step.column], p, path_end(p, q, self.end) - p, words[step.column] + n)
        elif step.kind == NUMBER:
            if q - p == 0 or (q - p == 1 and p[0] == 45):
                return 1
            value = decimal(p, q, 1)
            if value < 0:
                return 0
            numbers[step.column][n] = value
        elif step.kind == DURATION:
            if q - p == 0 or (q - p == 1 and p[0] == 45):
                return 1
            value = decimal(p, q, step.scale)
            if value < 0:
                return 0
            numbers[step.column][n] = value
        elif step.kind == ISO:
            value = self.iso(p, q)
            if value < 0:
                return 0
            times[n] = value
        elif step.kind == EPOCH:
            value = decimal(p, q, step.scale)
            if value < 0:
                return 0
            times[n] = value
        elif step.kind == PEER_PORT:
            e = q
            while e > p and e[0] != 58:
                e -= 1
            if e == p or (memchr(p, 58, e - p) != NULL and p[0] != 91):
                e = q  # no port: an address of IPv6, or a name
            if e > p + 1 and p[0] == 91 and (e - 1)[0] == 93:
                self.put_text(<TextTable*> tables[step.column], p + 1, e - p - 2, words[step.column] + n)
            else:
                self.put_text(<TextTable*> tables[step.column], p, e - p, words[step.column] + n)
        return 1

    cdef inline int64_t clf(self, const char* s, const char* q) noexcept nogil:
        """31/Jan/2026:12:00:00 +0100, or with a fraction and without a zone, as HAProxy writes."""
        cdef int64_t n = q - s, time, zone
        cdef int m
        if n == self.last_length and n >= 16 and same_time(s, self.last, n):
            return self.last_time
        if n > 0 and s[0] == 91:
            s += 1
            n = q - s
        if n < 20 or s[2] != 47 or s[6] != 47 or s[11] != 58 or s[14] != 58 or s[17] != 58:
            return NO_TIME
        m = month(s + 3)
        time = moment(digits(s + 7, 4), m, digits(s, 2), s + 12)
        if time < 0:
            return NO_TIME
        time *= SECOND
        s += 20
        if s < q and s[0] == 46:
            zone = fraction(s + 1, q)
            time += zone
            s += 1
            while s < q and 48 <= s[0] <= 57:
                s += 1
        if s < q and s[0] == 32:
            s += 1
        if q - s >= 5 and (s[0] == 43 or s[0] == 45):
            zone = digits(s + 1, 2) * 3600 + digits(s + 3, 2) * 60
            if zone < 0:
                return NO_TIME
            time = time - zone * SECOND if s[0] == 43 else time + zone * SECOND
        elif s == q or s[0] == 93:
            time -= self.zone
        else:
            return NO_TIME
        if 16 <= n <= 32 and time >= 0:
            memcpy(self.last, q - n, n)
            self.last_length = <int> n
            self.last_time = time
        return time

    cdef inline int64_t iso(self, const char* s, const char* q) noexcept nogil:
        """2026-01-31T12:00:00.123Z, with any zone, or none."""
        cdef int64_t time, zone
        if q - s < 19:
            return NO_TIME
        if self.last_length == 19 and memcmp(s, self.last, 19) == 0:
            time = self.last_time
        else:
            if s[4] != 45 or s[7] != 45 or (s[10] != 84 and s[10] != 32 and s[10] != 116):
                return NO_TIME
            if s[13] != 58 or s[16] != 58:
                return NO_TIME
            time = moment(digits(s, 4), <int> digits(s + 5, 2), digits(s + 8, 2), s + 11)
            if time < 0:
                return NO_TIME
            time *= SECOND
            memcpy(self.last, s, 19)
            self.last_length = 19
            self.last_time = time
        s += 19
        if s < q and (s[0] == 46 or s[0] == 44):
            time += fraction(s + 1, q)
            s += 1
            while s < q and 48 <= s[0] <= 57:
                s += 1
        if s < q and s[0] == 32:
            s += 1
        if s < q and (s[0] == 90 or s[0] == 122):
            return time if s + 1 == q else NO_TIME
        if q - s >= 3 and (s[0] == 43 or s[0] == 45):
            zone = digits(s + 1, 2) * 3600
            if zone < 0:
                return NO_TIME
            if q - s == 6 and s[3] == 58 and digits(s + 4, 2) >= 0:
                zone += digits(s + 4, 2) * 60
            elif q - s == 5 and digits(s + 3, 2) >= 0:
                zone += digits(s + 3, 2) * 60
            elif q - s != 3:
                return NO_TIME
            return time - zone * SECOND if s[0] == 43 else time + zone * SECOND
        return time - self.zone if s == q else NO_TIME


cdef inline bint same(const char* text, const char* literal, int length) noexcept nogil:
    """Whether they are equal after the first character, which is. Most are short."""
    cdef int i
    for i in range(1, length):
        if text[i] != literal[i]:
            return False
    return True


cdef inline bint same_time(const char* text, const char* last, int64_t n) noexcept nogil:
    """Whether two texts of 16 to 32 characters are equal."""
    cdef uint64_t a[4]
    cdef uint64_t b[4]
    memcpy(a, text, 16)
    memcpy(b, last, 16)
    memcpy(a + 2, text + n - 16, 16)
    memcpy(b + 2, last + n - 16, 16)
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0


cdef inline bint is_space(char c) noexcept nogil:
    return c == 32 or c == 9


cdef inline bint only_space(const char* p, const char* stop) noexcept nogil:
    while p < stop:
        if not is_space(p[0]):
            return False
        p += 1
    return True


cdef inline bint escaped(const char* start, const char* quote) noexcept nogil:
    """Whether an odd number of backslashes stands before a quote."""
    cdef int64_t n = 0
    while quote > start and (quote - 1)[0] == 92:
        quote -= 1
        n += 1
    return n & 1


cdef inline const char* quote_end(
    const char* start, const char* stop, const char* end
) noexcept nogil:
    """The quote that ends a JSON text which begins at ``start``."""
    cdef const char* q = start
    while True:
        q = find_byte(q, stop, end, 34)
        if q == NULL or not escaped(start, q):
            return q
        q += 1


cdef inline const char* plain_end(const char* q, const char* stop) noexcept nogil:
    """Where a number, true, false or null ends."""
    while q < stop and q[0] != 44 and q[0] != 125 and not is_space(q[0]):
        q += 1
    return q


cdef inline bint is_null(const char* value, const char* q) noexcept nogil:
    return q - value == 4 and memcmp(value, b"null", 4) == 0


cdef inline bint same_gap(const char* a, const char* b, int length) noexcept nogil:
    """Whether two texts are equal, eight characters at a time."""
    cdef int i = 0
    if length < 8:
        return a[0] == b[0] and same(a, b, length)
    while i + 8 <= length:
        if load8(a + i) != load8(b + i):
            return False
        i += 8
    return load8(a + length - 8) == load8(b + length - 8)


cdef const char* skip_nested(const char* p, const char* stop) noexcept nogil:
    """After an object or a list that is not read."""
    cdef int64_t depth = 0
    while p < stop:
        if p[0] == 34:
            p = quote_end(p + 1, stop, stop)
            if p == NULL:
                return NULL
        elif p[0] == 123 or p[0] == 91:
            depth += 1
        elif p[0] == 125 or p[0] == 93:
            depth -= 1
            if depth == 0:
                return p + 1
        p += 1
    return NULL


cdef inline const char* path_end(const char* p, const char* q, const char* end) noexcept nogil:
    """Where the path of a target ends: before its query."""
    cdef const char* e = find_byte(p, q, end, 63)
    return q if e == NULL else e


cdef inline int64_t digits(const char* s, int n) noexcept nogil:
    """n digits as a number; far below zero if one is none."""
    cdef int64_t value = 0
    cdef int i
    for i in range(n):
        if not 48 <= s[i] <= 57:
            return -(<int64_t> 1 << 40)
        value = value * 10 + (s[i] - 48)
    return value


cdef inline int64_t decimal(const char* p, const char* q, int64_t scale) noexcept nogil:
    """A number with or without a fraction, times ``scale``; -1 if it is none."""
    cdef int64_t value = 0, part = 0
    if p == q or not 48 <= p[0] <= 57:
        return -1
    while p < q and 48 <= p[0] <= 57:
        if value > MOST_NUMBER // 10 - 1:
            return -1
        value = value * 10 + (p[0] - 48)
        p += 1
    if value > MOST_NUMBER // scale:
        return -1
    value *= scale
    if p < q and p[0] == 46:
        p += 1
        while p < q and 48 <= p[0] <= 57:
            scale //= 10
            part += (p[0] - 48) * scale
            p += 1
    return value + part if p == q else -1


cdef inline int64_t fraction(const char* s, const char* q) noexcept nogil:
    """The digits after a point, in nanoseconds."""
    cdef int64_t value = 0, scale = 100_000_000
    while s < q and 48 <= s[0] <= 57 and scale > 0:
        value += (s[0] - 48) * scale
        scale //= 10
        s += 1
    return value


cdef inline int64_t moment(int64_t y, int m, int64_t d, const char* clock) noexcept nogil:
    """Seconds since 1970 of a date and hh:mm:ss; below zero if there is no such time."""
    cdef int64_t hour = digits(clock, 2), minute = digits(clock + 3, 2), second = digits(clock + 6, 2)
    cdef int64_t era, year, day
    if not (1 <= m <= 12 and 1 <= d <= 31 and 1970 <= y <= 2200 and 0 <= hour < 24):
        return -1
    if not (0 <= minute < 60 and 0 <= second < 61):
        return -1
    y -= m <= 2
    era = y // 400
    year = y - era * 400
    day = (153 * (m + (-3 if m > 2 else 9)) + 2) // 5 + d - 1
    day = era * 146097 + year * 365 + year // 4 - year // 100 + day - 719468
    return day * 86400 + hour * 3600 + minute * 60 + second


cdef inline int month(const char* s) noexcept nogil:
    cdef int c = (s[0] << 16) | (s[1] << 8) | s[2]
    if c == 0x4A616E: return 1
    if c == 0x466562: return 2
    if c == 0x4D6172: return 3
    if c == 0x417072: return 4
    if c == 0x4D6179: return 5
    if c == 0x4A756E: return 6
    if c == 0x4A756C: return 7
    if c == 0x417567: return 8
    if c == 0x536570: return 9
    if c == 0x4F6374: return 10
    if c == 0x4E6F76: return 11
    if c == 0x446563: return 12
    return 0


# Blocks ---------------------------------------------------------------------------------


def is_sorted(const int64_t[::1] times, int64_t n):
    cdef int64_t i
    with nogil:
        for i in range(1, n):
            if times[i] < times[i - 1]:
                break
        else:
            i = n
    return i >= n


def order_of(const int64_t[::1] times, int64_t n, int64_t[::1] order, int64_t[::1] scratch):
    """The stable order of the first n times, into ``order``: a merge sort from sorted runs."""
    cdef int64_t i
    with nogil:
        for i in range(n):
            order[i] = i
        if n > 1:
            sort(&times[0], &order[0], &scratch[0], n)


cdef void sort(const int64_t* times, int64_t* order, int64_t* scratch, int64_t n) noexcept nogil:
    cdef int64_t i, j, k, half, value
    if n <= 24:
        for i in range(1, n):
            value = order[i]
            j = i
            while j > 0 and times[order[j - 1]] > times[value]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = value
        return
    half = n // 2
    sort(times, order, scratch, half)
    sort(times, order + half, scratch, n - half)
    if times[order[half - 1]] <= times[order[half]]:
        return
    memcpy(scratch, order, half * 8)
    i = 0
    j = half
    k = 0
    while i < half:
        if j < n and times[order[j]] < times[scratch[i]]:
            order[k] = order[j]
            j += 1
        else:
            order[k] = scratch[i]
            i += 1
        k += 1


def gather_words(const int32_t[::1] source, const int64_t[::1] order, int32_t[::1] out, int64_t n):
    cdef int64_t i
    with nogil:
        for i in range(n):
            out[i] = source[order[i]]


def gather_numbers(const int64_t[::1] source, const int64_t[::1] order, int64_t[::1] out,
                   int64_t n):
    cdef int64_t i
    with nogil:
        for i in range(n):
            out[i] = source[order[i]]


def spread(int64_t[::1] times, int64_t n):
    """Spread the requests of each whole second evenly over it."""
    cdef int64_t i = 0, j, k
    with nogil:
        while i < n:
            j = i
            while j < n and times[j] == times[i]:
                j += 1
            for k in range(j - i - 1, 0, -1):
                times[i + k] += k * SECOND // (j - i)
            i = j


def not_before(int64_t[::1] times, int64_t n, int64_t earliest):
    """Move times before ``earliest`` there; how many there were."""
    cdef int64_t i, late = 0
    with nogil:
        for i in range(n):
            if times[i] >= earliest:
                break
            times[i] = earliest
            late += 1
    return late


def shift_back(int64_t[::1] times, const int64_t[::1] durations, int64_t start, int64_t n):
    """From the end of each request to its start."""
    cdef int64_t i
    with nogil:
        for i in range(start, n):
            if durations[i] > 0:
                times[i] = times[i] - durations[i] if times[i] > durations[i] else 0


def count_of(const int64_t[::1] column, int64_t n, int64_t value):
    """How many of the first n are this value."""
    cdef int64_t i, count = 0
    with nogil:
        for i in range(n):
            count += column[i] == value
    return count


def translate(const int32_t[::1] source, int64_t start, int64_t n, const int32_t[::1] table,
              int32_t[::1] out, int64_t at):
    """n numbers by a table, into another column."""
    cdef int64_t i
    with nogil:
        for i in range(n):
            out[at + i] = table[source[start + i]]
