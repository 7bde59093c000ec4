#!/bin/bash
# configure.sh NODE...: renders config/* into $DATA/conf and $NODE_DATA/conf. A file is written only if it differs:
# kube-proxy leaves when its file changes.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"

# A runtime without CAP_SYS_RESOURCE cannot lower an oom_score_adj, and then fails every sandbox.
effective=$((16#$(awk '/^CapEff/ {print $2}' /proc/self/status)))
if (( effective >> 24 & 1 )); then restrict_oom=false; else restrict_oom=true; fi

render() { # SOURCE TARGET
  local rendered
  rendered=$(sed -e "s|@DATA@|$DATA|g; s|@NODE_DATA@|$NODE_DATA|g; s|@NODE@|$NODE|g; s|@NODE_IP@|$NODE_IP|g; s|@CONTROL_IP@|$CONTROL_IP|g
    s|@POD_RANGE@|$POD_RANGE|g; s|@POD_RANGES@|$POD_RANGES|g; s|@CGROUP_ROOT@|$CGROUP_ROOT|g; s|@RESTRICT_OOM@|$restrict_oom|g" "$HERE/config/$1")
  if [ "$rendered" != "$(cat "$2" 2>/dev/null)" ]; then printf '%s\n' "$rendered" >"$2"; fi
}
for file in etcd.yaml Corefile scheduler.yaml; do render $file "$DATA/conf/$file"; done
[ -e "$DATA/conf/resolv.conf" ] || : >"$DATA/conf/resolv.conf"
for node in "$@"; do
  use_node "$node"
  mkdir -p "$NODE_DATA"/conf/cni
  for file in kubelet.yaml kube-proxy.yaml containerd.toml; do render $file "$NODE_DATA/conf/$file"; done
  render cni.conflist "$NODE_DATA/conf/cni/10-pods.conflist"
done
