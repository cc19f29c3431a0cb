"""How quickly /health answers while a server generates: python -m flashrt.bench.health URL."""

import argparse
import http.client
import json
import statistics
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit


def main(arguments: Sequence[str] | None = None) -> None:
    """Stream one answer from a server that is already running, probe beside it, print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--probes", type=int, default=1000)
    asked = parser.parse_args(arguments)
    host = urlsplit(asked.url).netloc
    generating, enough = threading.Event(), threading.Event()
    threading.Thread(target=_generate, args=(host, generating, enough), daemon=True).start()
    generating.wait(timeout=60)
    times_ms, beside = _probe(host, asked.probes)
    enough.set()
    times_ms.sort()
    print(
        f"/health: {len(times_ms)} probes, {beside} of them beside a running answer; "
        f"p50 {statistics.median(times_ms):.2f} ms, "
        f"p99 {times_ms[int(len(times_ms) * 0.99)]:.2f} ms, max {times_ms[-1]:.2f} ms"
    )


def _generate(host: str, generating: threading.Event, enough: threading.Event) -> None:
    """Keep the engine busy with one stream after another."""
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "Tell me a long story. " * 400}],
        "max_tokens": 2000,
        "stream": True,
    }
    while not enough.is_set():
        connection = http.client.HTTPConnection(host, timeout=60)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        generating.set()
        while answer.readline() and not enough.is_set():
            pass
        connection.close()


def _probe(host: str, probes: int) -> tuple[list[float], int]:
    """Milliseconds of each probe, and how many found a request running."""
    connection = http.client.HTTPConnection(host, timeout=60)
    times_ms, beside = [], 0
    for _ in range(probes):
        start = time.perf_counter()
        connection.request("GET", "/health")
        report = json.loads(connection.getresponse().read())
        times_ms.append((time.perf_counter() - start) * 1000)
        beside += report["running"] is not None
        time.sleep(0.005)
    return times_ms, beside


if __name__ == "__main__":
    main()
