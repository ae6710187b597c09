"""What the extension uses of its C side: ``_control.h`` and what that includes."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "_control.h":
    enum:
        NGHTTP2_FLAG_NONE
        NGHTTP2_NO_ERROR
        UNARY
        EACH
        WATCH
        BIDI
        BODY
        CALLED
        ENDING
        PREFIX
    ctypedef struct nghttp2_session:
        pass
    ctypedef struct buffer:
        uint8_t* data
        size_t start
        size_t end
    ctypedef struct rate:
        int64_t cost
        int64_t depth
    ctypedef struct method:
        const uint8_t* path
        size_t length
        int kind
    ctypedef struct stream:
        int32_t id
        int32_t method
        uint8_t kind
        uint8_t state
        uint8_t closed
        uint8_t async_call
        uint8_t waits
        uint8_t confirming
        uint8_t over_rate
        int64_t timeout
        int64_t born
        int64_t since
        buffer into "in"
        buffer out
        buffer metadata
    ctypedef struct wire:
        method* methods
        int32_t count
        uint8_t* scratch
        uint32_t max_streams, header_bytes, header_count, continuations
        size_t message_bytes, held_bytes, room
        size_t bidi_streams, bidi_total, bidi_message_bytes, bidi_queue_bytes
        size_t bidi
        rate resets, controls, bidi_messages
        int64_t request_time, stall_time
        uint64_t streams, messages, reset, refused, floods, slow
    ctypedef struct connection:
        nghttp2_session* session
        stream* queue
        size_t held
        size_t open
        int64_t now
        int64_t bidi_messages_at
        int64_t used
        int ping_answered
        int greeted
        int ended
        int foreign
        const char* why
    int wire_open(wire*) noexcept
    void wire_close(wire*) noexcept
    int connection_open(connection*, wire*) noexcept
    void connection_close(connection*) noexcept
    void connection_feed(connection*, const uint8_t*, size_t) noexcept
    size_t connection_pull(connection*) noexcept
    void connection_sweep(connection*) noexcept
    bint connection_done(connection*) noexcept
    stream* dequeue(connection*) noexcept
    void enqueue(connection*, stream*) noexcept
    stream* stream_find(connection*, int32_t) noexcept
    void stream_recycle(wire*, stream*) noexcept
    size_t buffer_length(const buffer*) noexcept
    void buffer_take(buffer*, size_t) noexcept
    void buffer_clear(buffer*) noexcept
    uint32_t declared(const buffer*) noexcept
    bint has_message(const buffer*) noexcept
    bint check_message(connection*, stream*) noexcept
    void drop_input(connection*, stream*) noexcept
    void streamed_rest(connection*, stream*) noexcept
    bint take_token(int64_t*, const rate*, int64_t) noexcept
    void bidi_send(connection*, stream*, const uint8_t*, size_t) noexcept
    bint bidi_confirm(connection*, stream*) noexcept
    void send_ping(connection*, const uint8_t*) noexcept
    void send_message(connection*, stream*, const uint8_t*, size_t, bint) noexcept
    void end_stream(connection*, stream*, int, const char*, size_t) noexcept
    int nghttp2_submit_shutdown_notice(nghttp2_session*) noexcept
    int nghttp2_submit_ping(nghttp2_session*, uint8_t, const uint8_t*) noexcept
    int nghttp2_submit_goaway(
        nghttp2_session*, uint8_t, int32_t, uint32_t, const uint8_t*, size_t) noexcept
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session*) noexcept
    size_t nghttp2_session_get_outbound_queue_size(nghttp2_session*) noexcept
