cimport cython
from libc.stdint cimport int64_t

from penstock.decision cimport Decision

cdef int64_t NS, U32


cdef class CurrentLimit:
    cdef readonly int64_t amount, unit, window
    cdef readonly str name
    cdef readonly bytes wire


cdef class Row:
    cdef readonly int64_t code, remaining, reset
    cdef readonly CurrentLimit limit


@cython.locals(row=Row)
cpdef Row new_row(int64_t code, CurrentLimit limit, int64_t remaining, int64_t reset)
@cython.locals(row=Row, remaining=int64_t, reset=int64_t)
cpdef Row row_of(Decision decision, CurrentLimit limit, int64_t code, object clock)


@cython.locals(size=Py_ssize_t, out=bytearray)
cpdef bytes write_row(Row row)
@cython.locals(row=Row, total=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, out=bytearray)
cpdef bytes write_response(int64_t overall, list rows, headers)
@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t row_size(Row row)
@cython.locals(wire=bytes, index=Py_ssize_t)
cdef Py_ssize_t put_row(bytearray out, Py_ssize_t at, Row row, Py_ssize_t size)
@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t varint_size(int64_t value) noexcept
cdef Py_ssize_t put_varint(bytearray out, Py_ssize_t at, int64_t value)
