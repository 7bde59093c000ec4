#!/bin/bash
# load.sh ARCHIVE...: hands image archives to the cluster's containerd.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
for archive in "$@"; do containers images import "$archive" >/dev/null; done
