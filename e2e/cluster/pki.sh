#!/bin/bash
# One authority, EC keys, and a kubeconfig for each program: about a second in all. Kept while valid for another day.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
DAYS=30
mkdir -p "$DATA/pki"
cd "$DATA/pki"
if [ -s admin.kubeconfig ] && openssl x509 -checkend 86400 -noout -in ca.crt >/dev/null; then exit 0; fi

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key" 2>/dev/null; }
issue() { # NAME SUBJECT USAGE [ALTERNATIVE NAMES]
  new_key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  {
    echo "basicConstraints=CA:FALSE"
    echo "keyUsage=digitalSignature"
    echo "extendedKeyUsage=$3"
    [ -z "${4:-}" ] || echo "subjectAltName=$4"
  } >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days $DAYS -extfile "$1.ext" -out "$1.crt" 2>/dev/null
}
kubeconfig() { # NAME CERTIFICATE
  cat >"$1.kubeconfig" <<Y
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster: {server: "https://$CONTROL_IP:6443", certificate-authority-data: $(base64 -w0 ca.crt)}
users:
- name: $2
  user: {client-certificate-data: $(base64 -w0 "$2.crt"), client-key-data: $(base64 -w0 "$2.key")}
contexts:
- name: local
  context: {cluster: local, user: $2}
current-context: local
Y
}

new_key ca
openssl req -x509 -new -key ca.key -subj /CN=local-cluster -days $DAYS -out ca.crt
service=kubernetes.default.svc
issue apiserver /CN=kube-apiserver serverAuth \
  "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:$service,DNS:$service.cluster.local,IP:127.0.0.1,IP:$CONTROL_IP,IP:$API_SERVICE_IP"
for node in $NODES; do
  use_node "$node"
  issue "$NODE-server" "/CN=$NODE" serverAuth "DNS:$NODE,IP:$NODE_IP,IP:127.0.0.1"
  issue "$NODE" "/O=system:nodes/CN=system:node:$NODE" clientAuth
done
issue apiserver-kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client" clientAuth
issue front-proxy /CN=front-proxy-client clientAuth
issue admin "/O=system:masters/CN=admin" clientAuth
issue controller-manager /CN=system:kube-controller-manager clientAuth
issue scheduler /CN=system:kube-scheduler clientAuth
issue proxy /CN=system:kube-proxy clientAuth
openssl genrsa -out service-account.key 2048 2>/dev/null
openssl rsa -in service-account.key -pubout -out service-account.pub 2>/dev/null
for name in controller-manager scheduler proxy; do kubeconfig $name $name; done
for node in $NODES; do kubeconfig "$node" "$node"; done
kubeconfig admin admin   # last: its presence says that everything is there
