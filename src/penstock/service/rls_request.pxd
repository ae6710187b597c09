cimport cython
from libc.stdint cimport uint64_t

cdef uint64_t U32, U64
cdef int DEEPEST
cdef Py_ssize_t MOST_DESCRIPTORS, MOST_ENTRIES


cdef class RequestedDescriptor:
    cdef public tuple pairs
    cdef public object amount
    cdef public uint64_t unit
    cdef public object hits
    cdef public bint negative

    cpdef bint is_plain(self)


cdef class RateLimitRequest:
    cdef public str domain
    cdef public list descriptors
    cdef public uint64_t hits


@cython.final
cdef class Reader:
    cdef bytes data
    # Python reads messages with it, too: service/rlqs/messages.py.
    cdef public Py_ssize_t at, end

    @cython.locals(at=Py_ssize_t, value=uint64_t, shift=int, byte=uint64_t)
    cpdef uint64_t varint(self, int most) except? 0
    @cython.locals(tag=uint64_t)
    cpdef uint64_t tag(self) except 0
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t size(self) except -1
    @cython.locals(size=Py_ssize_t, outer=Py_ssize_t)
    cpdef Py_ssize_t enter(self) except -1
    @cython.locals(size=Py_ssize_t, start=Py_ssize_t)
    cpdef str text(self)
    cdef int jump(self, Py_ssize_t size) except -1
    @cython.locals(kind=int, inner=uint64_t)
    cpdef int skip(self, uint64_t tag, int depth) except -1


@cython.locals(
    reader=Reader, request=RateLimitRequest, descriptor=RequestedDescriptor, entries=Py_ssize_t,
    tag=uint64_t,
)
cpdef RateLimitRequest read_request(bytes data)
@cython.locals(descriptor=RequestedDescriptor, pairs=list, outer=Py_ssize_t, tag=uint64_t)
cdef RequestedDescriptor read_descriptor(Reader reader)
@cython.locals(outer=Py_ssize_t, tag=uint64_t, key=str, value=str)
cdef tuple read_entry(Reader reader)
@cython.locals(outer=Py_ssize_t, tag=uint64_t)
cdef int read_limit(Reader reader, RequestedDescriptor descriptor) except -1
@cython.locals(outer=Py_ssize_t, tag=uint64_t, value=uint64_t)
cdef object read_wrapped(Reader reader, object before)
