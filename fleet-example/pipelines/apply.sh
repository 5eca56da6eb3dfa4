#!/bin/sh
# Applies a saved plan, unless its branch is at another commit by now, and waits as long as another run holds the lock of the fleet (exit code 8).
# What else comes out of it is the exit code of this script: repeating it as it is would not help.
# LOCK_TRIES and LOCK_PAUSE (seconds) say how long to wait; by default ten minutes.
set -u
plan=${1:?"usage: apply.sh PLANFILE [FOLDER]"}
branch=${CI_DEFAULT_BRANCH:-${GITHUB_REF_NAME:-}}
if [ -n "$branch" ]; then
    git fetch --quiet --depth 1 origin "$branch" || exit 1
    # An old run may be approved, or run again: it would bring back what left the files since.
    if [ "$(git rev-parse "FETCH_HEAD^{commit}")" != "$(git rev-parse HEAD)" ]; then
        echo "$branch is at another commit by now. Approve the plan of that." >&2
        exit 7
    fi
fi
left=${LOCK_TRIES:-20}
while :; do
    code=0
    klutchctl apply "$plan" --repository "${2:-.}" --wait -o text -o junit=apply.xml || code=$?
    left=$((left - 1))
    if [ "$code" -ne 8 ] || [ "$left" -le 0 ]; then
        break
    fi
    sleep "${LOCK_PAUSE:-30}"
done
case $code in
0) ;;
5) echo "Some clusters were not done. Run the pipeline again once they can be reached." ;;
6) echo "Something is held back or blocked. A person has to look: the report says at what." ;;
7) echo "The clusters have changed since the plan. Run the whole pipeline again: it plans anew." ;;
8) echo "Another run holds the lock. Run this job again when that has ended." ;;
9) echo "Applied, but not all is Ready. 'klutchctl status' shows what is missing." ;;
*) echo "klutchctl has failed with exit code $code." ;;
esac >&2
exit "$code"
