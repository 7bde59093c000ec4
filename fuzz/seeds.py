"""Writes the captured requests as a corpus: python3 fuzz/seeds.py"""
import hashlib, json, pathlib
here = pathlib.Path(__file__).parent
corpus = here / "corpus" / "native_frame"
corpus.mkdir(parents=True, exist_ok=True)
for capture in sorted((here.parent / "master/tests/fixtures/wire").glob("frames*.jsonl")):
    for line in capture.read_text().splitlines():
        frame = json.loads(line)
        if frame["dir"] == "req" and "header" in frame:
            seed = bytes.fromhex(frame["header"] + frame["body"])
            (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
