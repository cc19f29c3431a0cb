"""The page at `/`: whole in one file, and allowed to do what it does and nothing else."""

import base64
import fnmatch
import hashlib
import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from flashrt.http.page import PAGE, content_security_policy
from tests.http.busy import busy_server
from tests.http.vocabulary import ScriptedService, serving
from tests.source import ROOT

KEYS = ("key-one",)
READ_OF = r"(?:health|held|totals|a|hot|r|p|miss)"
"""How the page calls the parts of /health."""

NOT_OURS = {"error"}
"""Of a refusal, which has no part of /health."""


class Parts(HTMLParser):
    """What a document is made of: its tags, and the text of its inline scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.inline:
            self.inline[self._inside].append(data)

    @classmethod
    def of(cls, page: str) -> "Parts":
        parts = cls()
        parts.feed(page)
        return parts


def rules(policy: str) -> dict[str, set[str]]:
    """A policy by directive."""
    return {rule.split()[0]: set(rule.split()[1:]) for rule in policy.split(";")}


def names(value: Any) -> Iterator[str]:
    """Every key of an answer, at any depth."""
    for key, below in value.items() if isinstance(value, dict) else ():
        yield key
        yield from names(below)
    for below in value if isinstance(value, list) else ():
        yield from names(below)


async def test_it_is_served_as_html_under_a_strict_policy():
    """Nothing by default, this server alone for fetches, in nobody's frame."""
    async with serving() as server:
        answer = await server.client.get("/")
        head = await server.client.head("/")
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert head.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = rules(answer.headers["content-security-policy"])
    nothing = {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert {name: policy[name] for name in nothing} == {name: {"'none'"} for name in nothing}
    assert policy["connect-src"] == {"'self'"}
    assert not [source for sources in policy.values() for source in sources if "unsafe" in source]


@pytest.mark.parametrize("kind", ["script", "style"])
def test_only_the_inline_parts_that_it_has_may_run(kind):
    """One hash for each, of exactly its bytes."""
    inline = Parts.of(PAGE).inline[kind]
    digests = [base64.b64encode(hashlib.sha256(p.encode()).digest()).decode() for p in inline]
    allowed = rules(content_security_policy(PAGE))[f"{kind}-src"]
    assert len(inline) == 1
    assert allowed == {f"'sha256-{digest}'" for digest in digests}


def test_a_changed_script_has_another_hash():
    """The policy follows the file; nobody writes hashes by hand."""
    changed = PAGE.replace('"use strict";', '"use strict"; ')
    assert content_security_policy(changed) != content_security_policy(PAGE)


def test_it_names_nothing_outside():
    """No URL, no other file, no handler or style in an attribute: all of it the policy forbids."""
    tags = Parts.of(PAGE).tags
    links = {
        attrs[name] for _, attrs in tags for name in ("href", "src", "action") if name in attrs
    }
    assert links == {"data:,", "health", "metrics"}
    assert not re.search(r"https?:|//\w+\.|@import|url\(", PAGE)
    assert re.findall(r"\b(?:fetch|import|XMLHttpRequest|WebSocket|EventSource)\(.*?,", PAGE) == [
        'fetch("health",'
    ]
    assert [a for _, attrs in tags for a in attrs if a.startswith("on") or a == "style"] == []


def test_it_is_in_the_package():
    """What pip installs has the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["flashrt.http"]
    (page,) = [file.name for file in files("flashrt.http").iterdir() if file.name.endswith(".html")]
    assert any(fnmatch.fnmatch(page, pattern) for pattern in patterns)


async def test_every_field_that_it_reads_is_one_of_health():
    """A field that is renamed would else be a dash for ever."""
    (script,) = Parts.of(PAGE).inline["script"]
    read = set(re.findall(rf"\b{READ_OF}\??\.([a-z_]+)", script)) - NOT_OURS
    read |= set(re.search(r"const \{ (.*) \} = health.capsules", script)[1].split(", ")) - {
        "count: all",
        "...events",
    }
    async with busy_server() as busy:
        known = set(names(await busy.health()))
        await busy.go_on()
        known |= set(names(await busy.health()))
    assert len(read) > 30
    assert read - known == set()


def test_its_tables_have_heads_and_its_changing_words_are_announced():
    """Real tables, named regions; state and bad news are live regions, figures are not."""
    parts = Parts.of(PAGE)
    by_id = {attrs["id"]: (tag, attrs) for tag, attrs in parts.tags if "id" in attrs}
    filled = set(re.findall(r'fill\("(\w+)"', parts.inline["script"][0]))
    assert {by_id[name][0] for name in filled} == {"table"}
    assert by_id["status"][1]["role"] == "status"
    assert by_id["news"][1]["role"] == "alert"
    labels = {attrs["aria-labelledby"] for _, attrs in parts.tags if "aria-labelledby" in attrs}
    assert labels <= by_id.keys()
    assert ("label", {"for": "key"}) in parts.tags


async def test_the_page_needs_no_key_and_a_name_of_ours():
    """As /health: it says nothing by itself, and answers to no foreign host or origin."""
    async with serving(api_keys=KEYS) as server:
        plain = await server.client.get("/")
        host = await server.client.get("/", headers={"Host": "evil.example"})
        origin = await server.client.get("/", headers={"Origin": "https://evil.example"})
    assert [answer.status_code for answer in (plain, host, origin)] == [200, 403, 403]


async def test_what_goes_on_is_told_to_clients_with_a_key_alone():
    """A probe gets the rest all the same, whatever key it sends."""
    async with serving(ScriptedService(), api_keys=KEYS) as server:
        told = [
            (await server.client.get("/health", headers=headers)).json()
            for headers in ({}, {"Authorization": "Bearer no"}, {"X-Api-Key": KEYS[0]})
        ]
    async with serving(ScriptedService()) as server:
        told.append((await server.client.get("/health")).json())
    assert [answer["status"] for answer in told] == ["ready"] * 4
    assert [answer["activity"] is not None for answer in told] == [False, False, True, True]
