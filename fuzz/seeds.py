"""Writes a corpus for each target: python3 fuzz/seeds.py

native_frame, conversations: what was captured, and for each function of each release a request in which every number is
zero and every list empty. config: each option of docs/flags.md at its default, from each source.
"""
import hashlib, json, pathlib, struct
here = pathlib.Path(__file__).parent
wire = here.parent / "master/tests/fixtures/wire"
CLASS = "mooncake::WrappedMasterService::"
# More bytes than any function's arguments have when all of it is empty; what is behind them is ignored.
ZEROS = bytes(256)


def write(target, seed):
    corpus = here / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


def frame(function, body):
    return struct.pack("<BBBBIIII", 0x15, 0, 0, 0, 0, function, len(body), 0) + body


def captured():
    """The frames of each capture in their order, and each answer behind the header of its call."""
    for capture in sorted(wire.glob("frames*.jsonl")):
        requests, answers, calls = [], [], {}
        for line in capture.read_text().splitlines():
            entry = json.loads(line)
            if "header" not in entry:
                continue
            header, body = bytes.fromhex(entry["header"]), bytes.fromhex(entry["body"])
            if entry["dir"] == "req":
                requests.append((entry["conn"], header + body))
                calls[entry["conn"], entry["seq"]] = struct.unpack_from("<I", header, 8)[0]
            elif (entry["conn"], entry["seq"]) in calls:
                answers.append(frame(calls[entry["conn"], entry["seq"]], body))
        yield requests, answers


def of_releases():
    """A name of a release, and each of its functions called with nothing."""
    for name, releases in json.loads((wire / "hashes-by-version.json").read_text()).items():
        function = int.from_bytes(hashlib.md5((CLASS + name).encode()).digest()[:4], "big")
        for release, (arguments, _) in releases.items():
            body = b"" if arguments == "-" else struct.pack("<I", int(arguments, 16)) + ZEROS
            yield release, frame(function, body)


def options():
    """Name and default of each row of the tables of options."""
    for line in (here.parent / "docs/flags.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 4 and cells[1].startswith("`"):
            # A unit, if there is one, stands behind the default.
            yield cells[1].strip("`"), "" if cells[2] == "empty" else cells[2].split("`")[1]


def main():
    for requests, answers in captured():
        for _, request in requests:
            write("native_frame", request)
        for answer in answers:
            write("native_frame", answer)
        # Calls of connection n in place n, eight to a seed, for each default.
        for at in range(0, len(requests), 8):
            steps = b"".join(bytes([connection % 4]) + request for connection, request in requests[at : at + 8])
            for default in range(4):
                write("conversations", bytes([default]) + steps)
    by_release = {}
    for release, request in of_releases():
        write("native_frame", request)
        by_release.setdefault(release, []).append(request)
        # Again on another connection from there, after a close.
        write("conversations", b"\x00\x00" + request + b"\xd0\x01" + request + b"\x01" + request)
    for default, requests in enumerate(by_release.values()):
        for at in range(0, len(requests), 8):
            steps = b"".join(bytes([i % 4 | i % 4 << 2]) + request for i, request in enumerate(requests[at : at + 8]))
            write("conversations", bytes([default]) + steps)

    everything = dict(options())
    for name, default in everything.items():
        write("config", f"--{name}={default}".encode())
        write("config", f"--{name}\n{default}".encode())
        write("config", b"\0y" + f"{name}: {json.dumps(default)}\n".encode())
        write("config", b"\0j" + json.dumps({name: default}).encode())
    write("config", b"\0j" + json.dumps(everything).encode())
    write("config", b"--enable_ha\n--rpc_advertise_address=h\n--ha_backend_connstring=a/b\0\0POD_NAME=m-0\nPOD_NAMESPACE=a\nPOD_UID=u")
    write("config", b"--norpc_enable_tcp_no_delay\n--wire_generation_ports=0.3.12=50062,0.3.9=1\n--rpc_interface=eth7")


main()
