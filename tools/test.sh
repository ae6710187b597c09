#!/usr/bin/env bash
# The test suite: test.sh PYTEST [ITS ARGUMENTS]
# Runs it with the compiled core and then with the pure one; once where there is no compiled core.
# Each time, the tests run on all processors, and those that measure real time (marked `realtime`)
# run after them, one by one. Fails if any run fails, or if the arguments select no test at all.
set -uo pipefail

pytest=$1
shift

# What the core has no part in is not run with the pure one.
once=(tests/{adaptive,admin,cli,client,concurrency,deploy,loadgen,metrics,proxy,running,wires}
    tests/integrations/{grpc,test_gunicorn.py}
    tests/stores/test_redis_{breaker,cancel,clients,cluster_faults,faults,fixtures,policies,processes,secrets}.py)
ls -d "${once[@]}" >/dev/null || exit # one was moved

status=5 # pytest's word for "no tests were selected"

run() {
    echo "pytest $*"
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
both() {
    run -n auto --maxprocesses 8 --dist loadfile -m "not realtime" "$@"
    run -m realtime "$@"
}

both "$@"
if "$(dirname "$pytest")/python" -c 'import sys, penstock._mode as m; sys.exit(not m.COMPILED)'; then
    export PENSTOCK_PURE=1
    echo "And with the pure core, PENSTOCK_PURE=1:"
    both "${once[@]/#/--ignore=}" "$@"
else
    echo "The compiled core was not built (see above): only the pure one was tested."
fi
exit $status
