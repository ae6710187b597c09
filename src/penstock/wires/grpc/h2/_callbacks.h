/* What nghttp2 calls while it reads what came, and when it has sent something. */
#ifndef PENSTOCK_CALLBACKS_H
#define PENSTOCK_CALLBACKS_H

#include "_requests.h"

static int flooded(connection *c, const char *why) {
    end_connection(c, NGHTTP2_ENHANCE_YOUR_CALM, why);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int forbidden(connection *c, uint32_t code, const char *why) {
    end_connection(c, code, why);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* HEADERS and DATA: not for a stream that the peer has closed, or that it has passed over. */
static int check_open(connection *c, int type, int32_t id) {
    recent *r = &c->recent;
    settle(r);
    if (id > r->last) {
        if (type == NGHTTP2_HEADERS && id % 2 == 1) advance(r, id);
        return 0; /* nghttp2 knows what to say to the rest */
    }
    if (!is_recent(r, id) || marked(r->by_us, id)) return 0;
    if (marked(r->closed, id))
        return forbidden(c, NGHTTP2_STREAM_CLOSED, "the stream is closed");
    if (!marked(r->begun, id))
        return forbidden(c, NGHTTP2_PROTOCOL_ERROR, "a later stream was opened before this one");
    return 0;
}

/* Every frame passes here first: what costs us more than it costs the peer has a rate. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user) {
    connection *c = user;
    int control = 0;
    (void)session;
    if (c->ended) return NGHTTP2_ERR_CALLBACK_FAILURE;
    switch (hd->type) {
    case NGHTTP2_DATA: control = hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM); break;
    case NGHTTP2_HEADERS:
        c->continued = 0;
        if (check_open(c, hd->type, hd->stream_id) != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
        break;
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
    mark(c->recent.begun, st->id);
    c->recent.unclaimed = 0;
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

/* For who opens the stream, all but HTTP's and gRPC's own fields. 0 for want of memory. */
static int keep_metadata(stream *st, const uint8_t *name, size_t name_length,
                         const uint8_t *value, size_t length) {
    uint8_t *p;
    if (name[0] == ':' || IS("te", name, name_length) || IS("content-type", name, name_length) ||
        (name_length > 5 && memcmp(name, "grpc-", 5) == 0))
        return 1;
    if ((p = buffer_room(&st->metadata, name_length + length + 2)) == NULL) return 0;
    memcpy(p, name, name_length);
    p[name_length] = 0;
    if (length > 0) memcpy(p + name_length + 1, value, length);
    p[name_length + 1 + length] = 0;
    st->metadata.end += name_length + length + 2;
    return 1;
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
    st->field_bytes += name_length + length + 32; /* as RFC 9113 counts */
    if (st->fields > w->header_count || st->field_bytes > w->header_bytes) {
        /* The rest has to be read, for its table; one byte of it can stand for 4 KB. Who goes
         * a little too far is told so, but not often. */
        if (st->fields > 2 * (uint64_t)w->header_count ||
            st->field_bytes > 2 * (uint64_t)w->header_bytes)
            return flooded(c, "the header fields are far too large or too many");
        if (!(st->head & TOO_MUCH) && !take_token(&c->resets_at, &w->resets, c->now))
            return flooded(c, "the header fields are too large or too many, again and again");
        if (st->state == BODY) REFUSE(c, st, 8, "the trailer fields are too large or too many");
        st->head |= TOO_MUCH;
        return 0;
    }
    if (st->state != HEAD) return 0; /* trailers */
    switch (name_length) {
    case 5:
        if (!IS(":path", name, name_length)) break;
        for (int32_t i = 0; i < w->count; i++)
            if (w->methods[i].length == length && memcmp(w->methods[i].path, value, length) == 0) {
                st->method = i;
                st->kind = (uint8_t)w->methods[i].kind;
            }
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
    if (st->kind == BIDI && !keep_metadata(st, name, name_length, value, length))
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
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
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) && c->ping_sent &&
        memcmp(frame->ping.opaque_data, c->ping, sizeof c->ping) == 0) {
        c->ping_sent = 0;
        c->ping_answered = 1;
    }
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
        stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        /* What the peer has sent by now is still to come. */
        if (is_recent(&c->recent, frame->hd.stream_id) && (st == NULL || !st->remote_done))
            mark(c->recent.by_us, frame->hd.stream_id);
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
    if (is_recent(&c->recent, id)) mark(c->recent.closed, id);
    if (st->before == NULL) c->first = st->after;
    else st->before->after = st->after;
    if (st->after == NULL) c->last = st->before;
    else st->after->before = st->before;
    c->open--;
    if (st->counted) {
        c->bidi--;
        c->wire->bidi--;
    }
    c->used = c->now;
    c->held -= buffer_length(&st->in) + buffer_length(&st->out);
    st->closed = 1;
    if (st->async_call) enqueue(c, st);
    if (!st->queued) stream_recycle(c->wire, st);
    return 0;
}

#endif
