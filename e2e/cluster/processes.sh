# shellcheck shell=bash
# Starting and stopping the cluster's processes, each by the pid in $NODE_DATA/run/NAME.pid. Sourced after settings.sh.

# The pid of NAME if that process lives and still is that program: pids are used again, files outlive a reboot.
pid_of() {
  local pid program
  pid=$(cat "$NODE_DATA/run/$1.pid" 2>/dev/null) || return 1
  program=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | head -1)
  [ "${program##*/}" = "$1" ] || return 1
  echo "$pid"
}

# start NAME COMMAND...: in the node's network namespace, in a session of its own; nothing if it runs already.
start() {
  local name=$1; shift
  if pid_of "$name" >/dev/null; then return 0; fi
  nsenter --net=/run/netns/$NETNS -- setsid "$@" >>"$NODE_DATA/logs/$name.log" 2>&1 </dev/null &
  echo $! >"$NODE_DATA/run/$name.pid"
}

# stop NAME...: asks all, then waits up to 5 s for each, then kills.
stop() {
  local name pid
  for name in "$@"; do
    # A test may have frozen it, and a frozen process hears no TERM.
    if pid=$(pid_of "$name"); then kill -TERM "$pid"; kill -CONT "$pid"; fi
  done 2>/dev/null
  for name in "$@"; do
    if pid=$(pid_of "$name"); then
      for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
      kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$NODE_DATA/run/$name.pid"
  done
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local seconds=$1 what=$2; shift 2
  local end=$((SECONDS + seconds))
  while ! "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then echo "not within $seconds s: $what (logs: $DATA/logs)" >&2; return 1; fi
    sleep 0.1
  done
  elapsed "$what"
}

began=${EPOCHREALTIME/[.,]/}
elapsed() {
  local now=${EPOCHREALTIME/[.,]/}
  local ms=$(((now - began) / 1000))
  printf '%4d.%01d s  %s\n' $((ms / 1000)) $((ms % 1000 / 100)) "$*"
}
