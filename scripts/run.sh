#!/bin/bash
# `make run`: from nothing to a serving pair of masters on Kubernetes, and the real client on top of it.
# With KUBECONFIG exported: on that cluster, with the images MASTER_IMAGE and OPERATOR_IMAGE, which its nodes can pull.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$ROOT"
SCRIPTS=$ROOT/scripts

own_cluster="To use a cluster of your own instead: KUBECONFIG=/path/to/config MASTER_IMAGE=... OPERATOR_IMAGE=... make run"
overlay=$(mktemp -d)
trap 'rm -rf "$overlay"' EXIT

if [ -n "${KUBECONFIG:-}" ] && [ "$KUBECONFIG" != "$ADMIN_KUBECONFIG" ]; then
  if [ -z "${MASTER_IMAGE:-}" ] || [ -z "${OPERATOR_IMAGE:-}" ]; then
    echo "KUBECONFIG is set: name the images that this cluster can pull in MASTER_IMAGE and OPERATOR_IMAGE, or unset KUBECONFIG to get a local cluster." >&2
    exit 2
  fi
  command -v kubectl >/dev/null || { echo "kubectl is missing; it is needed to use your own cluster." >&2; exit 2; }
  kubectl=kubectl
  where=own
else
  # From here on no surprise from the caller's environment.
  unset KUBECONFIG MASTER_IMAGE OPERATOR_IMAGE
  where=local
  preflight "$own_cluster" machine
  step "Install what is missing" "$SCRIPTS/prepare.sh" packages
  preflight "$own_cluster"
  step "Build Kubernetes (once; about 7 minutes on 2 cores)" "$ROOT/e2e/cluster/programs.sh"
  step "Install the Mooncake client from PyPI (once)" "$SCRIPTS/prepare.sh" client
  step "Build the master and the operator" cargo build --release --locked -p mooncake-master -p mooncake-operator
  step "Start the cluster" "$ROOT/e2e/cluster/up.sh"
  step "Pack and load the images" "$SCRIPTS/images.sh"
  . "$DATA/images/names"
  export KUBECONFIG=$ADMIN_KUBECONFIG
  kubectl=$("$ROOT/e2e/cluster/programs.sh" --where)/kubectl
fi
export MASTER_IMAGE OPERATOR_IMAGE

apply() {
  "$SCRIPTS/overlay.sh" "$overlay/base"
  WITH_SAMPLE=1 "$SCRIPTS/overlay.sh" "$overlay/all"
  # Definitions first: the sample is of a kind that the server does not know before.
  "$kubectl" apply -k "$overlay/base"
  "$kubectl" wait --for=condition=Established crd/mooncakemasters.store.mooncake.io --timeout=30s
  "$kubectl" apply -k "$overlay/all"
}
available() {
  "$kubectl" wait --for=condition=Available "$sample" --timeout=180s
  "$kubectl" get mooncakemasters
}
step "Apply the definitions, the operator and the sample" apply
sample=$("$kubectl" get -k "$overlay/all" -o name | grep '^mooncakemaster')
step "Wait until $sample is Available" available

case $where in
  local) shown_step "The real client: put, read back, lose the active, go on" python3 "$SCRIPTS/demo.py" --kubectl "$kubectl" \
    --resource "$sample" --node-address $NODE_IP --kill "$ROOT/e2e/cluster/kill-container.sh" --log "$LOGS/demo-client.log" -- \
    nsenter --net=/run/netns/$NETNS -- "$("$SCRIPTS/prepare.sh" client)" "$ROOT/e2e/client/store_client.py" ;;
  own) echo "   The real client needs the pods' network, which is rarely reachable from outside a cluster: this part is left out." ;;
esac

"$kubectl" get mooncakemasters
print_times
if [ $where = local ]; then
  echo "The cluster keeps running: export KUBECONFIG=$ADMIN_KUBECONFIG. make clean-cluster takes it away."
fi
