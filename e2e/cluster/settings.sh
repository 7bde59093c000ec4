# shellcheck shell=bash disable=SC2034
# Names and addresses of the local cluster. Sourced by the other scripts of this directory.

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")

# Everything that the cluster writes. A short path on purpose: it holds Unix sockets, whose paths are bounded.
DATA=${CLUSTER_DIR:-/var/tmp/mooncake-cluster}
# What is worth keeping between runs: programs, Python environments. Each entry is keyed by what went into it.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/mooncake-operator-e2e

NETNS=k8s            # the node's network namespace, and with it of everything that is the cluster
NODE=node1
HOST_IP=10.250.0.1   # this machine's end of the link to the node
NODE_IP=10.250.0.2
LINK_RANGE=10.250.0.0/16
POD_RANGE=10.244.0.0/24
POD_RANGES=10.244.0.0/16
SERVICE_RANGE=10.96.0.0/16
API_SERVICE_IP=10.96.0.1

CONTAINERD_SOCKET=$DATA/containerd/containerd.sock
ADMIN_KUBECONFIG=$DATA/pki/admin.kubeconfig

# Not `ip netns exec`: that mounts a new /sys, and the cgroups would be gone.
in_netns() { nsenter --net=/run/netns/$NETNS -- "$@"; }
containers() { ctr -a "$CONTAINERD_SOCKET" -n k8s.io "$@"; }
kubectl_admin() { "${PROGRAMS:=$("$HERE/programs.sh" --where)}/kubectl" --kubeconfig "$ADMIN_KUBECONFIG" "$@"; }
