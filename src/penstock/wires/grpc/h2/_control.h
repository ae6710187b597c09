/* What _nghttp2.pyx calls: a wire and its connections are made, fed, pulled, swept and freed. */
#ifndef PENSTOCK_CONTROL_H
#define PENSTOCK_CONTROL_H

#include "_callbacks.h"

static int wire_open(wire *w) {
    if (nghttp2_session_callbacks_new(&w->callbacks) != 0) return -1;
    nghttp2_session_callbacks_set_on_begin_frame_callback(w->callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(w->callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(w->callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(w->callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(w->callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(w->callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(w->callbacks, on_close);
    if (nghttp2_option_new(&w->options) != 0) return -1;
    nghttp2_option_set_no_closed_streams(w->options, 1);
    nghttp2_option_set_no_auto_window_update(w->options, 1);
    /* We count these ourselves, in on_begin_frame. nghttp2's own bounds cannot be had
     * everywhere, and it counts a CONTINUATION anew for every piece in which it comes. */
    if (nghttp2_option_set_stream_reset_rate_limit)
        nghttp2_option_set_stream_reset_rate_limit(w->options, 1u << 30, 1u << 30);
    if (nghttp2_option_set_max_continuations)
        nghttp2_option_set_max_continuations(w->options, 1u << 30);
    w->scratch_size = 2 * PULL;
    w->scratch = malloc(w->scratch_size);
    return w->scratch == NULL ? -1 : 0;
}

static void wire_close(wire *w) {
    nghttp2_session_callbacks_del(w->callbacks);
    nghttp2_option_del(w->options);
    while (w->spare != NULL) {
        stream *st = w->spare;
        w->spare = st->next;
        stream_delete(st);
    }
    free(w->methods);
    free(w->scratch);
    memset(w, 0, sizeof *w);
}

static int connection_open(connection *c, wire *w) {
    memset(c, 0, sizeof *c);
    c->wire = w;
    c->frames.skip = NGHTTP2_CLIENT_MAGIC_LEN;
    nghttp2_settings_entry ours[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, w->max_streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, w->header_bytes},
    };
    if (nghttp2_session_server_new2(&c->session, w->callbacks, c, w->options) != 0) return -1;
    /* So that a window is never what many small requests wait for. */
    return nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, ours, 2) != 0 ||
                   nghttp2_session_set_local_window_size(c->session, 0, 0, 1 << 20) != 0
               ? -1
               : 0;
}

static void connection_close(connection *c) {
    stream *st;
    nghttp2_session_del(c->session); /* calls nothing back */
    c->session = NULL;
    while ((st = dequeue(c)) != NULL)
        if (st->closed) stream_recycle(c->wire, st);
    while ((st = c->first) != NULL) {
        c->first = st->after;
        stream_recycle(c->wire, st);
    }
    c->last = NULL;
    c->wire->bidi -= c->bidi;
    c->held = c->open = c->bidi = 0;
}

static void receive(connection *c, const uint8_t *data, size_t n) {
    if (c->ended || n == 0) return;
    ssize_t taken = nghttp2_session_mem_recv(c->session, data, n);
    if (taken >= 0) return;
    switch (taken) {
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
        c->foreign = 1;
        end_connection(c, NGHTTP2_PROTOCOL_ERROR, "this is not HTTP/2");
        break;
    case NGHTTP2_ERR_FLOODED:
    case NGHTTP2_ERR_TOO_MANY_SETTINGS:
    case -905: /* NGHTTP2_ERR_TOO_MANY_CONTINUATIONS, which older headers lack */
        end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many control frames");
        break;
    default: end_connection(c, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror((int)taken));
    }
}

/* All in one piece, as long as no DATA may be for a closed stream: what came before it has to be
 * read first, then. */
static void connection_feed(connection *c, const uint8_t *data, size_t n) {
    size_t at = 0, from = 0;
    int32_t begun = 0, ended = 0; /* the highest streams that do so in what is not read yet */
    while (!c->ended && next_frame(&c->frames, data, n, &at)) {
        const uint8_t *h = c->frames.head;
        int32_t id = (int32_t)((uint32_t)(h[5] & 0x7f) << 24 | (uint32_t)h[6] << 16 |
                               (uint32_t)h[7] << 8 | h[8]);
        if (h[3] == NGHTTP2_DATA && (id <= c->recent.last || id < begun || id <= ended)) {
            size_t start = at < 9 ? 0 : at - 9;
            if (start > from) {
                receive(c, data + from, start - from);
                from = start;
                begun = ended = 0;
                if (c->ended) return;
            }
            if (check_open(c, NGHTTP2_DATA, id) != 0) return;
        }
        if (h[3] == NGHTTP2_HEADERS && id > begun) begun = id;
        if (id > ended && (h[3] == NGHTTP2_RST_STREAM ||
                           (h[3] <= NGHTTP2_HEADERS && (h[4] & NGHTTP2_FLAG_END_STREAM))))
            ended = id;
    }
    receive(c, data + from, n - from);
}

static uint8_t *put32(uint8_t *p, uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) *p++ = (uint8_t)(v >> shift);
    return p;
}

/* GOAWAY by hand: after a callback failed, nghttp2 is not to be asked for anything. */
static size_t farewell(connection *c, uint8_t *p) {
    size_t words = strlen(c->why);
    if (words > FAREWELL - 17) words = FAREWELL - 17;
    if (c->farewell_given) return 0;
    c->farewell_given = 1;
    p = put32(p, (uint32_t)(8 + words) << 8 | NGHTTP2_GOAWAY);
    *p++ = 0;
    p = put32(p, 0);
    p = put32(p, (uint32_t)nghttp2_session_get_last_proc_stream_id(c->session));
    p = put32(p, c->end_code);
    memcpy(p, c->why, words);
    return 9 + 8 + words;
}

/* What is to be sent, about PULL bytes of it, into the wire's scratch. */
static size_t connection_pull(connection *c) {
    wire *w = c->wire;
    size_t total = 0;
    const uint8_t *frame;
    while (!c->ended && total < PULL) {
        ssize_t n = nghttp2_session_mem_send(c->session, &frame);
        if (n == 0) break;
        if (n < 0) {
            end_connection(c, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror((int)n));
            break;
        }
        if (total + (size_t)n + FAREWELL > w->scratch_size) {
            size_t size = (total + (size_t)n + FAREWELL) * 2;
            uint8_t *larger = realloc(w->scratch, size);
            if (larger == NULL) {
                end_connection(c, NGHTTP2_INTERNAL_ERROR, "no memory");
                break;
            }
            w->scratch = larger;
            w->scratch_size = size;
        }
        memcpy(w->scratch + total, frame, (size_t)n);
        total += (size_t)n;
    }
    return c->ended ? total + farewell(c, w->scratch + total) : total;
}

/* Whether the peer has begun something that it has to go on with. */
static int is_coming(const stream *st) {
    if (st->state == HEAD) return 1;
    if (st->state != BODY || st->remote_done) return 0;
    if (st->kind == BIDI) return buffer_length(&st->in) > 0 && !has_message(&st->in);
    return !st->async_call && !st->waits && (st->kind != EACH || buffer_length(&st->in) > 0);
}

/* What has taken too long to come is refused; what the peer does not take is dropped. */
static void connection_sweep(connection *c) {
    wire *w = c->wire;
    for (stream *st = c->first; st != NULL; st = st->after) {
        if (st->over_rate) {
            st->over_rate = 0;
            enqueue(c, st);
        }
        if (is_coming(st) && c->now - st->since > w->request_time) {
            w->slow++;
            if (st->state == HEAD) {
                end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "header fields took too long");
                return;
            }
            REFUSE(c, st, 4, "the request took too long to arrive");
        }
        if (st->state == BODY && st->timeout >= 0 && c->now - st->born > st->timeout)
            end_stream(c, st, 4, NULL, 0);
        if (buffer_length(&st->out) > 0 && c->now - st->out_since > w->stall_time) {
            w->slow++;
            abandon(c, st, st->kind == BIDI ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_CANCEL);
        }
    }
}

static inline int connection_done(connection *c) {
    if (c->ended) return c->farewell_given;
    return !nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session);
}

/* EACH, BIDI: when no whole message is left, the peer may send more, or all is done. */
static void streamed_rest(connection *c, stream *st) {
    size_t rest = buffer_length(&st->in);
    if (st->kind == BIDI) buffer_shrink(&st->in);
    if (rest >= PREFIX && declared(&st->in) > most_bytes(c, st)) {
        REFUSE(c, st, 8, "the message is too large");
    } else if (st->remote_done) {
        if (rest > 0) REFUSE(c, st, 13, "the last message is not complete");
        else end_stream(c, st, 0, NULL, 0);
    } else if (st->unconsumed > 0) {
        nghttp2_session_consume_stream(c->session, st->id, st->unconsumed);
        st->unconsumed = 0;
        if (st->kind == EACH) st->since = c->now;
    }
}

/* BIDI: a message to the peer. One that does not read makes us keep so much, and no more. */
static void bidi_send(connection *c, stream *st, const uint8_t *data, size_t n) {
    wire *w = c->wire;
    size_t size = n + PREFIX;
    if (st->state == ENDING) return;
    if (buffer_length(&st->out) + size > w->bidi_queue_bytes || c->held + size > w->held_bytes) {
        w->slow++;
        abandon(c, st, NGHTTP2_ENHANCE_YOUR_CALM); /* gRPC's RESOURCE_EXHAUSTED */
        return;
    }
    send_message(c, st, data, n, 0);
}

/* BIDI: Python is to hear when all that was to be sent until now has left this connection. */
static int bidi_confirm(connection *c, stream *st) {
    if (st->state == ENDING) return 0;
    st->confirming = 1;
    if (buffer_length(&st->out) == 0) enqueue(c, st);
    return 1;
}

/* A PING behind all that was written: its answer proves that the peer has read that. */
static void send_ping(connection *c, const uint8_t *opaque) {
    memcpy(c->ping, opaque, sizeof c->ping);
    c->ping_sent = nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, opaque) == 0;
}

#endif
