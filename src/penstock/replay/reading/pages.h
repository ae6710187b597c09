/* Memory of large tables: zero, on whole cache lines, and on huge pages where there are some.
 *
 * Replays look up millions of keys in no order. With small pages, finding the page would take
 * about as long as everything else.
 */
#ifndef PENSTOCK_REPLAY_PAGES_H
#define PENSTOCK_REPLAY_PAGES_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CACHE_LINE = 64, HUGE_PAGE = 1 << 21 };

static inline void *pages_new(size_t size) {
    size_t unit = size >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
    void *memory = aligned_alloc(unit, (size + unit - 1) / unit * unit);
    if (!memory) return NULL;
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE) madvise(memory, size, MADV_HUGEPAGE);
#endif
    return memset(memory, 0, size);
}

/* A larger copy of the first `used` bytes; the old memory is then free. */
static inline void *pages_larger(void *old, size_t used, size_t size) {
    void *memory = pages_new(size);
    if (!memory) return NULL;
    if (old) memcpy(memory, old, used);
    free(old);
    return memory;
}

#endif
