cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "texts.h" nogil:
    ctypedef struct TextSlot:
        pass

    ctypedef struct TextTable:
        int64_t mask, used, capacity
        int64_t* offsets
        int32_t* lengths
        char* arena
        int64_t arena_used, arena_size
        int failed

    int texts_init(TextTable* table, uint64_t seed)
    void texts_free(TextTable* table)
    ctypedef struct TextKey:
        pass

    TextKey texts_key(const TextTable* table, const char* text, int64_t length)
    int32_t texts_find(TextTable* table, TextKey key)
    int32_t texts_number(TextTable* table, const char* text, int64_t length)
    bint is_nothing(const char* text, int64_t length)
    uint64_t load8(const char* text)
    const char* find_byte(const char* p, const char* stop, const char* end, char byte)


@cython.final
cdef class Interner:
    cdef TextTable table
