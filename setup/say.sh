# shellcheck shell=bash
# What all scripts share: how they speak, how they run a step, where they keep what can be made again. Sourced, never run.
# What they tell goes to stderr, so that stdout stays free for an answer.

cache_folder() { echo "${STONEFOLD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stonefold}"; }

say() { printf '\033[1m==>\033[0m %s\n' "$*" | plain_unless_terminal >&2; }

# Colours only where a person reads.
plain_unless_terminal() { if [ -t 2 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# fail_with_log LOG WHAT: the end of a quiet step's log is shown only when the step failed.
fail_with_log() {
    printf -- '----- the last lines of %s:\n' "$1" >&2
    tail -n 40 "$1" >&2
    die "$2 (whole log: $1)"
}

# quietly LOG WHAT COMMAND...: runs a step into its log. The subshell has its own errexit, because bash switches it off
# in everything that is called left of a || or inside an if: a step would then go on after its first failure.
quietly() {
    local log=$1 what=$2 status
    shift 2
    set +e
    (
        set -e
        "$@"
    ) >>"$log" 2>&1 </dev/null
    status=$?
    set -e
    [ "$status" = 0 ] || fail_with_log "$log" "$what (exit status $status)"
}
