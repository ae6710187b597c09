/* Locks that survive their holders, ordered writes, and a keyed hash: what a table that
 * processes share needs of C. See layout.py for how the file is laid out. */
#ifndef PENSTOCK_MAPPED_H
#define PENSTOCK_MAPPED_H

#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define SPINS 200
#define WAYS 32

#if defined(__x86_64__) || defined(__i386__)
#define relax() __builtin_ia32_pause()
#else
#define relax() ((void)0)
#endif

static int make_lock(void *at) {
    pthread_mutexattr_t kind;
    int failed;
    if (pthread_mutexattr_init(&kind)) return -1;
    failed = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED)
          || pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST)
          || (memset(at, 0, sizeof(pthread_mutex_t)), pthread_mutex_init(at, &kind));
    pthread_mutexattr_destroy(&kind);
    return failed;
}

/* What kind of mutex the C library sees there: a damaged file may say anything. */
#ifdef __GLIBC__
static int lock_kind;
#define KIND(at) (((pthread_mutex_t *)(at))->__data.__kind)
static int note_kind(void) {
    pthread_mutex_t sample;
    if (make_lock(&sample)) return -1;
    lock_kind = KIND(&sample);
    return pthread_mutex_destroy(&sample);
}
#define IS_LOCK(at) (KIND(at) == lock_kind)
#else
static int note_kind(void) { return 0; }
#define IS_LOCK(at) 1
#endif

/* The locks that this thread holds, as they were when they were taken. A robust lock is in a
 * list of its thread, and giving it back follows the list's pointers, which lie in the lock. If
 * its page is lost meanwhile, the guard puts the copy where the lock was. */
#define MOST_HELD 64
static __thread struct { void *at; pthread_mutex_t copy; } held[MOST_HELD];
static __thread int held_count;

static void note_held(void *at) {
    if (held_count == MOST_HELD) return;
    memcpy(&held[held_count].copy, at, sizeof(pthread_mutex_t));
    held[held_count].at = at;
    held_count++;
}

static void restore_held(uintptr_t page, size_t size) {
    int each;
    for (each = 0; each < held_count; each++)
        if ((uintptr_t)held[each].at - page < size)
            memcpy(held[each].at, &held[each].copy, sizeof(pthread_mutex_t));
}

/* A second in slices: the time in which the whole machine stands still, or by which its clock is
 * set forward, uses up one of them. The holder then has the others to go on. */
#define SLICES 10
#define SLICE_NS 100000000L

static int wait_for_lock(void *at) {
    struct timespec until;
    int turn, got;
    for (turn = 0; turn < SPINS; turn++) {
        got = pthread_mutex_trylock(at);
        if (got != EBUSY) return got;
        relax();
    }
    for (turn = 0; turn < SLICES; turn++) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SLICE_NS;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_nsec -= 1000000000L;
            until.tv_sec += 1;
        }
        got = pthread_mutex_timedlock(at, &until);
        if (got != ETIMEDOUT) return got;
    }
    return got;
}

/* 0, EOWNERDEAD (taken, but its holder died), EINVAL (no lock at all), or another error. */
static int take_lock(void *at) {
    int got;
    if (!IS_LOCK(at)) return EINVAL;
    got = wait_for_lock(at);
    if (got == 0 || got == EOWNERDEAD) note_held(at);
    return got;
}

static void mend_lock(void *at) { pthread_mutex_consistent(at); }

static void give_lock(void *at) {
    int each = held_count;
    pthread_mutex_unlock(at);
    while (each > 0 && held[each - 1].at != at) each--;
    if (each > 0) {
        held_count--;
        if (each - 1 != held_count) held[each - 1] = held[held_count];
    }
}

static inline int64_t load(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
/* Everything written before it is in memory when this is. */
static inline void store(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline void add(int64_t *p, int64_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline void fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define ROUND \
    v0 += v1; v1 = ROTATE(v1, 13) ^ v0; v0 = ROTATE(v0, 32); \
    v2 += v3; v3 = ROTATE(v3, 16) ^ v2; \
    v0 += v3; v3 = ROTATE(v3, 21) ^ v0; \
    v2 += v1; v1 = ROTATE(v1, 17) ^ v2; v2 = ROTATE(v2, 32);

/* SipHash-1-3: keyed, so that nobody can choose keys that collide. */
static uint64_t siphash(const unsigned char *data, size_t size, uint64_t k0, uint64_t k1) {
    uint64_t v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL;
    uint64_t v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;
    uint64_t word, last = (uint64_t)size << 56;
    size_t at, whole = size & ~(size_t)7;
    for (at = 0; at < whole; at += 8) {
        memcpy(&word, data + at, 8);
        v3 ^= word; ROUND v0 ^= word;
    }
    word = 0;
    memcpy(&word, data + whole, size - whole);
    last |= word;
    v3 ^= last; ROUND v0 ^= last;
    v2 ^= 0xff; ROUND ROUND ROUND
    return v0 ^ v1 ^ v2 ^ v3;
}

/* A str's own code units: the same in every process, for any text. The two lowest bits are
 * left for the key's level; 0 is a free place. */
static uint64_t text_hash(PyObject *key, uint64_t k0, uint64_t k1) {
    int kind = PyUnicode_KIND(key);
    uint64_t h = siphash((const unsigned char *)PyUnicode_DATA(key),
                         (size_t)PyUnicode_GET_LENGTH(key) * kind, k0, k1 ^ (uint64_t)kind);
    h &= ~(uint64_t)3;
    return h ? h : 4;
}

#endif
