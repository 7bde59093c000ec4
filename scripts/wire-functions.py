#!/usr/bin/env python3
"""Which functions of the native protocol are in the binaries of a Mooncake release, and whether their types are known.

usage: wire-functions.py BINARY...      e.g. the store*.so and mooncake_master of an unpacked wheel

Writes a line for each function whose id is in a binary: its name, and for its arguments and its result "known" or
"changed". Known is what has a hash of the newest generation. Functions that no generation has cannot be found this way:
compare with the release's list of handlers (strings BINARY | grep WrappedMasterService).
"""

import json
import pathlib
import sys

TABLE = pathlib.Path(__file__).parent.parent / "master/tests/fixtures/wire/hashes-0.3.13.json"


def main(paths):
    binaries = [pathlib.Path(path).read_bytes() for path in paths]

    def is_there(number):
        # Bit 0 of a head says that a byte follows it, so that a compiler may have either as a constant.
        forms = [value.to_bytes(4, "little") for value in (number, number | 1)]
        return any(form in binary for form in forms for binary in binaries)

    for name, (function, args, result) in json.loads(TABLE.read_text()).items():
        if not any(int(function, 16).to_bytes(4, "little") in binary for binary in binaries):
            continue
        known = ["-" if hash == "-" else "known" if is_there(int(hash, 16)) else "changed" for hash in (args, result)]
        print(f"{name:26} arguments {known[0]:8} result {known[1]}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
