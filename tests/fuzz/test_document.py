"""The OpenAPI document against the server: what it says is what happens to any request."""

import re
import subprocess
import sys

import pytest
import trio

from tests.fuzz.driving import faults_in
from tests.whole.server import fake_engine, running_server

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
)
"""All that are about one request. What fits the schema may still be refused, with a reason."""

FEW = ("--phases", "examples,fuzzing", "--max-examples", "5")
MANY = ("--phases", "examples,coverage,fuzzing", "--max-examples", "100")

DRAIN = "/admin/drain"
"""Apart from the rest, which a server that is being drained refuses."""

slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("effort", "routes"),
    [
        pytest.param(FEW, ("--exclude-path", DRAIN), id="few"),
        pytest.param(MANY, ("--exclude-path", DRAIN), id="many", marks=slow),
        pytest.param(MANY, ("--include-path", DRAIN), id="drain", marks=slow),
    ],
)
async def test_the_server_keeps_what_its_document_says(effort, routes, tmp_path, caplog):
    """Schemathesis reads the document, and sends what it allows and what it does not."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color", "--seed", "1"]
    checks = ("--checks", ",".join(CHECKS))
    # An answer as long as the window would be nothing but slow.
    engine, limits = fake_engine(max_seq=512), {"max_output_tokens": 2}
    async with running_server(engine, within_s=600, **limits) as server:
        ran = await trio.run_process(
            [*command, *checks, *effort, *routes, f"{server.url}/openapi.json"],
            cwd=tmp_path,  # it leaves a folder behind
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = ran.stdout.decode()
        await server.http.post(DRAIN, json={"undo": True})
        await server.chat()
    assert ran.returncode == 0, said
    assert re.search(r"^  [1-9]\d* generated, [1-9]\d* passed", said, re.MULTILINE), said
    assert faults_in(caplog) == []
