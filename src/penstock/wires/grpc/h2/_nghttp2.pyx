"""gRPC on one HTTP/2 connection: bytes in, calls, bytes out. No sockets, no event loop.

`Wire` is what all connections of a server share: methods, limits, spare memory. `Session` is
one connection. What nghttp2 calls back is C that knows no Python (``_stream.h``); it puts
streams that need a method called in a queue. `Session.run` works the queue off once nghttp2
has returned, so a method may do what it likes, even close the connection it came by: after
every call into Python the stream is looked up again by its number, which is never reused.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc
from libc.string cimport memset

import logging

from penstock.service.grpc_status import INTERNAL, GrpcError, percent_encoded

cdef object log = logging.getLogger("penstock.server")
cdef int64_t SECOND = 1_000_000_000
cdef enum:
    FRAME = 64  # bytes: what a frame that waits in nghttp2 may take


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
        kinds = [(methods.unary, UNARY), (methods.each, EACH), (methods.watch, WATCH)]
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
        self.w.request_time = <int64_t> (limits.request_seconds * SECOND)
        self.w.stall_time = <int64_t> (limits.stall_seconds * SECOND)
        if wire_open(&self.w) != 0:
            raise MemoryError

    def __dealloc__(self):
        wire_close(&self.w)

    def counts(self):
        """What happened since the start, by name."""
        return {
            "streams": self.w.streams,
            "messages": self.w.messages,
            "resets": self.w.reset,
            "refused": self.w.refused,
            "floods": self.w.floods,
            "slow": self.w.slow,
        }


@cython.final
cdef class Session:
    """One connection. Whoever owns it passes bytes in and out, and lets calls take their time.

    ``calls`` has ``begin(stream, kind, result, timeout)`` for what a method gave that is not
    bytes, ``gone(stream)`` when nobody waits for it any more, and ``room(stream)``.
    """

    cdef connection c    # owned; gone when c.session is NULL
    cdef Wire wire       # outlives c, which borrows from it
    cdef object calls
    cdef bint running

    def __cinit__(self, Wire wire not None, calls):
        memset(&self.c, 0, sizeof(connection))
        self.wire = wire
        self.calls = calls
        if connection_open(&self.c, &wire.w) != 0:
            raise MemoryError

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        """Free all. Anything may still be called, and does nothing."""
        if self.c.session != NULL:
            connection_close(&self.c)
        self.calls = None

    def feed(self, bytes data not None, int64_t now):
        """Take what came from the peer, and call the methods of requests that are complete."""
        if self.c.session == NULL:
            return
        self.c.now = now
        connection_feed(&self.c, <const uint8_t*> PyBytes_AS_STRING(data),
                        <size_t> PyBytes_GET_SIZE(data))
        self.run()

    def pending(self):
        """What is to be sent, some 64 KB of it; empty if that is all for now."""
        if self.c.session == NULL:
            return b""
        cdef size_t n = connection_pull(&self.c)
        return PyBytes_FromStringAndSize(<char*> self.wire.w.scratch, <Py_ssize_t> n)

    def tend(self):
        """Go on with streams for which sending has made room. Whether there were any."""
        if self.c.session == NULL or self.c.ended or self.c.queue == NULL or self.running:
            return False
        self.run()
        return True

    def sweep(self, int64_t now):
        """Refuse what takes too long, in both directions."""
        if self.c.session != NULL:
            self.c.now = now
            connection_sweep(&self.c)

    cdef int run(self) except -1:
        cdef stream* st
        cdef int32_t id
        cdef bint told
        if self.running:
            return 0
        self.running = True
        try:
            while self.c.session != NULL and not self.c.ended:
                st = dequeue(&self.c)
                if st == NULL:
                    break
                if st.closed:
                    id = st.id
                    told = st.told
                    stream_recycle(&self.wire.w, st)
                    if told:
                        self.calls.gone(id)
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
        while st.state == BODY and not st.told and has_message(&st.into):
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
        if st.state == BODY and not st.told:
            each_rest(&self.c, st)
        return 0

    cdef int begin(self, int32_t id, int kind, object result, int64_t timeout) except -1:
        cdef stream* st = self.find(id)
        if st == NULL:
            if hasattr(result, "close"):
                result.close()  # a coroutine that nobody will wait for
            return 0
        st.told = True
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
        """A call that took its time has this to say."""
        if type(message) is not bytes:
            self.fail(id, TypeError(f"a method answers with bytes, not with {message!r:.80}"))
            return
        cdef stream* st = self.find(id)
        if st == NULL:
            return
        st.told = False
        self.reply(id, <bytes> message, st.kind == UNARY)
        if st.kind == EACH:
            enqueue(&self.c, st)
            self.run()

    def send(self, int32_t id, message):
        """One more message of a watch. Whether to go on; else `calls.room` will say when."""
        if type(message) is not bytes:
            raise TypeError(f"a method answers with bytes, not with {message!r:.80}")
        cdef stream* st = self.find(id)
        if st == NULL:
            return False
        self.reply(id, <bytes> message, False)
        st.waits = buffer_length(&st.out) > self.wire.w.room
        return not st.waits

    cpdef end(self, int32_t id, int code, message):
        """This is how a call ends."""
        cdef stream* st = self.find(id)
        if st == NULL:
            return
        cdef bytes text = percent_encoded(message)
        st.told = False
        end_stream(&self.c, st, code, PyBytes_AS_STRING(text), <size_t> PyBytes_GET_SIZE(text))

    cpdef fail(self, int32_t id, error):
        """A call ends with this exception; what is not meant for the peer goes to the log."""
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

    def warn(self):
        """Tell the peer to go elsewhere with new requests; those under way are still taken."""
        if self.c.session != NULL:
            nghttp2_submit_shutdown_notice(self.c.session)

    def leave(self):
        """Take no more requests. `done` when those that are open have been answered."""
        if self.c.session != NULL:
            nghttp2_submit_goaway(
                self.c.session, NGHTTP2_FLAG_NONE,
                nghttp2_session_get_last_proc_stream_id(self.c.session), NGHTTP2_NO_ERROR, NULL, 0)

    @property
    def done(self):
        """Nothing is left to be read or sent."""
        return self.c.session == NULL or connection_done(&self.c)

    @property
    def greeted(self):
        """Whether the peer has shown that it speaks HTTP/2."""
        return self.c.session != NULL and self.c.greeted != 0

    @property
    def used(self):
        """When a stream was last opened or closed, in nanoseconds."""
        return self.c.used

    @property
    def open(self):
        """Streams that are open."""
        return self.c.open

    @property
    def backlog(self):
        """Bytes that wait here, about."""
        if self.c.session == NULL:
            return 0
        return self.c.held + FRAME * nghttp2_session_get_outbound_queue_size(self.c.session)

    @property
    def why(self):
        """What ended the connection before its time, or None."""
        return self.c.why.decode() if self.c.ended else None

    @property
    def foreign(self):
        """Whether what came first was not HTTP/2."""
        return self.c.ended != 0 and self.c.foreign != 0
