#!/bin/bash
# Builds the programs of the cluster from pinned Go modules and prints the directory that holds them.
#   programs.sh           builds if needed; cold about 7 minutes on two quiet cores and 4 GB of disk while it runs
#   programs.sh --where   only prints; fails when they are not built
# Three modules, because CoreDNS inside Kubernetes' own would raise client-go to another minor release.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"

KUBERNETES=v1.36.3
VERSION_PACKAGE=k8s.io/component-base/version
# Without these the programs report v0.0.0, and kubectl warns of skew.
LDFLAGS="-s -w -X $VERSION_PACKAGE.gitVersion=$KUBERNETES -X $VERSION_PACKAGE.gitMajor=1 -X $VERSION_PACKAGE.gitMinor=36 -X $VERSION_PACKAGE.gitTreeState=clean -X $VERSION_PACKAGE.gitCommit=unknown -X $VERSION_PACKAGE.buildDate=2026-01-01T00:00:00Z"
key=$( (go version; echo "$LDFLAGS"; cat "$HERE"/tools/*/go.sum "$HERE"/tools/*/go.mod "$HERE"/tools/coredns/main.go) | sha256sum | cut -c1-16)
out=$CACHE/$key

if [ ! -e "$out/.ok" ]; then
  [ "${1:-}" != --where ] || { echo "the cluster's programs are not built; run $0" >&2; exit 1; }
  mkdir -p "$out"
  free=$(df --output=avail -BM "$out" | tail -1 | tr -dc 0-9)
  [ "$free" -gt 6000 ] || { echo "building Kubernetes needs 6 GB of free disk at $out, there are $free MB" >&2; exit 1; }
  # A build cache of its own, thrown away after: 3 GB that nothing will ever hit again.
  build_cache=$(mktemp -d "$out/build-cache.XXXX")
  trap 'rm -rf "$build_cache"' EXIT
  export GOCACHE=$build_cache CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    echo "building $program $KUBERNETES" >&2
    (cd "$HERE/tools/kubernetes" && go build -trimpath -ldflags "$LDFLAGS" -o "$out/" k8s.io/kubernetes/cmd/$program)
  done
  echo "building etcd" >&2
  (cd "$HERE/tools/etcd" && go build -trimpath -ldflags "-s -w" -o "$out/etcd" go.etcd.io/etcd/server/v3)
  echo "building coredns" >&2
  (cd "$HERE/tools/coredns" && go build -trimpath -ldflags "-s -w" -o "$out/coredns" .)
  touch "$out/.ok"
fi
echo "$out"
