#!/usr/bin/env python3
"""Packs a directory into a one-layer OCI image archive, without Docker and without a registry.

The image's configuration is taken from the last stage of a Containerfile: USER, ENTRYPOINT, EXPOSE, ENV and LABEL.
The same input gives the same bytes. The image is named NAME:TAG and NAME:<12 hex digits of its content>; the second
name is printed: a cluster that is told that one starts new pods exactly when the content changed.
"""

import argparse
import hashlib
import io
import json
import pathlib
import platform
import shlex
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_config(containerfile):
    """The runtime configuration that the last stage of a Containerfile describes."""
    config = {"Env": ["PATH=/usr/bin"], "Labels": {}, "ExposedPorts": {}}
    for line in containerfile.read_text().splitlines():
        instruction, _, value = line.strip().partition(" ")
        if instruction == "FROM":
            config = {"Env": ["PATH=/usr/bin"], "Labels": {}, "ExposedPorts": {}}
        elif instruction == "USER":
            config["User"] = value
        elif instruction == "ENTRYPOINT":
            config["Entrypoint"] = json.loads(value)
        elif instruction == "EXPOSE":
            config["ExposedPorts"] |= {f"{port}/tcp": {} for port in value.split()}
        elif instruction == "ENV":
            config["Env"] += shlex.split(value)
        elif instruction == "LABEL":
            config["Labels"] |= dict(pair.split("=", 1) for pair in shlex.split(value))
        elif instruction not in ("COPY", "WORKDIR", "RUN", "") and not instruction.startswith("#"):
            raise SystemExit(f"{containerfile}: {instruction} is not understood here")
    return config


def layer(rootfs):
    """The directory as a tar whose bytes depend on names, modes and contents only."""
    def normalize(entry):
        entry.mtime = 0
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(rootfs.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(rootfs)), recursive=False, filter=normalize)
    return buffer.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--containerfile", type=pathlib.Path, required=True)
    parser.add_argument("--rootfs", type=pathlib.Path, required=True)
    parser.add_argument("--name", required=True, help="without a tag, such as localhost/mooncake-master")
    parser.add_argument("--tag", default="dev")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    blobs = {}

    def blob(media_type, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def document(media_type, content):
        return blob(media_type, json.dumps(content, sort_keys=True).encode())

    content = blob("application/vnd.oci.image.layer.v1.tar", layer(arguments.rootfs))
    config = document("application/vnd.oci.image.config.v1+json", {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": image_config(arguments.containerfile),
        "rootfs": {"type": "layers", "diff_ids": [content["digest"]]},
        "history": [{"created_by": arguments.containerfile.name}],
    })
    manifest = document("application/vnd.oci.image.manifest.v1+json", {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [content],
    })
    short = manifest["digest"].removeprefix("sha256:")[:12]
    names = [f"{arguments.name}:{tag}" for tag in (arguments.tag, short)]
    index = {
        "schemaVersion": 2,
        "manifests": [
            manifest | {"annotations": {
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
            }} for name in names
        ],
    }

    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
    with tarfile.open(arguments.output, "w") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    print(names[1])


if __name__ == "__main__":
    main()
