/* One request on its way: what has come in, what is to go out.
 *
 * Here and in the headers that include this lies all that nghttp2 calls back. They do not
 * know Python: a callback cannot touch an object, run a handler or raise, even by mistake.
 * Streams that need Python are put in a queue, which _nghttp2.pyx works off when nghttp2 has
 * returned.
 *
 * Who owns what: a stream owns its two buffers and its text; a connection owns its streams;
 * a wire owns spare streams, which keep small buffers for the next request.
 */
#ifndef PENSTOCK_STREAM_H
#define PENSTOCK_STREAM_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bytes that wait: from start to end ---- */

typedef struct {
    uint8_t *data; /* owned; size bytes, or NULL */
    size_t start, end, size;
} buffer;

enum { FIRST_SIZE = 256, KEPT_SIZE = 4096, PREFIX = 5 };

static inline size_t buffer_length(const buffer *b) { return b->end - b->start; }

/* Room for n bytes at the end, or NULL for want of memory. */
static uint8_t *buffer_room(buffer *b, size_t n) {
    size_t used = buffer_length(b);
    if (b->size - b->end >= n) return b->data + b->end;
    if (b->start > 0) {
        memmove(b->data, b->data + b->start, used);
        b->start = 0;
        b->end = used;
    }
    if (b->size - b->end < n) {
        size_t size = b->size ? b->size : FIRST_SIZE;
        while (size - used < n) size *= 2;
        uint8_t *data = realloc(b->data, size);
        if (data == NULL) return NULL;
        b->data = data;
        b->size = size;
    }
    return b->data + b->end;
}

static inline int buffer_add(buffer *b, const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    uint8_t *room = buffer_room(b, n);
    if (room == NULL) return -1;
    memcpy(room, data, n);
    b->end += n;
    return 0;
}

static inline void buffer_take(buffer *b, size_t n) {
    b->start += n;
    if (b->start == b->end) b->start = b->end = 0;
}

static void buffer_clear(buffer *b) {
    if (b->size > KEPT_SIZE) {
        free(b->data);
        b->data = NULL;
        b->size = 0;
    }
    b->start = b->end = 0;
}

/* Give back what one large message took: a stream that lives for days must not keep it. */
static void buffer_shrink(buffer *b) {
    size_t used = buffer_length(b), size = used * 2 > KEPT_SIZE ? used * 2 : KEPT_SIZE;
    if (b->size <= KEPT_SIZE || used > b->size / 4) return;
    if (used == 0) {
        buffer_clear(b);
        return;
    }
    memmove(b->data, b->data + b->start, used);
    b->start = 0;
    b->end = used;
    uint8_t *data = realloc(b->data, size);
    if (data == NULL) return;
    b->data = data;
    b->size = size;
}

/* ---- A stream ---- */

enum kind { UNARY, EACH, WATCH, BIDI };

enum state {
    HEAD,   /* its header fields are coming */
    BODY,   /* its messages are coming */
    CALLED, /* the method has the one message that there is */
    ENDING  /* how it ends is settled, though not all may have been sent */
};

enum { POST = 1, GRPC = 2, ENCODED = 4, BAD_TIMEOUT = 8, TOO_MUCH = 16 }; /* what the head says */

typedef struct stream {
    struct stream *before, *after; /* all of a connection, in order of arrival */
    struct stream *next;           /* in the queue for Python */
    int32_t id;
    int32_t method; /* index, or -1: there is none of this path */
    uint8_t kind, state, head;
    uint8_t queued;      /* is in the queue for Python */
    uint8_t closed;      /* is out of nghttp2 and only in the queue */
    uint8_t async_call;  /* Python has a call for it, and must hear when it is gone; BIDI: over */
    uint8_t remote_done; /* the peer has sent all it had */
    uint8_t head_sent;   /* the answer has begun */
    uint8_t deferred;    /* nghttp2 waits for us to have more to send */
    uint8_t waits;       /* EACH, WATCH: goes on when what is to be sent has become less */
    uint8_t counted;     /* BIDI: is one of those that the connection has open */
    uint8_t confirming;  /* BIDI: Python must hear when all that is to be sent is written */
    uint8_t over_rate;   /* BIDI: goes on with the next sweep */
    uint64_t fields;     /* header fields, and the bytes of them */
    uint64_t field_bytes;
    size_t unconsumed;   /* EACH, BIDI: bytes that the peer's window has not got back */
    int64_t timeout;     /* nanoseconds that the caller gives us, or -1 */
    int64_t born;        /* when it was opened */
    int64_t since;       /* HEAD, BODY: when what is coming began to come */
    int64_t out_since;   /* when something began to wait for being sent */
    buffer in, out;
    buffer metadata; /* BIDI, until it is opened: names and values, each with a 0 behind it */
    int status;      /* ENDING: what the trailers say */
    char *text;      /* owned: the same in words, or NULL */
    size_t text_length;
} stream;

static inline uint32_t declared(const buffer *b) {
    const uint8_t *p = b->data + b->start;
    return (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
}

/* Whether a whole message lies at the front. */
static inline int has_message(const buffer *b) {
    size_t n = buffer_length(b);
    return n >= PREFIX && n - PREFIX >= declared(b);
}

static int add_message(buffer *b, const uint8_t *data, size_t n) {
    uint8_t *p = buffer_room(b, n + PREFIX);
    if (p == NULL) return -1;
    p[0] = 0;
    p[1] = (uint8_t)(n >> 24);
    p[2] = (uint8_t)(n >> 16);
    p[3] = (uint8_t)(n >> 8);
    p[4] = (uint8_t)n;
    if (n > 0) memcpy(p + PREFIX, data, n);
    b->end += n + PREFIX;
    return 0;
}

/* Whether any number of messages comes. */
static inline int is_streamed(const stream *st) { return st->kind == EACH || st->kind == BIDI; }

/* ---- What the head of a request says ---- */

#define IS(text, p, n) ((n) == sizeof(text) - 1 && memcmp(p, text, sizeof(text) - 1) == 0)

static int is_grpc(const uint8_t *value, size_t n) {
    static const char plain[] = "application/grpc", proto[] = "+proto";
    if (n < sizeof plain - 1 || memcmp(value, plain, sizeof plain - 1) != 0) return 0;
    value += sizeof plain - 1;
    n -= sizeof plain - 1;
    if (n >= sizeof proto - 1 && memcmp(value, proto, sizeof proto - 1) == 0) {
        value += sizeof proto - 1;
        n -= sizeof proto - 1;
    }
    return n == 0 || *value == ';' || *value == ' ';
}

/* "100m" -> nanoseconds; -1: this is no timeout. At most eight digits, so nothing overflows:
 * 99 999 999 hours are more than 63 bits hold, and mean "no hurry". */
static int64_t read_timeout(const uint8_t *value, size_t n) {
    int64_t count = 0, unit;
    if (n < 2 || n > 9) return -1;
    for (size_t i = 0; i < n - 1; i++) {
        if (value[i] < '0' || value[i] > '9') return -1;
        count = count * 10 + (value[i] - '0');
    }
    switch (value[n - 1]) {
    case 'H': unit = 3600000000000; break;
    case 'M': unit = 60000000000; break;
    case 'S': unit = 1000000000; break;
    case 'm': unit = 1000000; break;
    case 'u': unit = 1000; break;
    case 'n': unit = 1; break;
    default: return -1;
    }
    return count > INT64_MAX / unit ? INT64_MAX : count * unit;
}

/* ---- A token bucket in one number: the time at which it is full again ---- */

typedef struct {
    int64_t cost, depth; /* nanoseconds: of one, and of as many as may come at once */
} rate;

/* 0 if one more is too many. */
static inline int take_token(int64_t *full_at, const rate *r, int64_t now) {
    int64_t next = (*full_at > now ? *full_at : now) + r->cost;
    if (next - now > r->depth) return 0;
    *full_at = next;
    return 1;
}

#endif
