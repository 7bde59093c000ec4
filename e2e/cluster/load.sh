#!/bin/bash
# load.sh ARCHIVE...: hands image archives to the containerd of every node that is there.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
for node in $NODES; do
  use_node "$node"
  [ -S "$CONTAINERD_SOCKET" ] || continue
  for archive in "$@"; do containers images import "$archive" >/dev/null; done
done
