"""What the scanners do with a field: numbers, because one of them is compiled."""

SKIP = 0
WORD = 1  # a text, to a number
TARGET = 2  # the same, without the query
REQUEST = 3  # method and target
NUMBER = 4
DURATION = 5  # to nanoseconds
CLF = 6
ISO = 7
EPOCH = 8  # a number since 1970, with or without a fraction
PEER_PORT = 9  # an address and a port
OBJECT = 10  # of JSON: an object in which there are more fields

SHOWN_MOST = 5  # malformed lines that are shown
LITERAL_MOST = 64  # characters between two fields
STEPS_MOST = 96  # fields
