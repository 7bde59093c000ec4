# shellcheck shell=bash
# Steps with a log each, progress for those that take long, and a table of times at the end. Sourced.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../e2e/cluster/settings.sh"
LOGS=$ROOT/target/logs

child=
times=()
script_began=$SECONDS

# The running step, with all that it started, is a process group of its own; whoever interrupts us means it, too.
stop_child() {
  [ -n "$child" ] || return 0
  kill -TERM -- "-$child" 2>/dev/null
  wait "$child"
  child=
}
interrupted() {
  stop_child
  exit 130
}
trap interrupted INT TERM

seconds_since() {
  local now=${EPOCHREALTIME/[.,]/}
  printf '%d.%01d' $(((now - $1) / 1000000)) $(((now - $1) % 1000000 / 100000))
}

# step TITLE COMMAND...: runs it with its output in a log of its own. Says what is going on from 2 s on, every 10 s;
# prints the end of the log when it fails, and ends the script.
step() { STEP_OUTPUT=quiet run_step "$@"; }
# The same with the command's output shown at once.
shown_step() { STEP_OUTPUT=shown run_step "$@"; }

run_step() {
  local title=$1 began=${EPOCHREALTIME/[.,]/} status=0 log next=2
  shift
  mkdir -p "$LOGS"
  log=$LOGS/$(tr -cs '[:alnum:]\n' - <<<"$title").log
  printf '== %s\n' "$title"
  set -m
  if [ "$STEP_OUTPUT" = shown ]; then
    "$@" </dev/null &
  else
    "$@" >"$log" 2>&1 </dev/null &
  fi
  child=$!
  set +m
  while kill -0 $child 2>/dev/null; do
    sleep 0.1
    if [ "$STEP_OUTPUT" = quiet ] && [ $((10#$(seconds_since "$began" | cut -d. -f1))) -ge $next ]; then
      printf '   %s s  %s\n' "$(seconds_since "$began")" "$(tail -n 1 "$log" | tr -d '\r' | cut -c1-110)"
      next=$((next + 10))
    fi
  done
  wait $child || status=$?
  child=
  times+=("$(seconds_since "$began")|$title")
  if [ $status -ne 0 ]; then
    [ "$STEP_OUTPUT" = shown ] || { tail -n 60 "$log"; echo "-- the whole output: $log"; }
    echo "FAILED after $(seconds_since "$began") s: $title"
    print_times
    exit 1
  fi >&2
  printf '   done in %s s\n' "$(seconds_since "$began")"
}

print_times() {
  echo "== Times"
  local entry
  for entry in "${times[@]}"; do printf '%9s s  %s\n' "${entry%%|*}" "${entry#*|}"; done
  printf '%9s s  in all\n' $((SECONDS - script_began))
}

# preflight HINT [machine]: one sentence and the end of the script, if the local cluster cannot run here.
preflight() {
  local hint=$1 reasons
  shift
  if ! reasons=$("$ROOT/e2e/cluster/preflight.sh" "$@"); then
    echo "The local cluster cannot run here: $(paste -sd, <<<"$reasons" | sed 's/,/, /g'). $hint" >&2
    exit 1
  fi
}
