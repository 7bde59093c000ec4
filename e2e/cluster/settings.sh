# shellcheck shell=bash disable=SC2034
# Names and addresses of the local cluster. Sourced by the other scripts of this directory.

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")

# Everything that the cluster writes. A short path on purpose: it holds Unix sockets, whose paths are bounded.
DATA=${CLUSTER_DIR:-/var/tmp/mooncake-cluster}
# What is worth keeping between runs: programs, Python environments. Each entry is keyed by what went into it.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/mooncake-operator-e2e

HOST_IP=10.250.0.1   # this machine's end of the link to the first node
CONTROL_IP=10.250.0.2   # the first node, which holds the control plane and the name server
LINK_RANGE=10.250.0.0/16
POD_RANGES=10.244.0.0/16
SERVICE_RANGE=10.96.0.0/16
API_SERVICE_IP=10.96.0.1

ADMIN_KUBECONFIG=$DATA/pki/admin.kubeconfig

# The nodes that there can be. Each has a network namespace, a containerd and a kubelet of its own.
NODES="node1 node2"
# use_node NODE: what in_netns, containers, start and stop work on from here on.
use_node() {
  NODE=$1
  case $1 in
    node1) NETNS=k8s NODE_IP=$CONTROL_IP POD_RANGE=10.244.0.0/24 NODE_DATA=$DATA CGROUP_ROOT=/ ;;
    # Two kubelets that share a cgroup root would each take away what the other has made.
    node2) NETNS=k8s-node2 NODE_IP=10.250.1.2 POD_RANGE=10.244.1.0/24 NODE_DATA=$DATA/node2 CGROUP_ROOT=/k8s-node2 ;;
    *) echo "the nodes are: $NODES" >&2; return 2 ;;
  esac
  CONTAINERD_SOCKET=$NODE_DATA/containerd/containerd.sock
}
use_node node1

# Not `ip netns exec`: that mounts a new /sys, and the cgroups would be gone.
in_netns() { nsenter --net=/run/netns/$NETNS -- "$@"; }
containers() { ctr -a "$CONTAINERD_SOCKET" -n k8s.io "$@"; }
kubectl_admin() { "${PROGRAMS:=$("$HERE/programs.sh" --where)}/kubectl" --kubeconfig "$ADMIN_KUBECONFIG" "$@"; }
