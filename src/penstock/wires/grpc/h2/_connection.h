/* A server's side of one HTTP/2 connection: nghttp2's callbacks over the streams of _stream.h.
 *
 * All of it runs under Python's GIL and returns before any Python runs; so no two of these
 * functions are ever at work at the same time, and none is entered twice.
 */
#ifndef PENSTOCK_CONNECTION_H
#define PENSTOCK_CONNECTION_H

#include <nghttp2/nghttp2.h>

#include "_closed.h"
#include "_stream.h"

/* Debian has these under a version number that upstream had not, so ask the linker. */
extern void nghttp2_option_set_stream_reset_rate_limit(nghttp2_option *, uint64_t, uint64_t)
    __attribute__((weak));
extern void nghttp2_option_set_max_continuations(nghttp2_option *, size_t) __attribute__((weak));

typedef struct {
    const uint8_t *path; /* borrowed from the bytes in Wire.paths */
    size_t length;
    int kind;
} method;

/* What all connections of a server share. */
typedef struct {
    nghttp2_session_callbacks *callbacks; /* owned, as all that follow */
    nghttp2_option *options;
    method *methods;
    int32_t count;
    stream *spare; /* linked by next */
    size_t spares;
    uint8_t *scratch; /* what is being pulled; copied before anything else happens */
    size_t scratch_size;

    uint32_t max_streams, header_bytes, header_count, continuations;
    size_t message_bytes, held_bytes, room;
    size_t bidi_streams, bidi_total, bidi_message_bytes, bidi_queue_bytes;
    size_t bidi; /* open now */
    rate resets, controls, bidi_messages;
    int64_t request_time, stall_time;

    uint64_t streams, messages, reset, refused, floods, slow; /* counted since the start */
} wire;

typedef struct {
    nghttp2_session *session; /* owned */
    wire *wire;               /* borrowed: the Session holds its Wire */
    stream *first, *last;     /* owned: all that nghttp2 knows, oldest first */
    stream *queue, *queue_last; /* for Python; owns those of it that are closed */
    size_t held;              /* bytes in the buffers of all streams */
    size_t open, bidi;
    int64_t now, resets_at, controls_at, bidi_messages_at;
    int64_t used;       /* when a stream was last opened or closed */
    recent recent;
    frames frames;
    uint32_t continued; /* CONTINUATION frames of the header block that is coming */
    uint8_t ping[8];    /* the PING of which Python must hear when it is answered */
    int ping_sent, ping_answered;
    int greeted;        /* the peer's SETTINGS have come */
    int ended;          /* no more is read; one GOAWAY is left to be sent */
    int foreign;        /* because what came is not HTTP/2 */
    int farewell_given;
    uint32_t end_code;
    const char *why; /* static text */
} connection;

enum { SPARES = 2048, PULL = 65536, FAREWELL = 256 };

/* ---- Streams and the queue ---- */

static stream *stream_new(wire *w) {
    stream *st = w->spare;
    if (st == NULL) return calloc(1, sizeof *st);
    w->spare = st->next;
    w->spares--;
    return st;
}

static void stream_delete(stream *st) {
    free(st->in.data);
    free(st->out.data);
    free(st->metadata.data);
    free(st->text);
    free(st);
}

static void stream_recycle(wire *w, stream *st) {
    if (w->spares >= SPARES) {
        stream_delete(st);
        return;
    }
    buffer_clear(&st->in);
    buffer_clear(&st->out);
    buffer in = st->in, out = st->out;
    free(st->metadata.data);
    free(st->text);
    memset(st, 0, sizeof *st);
    st->in = in;
    st->out = out;
    st->next = w->spare;
    w->spare = st;
    w->spares++;
}

static void enqueue(connection *c, stream *st) {
    if (st->queued) return;
    st->queued = 1;
    st->next = NULL;
    if (c->queue == NULL) c->queue = st;
    else c->queue_last->next = st;
    c->queue_last = st;
}

/* The next one for Python, or NULL. A closed one is the caller's to recycle. */
static stream *dequeue(connection *c) {
    stream *st = c->queue;
    if (st == NULL) return NULL;
    c->queue = st->next;
    st->queued = 0;
    return st;
}

static inline stream *stream_find(connection *c, int32_t id) {
    return nghttp2_session_get_stream_user_data(c->session, id);
}

static void drop_input(connection *c, stream *st) {
    c->held -= buffer_length(&st->in);
    buffer_clear(&st->in);
}

static void end_connection(connection *c, uint32_t code, const char *why) {
    if (c->ended) return;
    c->ended = 1;
    c->end_code = code;
    c->why = why;
    if (code == NGHTTP2_ENHANCE_YOUR_CALM) c->wire->floods++;
}

/* ---- Answers ---- */

#define FIXED NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE
#define FIELD(name, value) \
    { (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1, FIXED }

static const nghttp2_nv ANSWER[] = {FIELD(":status", "200"),
                                    FIELD("content-type", "application/grpc")};
static const nghttp2_nv FINE = FIELD("grpc-status", "0");
static const nghttp2_nv IDENTITY = FIELD("grpc-accept-encoding", "identity");
static const nghttp2_nv NOT_POST[] = {FIELD(":status", "405"), FIELD("allow", "POST")};
static const nghttp2_nv NOT_GRPC[] = {FIELD(":status", "415"),
                                      FIELD("accept", "application/grpc")};
static const char *const CODES[] = {"0", "1", "2",  "3",  "4",  "5",  "6",  "7", "8",
                                    "9", "10", "11", "12", "13", "14", "15", "16"};

/* The fields of trailers; text is copied by nghttp2. Returns how many there are: 1 or 2. */
static size_t trailers(nghttp2_nv *nv, int status, const char *text, size_t n) {
    nv[0] = FINE;
    if (status == 0) return 1;
    nv[0].value = (uint8_t *)CODES[status];
    nv[0].valuelen = strlen(CODES[status]);
    if (n == 0) return 1;
    nv[1] = (nghttp2_nv)FIELD("grpc-message", "");
    nv[1].value = (uint8_t *)text;
    nv[1].valuelen = n;
    nv[1].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
    return 2;
}

static void ending(connection *c, stream *st) {
    st->state = ENDING;
    drop_input(c, st);
    if (st->kind == BIDI && st->async_call) enqueue(c, st);
}

static void reset_stream(connection *c, stream *st, uint32_t code) {
    ending(c, st);
    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, st->id, code);
}

static void submit(connection *c, stream *st, const nghttp2_nv *nv, size_t n,
                   const nghttp2_data_provider *body) {
    st->head_sent = 1;
    if (nghttp2_submit_response(c->session, st->id, nv, n, body) != 0)
        reset_stream(c, st, NGHTTP2_INTERNAL_ERROR);
}

static void resume(connection *c, stream *st) {
    if (!st->deferred) return;
    st->deferred = 0;
    if (nghttp2_session_resume_data(c->session, st->id) != 0)
        reset_stream(c, st, NGHTTP2_INTERNAL_ERROR);
}

/* What is still to be sent will never be. */
static void abandon(connection *c, stream *st, uint32_t code) {
    c->held -= buffer_length(&st->out);
    buffer_clear(&st->out);
    reset_stream(c, st, code);
}

/* End a stream with this status, after what is still to be sent. */
static void end_stream(connection *c, stream *st, int status, const char *text, size_t n) {
    if (st->state == ENDING) return;
    ending(c, st);
    if (!st->head_sent) {
        nghttp2_nv nv[5];
        memcpy(nv, ANSWER, sizeof ANSWER);
        size_t count = 2 + trailers(nv + 2, status, text, n);
        if (status == 12 && (st->head & ENCODED)) nv[count++] = IDENTITY;
        submit(c, st, nv, count, NULL);
        return;
    }
    st->status = status;
    if (n > 0 && (st->text = malloc(n)) != NULL) {
        memcpy(st->text, text, n);
        st->text_length = n;
    }
    resume(c, st);
}

#define REFUSE(c, st, status, words) \
    ((c)->wire->refused++, end_stream(c, st, status, words, sizeof(words) - 1))

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    connection *c = user;
    stream *st = nghttp2_session_get_stream_user_data(session, id);
    (void)source;
    if (st == NULL) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = buffer_length(&st->out);
    if (n > length) n = length;
    if (n > 0) {
        memcpy(to, st->out.data + st->out.start, n);
        buffer_take(&st->out, n);
        c->held -= n;
    }
    if (st->waits && buffer_length(&st->out) <= c->wire->room / 2) {
        st->waits = 0;
        enqueue(c, st);
    }
    if (st->kind == BIDI) {
        st->out_since = c->now; /* slowly is fast enough, for so long a stream */
        buffer_shrink(&st->out);
        if (st->confirming && buffer_length(&st->out) == 0) enqueue(c, st);
    }
    if (buffer_length(&st->out) > 0) return (ssize_t)n;
    if (st->state == ENDING) {
        nghttp2_nv nv[2];
        size_t count = trailers(nv, st->status, st->text, st->text_length);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, id, nv, count) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    } else if (n == 0) {
        st->deferred = 1;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

/* A message to the peer; the last one ends the stream well. */
static void send_message(connection *c, stream *st, const uint8_t *data, size_t n, int last) {
    static const nghttp2_data_provider body = {{0}, on_read};
    if (st->state == ENDING) return;
    if (n > UINT32_MAX || c->held + n + PREFIX > c->wire->held_bytes) {
        REFUSE(c, st, 8, "too much waits to be sent on this connection");
        return;
    }
    if (buffer_length(&st->out) == 0) st->out_since = c->now;
    if (last) drop_input(c, st);
    if (add_message(&st->out, data, n) != 0) {
        reset_stream(c, st, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    c->held += n + PREFIX;
    if (last) st->state = ENDING;
    if (st->head_sent) resume(c, st);
    else submit(c, st, ANSWER, 2, &body);
}

#endif
