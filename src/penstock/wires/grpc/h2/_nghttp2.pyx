"""gRPC on one HTTP/2 connection: bytes in, calls, bytes out. No sockets, no event loop.

`Wire` holds what all connections of a server share: methods, limits, spare memory. `Session` is
one connection. The callbacks of nghttp2 are plain C (``_stream.h``): they put streams whose
method is to be called in a queue. `Session.run` processes the queue after nghttp2 has returned,
so a method may even close its own connection: after every call into Python the stream is looked
up again by its number, which is never reused.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import logging

from penstock.service.grpc_status import INTERNAL, GrpcError, percent_encoded

cdef object log = logging.getLogger("penstock.server")
cdef int64_t SECOND = 1_000_000_000
cdef enum:
    FRAME = 64  # bytes: what a frame that waits in nghttp2 may take
    TURN = 100  # messages of bidirectional streams in a row, before other connections have a turn


cdef rate a_rate(int64_t per_second, int64_t burst) noexcept:
    cdef rate r
    r.cost = SECOND // per_second
    r.depth = r.cost * burst
    return r


@cython.final
cdef class Wire:
    """What all connections of a server share."""

    cdef wire w          # owned; its methods point into paths
    cdef tuple paths
    cdef tuple handlers

    def __cinit__(self, methods, limits):
        memset(&self.w, 0, sizeof(wire))
        kinds = [
            (methods.unary, UNARY), (methods.each, EACH), (methods.watch, WATCH),
            (methods.bidi, BIDI),
        ]
        rows = [
            (path.encode("ascii"), kind, handler)
            for mapping, kind in kinds
            for path, handler in mapping.items()
        ]
        self.paths = tuple([path for path, _, _ in rows])
        self.handlers = tuple([handler for _, _, handler in rows])
        self.w.methods = <method*> calloc(len(rows) + 1, sizeof(method))
        if self.w.methods == NULL:
            raise MemoryError
        self.w.count = <int32_t> len(rows)
        cdef int32_t i
        for i in range(self.w.count):
            self.w.methods[i].path = <const uint8_t*> PyBytes_AS_STRING(self.paths[i])
            self.w.methods[i].length = <size_t> PyBytes_GET_SIZE(self.paths[i])
            self.w.methods[i].kind = rows[i][1]
        self.w.max_streams = limits.streams
        self.w.header_bytes = limits.header_bytes
        self.w.header_count = limits.header_count
        self.w.continuations = limits.continuations
        self.w.message_bytes = limits.message_bytes
        self.w.held_bytes = limits.held_bytes
        self.w.room = limits.stream_bytes
        self.w.resets = a_rate(limits.resets_per_second, limits.resets_burst)
        self.w.controls = a_rate(limits.controls_per_second, limits.controls_burst)
        self.w.bidi_streams = limits.bidi_streams
        self.w.bidi_total = limits.bidi_streams_total
        self.w.bidi_message_bytes = limits.bidi_message_bytes
        self.w.bidi_queue_bytes = limits.bidi_queue_bytes
        self.w.bidi_messages = a_rate(
            limits.bidi_messages_per_second, limits.bidi_messages_burst)
        self.w.request_time = <int64_t> (limits.request_seconds * SECOND)
        self.w.stall_time = <int64_t> (limits.stall_seconds * SECOND)
        if wire_open(&self.w) != 0:
            raise MemoryError

    def __dealloc__(self):
        wire_close(&self.w)

    def counts(self):
        """Counts since the start, by name."""
        return {
            "streams": self.w.streams,
            "messages": self.w.messages,
            "resets": self.w.reset,
            "refused": self.w.refused,
            "floods": self.w.floods,
            "slow": self.w.slow,
        }

    @property
    def bidi_streams(self):
        """How many bidirectional streams are open now."""
        return self.w.bidi


@cython.final
cdef class Session:
    """One connection. Its owner passes bytes in and out, and runs the asynchronous calls.

    ``calls`` has ``begin(stream, kind, result, timeout)`` for a method that returned something
    other than bytes, ``gone(stream)`` when its caller no longer waits, and ``room(stream)``.
    ``calls.bidi`` has the bidirectional streams.
    """

    cdef connection c    # owned; gone when c.session is NULL
    cdef Wire wire       # outlives c, which borrows from it
    cdef object calls
    cdef bint running
    cdef int turn        # messages of bidirectional streams that may still come now

    def __cinit__(self, Wire wire not None, calls):
        memset(&self.c, 0, sizeof(connection))
        self.wire = wire
        self.calls = calls
        if connection_open(&self.c, &wire.w) != 0:
            raise MemoryError

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        """Free everything. Later calls of any method do nothing."""
        if self.c.session != NULL:
            connection_close(&self.c)
        self.calls = None

    def feed(self, bytes data not None, int64_t now):
        """Read received data, and call the methods of complete requests."""
        if self.c.session == NULL:
            return
        self.c.now = now
        connection_feed(&self.c, <const uint8_t*> PyBytes_AS_STRING(data),
                        <size_t> PyBytes_GET_SIZE(data))
        self.run()

    def pending(self):
        """Data to be sent, about 64 KB at most; empty if there is none."""
        if self.c.session == NULL:
            return b""
        cdef size_t n = connection_pull(&self.c)
        return PyBytes_FromStringAndSize(<char*> self.wire.w.scratch, <Py_ssize_t> n)

    def tend(self):
        """Continue with streams that may send again. Returns whether there were any."""
        if self.c.session == NULL or self.c.ended or self.c.queue == NULL or self.running:
            return False
        self.run()
        return True

    def sweep(self, int64_t now):
        """End streams that are too slow, in either direction."""
        if self.c.session != NULL:
            self.c.now = now
            connection_sweep(&self.c)

    cdef int run(self) except -1:
        cdef stream* st
        cdef int32_t id
        cdef int kind
        cdef bint async_call
        if self.running:
            return 0
        self.running = True
        self.turn = TURN
        try:
            if self.c.ping_answered:
                self.c.ping_answered = 0
                self.calls.bidi.answered()
            while self.c.session != NULL and not self.c.ended:
                st = dequeue(&self.c)
                if st == NULL:
                    break
                if st.closed:
                    id = st.id
                    kind = st.kind
                    async_call = st.async_call
                    stream_recycle(&self.wire.w, st)
                    if async_call and kind == BIDI:
                        self.calls.bidi.over(id)
                    elif async_call:
                        self.calls.gone(id)
                elif st.kind == BIDI:
                    self.do_bidi(st)
                elif st.kind == EACH:
                    self.do_each(st)
                elif st.state == BODY:
                    self.do_one(st)
                elif st.kind == WATCH and st.state == CALLED and not st.waits:
                    self.calls.room(st.id)
        finally:
            self.running = False
        return 0

    cdef int do_one(self, stream* st) except -1:
        cdef int32_t id = st.id
        cdef int64_t timeout = st.timeout
        cdef int kind = st.kind
        cdef PyObject* handler = <PyObject*> PyTuple_GET_ITEM(self.wire.handlers, st.method)
        cdef object message = PyBytes_FromStringAndSize(
            <char*> st.into.data + st.into.start + PREFIX, declared(&st.into))
        drop_input(&self.c, st)
        st.state = CALLED
        self.wire.w.messages += 1
        try:
            reply = (<object> handler)(message)
            if kind == UNARY and type(reply) is bytes:
                self.reply(id, <bytes> reply, True)
            else:
                self.begin(id, kind, reply, timeout)
        except BaseException as error:
            self.fail(id, error)
        return 0

    cdef int do_each(self, stream* st) except -1:
        cdef int32_t id = st.id
        cdef uint32_t n
        cdef PyObject* handler = <PyObject*> PyTuple_GET_ITEM(self.wire.handlers, st.method)
        while st.state == BODY and not st.async_call and has_message(&st.into):
            if buffer_length(&st.out) > self.wire.w.room:
                st.waits = True
                return 0
            if not check_message(&self.c, st):
                return 0
            n = declared(&st.into)
            message = PyBytes_FromStringAndSize(
                <char*> st.into.data + st.into.start + PREFIX, n)
            buffer_take(&st.into, PREFIX + n)
            self.c.held -= PREFIX + n
            self.wire.w.messages += 1
            try:
                reply = (<object> handler)(message)
                if type(reply) is bytes:
                    self.reply(id, <bytes> reply, False)
                else:
                    self.begin(id, EACH, reply, st.timeout)
            except BaseException as error:
                self.fail(id, error)
            if self.c.session == NULL:
                return 0
            st = stream_find(&self.c, id)
            if st == NULL:
                return 0
        if st.state == BODY and not st.async_call:
            streamed_rest(&self.c, st)
        return 0

    cdef int do_bidi(self, stream* st) except -1:
        cdef int32_t id = st.id
        cdef uint32_t n
        if st.state == BODY and not st.async_call:
            st = self.open_bidi(st)
        while st != NULL and st.state == BODY and has_message(&st.into):
            if self.turn == 0:
                self.calls.bidi.later(id)
                return 0
            if not take_token(&self.c.bidi_messages_at, &self.wire.w.bidi_messages, self.c.now):
                st.over_rate = True
                return 0
            if not check_message(&self.c, st):
                break
            self.turn -= 1
            n = declared(&st.into)
            message = PyBytes_FromStringAndSize(
                <char*> st.into.data + st.into.start + PREFIX, n)
            buffer_take(&st.into, PREFIX + n)
            self.c.held -= PREFIX + n
            st.since = self.c.now
            self.wire.w.messages += 1
            try:
                self.calls.bidi.receive(id, message)
            except BaseException as error:
                self.fail(id, error)
            st = self.find(id)
        if st == NULL:
            return 0
        if st.state == ENDING:
            if st.async_call:
                st.async_call = False
                self.calls.bidi.over(id)
            return 0
        streamed_rest(&self.c, st)
        if st.confirming and buffer_length(&st.out) == 0:
            st.confirming = False
            self.calls.bidi.written(id)
        return 0

    cdef stream* open_bidi(self, stream* st) except? NULL:
        """The stream, or NULL if it is gone."""
        cdef int32_t id = st.id
        cdef PyObject* handler = <PyObject*> PyTuple_GET_ITEM(self.wire.handlers, st.method)
        cdef bytes fields = PyBytes_FromStringAndSize(
            <char*> st.metadata.data, <Py_ssize_t> st.metadata.end)
        free(st.metadata.data)
        memset(&st.metadata, 0, sizeof(buffer))
        st.async_call = True
        try:
            self.calls.bidi.open(id, <object> handler, fields)
        except BaseException as error:
            st = self.find(id)
            if st != NULL:
                st.async_call = False
            self.fail(id, error)
        return self.find(id)

    cdef int begin(self, int32_t id, int kind, object result, int64_t timeout) except -1:
        cdef stream* st = self.find(id)
        if st == NULL:
            if hasattr(result, "close"):
                result.close()  # a coroutine that nobody will await
            return 0
        st.async_call = True
        if timeout >= 0:
            timeout = max(0, timeout - (self.c.now - st.born))
        self.calls.begin(id, kind, result, timeout)
        return 0

    cdef stream* find(self, int32_t id) noexcept:
        return stream_find(&self.c, id) if self.c.session != NULL else NULL

    cdef int reply(self, int32_t id, bytes message, bint last) except -1:
        cdef stream* st = self.find(id)
        if st != NULL:
            send_message(&self.c, st, <const uint8_t*> PyBytes_AS_STRING(message),
                         <size_t> PyBytes_GET_SIZE(message), last)
        return 0

    def answer(self, int32_t id, message):
        """Send the response of an asynchronous call."""
        if type(message) is not bytes:
            self.fail(id, TypeError(f"a method must return bytes, not {message!r:.80}"))
            return
        cdef stream* st = self.find(id)
        if st == NULL:
            return
        st.async_call = False
        self.reply(id, <bytes> message, st.kind == UNARY)
        if st.kind == EACH:
            enqueue(&self.c, st)
            self.run()

    def send(self, int32_t id, message):
        """Send a message of a watch. Returns whether to continue, or to wait for `calls.room`."""
        if type(message) is not bytes:
            raise TypeError(f"a method must return bytes, not {message!r:.80}")
        cdef stream* st = self.find(id)
        if st == NULL:
            return False
        self.reply(id, <bytes> message, False)
        st.waits = buffer_length(&st.out) > self.wire.w.room
        return not st.waits

    cpdef end(self, int32_t id, int code, message):
        """End a call with a status."""
        cdef stream* st = self.find(id)
        if st == NULL:
            return
        cdef bytes text = percent_encoded(message)
        if st.kind != BIDI:  # which hears in `run` that it is over
            st.async_call = False
        end_stream(&self.c, st, code, PyBytes_AS_STRING(text), <size_t> PyBytes_GET_SIZE(text))

    def push(self, int32_t id, message):
        """Queue a message of a bidirectional stream."""
        if type(message) is not bytes:
            raise TypeError(f"a message must be bytes, not {message!r:.80}")
        cdef stream* st = self.find(id)
        if st != NULL and not self.c.ended:
            bidi_send(&self.c, st, <const uint8_t*> PyBytes_AS_STRING(message),
                      <size_t> PyBytes_GET_SIZE(message))

    def confirm(self, int32_t id):
        """Call `calls.bidi.written` when all that was pushed is written. False: it never is."""
        cdef stream* st = self.find(id)
        return st != NULL and not self.c.ended and bidi_confirm(&self.c, st)

    def go_on(self, int32_t id):
        """Continue with a bidirectional stream for which `calls.bidi.later` was called."""
        cdef stream* st = self.find(id)
        if st != NULL:
            enqueue(&self.c, st)

    cpdef fail(self, int32_t id, error):
        """End a call with an exception. Unexpected ones are logged, not sent to the peer."""
        if isinstance(error, GrpcError):
            self.end(id, error.code, error.message)
            return
        self.end(id, INTERNAL, "internal error")
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        log.error("a method failed", exc_info=error)

    def ping(self):
        if self.c.session != NULL:
            nghttp2_submit_ping(self.c.session, NGHTTP2_FLAG_NONE, NULL)

    def ask(self, bytes opaque not None):
        """Send a PING with these 8 bytes, and call `calls.bidi.answered` when it is answered."""
        if self.c.session != NULL and PyBytes_GET_SIZE(opaque) == 8:
            send_ping(&self.c, <const uint8_t*> PyBytes_AS_STRING(opaque))

    def warn(self):
        """Ask the peer to open another connection; requests in flight are still accepted."""
        if self.c.session != NULL:
            nghttp2_submit_shutdown_notice(self.c.session)

    def leave(self):
        """Accept no more requests. `done` is true when the open ones are answered."""
        if self.c.session != NULL:
            nghttp2_submit_goaway(
                self.c.session, NGHTTP2_FLAG_NONE,
                nghttp2_session_get_last_proc_stream_id(self.c.session), NGHTTP2_NO_ERROR, NULL, 0)

    @property
    def done(self):
        """Whether nothing is left to be read or sent."""
        return self.c.session == NULL or connection_done(&self.c)

    @property
    def greeted(self):
        """Whether the HTTP/2 preface was received."""
        return self.c.session != NULL and self.c.greeted != 0

    @property
    def used(self):
        """When a stream was last opened or closed, in nanoseconds."""
        return self.c.used

    @property
    def open(self):
        """The number of open streams."""
        return self.c.open

    @property
    def backlog(self):
        """About how many bytes are buffered."""
        if self.c.session == NULL:
            return 0
        return self.c.held + FRAME * nghttp2_session_get_outbound_queue_size(self.c.session)

    @property
    def why(self):
        """Why the connection was ended early, or None."""
        return self.c.why.decode() if self.c.ended else None

    @property
    def foreign(self):
        """Whether the peer does not speak HTTP/2."""
        return self.c.ended != 0 and self.c.foreign != 0
