#!/usr/bin/env python3
"""The policy on dependencies, from deny.toml: licences, sources, wanted duplicates.

cargo-deny reads the same file and does more; it takes longer to compile than all of this project, and its advisory
database cannot be had without a network. So this checks what can be checked with cargo alone; whoever has cargo-deny
runs `cargo deny check` for known vulnerabilities, too.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def satisfied(expression, allowed):
    """Whether an SPDX expression can be met with the allowed licences alone."""
    tokens = re.findall(r"\(|\)|AND|OR|WITH|[^\s()]+", expression.replace("/", " OR "))

    def alternatives():
        result = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            result = conjunction() or result
        return result

    def conjunction():
        result = licence()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            result = licence() and result
        return result

    def licence():
        token = tokens.pop(0)
        if token == "(":
            result = alternatives()
            tokens.pop(0)
            return result
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in allowed

    return alternatives()


def main():
    policy = tomllib.loads((ROOT / "deny.toml").read_text())
    metadata = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", policy["graph"]["targets"][0]],
        cwd=ROOT))
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    packages = [package for package in metadata["packages"] if package["id"] in used]
    problems = []

    allowed = set(policy["licenses"]["allow"])
    exceptions = {entry["crate"]: set(entry["allow"]) for entry in policy["licenses"].get("exceptions", [])}
    for package in packages:
        expression = package["license"]
        if not expression:
            problems.append(f"{package['name']} {package['version']} names no licence")
        elif not satisfied(expression, allowed | exceptions.get(package["name"], set())):
            problems.append(f"{package['name']} {package['version']} is under {expression}, which deny.toml does not allow")

    for package in packages:
        source = package["source"]
        if source is not None and not source.startswith(("registry+", "sparse+")):
            problems.append(f"{package['name']} {package['version']} comes from {source}, not from a registry")

    for ban in policy["bans"]["deny"]:
        for package in packages:
            if package["name"] == ban["crate"]:
                problems.append(f"{package['name']} is banned: {ban['reason']}")
    versions = collections.defaultdict(set)
    for package in packages:
        versions[package["name"]].add(package["version"])
    known = {entry["crate"] for entry in policy["bans"]["skip"]}
    duplicates = {name: found for name, found in versions.items() if len(found) > 1}
    for name, found in sorted(duplicates.items()):
        if name not in known:
            problems.append(f"{name} is there more than once: {', '.join(sorted(found))}; agree on one or add it to bans.skip with a reason")
    for name in sorted(known - duplicates.keys()):
        problems.append(f"{name} is in bans.skip and is there only once: remove it from there")

    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(packages)} packages, {len(duplicates)} known duplicates, {len(problems)} problems; "
          "advisories are not checked here (cargo deny check does)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
