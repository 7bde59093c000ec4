#!/bin/bash
# Measures the master, alone or beside the C++ one from PyPI, in turns on this machine, and says where the bars of
# docs/performance.md are met.
#   bench.sh alone
#   bench.sh compare
#   bench.sh incident   a client with 1 M and with 4 M keys expires, beside the C++ master; then 100 k of 2.1 M and of 8 M
#   bench.sh growth     how cost grows with keys, clients, connections and batches, beside the C++ master; with plots
# JSON lines, the table and plots go to target/bench/. Shorter or longer: BENCH_SECONDS (5, of growth 2) of each
# measurement, BENCH_ROUNDS (3), BENCH_KEYS (1000000,4000000) of the memory case.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"
cd "$ROOT"

what=${1:-}
case $what in alone | compare | incident | growth) ;; *) echo "usage: $0 alone|compare|incident|growth" >&2; exit 2 ;; esac
seconds=${BENCH_SECONDS:-5}
rounds=${BENCH_ROUNDS:-3}
keys=${BENCH_KEYS:-1000000,4000000}
profile=${BENCH_PROFILE:-release}

cargo build --locked --profile "$profile" -p mooncake-master -p mooncake-bench
target=$(cargo metadata --format-version 1 --no-deps --offline | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
programs=$target/$profile
[ "$profile" != dev ] || programs=$target/debug
results=$ROOT/target/bench/$(date -u +%Y%m%dT%H%M%SZ)-$what.jsonl
mkdir -p "${results%/*}"
note="$(date -u +%F), scripts/bench.sh $what, $rounds rounds"

ours="ours=spawn:$programs/mooncake-master --rpc_address=127.0.0.1 --rpc_port={rpc_port} --metrics_host=127.0.0.1 --metrics_port={metrics_port} --termination_log="
theirs= floor=
if [ "$what" != alone ]; then
  python=$(scripts/prepare.sh client)
  cpp=$("$python" -c 'import pathlib, mooncake; print(pathlib.Path(mooncake.__file__).parent / "mooncake_master")')
  theirs="theirs=spawn:$cpp --rpc_port={rpc_port} --metrics_port={metrics_port}"
fi

failed=
# bench COMMAND FLAGS-OF-OURS FLAGS-OF-THEIRS ARGUMENTS...
# What fails does not keep the rest from being measured.
bench() {
  local command=$1 of_ours=$2 of_theirs=$3
  shift 3
  printf '\n== %s %s\n' "$command" "$*"
  local targets=(--target "$ours $of_ours")
  [ -z "$theirs" ] || targets+=(--target "$theirs $of_theirs")
  [ -z "$floor" ] || targets+=(--target "$floor")
  if ! "$programs/mooncake-bench" "$command" "${targets[@]}" --rounds "$rounds" --json "$results" --note "$note" "$@"; then
    failed+=" $command"
    echo "FAILED: $command $*" >&2
  fi
}

short_ttls="--client_active_ttl_sec=3 --client_suspicion_ttl_sec=3 --client_offline_grace_sec=0"

compare() {
  # One operation after the other, so that the turns are short: the machine changes from minute to minute.
  local op
  for op in put batchput get batchget exist batchexist; do
    bench load "" "" --op "$op" -c 4,64 --seconds "$seconds"
  done
  # Ping also beside what a call costs at the least, in the same rounds.
  floor="floor=spawn:$programs/mooncake-bench floor --port {rpc_port}" bench load "" "" --op ping -c 4,64 --seconds "$seconds"
  theirs="" bench load "" "" --protocol grpc --op get,batchget -c 4 --seconds "$seconds"
  bench memory "" "" --keys "$keys"
  if command -v valgrind >/dev/null; then
    theirs="" bench instructions --client_ttl=3600 ""
  else
    echo "not measured, valgrind is not installed: instructions per PutStart"
  fi
  # Half a million keys fill the smaller pool. A put that comes before there is room again is refused.
  bench eviction "" "" --value-bytes 262144 --seconds "$seconds" --allow-refused
  rounds=$((rounds * 3)) bench start "" ""
  bench connections "" "" --seconds "$seconds"
  # What heartbeats feel: the C++ master has no port for them.
  bench flood "--rpc_thread_num=1 --client_active_ttl_sec=3 --heartbeat_rpc_port={heartbeat_port}" \
    "--rpc_thread_num=1 --client_ttl=3" --seconds "$((seconds * 2))" --allow-refused
}

incident() {
  local count others
  for count in ${BENCH_VICTIM_KEYS:-1000000 4000000}; do
    bench incident "$short_ttls" "--client_ttl=3" --victim-keys "$count" --variant alone,remount,new-client \
      --limit 600 --allow-refused
  done
  # What a sweep costs follows from what the client had, not from what the store holds. Of this master only.
  for others in ${BENCH_OTHER_KEYS:-2000000 7900000}; do
    theirs="" bench incident "$short_ttls" "" --victim-keys 100000 --other-keys "$others" --variant alone --limit 600
  done
}

growth() {
  local seconds=${BENCH_SECONDS:-2} count
  for count in 2500 25000 250000 1000000; do
    bench load "" "" --sweep keys --op get,exist,put -c 4 --prefill "$count" --seconds "$seconds"
  done
  for count in 1 16 128 512 2000; do
    bench load "" "" --sweep clients --op put,get --clients "$count" --seconds "$seconds"
  done
  bench load "" "" --sweep connections --op get,put,ping -c 1,4,16,64,256,1024 --prefill 500 --seconds "$seconds"
  for count in 1 8 32 128 512 2048; do
    bench load "" "" --sweep batch --op batchget,batchexist,batchput --batch "$count" --seconds "$seconds"
  done
}

case $what in
  alone)
    compare
    bench incident "$short_ttls" "" --victim-keys 1000000 --variant alone
    ;;
  *) $what ;;
esac

printf '\n== report\n'
report=("$results" --markdown "${results%.jsonl}.md")
[ "$what" != growth ] || report+=(--plots "${results%.jsonl}")
"$programs/mooncake-bench" report "${report[@]}"
echo "results: $results"
[ -z "$failed" ] || { echo "FAILED:$failed" >&2; exit 1; }
