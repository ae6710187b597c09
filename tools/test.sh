#!/usr/bin/env bash
# The test suite: test.sh PYTEST [ITS ARGUMENTS]
# Tests run on all processors, and those that measure real time (marked `realtime`) after them, one
# by one. Then all that the core has a part in runs again, with the pure one in place of the compiled
# one, if there is a compiled one. Fails if any run fails, or if the arguments select no test at all.
set -uo pipefail

pytest=$1
shift

# What the core has no part in.
once=(tests/{adaptive,admin,cli,client,concurrency,deploy,loadgen,metrics,proxy,running,wires}
    tests/integrations/{grpc,test_gunicorn.py}
    tests/stores/test_redis_{cancel,clients,fixtures,processes,secrets}.py)
ls -d "${once[@]}" >/dev/null || exit # one was moved

status=5 # pytest's word for "no tests were selected"

run() {
    echo "pytest ${*@Q}"
    "$pytest" "$@"
    local code=$?
    case $code in
        0) [ $status = 5 ] && status=0 ;;
        2) exit 2 ;; # interrupted, or a file that cannot be imported
        5) ;;        # the arguments select nothing here
        *) status=$code ;;
    esac
}

# One file is one worker's: what its tests share, such as a cluster, is started once.
parallel=(-n auto --maxprocesses 8 --dist loadfile -m "not realtime")

run "${parallel[@]}" "$@"
run -m realtime "$@"
if "$(dirname "$pytest")/python" -c 'import sys, penstock._mode as m; sys.exit(not m.COMPILED)'; then
    export PENSTOCK_PURE=1
    echo "And with the pure core, PENSTOCK_PURE=1:"
    run "${parallel[@]}" "${once[@]/#/--ignore=}" "$@"
else
    echo "The compiled core was not built (see above): only the pure one was tested."
fi
exit $status
