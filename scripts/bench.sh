#!/bin/bash
# Measures the master, alone or beside the C++ one from PyPI, in turns on this machine.
#   bench.sh alone
#   bench.sh compare
#   bench.sh incident   a client with 1 M and with 4 M keys expires, beside the C++ master; then 100 k of 2.1 M and of 8 M
# The JSON lines go to target/bench/. Shorter or longer: BENCH_SECONDS (5) of each measurement, BENCH_ROUNDS (3),
# BENCH_KEYS (1000000) of the memory and incident cases.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"
cd "$ROOT"

seconds=${BENCH_SECONDS:-5}
rounds=${BENCH_ROUNDS:-3}
keys=${BENCH_KEYS:-1000000}
profile=${BENCH_PROFILE:-release}

cargo build --locked --profile "$profile" -p mooncake-master -p mooncake-bench
target=$(cargo metadata --format-version 1 --no-deps --offline | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
programs=$target/$profile
[ "$profile" != dev ] || programs=$target/debug
results=$ROOT/target/bench/$(date -u +%Y%m%dT%H%M%SZ).jsonl
mkdir -p "${results%/*}"

ours="ours=spawn:$programs/mooncake-master --rpc_address=127.0.0.1 --rpc_port={rpc_port} --metrics_host=127.0.0.1 --metrics_port={metrics_port} --termination_log="
theirs=
case ${1:-} in
  alone) ;;
  compare | incident)
    python=$(scripts/prepare.sh client)
    cpp=$("$python" -c 'import pathlib, mooncake; print(pathlib.Path(mooncake.__file__).parent / "mooncake_master")')
    theirs="theirs=spawn:$cpp --rpc_port={rpc_port} --metrics_port={metrics_port}"
    ;;
  *) echo "usage: $0 alone|compare|incident" >&2; exit 2 ;;
esac

# bench COMMAND FLAGS-OF-OURS FLAGS-OF-THEIRS ARGUMENTS...
bench() {
  local command=$1 of_ours=$2 of_theirs=$3
  shift 3
  printf '\n== %s %s\n' "$command" "$*"
  local targets=(--target "$ours $of_ours")
  [ -z "$theirs" ] || targets+=(--target "$theirs $of_theirs")
  "$programs/mooncake-bench" "$command" "${targets[@]}" --rounds "$rounds" --json "$results" "$@"
}

short_ttls="--client_active_ttl_sec=3 --client_suspicion_ttl_sec=3 --client_offline_grace_sec=0"
if [ "$1" = incident ]; then
  for count in ${BENCH_VICTIM_KEYS:-1000000 4000000}; do
    bench incident "$short_ttls" "--client_ttl=3" --victim-keys "$count" --variant alone,remount,new-client \
      --limit 600 --allow-refused
  done
  # What a sweep costs follows from what the client had, not from what the store holds. Of this master only.
  theirs=
  for others in ${BENCH_OTHER_KEYS:-2000000 7900000}; do
    bench incident "$short_ttls" "" --victim-keys 100000 --other-keys "$others" --variant alone --limit 600
  done
  echo "results: $results"
  exit 0
fi

bench load "" "" -c 4,64 --seconds "$seconds"
bench memory "" "" --keys "$keys"
# What heartbeats feel: the C++ master has no port for them.
bench flood "--rpc_thread_num=1 --client_active_ttl_sec=3 --heartbeat_rpc_port={heartbeat_port}" \
  "--rpc_thread_num=1 --client_ttl=3" --seconds "$((seconds * 2))" --allow-refused
bench incident "$short_ttls" "--client_ttl=3" --victim-keys "$keys" --variant alone,remount,new-client
if [ -z "$theirs" ]; then
  bench load "" "" --protocol grpc -c 4 --seconds "$seconds"
fi
echo "results: $results"
