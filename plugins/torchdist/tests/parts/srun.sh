#!/bin/sh
# Starts tasks as srun does, on this machine: `srun [--ntasks N] COMMAND...`, with what Slurm tells each. A signal is
# passed on, and the highest exit code is that of all.
tasks=${SLURM_NTASKS:-1}
while [ "$#" -gt 0 ]; do
    case "$1" in
    --ntasks) tasks=$2; shift 2 ;;
    --*) shift ;;
    *) break ;;
    esac
done
pids=""
number=0
while [ "$number" -lt "$tasks" ]; do
    SLURM_PROCID=$number SLURM_LOCALID=$number SLURM_NTASKS=$tasks SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 \
        SLURM_STEP_NODELIST=localhost SLURM_NNODES=1 "$@" &
    pids="$pids $!"
    number=$((number + 1))
done
for name in INT TERM USR1; do
    # shellcheck disable=SC2064
    trap "kill -$name $pids 2>/dev/null" "$name"
done
code=0
for pid in $pids; do
    while :; do
        wait "$pid"
        got=$?
        # A trapped signal ends the wait, and not the task.
        kill -0 "$pid" 2>/dev/null || break
    done
    [ "$got" -le "$code" ] || code=$got
done
exit "$code"
