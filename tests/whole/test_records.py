"""Records = requests: /health, /metrics and the request log tell one story, whatever happens."""

import json
import random
from collections import Counter

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from flashrt.cli import main
from flashrt.errors import EngineFailed
from tests.gate import GatedPerformer
from tests.http.vocabulary import post, read_until
from tests.whole.server import chat_body, fake_engine, running_server

CHAT = "/v1/chat/completions"
MANY = 100_000
TOO_LONG = "word " * 6000
SUMS = ("prompt_tokens", "cached_tokens", "completion_tokens", "decode_steps", "spec_attempts")
COUNTS = {  # of /health: the family and its label, and the field of a line
    "requests": ("requests", "terminal_state", "terminal_state"),
    "errors": ("errors", "kind", "error_kind"),
    "prefix_actions": ("prefix_actions", "action", "prefix_action"),
}


class Views:
    """What one server says in its three places, as equal shapes."""

    def __init__(self, health, metrics, lines):
        self.health, self.lines = health, lines
        self.samples = {
            (sample.name.removeprefix("flashrt_"), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
        }

    @classmethod
    async def of(cls, server, path):
        """Read now."""
        health = (await server.http.get("/health")).json()
        metrics = (await server.http.get("/metrics")).text
        lines = path.read_text().splitlines() if path.exists() else []
        return cls(health, metrics, [json.loads(line) for line in lines])

    def counted(self, family):
        """The samples of a family with one label that are not 0."""
        found = {k[1]: v for k, v in self.samples.items() if k[0] == f"{family}_total" and k[1:]}
        return {label: count for label, count in found.items() if count}

    def check(self):
        """The three agree; no request is there twice."""
        totals = self.health["totals"]
        for name, (family, _, field) in COUNTS.items():
            in_lines = Counter(line[field] for line in self.lines if line[field] is not None)
            assert totals[name] == in_lines == self.counted(family), name
        taken_up = [line for line in self.lines if line["prefix_action"] is not None]
        for name in SUMS[:3]:
            in_lines = sum(line[name] for line in taken_up)
            assert totals[name] == in_lines == self.samples[f"{name}_total",], name
        for name in SUMS[3:]:
            assert totals[name] == sum(line[name] for line in self.lines), name
        assert self.samples["queued_seconds_count",] == sum(
            line["queued_ms"] is not None for line in self.lines
        )
        ids = [line["request_id"] for line in self.lines]
        assert len(set(ids)) == len(ids)


async def settled(server, path, records):
    """The views once so many records are closed and nobody is served or waits."""
    while True:
        views = await Views.of(server, path)
        idle = views.health["running"] is None and not views.health["queued"]
        if idle and sum(views.health["totals"]["requests"].values()) >= records:
            return views


async def queued(server, count):
    """So many requests wait."""
    while (await server.http.get("/health")).json()["queued"] != count:
        pass


async def taken_up(server):
    """The engine works on a request: an answer's head says no more than that one is rendered, and
    the next may overtake it."""
    while (await server.http.get("/health")).json()["running"] is None:
        pass


async def leaving(server):
    """The running request's client is known to be gone."""
    while not (await server.http.get("/health")).json()["running"]["leaving"]:
        pass


async def test_every_ending_is_in_every_view_once(tmp_path):
    """Failed, done, left while running, left in the queue, too long, too many; not what is refused
    at the door."""
    path = tmp_path / "requests.jsonl"
    gate = GatedPerformer(fake_engine(burst_max=4), {1: EngineFailed("boom")})
    wish = {"request_log": path, "max_queue_depth": 1, "chunk_tokens": 64}
    async with running_server(gate.engine, performer=gate, **wish) as server:
        gate.allow(1)
        failed = await server.http.post(CHAT, json=chat_body("a"))
        bad = await server.http.post(CHAT, content=b"{", headers={"content-type": "text/json"})
        long = await server.http.post(CHAT, json=chat_body(TOO_LONG))
        running, waiting = await server.stream(), await server.stream()
        await running.send_all(post(chat_body("b", stream=True)))
        gate.allow(1)
        await read_until(running, b"200")
        await taken_up(server)
        await waiting.send_all(post(chat_body("c")))
        await queued(server, 1)
        full = await server.http.post(CHAT, json=chat_body("d"))
        at_once = await Views.of(server, path)
        await waiting.aclose()
        await queued(server, 0)
        await running.aclose()
        await leaving(server)
        gate.allow(MANY)
        await settled(server, path, 5)
        done = await server.chat("e")
        views = await settled(server, path, 6)

    assert [a.status_code for a in (failed, bad, long, full)] == [500, 415, 413, 429]
    assert at_once.samples["requests_running",] == at_once.samples["requests_queued",] == 1
    views.check()
    assert views.counted("requests") == {"ERROR": 1, "REJECTED": 2, "CANCELLED": 2, "DONE": 1}
    assert views.counted("errors") == {
        "engine_failed": 1,
        "prompt_too_long": 1,
        "queue_full": 1,
        "client_left": 2,
    }
    block = {k: v for k, v in done["flashrt"].items() if not k.endswith("_token_ids")}
    del block["lineage"]
    assert {name: views.lines[-1][name] for name in block} == block
    assert "boom" not in path.read_text()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_in_a_crowd_nobody_is_counted_twice_or_forgotten(seed, tmp_path):
    """Clients at once that stay, leave, ask too much or come too many."""
    rng, path = random.Random(seed), tmp_path / "requests.jsonl"
    seen = Counter()
    acts = [rng.choice(["whole", "stream", "leave", "long", "bad"]) for _ in range(40)]

    async def client(server, number, act):
        body = chat_body(f"client {number}", max_tokens=20, stream=act in ("stream", "leave"))
        if act == "leave":
            stream = await server.stream()
            await stream.send_all(post(body))
            answer = await read_until(stream, b"\r\n")
            await stream.aclose()
            seen["begun" if b" 200 " in answer else "refused"] += 1
            return
        text = TOO_LONG if act == "long" else body["messages"][0]["content"]
        fields = {} if act == "bad" else chat_body(text, stream=body["stream"])
        status = (await server.http.post(CHAT, json=fields)).status_code
        seen[{200: "begun", 400: "at the door"}.get(status, "refused")] += 1

    async with running_server(fake_engine(), request_log=path, max_queue_depth=4) as server:
        async with trio.open_nursery() as nursery:
            for number, act in enumerate(acts):
                nursery.start_soon(client, server, number, act)
        views = await settled(server, path, len(acts) - acts.count("bad"))

    views.check()
    counts = views.counted("requests")
    assert seen["at the door"] == acts.count("bad")
    assert sum(counts.values()) == len(acts) - seen["at the door"] == len(views.lines)
    assert counts.get("REJECTED", 0) == seen["refused"] >= acts.count("long")
    assert counts.get("DONE", 0) + counts.get("CANCELLED", 0) == seen["begun"]


async def test_metrics_need_no_key_and_say_nothing_that_was_said(tmp_path):
    """As /health: open to whoever may reach the server, foreign hosts are refused."""
    keys, path = tmp_path / "keys", tmp_path / "requests.jsonl"
    keys.write_text("right-key\n")
    async with running_server(fake_engine(), api_key_file=keys, request_log=path) as server:
        headers = {"authorization": "Bearer right-key"}
        wish = {"flashrt_pin_prefix": True, "prompt_cache_key": "a secret name"}
        body = chat_body("a secret question", **wish)
        answer = await server.http.post(CHAT, json=body, headers=headers)
        assert answer.status_code == 200
        views = await settled(server, path, 1)
        text = (await server.http.get("/metrics")).text
        foreign = await server.http.get("/metrics", headers={"host": "evil.example"})

    assert foreign.status_code == 403
    ids = answer.json()["flashrt"]
    long_ids = [str(i) for i in (*ids["prompt_token_ids"], *ids["completion_token_ids"]) if i > 999]
    written = json.dumps({k: v for k, v in views.lines[0].items() if not k.endswith("_ms")})
    for said in (text, path.read_text()):
        assert "secret" not in said
        assert "right-key" not in said
    assert long_ids
    assert [i for i in long_ids if f" {i}," in written] == []


async def test_the_text_format_is_named_in_the_header():
    """Prometheus refuses a scrape whose type it does not know."""
    async with running_server(fake_engine()) as server:
        answer = await server.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "process_open_fds" in answer.text


def test_a_log_that_cannot_be_written_ends_the_start_at_once(tmp_path, capsys):
    """Before weights are read; one line names the flag and the file."""
    assert main(["serve", "--request-log", str(tmp_path), "no/such/checkpoint"]) == 2
    said = capsys.readouterr().err
    assert said == f"flashrt: --request-log: cannot write {tmp_path}: Is a directory\n"
