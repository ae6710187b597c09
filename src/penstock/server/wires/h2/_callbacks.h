/* What nghttp2 calls, and what _nghttp2.pyx calls of it: made, fed, pulled, swept, freed. */
#ifndef PENSTOCK_CALLBACKS_H
#define PENSTOCK_CALLBACKS_H

#include "_connection.h"

static int flooded(connection *c, const char *why) {
    end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, why);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* Every frame passes here first: what costs us more than it costs the peer has a rate. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user) {
    connection *c = user;
    int control = 0;
    (void)session;
    if (c->ended) return NGHTTP2_ERR_CALLBACK_FAILURE;
    switch (hd->type) {
    case NGHTTP2_DATA: control = hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM); break;
    case NGHTTP2_HEADERS: c->continued = 0; break;
    case NGHTTP2_WINDOW_UPDATE:
    case NGHTTP2_GOAWAY: break;
    case NGHTTP2_CONTINUATION:
        if (++c->continued > c->wire->continuations)
            return flooded(c, "too many CONTINUATION frames");
        break;
    case NGHTTP2_RST_STREAM:
        c->wire->reset++;
        if (!take_token(&c->resets_at, &c->wire->resets, c->now))
            return flooded(c, "too many streams are reset");
        break;
    case NGHTTP2_PING:
    case NGHTTP2_SETTINGS: control = !(hd->flags & NGHTTP2_FLAG_ACK); break;
    default: control = 1; /* PRIORITY, PUSH_PROMISE; what nobody knows is skipped unseen */
    }
    if (control && !take_token(&c->controls_at, &c->wire->controls, c->now))
        return flooded(c, "too many frames that ask for nothing");
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    connection *c = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    stream *st = stream_new(c->wire);
    if (st == NULL) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, st) != 0) {
        stream_recycle(c->wire, st);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    st->id = frame->hd.stream_id;
    st->method = -1;
    st->timeout = -1;
    st->born = st->since = c->used = c->now;
    st->before = c->last;
    st->after = NULL;
    if (c->last == NULL) c->first = st;
    else c->last->after = st;
    c->last = st;
    c->open++;
    c->wire->streams++;
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
                     void *user) {
    connection *c = user;
    wire *w = c->wire;
    stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    if (st == NULL) return 0;
    st->fields++;
    /* As RFC 9113 counts. Cannot overflow: nghttp2 lets a field have 64 KB at most. */
    if (st->field_bytes <= w->header_bytes)
        st->field_bytes += (uint32_t)(name_length + length + 32);
    if (st->fields > w->header_count || st->field_bytes > w->header_bytes) {
        if (st->state == BODY) REFUSE(c, st, 8, "the trailer fields are too large or too many");
        st->head |= TOO_MUCH;
        return 0;
    }
    if (st->state != HEAD) return 0; /* trailers */
    switch (name_length) {
    case 5:
        if (!IS(":path", name, name_length)) break;
        for (int32_t i = 0; i < w->count; i++)
            if (w->methods[i].length == length && memcmp(w->methods[i].path, value, length) == 0)
                st->method = i;
        break;
    case 7:
        if (IS(":method", name, name_length) && IS("POST", value, length)) st->head |= POST;
        break;
    case 12:
        if (IS("content-type", name, name_length)) {
            if (is_grpc(value, length)) st->head |= GRPC;
        } else if (IS("grpc-timeout", name, name_length)) {
            st->timeout = read_timeout(value, length);
            if (st->timeout < 0) st->head |= BAD_TIMEOUT;
        }
        break;
    case 13:
        if (IS("grpc-encoding", name, name_length) && !IS("identity", value, length))
            st->head |= ENCODED;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t length, void *user) {
    connection *c = user;
    stream *st = nghttp2_session_get_stream_user_data(session, id);
    /* What we hold is bounded by held_bytes; one slow stream must not stop the others. */
    if (nghttp2_session_consume_connection(session, length) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (st != NULL && st->state == BODY)
        add_body(c, st, data, length, !(flags & NGHTTP2_FLAG_END_STREAM));
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    connection *c = user;
    stream *st;
    if (frame->hd.type == NGHTTP2_SETTINGS) c->greeted = 1;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (st == NULL) return 0;
    if (st->state == HEAD) head_done(c, st);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) body_done(c, st);
    return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    connection *c = user;
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        /* A peer can make us reset streams as fast as it can reset them. */
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
            !take_token(&c->resets_at, &c->wire->resets, c->now))
            end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many streams had to be reset");
    } else if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (st != NULL && !st->remote_done) /* it need not send the rest */
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    connection *c = user;
    stream *st = nghttp2_session_get_stream_user_data(session, id);
    (void)code;
    if (st == NULL) return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    if (st->before == NULL) c->first = st->after;
    else st->before->after = st->after;
    if (st->after == NULL) c->last = st->before;
    else st->after->before = st->before;
    c->open--;
    c->used = c->now;
    c->held -= buffer_length(&st->in) + buffer_length(&st->out);
    st->closed = 1;
    if (st->told) enqueue(c, st);
    if (!st->queued) stream_recycle(c->wire, st);
    return 0;
}

/* ---- For _nghttp2.pyx ---- */

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
    c->held = c->open = 0;
}

static void connection_feed(connection *c, const uint8_t *data, size_t n) {
    if (c->ended) return;
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

/* What has taken too long to come is refused; what the peer does not take is dropped. */
static void connection_sweep(connection *c) {
    wire *w = c->wire;
    for (stream *st = c->first; st != NULL; st = st->after) {
        int coming = st->state == HEAD ||
                     (st->state == BODY && !st->remote_done && !st->told && !st->waits &&
                      (st->kind != EACH || buffer_length(&st->in) > 0));
        if (coming && c->now - st->since > w->request_time) {
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
            c->held -= buffer_length(&st->out);
            buffer_clear(&st->out);
            reset_stream(c, st, NGHTTP2_CANCEL);
        }
    }
}

static inline int connection_done(connection *c) {
    if (c->ended) return c->farewell_given;
    return !nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session);
}

/* EACH, when no whole message is left: the peer may send more, or all is done. */
static void each_rest(connection *c, stream *st) {
    size_t rest = buffer_length(&st->in);
    if (rest >= PREFIX && declared(&st->in) > c->wire->message_bytes) {
        REFUSE(c, st, 8, "the message is too large");
    } else if (st->remote_done) {
        if (rest > 0) REFUSE(c, st, 13, "the last message is not complete");
        else end_stream(c, st, 0, NULL, 0);
    } else if (st->unconsumed > 0) {
        nghttp2_session_consume_stream(c->session, st->id, st->unconsumed);
        st->unconsumed = 0;
        st->since = c->now;
    }
}

#endif
