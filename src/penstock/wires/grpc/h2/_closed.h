/* Which of the last streams are closed, and how: nghttp2 forgets a stream when it is closed.
 *
 * What comes for a stream that we have reset was on its way, and is skipped. For a stream that
 * the peer has ended or reset itself nothing may come (RFC 9113, 5.1), and no stream begins with a
 * number below the last one (5.1.1). Beyond the last RECENT numbers nothing is known, and what
 * comes for them is skipped.
 */
#ifndef PENSTOCK_CLOSED_H
#define PENSTOCK_CLOSED_H

#include <stdint.h>
#include <string.h>

enum { RECENT = 1024 };

typedef struct {
    int32_t last;      /* the highest number so far */
    int32_t unclaimed; /* a number whose stream nghttp2 has not begun; 0 for none */
    uint8_t begun[RECENT / 8], closed[RECENT / 8], by_us[RECENT / 8];
} recent;

static inline void mark(uint8_t *bits, int32_t id) {
    bits[(id >> 1) % RECENT / 8] |= (uint8_t)(1 << (id >> 1) % 8);
}

static inline int marked(const uint8_t *bits, int32_t id) {
    return bits[(id >> 1) % RECENT / 8] >> (id >> 1) % 8 & 1;
}

static inline int is_recent(const recent *r, int32_t id) {
    return id % 2 == 1 && id <= r->last && r->last - id < 2 * RECENT;
}

/* A number that is higher than all before: those between are skipped for good. */
static void advance(recent *r, int32_t id) {
    if (id - r->last >= 2 * RECENT) {
        memset(r->begun, 0, sizeof r->begun);
        memset(r->closed, 0, sizeof r->closed);
        memset(r->by_us, 0, sizeof r->by_us);
    } else {
        for (int32_t each = r->last + (r->last == 0 ? 1 : 2); each <= id; each += 2) {
            uint8_t other = (uint8_t)~(1 << (each >> 1) % 8);
            r->begun[(each >> 1) % RECENT / 8] &= other;
            r->closed[(each >> 1) % RECENT / 8] &= other;
            r->by_us[(each >> 1) % RECENT / 8] &= other;
        }
    }
    r->last = r->unclaimed = id;
}

/* nghttp2 did not begin the stream of the last HEADERS: it has refused it for us. */
static inline void settle(recent *r) {
    if (r->unclaimed == 0) return;
    mark(r->begun, r->unclaimed);
    mark(r->by_us, r->unclaimed);
    r->unclaimed = 0;
}

/* Where frames begin in what comes. nghttp2 tells nobody of DATA for a stream that it has forgotten. */
typedef struct {
    size_t skip;       /* bytes of the preface, or of a payload, that are still to come */
    size_t have;       /* bytes of a frame's head */
    uint8_t head[9];
} frames;

/* On to the next frame's head, from *at. Whether it is whole. */
static inline int next_frame(frames *f, const uint8_t *data, size_t n, size_t *at) {
    size_t step = f->skip < n - *at ? f->skip : n - *at;
    f->skip -= step;
    *at += step;
    if (f->skip > 0) return 0;
    step = 9 - f->have < n - *at ? 9 - f->have : n - *at;
    memcpy(f->head + f->have, data + *at, step);
    f->have += step;
    *at += step;
    if (f->have < 9) return 0;
    f->have = 0;
    f->skip = (size_t)f->head[0] << 16 | (size_t)f->head[1] << 8 | f->head[2];
    return 1;
}

#endif
