#!/bin/bash
# `make clean-cluster`: no process, mount, cgroup, namespace, route or file of the local cluster stays. What is costly
# to make again (the programs, the client's environment) stays in the cache directory, which is printed.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"
[ "$(id -u)" = 0 ] || { echo "only root can take the cluster away, as only root can have started it" >&2; exit 1; }
"$ROOT/e2e/cluster/down.sh" --wipe
"$ROOT/e2e/cluster/network.sh" release
left=0
check() { if [ -n "$2" ]; then echo "left behind: $1: $2" >&2; left=1; fi; }
check "mounts" "$(awk -v data="$DATA/" 'index($2, data) == 1 {print $2}' /proc/mounts)"
for node in $NODES; do
  use_node "$node"
  group=${CGROUP_ROOT#/}
  check "cgroups of $node" "$(ls -d /sys/fs/cgroup/*/"${group:-kubepods}" /sys/fs/cgroup/"${group:-kubepods}" 2>/dev/null || true)"
  check "namespace of $node" "$(ls -d /run/netns/$NETNS 2>/dev/null || true)"
done
check "files" "$(ls -d "$DATA" 2>/dev/null || true)"
# A pattern that does not match itself in the command line of this very grep.
check "processes" "$(grep -ls "[/]${DATA#/}/" /proc/[0-9]*/cmdline || true)"
[ $left = 0 ] || exit 1
echo "The cluster is gone. Kept for the next one: $CACHE"
