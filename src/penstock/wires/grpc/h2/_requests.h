/* Requests as they come: what their head says, and the messages that follow it. */
#ifndef PENSTOCK_REQUESTS_H
#define PENSTOCK_REQUESTS_H

#include "_connection.h"

/* A stream that is to be open for long: Python opens it, whether or not a message comes. */
static void bidi_begin(connection *c, stream *st) {
    if (c->bidi >= c->wire->bidi_streams) {
        REFUSE(c, st, 8, "too many streams are open on this connection");
    } else if (c->wire->bidi >= c->wire->bidi_total) {
        REFUSE(c, st, 8, "too many streams are open on this server");
    } else {
        st->counted = 1;
        c->bidi++;
        c->wire->bidi++;
        enqueue(c, st);
    }
}

static void head_done(connection *c, stream *st) {
    st->state = BODY;
    if (st->head & TOO_MUCH) {
        REFUSE(c, st, 8, "the header fields are too large or too many");
    } else if (!(st->head & POST) || !(st->head & GRPC)) {
        c->wire->refused++;
        st->state = ENDING;
        submit(c, st, st->head & POST ? NOT_GRPC : NOT_POST, 2, NULL);
    } else if (st->method < 0) {
        REFUSE(c, st, 12, "there is no such method here");
    } else if (st->head & BAD_TIMEOUT) {
        REFUSE(c, st, 13, "grpc-timeout cannot be read");
    } else if (st->kind == BIDI) {
        bidi_begin(c, st);
    }
}

static inline size_t most_bytes(const connection *c, const stream *st) {
    return st->kind == BIDI ? c->wire->bidi_message_bytes : c->wire->message_bytes;
}

/* Whether the message at the front can be read at all; refused if not. */
static int check_message(connection *c, stream *st) {
    uint8_t flag = st->in.data[st->in.start];
    if (flag == 0) return 1;
    if (flag > 1) REFUSE(c, st, 13, "the first byte of a message is 0 or 1");
    else if (st->head & ENCODED) REFUSE(c, st, 12, "compressed messages are not supported");
    else REFUSE(c, st, 13, "a message is compressed, but grpc-encoding does not say how");
    return 0;
}

/* The peer has sent all it had. */
static void body_done(connection *c, stream *st) {
    st->remote_done = 1;
    if (st->state != BODY) return;
    if (!is_streamed(st)) {
        if (!has_message(&st->in)) {
            REFUSE(c, st, 13, "the message is missing or not complete");
            return;
        }
        if (!check_message(c, st)) return;
    }
    enqueue(c, st);
}

static void add_body(connection *c, stream *st, const uint8_t *data, size_t n, int more) {
    if (c->held + n > c->wire->held_bytes) {
        REFUSE(c, st, 8, "too much has been sent at once on this connection");
        return;
    }
    if (buffer_length(&st->in) == 0 && is_streamed(st)) st->since = c->now;
    if (buffer_add(&st->in, data, n) != 0) {
        reset_stream(c, st, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    c->held += n;
    size_t have = buffer_length(&st->in);
    if (have >= PREFIX && declared(&st->in) > most_bytes(c, st)) {
        REFUSE(c, st, 8, "the message is too large");
        return;
    }
    if (is_streamed(st)) {
        st->unconsumed += n;
        enqueue(c, st);
        return;
    }
    if (have >= PREFIX && have - PREFIX > declared(&st->in))
        REFUSE(c, st, 13, "this method takes one message, and more than one came");
    else if (more) nghttp2_session_consume_stream(c->session, st->id, n);
}

#endif
