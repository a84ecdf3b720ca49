"""Object store for examples that read from s3:// or gs:// without a cloud: moto's S3 server with images of digits.

The buckets `s3-samples` and `gs-samples` have the same images, and the bucket `runs` is empty. The store records each
read of a training image. It ends when rank 0 of each job in `--until` has reported its end, and prints how often each
client read the images.
"""

from __future__ import annotations

import argparse
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

DIGITS = Path("/opt/trainyard/digits")
PORT = 9000
SAMPLE_BUCKETS = ("s3-samples", "gs-samples")
RUNS_BUCKET = "runs"
TRAIN, TESTS = 600, 100
"""Numbers of training images and test images."""
SIDE = 28
ANY_SIGNATURE = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Signature that the server requires but does not check. The jobs' clients send no signature."""
DONE = b'"event": "done"'
"""Part of the line in a run's metrics that reports the run's end."""
FINAL_WRITE_SECONDS = 5.0
"""Seconds in which the ranks may still write after rank 0 has reported the end."""


class ReadLog:
    """Wrapper of the server that records each read of a training image."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._lock = threading.Lock()
        self.reads: dict[str, list[tuple[str, str]]] = {bucket: [] for bucket in SAMPLE_BUCKETS}
        """Bucket -> its reads in order, each with the image's name and the client's address."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Record a read of a training image, and pass the request on to the server.

        Add a signature, and escape the path as clients of S3 do.
        """
        path = unquote(environ["PATH_INFO"])
        environ["HTTP_AUTHORIZATION"] = ANY_SIGNATURE
        environ["PATH_INFO"] = path
        # The server would read the first part of a host name as the bucket's name.
        environ["HTTP_HOST"] = "127.0.0.1"
        for key in ("RAW_URI", "REQUEST_URI"):
            if key in environ:
                environ[key] = quote(path) + (f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else "")
        bucket, _, name = path.lstrip("/").partition("/")
        with self._lock:
            if environ["REQUEST_METHOD"] == "GET" and bucket in SAMPLE_BUCKETS and name.startswith("train/"):
                self.reads[bucket].append((name, environ["REMOTE_ADDR"]))
        return self._server(environ, start_response)


class QuietHandler(WSGIRequestHandler):
    """Request handler without a log."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print no line for a request."""


def png(pixels: bytes) -> bytes:
    """Return a grey image of SIDE x SIDE bytes as PNG (https://www.w3.org/TR/png-3/)."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + pixels[start : start + SIDE] for start in range(0, len(pixels), SIDE))
    header = struct.pack(">2I5B", SIDE, SIDE, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def images() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each image: `train/CLASS/NAME.png` and `val/CLASS/NAME.png`."""
    pixels = (DIGITS / "digits-images-idx3-ubyte").read_bytes()[16:]
    labels = (DIGITS / "digits-labels-idx1-ubyte").read_bytes()[8:]
    size = SIDE * SIDE
    for number in range(TRAIN + TESTS):
        split = "train" if number < TRAIN else "val"
        content = png(pixels[number * size : (number + 1) * size])
        yield f"{split}/{labels[number]}/{number:05d}.png", content


def listen(host: str, port: int, server: Any) -> int:
    """Start to answer requests to an address, in a thread. Return the port."""
    listener = make_server(host, port, server, threaded=True, request_handler=QuietHandler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    return int(listener.server_port)


def fill(port: int) -> Any:
    """Create the buckets and their images through a port of this machine. Return the client."""
    options: dict[str, Any] = {"region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **options)
    for bucket in (*SAMPLE_BUCKETS, RUNS_BUCKET):
        client.create_bucket(Bucket=bucket)
    for name, content in images():
        for bucket in SAMPLE_BUCKETS:
            client.put_object(Bucket=bucket, Key=name, Body=content)
    return client


def is_done(client: Any, job: str) -> bool:
    """Return True if rank 0 of a job has written that it is done."""
    found = client.list_objects_v2(Bucket=RUNS_BUCKET, Prefix=f"{job}/metrics/rank-0/").get("Contents", [])
    return any(DONE in client.get_object(Bucket=RUNS_BUCKET, Key=each["Key"])["Body"].read() for each in found)


def print_reads(reads: dict[str, list[tuple[str, str]]]) -> None:
    """Print for each bucket the number of reads and images, the reads per image, and the reads per client.

    The counts are not per epoch, because a rank reads the next epoch's first images while another one finishes this
    epoch.
    """
    for bucket, bucket_reads in reads.items():
        counts = Counter(name for name, _ in bucket_reads)
        times = ",".join(map(str, sorted(set(counts.values()))))
        readers = ",".join(f"{who}:{count}" for who, count in sorted(Counter(who for _, who in bucket_reads).items()))
        print(
            f"served bucket={bucket} reads={len(bucket_reads)} images={len(counts)} times={times} readers={readers}",
            flush=True,
        )


def main() -> None:
    """Serve until the jobs in `--until` are done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", required=True, help="names of the jobs, separated by commas")
    jobs = parser.parse_args().until.split(",")
    server = ReadLog(DomainDispatcherApplication(create_backend_app))
    client = fill(listen("127.0.0.1", 0, server))
    # Answer other machines only after all images exist.
    listen("0.0.0.0", PORT, server)
    print(f"store ready images={TRAIN + TESTS} buckets={','.join(SAMPLE_BUCKETS)}", flush=True)
    while not all(is_done(client, job) for job in jobs):
        time.sleep(1)
    time.sleep(FINAL_WRITE_SECONDS)
    print_reads(server.reads)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
