/* Texts of log lines: finding a byte, and giving each distinct text a number.
 *
 * An interner is a table with open addressing. A slot holds a text of up to 16 bytes itself, so
 * that an address or a method costs one cache line; longer texts are compared in the arena, where
 * the bytes of all texts lie one after another. The hash has a seed of its own in each process:
 * those who write to a log must not choose which texts collide.
 */
#ifndef PENSTOCK_REPLAY_TEXTS_H
#define PENSTOCK_REPLAY_TEXTS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "pages.h"

typedef struct {
    uint64_t hash; /* 0: the slot is free */
    uint64_t a, b; /* the text, if it is short; else a is where it begins in the arena */
    int32_t number, length;
} TextSlot;

typedef struct {
    TextSlot *slots;
    int64_t mask; /* slots - 1, a power of two less one */
    uint64_t seed;
    int64_t used, capacity; /* numbers given, from 1 on; room for them in the next two */
    int64_t *offsets;
    int32_t *lengths;
    char *arena;
    int64_t arena_used, arena_size;
    int failed; /* there was no memory, or no number left */
} TextTable;

enum { SHORT_TEXT = 16, FIRST_SLOTS = 4096, FIRST_ARENA = 1 << 16 };

static void texts_free(TextTable *t) {
    free(t->slots), free(t->offsets), free(t->lengths), free(t->arena);
}

static int texts_init(TextTable *t, uint64_t seed) {
    memset(t, 0, sizeof *t);
    t->seed = seed;
    t->mask = FIRST_SLOTS - 1;
    t->used = 1;
    t->capacity = FIRST_SLOTS;
    t->arena_size = FIRST_ARENA;
    t->slots = pages_new(FIRST_SLOTS * sizeof(TextSlot));
    t->offsets = calloc(FIRST_SLOTS, sizeof(int64_t));
    t->lengths = calloc(FIRST_SLOTS, sizeof(int32_t));
    t->arena = malloc(FIRST_ARENA);
    return t->slots && t->offsets && t->lengths && t->arena ? 0 : -1;
}

static inline uint64_t load8(const char *s) {
    uint64_t word;
    memcpy(&word, s, 8);
    return word;
}

static inline uint64_t load4(const char *s) {
    uint32_t word;
    memcpy(&word, s, 4);
    return word;
}

static inline uint64_t mixed(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* With its length, these two words say all of a text of 1 to 16 bytes. */
static inline void short_words(const char *s, int64_t n, uint64_t *a, uint64_t *b) {
    if (n >= 8) {
        *a = load8(s), *b = load8(s + n - 8);
    } else if (n >= 4) {
        *a = load4(s) << 32 | load4(s + n - 4), *b = 0;
    } else {
        *a = (uint64_t)(uint8_t)s[0] << 16 | (uint64_t)(uint8_t)s[n >> 1] << 8 | (uint8_t)s[n - 1];
        *b = 0;
    }
}

static inline uint64_t long_hash(const char *s, int64_t n, uint64_t seed) {
    uint64_t h = seed ^ (uint64_t)n;
    int64_t i;
    for (i = 0; i + 16 < n; i += 16)
        h = mixed(load8(s + i) ^ 0xA0761D6478BD642FULL, load8(s + i + 8) ^ h);
    return mixed(load8(s + n - 16) ^ 0xE7037ED1A0B428DBULL, load8(s + n - 8) ^ h);
}

static void texts_grow(TextTable *t) {
    int64_t size = t->mask + 1, i, at;
    TextSlot *slots = pages_new(2 * size * sizeof(TextSlot));
    if (!slots) {
        t->failed = t->used * 8 > t->mask * 7; /* else there is still room */
        return;
    }
    t->mask = 2 * size - 1;
    for (i = 0; i < size; i++) {
        if (!t->slots[i].hash) continue;
        at = t->slots[i].hash & t->mask;
        while (slots[at].hash) at = (at + 1) & t->mask;
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
}

static int texts_room(TextTable *t, int64_t length) {
    void *larger;
    if (t->used >= 0x7FFFFFFE) return -1;
    if (t->used == t->capacity) {
        if (!(larger = realloc(t->offsets, 2 * t->capacity * sizeof(int64_t)))) return -1;
        t->offsets = larger;
        if (!(larger = realloc(t->lengths, 2 * t->capacity * sizeof(int32_t)))) return -1;
        t->lengths = larger;
        t->capacity *= 2;
    }
    if (t->arena_used + length > t->arena_size) {
        int64_t size = t->arena_size;
        while (t->arena_used + length > size) size *= 2;
        if (!(larger = realloc(t->arena, size))) return -1;
        t->arena = larger;
        t->arena_size = size;
    }
    return 0;
}

/* A text that is looked for. Made first, so that the table's memory can be on its way. */
typedef struct {
    const char *text;
    int64_t length;
    uint64_t hash, a, b;
} TextKey;

static int32_t texts_add(TextTable *t, int64_t at, TextKey key) {
    int32_t number = (int32_t)t->used;
    if (texts_room(t, key.length)) {
        t->failed = 1;
        return 0;
    }
    memcpy(t->arena + t->arena_used, key.text, key.length);
    if (key.length > SHORT_TEXT) key.a = (uint64_t)t->arena_used, key.b = 0;
    t->slots[at] = (TextSlot){key.hash, key.a, key.b, number, (int32_t)key.length};
    t->offsets[number] = t->arena_used;
    t->lengths[number] = (int32_t)key.length;
    t->arena_used += key.length;
    t->used++;
    if (t->used * 8 > t->mask * 5) texts_grow(t);
    return number;
}

static inline TextKey texts_key(const TextTable *t, const char *text, int64_t length) {
    TextKey key = {text, length, 0, 0, 0};
    if (length == 0) return key;
    if (length <= SHORT_TEXT) {
        short_words(text, length, &key.a, &key.b);
        key.hash = mixed(
            key.a ^ t->seed ^ 0xA0761D6478BD642FULL,
            key.b ^ 0xE7037ED1A0B428DBULL ^ (uint64_t)length);
        key.hash = mixed(key.hash ^ t->seed, 0x9E3779B97F4A7C15ULL);
    } else {
        key.hash = long_hash(text, length, t->seed);
    }
    key.hash |= !key.hash;
    __builtin_prefetch(t->slots + (key.hash & t->mask));
    return key;
}

/* Its number: that of a new text is the next one. An empty text has 0. */
static inline int32_t texts_find(TextTable *t, TextKey key) {
    int64_t at;
    TextSlot *slot;
    if (key.length == 0) return 0;
    for (at = key.hash & t->mask; (slot = t->slots + at)->hash; at = (at + 1) & t->mask) {
        if (slot->hash != key.hash || slot->length != key.length) continue;
        if (key.length <= SHORT_TEXT ? slot->a == key.a && slot->b == key.b
                                     : !memcmp(t->arena + slot->a, key.text, key.length))
            return slot->number;
    }
    return texts_add(t, at, key);
}

static inline int32_t texts_number(TextTable *t, const char *text, int64_t length) {
    return texts_find(t, texts_key(t, text, length));
}

/* What a line does not say: "-" or nothing. */
static inline int is_nothing(const char *text, int64_t length) {
    return length == 0 || (length == 1 && text[0] == '-');
}

/* memchr, quick for the short fields of a line. `end` is that of the memory. */
static inline const char *find_byte(const char *p, const char *stop, const char *end, char byte) {
#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8(byte);
    int i;
    for (i = 0; i < 2; i++) {
        unsigned found;
        if (end - p < 16) break;
        found = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)p), wanted));
        if (found) {
            p += __builtin_ctz(found);
            return p < stop ? p : NULL;
        }
        p += 16;
        if (p >= stop) return NULL;
    }
#endif
    return p < stop ? memchr(p, byte, stop - p) : NULL;
}

#endif
