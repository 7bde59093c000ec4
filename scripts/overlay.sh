#!/bin/bash
# overlay.sh DIRECTORY: writes a kustomization there that is manifests/base (and with WITH_SAMPLE=1 manifests/samples)
# with the images $MASTER_IMAGE and $OPERATOR_IMAGE.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/../e2e/cluster/settings.sh"
directory=$1
mkdir -p "$directory"
base=$(realpath --relative-to="$directory" "$ROOT/manifests")
case ${OPERATOR_IMAGE:?} in
  *@*) operator="newName: ${OPERATOR_IMAGE%@*}, digest: ${OPERATOR_IMAGE#*@}" ;;
  *) operator="newName: ${OPERATOR_IMAGE%:*}, newTag: \"${OPERATOR_IMAGE##*:}\"" ;;
esac
{
  echo "resources:"
  echo "- $base/base"
  [ -z "${WITH_SAMPLE:-}" ] || echo "- $base/samples"
  echo "images:"
  echo "- {name: localhost/mooncake-operator, $operator}"
  if [ -n "${WITH_SAMPLE:-}" ]; then
    echo "patches:"
    echo "- target: {kind: MooncakeMaster}"
    echo "  patch: '[{\"op\": \"replace\", \"path\": \"/spec/image\", \"value\": \"${MASTER_IMAGE:?}\"}]'"
  fi
} >"$directory/kustomization.yaml"
