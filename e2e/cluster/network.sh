#!/bin/bash
# The node's network namespace, joined to this machine by one veth pair, with routes to pods and Services.
#   network.sh up       nothing if it is there
#   network.sh release  takes the guard routes away, if nobody holds a connection into the cluster's ranges
# The namespace has no default route: nothing is ever forwarded out of the cluster.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
GUARDED="$LINK_RANGE $POD_RANGES $SERVICE_RANGE"
GUARD_METRIC=9999

up() {
  # Should the cluster go away under a client, its packets must end here and not leave by the default route.
  for range in $GUARDED; do ip route replace unreachable "$range" metric $GUARD_METRIC; done
  [ ! -e /run/netns/$NETNS ] || return 0
  ip netns add $NETNS
  ip link add kh0 type veth peer name kn0 netns $NETNS
  ip addr add $HOST_IP/30 dev kh0
  ip link set kh0 up
  in_netns ip link set lo up
  in_netns ip addr add $NODE_IP/30 dev kn0
  in_netns ip link set kn0 up
  # The node reaches Services too, and without any route a packet never gets as far as kube-proxy's rewrite.
  in_netns ip route add $SERVICE_RANGE dev kn0 src $NODE_IP
  ip route add $POD_RANGE via $NODE_IP dev kh0
  ip route add $SERVICE_RANGE via $NODE_IP dev kh0
  in_netns sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  in_netns sh -c 'echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables' 2>/dev/null || true
}

release() {
  [ ! -e /run/netns/$NETNS ] || { echo "the namespace $NETNS is still there" >&2; return 1; }
  for range in $GUARDED; do
    if [ -z "$(ss -Htan state connected exclude time-wait dst "$range")" ]; then
      ip route del unreachable "$range" metric $GUARD_METRIC 2>/dev/null || true
    else
      echo "the guard route for $range stays: somebody still has a connection into it" >&2
    fi
  done
}

case ${1:-} in
  up | release) "$1" ;;
  *) echo "usage: $0 up|release" >&2; exit 2 ;;
esac
