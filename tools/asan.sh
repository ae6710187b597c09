#!/bin/bash
# Builds the compiled core with AddressSanitizer into a folder, and runs a program with it:
#   tools/asan.sh build/asan .venv/bin/python tests/stores/fuzz_mapped.py --minutes 10
# What a gcc without the library cannot do is left out, and said.
set -euo pipefail
folder=$1 python=$2
shift 2
library=$(${CC:-cc} -print-file-name=libasan.so 2>/dev/null || true)
if [[ ! -e $library ]]; then
  echo "asan: this compiler has no AddressSanitizer: not run"
  exit 0
fi
CFLAGS="-fsanitize=address -fno-omit-frame-pointer -g1" LDFLAGS="-fsanitize=address" \
  PENSTOCK_REQUIRE_COMPILED=1 "$python" setup.py --quiet build --build-base "$folder/objects" --build-lib "$folder/lib" >"$folder.log" 2>&1 \
  || { tail -20 "$folder.log"; exit 1; }
# Python leaks on purpose; a bus error is what the store bears by itself.
export ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:handle_segv=1:allocator_may_return_null=1
PYTHONMALLOC=malloc LD_PRELOAD=$library PYTHONPATH=$folder/lib exec "$python" "$@"
