#!/bin/bash
# kill-container.sh NAMESPACE POD: SIGKILL to the pod's first container's main process, from the node. (A SIGKILL sent
# from inside a container never reaches its own PID 1.) Prints the container's id and the pid.
set -euo pipefail
container=$("$(dirname "$(readlink -f "$0")")/container-pid.sh" "$@")
kill -KILL "${container#* }"
echo "$container"
