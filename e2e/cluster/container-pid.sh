#!/bin/bash
# container-pid.sh NAMESPACE POD: prints the id of the pod's first container and the pid of its main process.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
[ $# = 2 ] || { echo "usage: $0 NAMESPACE POD" >&2; exit 2; }
use_node "$(kubectl_admin -n "$1" get pod "$2" -o 'jsonpath={.spec.nodeName}')"
id=$(kubectl_admin -n "$1" get pod "$2" -o 'jsonpath={.status.containerStatuses[0].containerID}')
id=${id#containerd://}
pid=$(containers tasks ls | awk -v id="$id" '$1 == id && $3 == "RUNNING" {print $2}')
[ -n "$pid" ] || { echo "the container ${id:-of $2} does not run" >&2; exit 1; }
echo "$id $pid"
