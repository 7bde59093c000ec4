#!/bin/bash
# The network namespaces of the nodes: the first is joined to this machine by one veth pair, the second to the first.
#   network.sh up [NODE...]  (node1) nothing for one that is there
#   network.sh cut           the second node hears nobody and nobody hears it, until
#   network.sh mend
#   network.sh release       takes the guard routes away, if nobody holds a connection into the cluster's ranges
# No namespace has a default route: nothing is ever forwarded out of the cluster.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
GUARDED="$LINK_RANGE $POD_RANGES $SERVICE_RANGE"
GUARD_METRIC=9999
SECOND_LINK_IP=10.250.1.1   # the first node's end of the link to the second
at_node1() { nsenter --net=/run/netns/k8s -- "$@"; }

up() {
  # Should the cluster go away under a client, its packets must end here and not leave by the default route.
  for range in $GUARDED; do ip route replace unreachable "$range" metric $GUARD_METRIC; done
  for node in "${@:-node1}"; do
    use_node "$node"
    [ -e /run/netns/$NETNS ] || "join_$node"
  done
}

# What every node's namespace needs, once its link kn0 is there.
prepare() {
  in_netns ip link set lo up
  in_netns ip addr add $NODE_IP/30 dev kn0
  in_netns ip link set kn0 up
  # The node reaches Services too, and without any route a packet never gets as far as kube-proxy's rewrite.
  in_netns ip route add $SERVICE_RANGE dev kn0 src $NODE_IP
  in_netns sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  in_netns sh -c 'echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables' 2>/dev/null || true
}

join_node1() {
  ip netns add $NETNS
  ip link add kh0 type veth peer name kn0 netns $NETNS
  ip addr add $HOST_IP/30 dev kh0
  ip link set kh0 up
  prepare
  ip route add $POD_RANGE via $CONTROL_IP dev kh0
  ip route add $SERVICE_RANGE via $CONTROL_IP dev kh0
}

join_node2() {
  ip netns add $NETNS
  at_node1 ip link add kx0 type veth peer name kn0 netns $NETNS
  at_node1 ip addr add $SECOND_LINK_IP/30 dev kx0
  at_node1 ip link set kx0 up
  prepare
  at_node1 ip route add $POD_RANGE via $NODE_IP dev kx0
  in_netns ip route add $POD_RANGES via $SECOND_LINK_IP dev kn0
  in_netns ip route add "${HOST_IP%.*}.0/30" via $SECOND_LINK_IP dev kn0
  ip route add $POD_RANGE via $CONTROL_IP dev kh0
  ip route add $NODE_IP via $CONTROL_IP dev kh0
}

# Packets are dropped where the two nodes meet; links, addresses and routes stay as they are, as with a broken switch.
cut() {
  at_node1 nft -f - <<'N'
add table inet mooncake-cut
add chain inet mooncake-cut in { type filter hook prerouting priority -400; }
add chain inet mooncake-cut out { type filter hook postrouting priority 400; }
add rule inet mooncake-cut in iifname kx0 drop
add rule inet mooncake-cut out oifname kx0 drop
N
}
mend() { at_node1 nft delete table inet mooncake-cut; }

release() {
  for node in $NODES; do
    use_node "$node"
    [ ! -e /run/netns/$NETNS ] || { echo "the namespace $NETNS is still there" >&2; return 1; }
  done
  for range in $GUARDED; do
    if [ -z "$(ss -Htan state connected exclude time-wait dst "$range")" ]; then
      ip route del unreachable "$range" metric $GUARD_METRIC 2>/dev/null || true
    else
      echo "the guard route for $range stays: somebody still has a connection into it" >&2
    fi
  done
}

case ${1:-} in
  up | cut | mend | release) "$@" ;;
  *) echo "usage: $0 up [NODE...]|cut|mend|release" >&2; exit 2 ;;
esac
