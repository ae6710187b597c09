#!/usr/bin/env bash
# The test suite: test.sh PYTEST [ITS ARGUMENTS]
# Tests run on all processors, and those that measure real time (marked `realtime`) after them, one
# by one. Then all that the core has a part in runs again, with the pure one in place of the compiled
# one, if there is a compiled one. A test that fails beside others is run once more, alone: if it
# passes then, the summary names it as unsteady. Fails if any test fails twice, or if the arguments
# select no test at all.
set -uo pipefail

pytest=$1
shift

# What the core has no part in.
once=(tests/{adaptive,admin,cli,client,concurrency,control,deploy,kv,loadgen,metrics,proxy,quota}
    tests/{page,realtime,running,wires}
    tests/integrations/{grpc,test_gunicorn.py}
    tests/stores/test_redis_{cancel,clients,fixtures,processes,secrets}.py)
ls -d "${once[@]}" >/dev/null || exit # one was moved

status=5 # pytest's word for "no tests were selected"
cache=.make/pytest
unsteady=()

# The names of the tests that failed in the last run, a line each.
failed() {
    python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' \
        "$cache/v/cache/lastfailed" 2>/dev/null
}

run() {
    echo "pytest ${*@Q}"
    [[ " $* " =~ " --lf "|" --last-failed " ]] || rm -f "$cache/v/cache/lastfailed"
    "$pytest" -o cache_dir="$cache" "$@"
    local code=$? names=()
    if [ $code = 1 ]; then
        mapfile -t names < <(failed)
        # Many failures are a defect, not a coincidence.
        if [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le 10 ]; then
            echo "Once more, alone: ${#names[@]} that failed"
            "$pytest" -o cache_dir="$cache" -m "" "${names[@]}"
            code=$?
            [ $code = 0 ] && unsteady+=("${names[@]}")
        fi
    fi
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
if [ ${#unsteady[@]} -gt 0 ]; then
    echo "Unsteady: these failed beside others, and passed alone:"
    printf '  %s\n' "${unsteady[@]}"
fi
exit $status
