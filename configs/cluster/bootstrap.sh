#!/usr/bin/env bash
# Makes one Ray cluster of the nodes of a job and runs a command on it; for schedulers that start this script once
# on every node. Rank 0 starts the head, waits for the others and runs the command; they join and stay until it ends.
#
#   srun --ntasks-per-node=1 configs/cluster/bootstrap.sh rag-pipeline index -c cluster.yaml
#
# The command's config says `runtime: {ray_address: auto}`; `wait_for_gpus` there counts the GPUs too.
# Index and source lie on s3:// or on storage that all nodes mount at the same path.
#
# Exit code: the command's on rank 0; elsewhere 0 when the head ended, else 1. SIGTERM and SIGINT reach the command,
# which commits what is finished; the same job again does the rest. Only what this script started is stopped.
#
# Who am I           RANK, WORLD_SIZE, MASTER_ADDR; or, by Slurm: SLURM_PROCID, SLURM_NNODES, SLURM_JOB_NODELIST
# RAY_PORT           of the head, default 6379; jobs that share a node need ports of their own
# RAY_START_ARGS     more arguments of `ray start`, such as "--num-cpus=16 --temp-dir=/local/ray"
# JOIN_TIMEOUT_S     how long the nodes wait for each other, default 600
# RAY_AUTH_MODE      "token", with the same RAY_AUTH_TOKEN on all nodes, where others can reach the network
set -uo pipefail

fail() {
  echo "bootstrap: $1" >&2
  exit 1
}

[ $# -gt 0 ] || fail "no command; usage: bootstrap.sh COMMAND [ARGUMENT ...]"
rank=${RANK:-${SLURM_PROCID:-}}
nodes=${WORLD_SIZE:-${SLURM_NNODES:-}}
[ -n "$rank" ] && [ -n "$nodes" ] || fail "neither RANK and WORLD_SIZE nor SLURM_PROCID and SLURM_NNODES are set"
master=${MASTER_ADDR:-}
if [ -z "$master" ] && [ -n "${SLURM_JOB_NODELIST:-}" ]; then
  master=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
fi
[ -n "$master" ] || fail "MASTER_ADDR is not set: the host of rank 0"
port=${RAY_PORT:-6379}
timeout_s=${JOIN_TIMEOUT_S:-600}
export RAY_ADDRESS="$master:$port" RAY_USAGE_STATS_ENABLED=0
# A node that falls silent would else be waited for seven minutes.
export RAY_grpc_client_keepalive_time_ms=${RAY_grpc_client_keepalive_time_ms:-30000}
export RAY_grpc_client_keepalive_timeout_ms=${RAY_grpc_client_keepalive_timeout_ms:-20000}

ray_node= command=
# shellcheck disable=SC2317  # called by the trap
cleanup() {
  trap - EXIT
  if [ -n "$ray_node" ]; then
    kill -TERM "$ray_node" 2>/dev/null # `ray start --block` takes down what it started, and nothing else
    wait "$ray_node" 2>/dev/null
  fi
}
trap cleanup EXIT
# A signal goes to the command, which ends as on Ctrl-C; before there is one, it ends the script. Always as SIGTERM:
# bash starts what runs in the background with SIGINT ignored.
# shellcheck disable=SC2317
stop() {
  if [ -n "$command" ]; then kill -TERM "$command" 2>/dev/null; else exit 143; fi
}
trap stop TERM INT

head_answers() { (exec 3<>"/dev/tcp/$master/$port") 2>/dev/null; }
ray_runs() { kill -0 "$ray_node" 2>/dev/null; }

count_nodes() {
  python - <<'PYTHON'
import logging, os, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
print(sum(node["Alive"] for node in ray.nodes()))
PYTHON
}

give_up=$((SECONDS + timeout_s))
if [ "$rank" -eq 0 ]; then
  head_answers && fail "something listens on $master:$port already; set RAY_PORT to a free port on all nodes"
  # shellcheck disable=SC2086  # RAY_START_ARGS are several words
  ray start --head --block --port="$port" ${RAY_START_ARGS:-} >&2 &
  ray_node=$!
  until head_answers; do
    ray_runs || fail "the head did not start; its messages stand above"
    [ $SECONDS -lt $give_up ] || fail "the head did not start in $timeout_s s"
    sleep 1
  done
  joined=0
  until joined=$(count_nodes); [ "${joined:-0}" -ge "$nodes" ]; do
    ray_runs || fail "the head ended while it waited for the other nodes"
    [ $SECONDS -lt $give_up ] || fail "${joined:-0} of $nodes nodes joined in $timeout_s s; look at the others' messages"
    sleep 2
  done
  "$@" &
  command=$!
  wait "$command"
  while kill -0 "$command" 2>/dev/null; do wait "$command"; done # it also ends when a signal is passed on
  wait "$command"
  exit $?
fi

until head_answers; do
  [ $SECONDS -lt $give_up ] || fail "no head at $master:$port in $timeout_s s"
  sleep 1
done
join() {
  # shellcheck disable=SC2086
  ray start --address="$RAY_ADDRESS" --block ${RAY_START_ARGS:-} >&2 &
  ray_node=$!
}
join
missed=0
while [ $missed -lt 3 ]; do # one missed answer is a busy head
  sleep 1
  if ! head_answers; then
    missed=$((missed + 1))
  elif ! ray_runs; then
    [ $SECONDS -lt $give_up ] || fail "this node's Ray ended while the head goes on; its messages stand above"
    join # a busy head lets the first attempt time out
  else
    missed=0
  fi
done
exit 0
