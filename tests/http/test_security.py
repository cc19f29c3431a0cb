"""Who is let in: hosts, origins, keys."""

import pytest

from flashrt.http.options import HttpOptions
from flashrt.http.security import HostCheck, host_name
from tests.http.vocabulary import CHAT, HELLO, ScriptedService, serving, whole_answer

KEYS = ("key-one", "key-two")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:8000", "localhost"),
        ("127.0.0.1:8000", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("a.example:1", "a.example"),
    ],
)
def test_the_name_of_a_host_header_has_no_port(host, name):
    """Names and addresses of both kinds, with and without a port."""
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("options", "host", "allowed"),
    [
        ({}, "localhost:8000", True),
        ({}, "127.0.0.1", True),
        ({}, "[::1]:8000", True),
        ({}, "evil.example", False),
        ({}, "localhost.evil.example", False),
        ({}, "192.168.0.7", False),
        ({"host": "192.168.0.7"}, "192.168.0.7:8000", True),
        ({"host": "0.0.0.0"}, "192.168.0.7:8000", True),
        ({"host": "0.0.0.0"}, "[fe80::1]", True),
        ({"host": "0.0.0.0"}, "evil.example", False),
        ({"host": "::"}, "box.lan", False),
        ({"allowed_hosts": ("box.lan",)}, "box.lan:8000", True),
        ({"allowed_hosts": ("Box.lan:80",)}, "box.lan", True),
        ({"allowed_hosts": ("*",)}, "evil.example", True),
    ],
)
def test_a_server_answers_to_its_own_names(options, host, allowed):
    """Loopback, the bound address, allowed names; any literal address if bound to all."""
    assert HostCheck.of(HttpOptions(**options)).allows(host) is allowed


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nothing"])
async def test_a_foreign_host_is_403(path):
    """DNS rebinding ends here, whatever is asked for."""
    async with serving() as server:
        answer = await server.client.get(path, headers={"Host": "evil.example"})

    assert answer.status_code == 403
    assert "--allowed-host" in answer.json()["error"]["message"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
async def test_a_foreign_origin_is_403(origin):
    """A web page of another origin can neither ask nor read."""
    async with serving() as server:
        asked = await server.client.post(CHAT, json=HELLO, headers={"Origin": origin})
        preflight = await server.client.options(
            CHAT, headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
        )

    assert asked.status_code == preflight.status_code == 403
    assert "access-control-allow-origin" not in asked.headers
    assert not server.service.clients


async def test_our_own_origin_is_served():
    """A page that this server itself would serve is at home."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        answer = await server.client.post(CHAT, json=HELLO, headers={"Origin": server.address.url})

    assert answer.status_code == 200


async def test_an_allowed_origin_may_ask_and_read():
    """--cors-origin: the preflight is answered without a key, and answers are readable."""
    origin = "https://app.example"
    options = {"cors_origins": (origin,), "api_keys": KEYS}
    async with serving(ScriptedService(whole_answer("a")), **options) as server:
        preflight = await server.client.options(
            CHAT,
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
        )
        asked = await server.client.post(
            CHAT, json=HELLO, headers={"Origin": origin, "Authorization": "Bearer key-one"}
        )
        refused = await server.client.post(CHAT, json=HELLO, headers={"Origin": origin})

    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert (asked.status_code, refused.status_code) == (200, 401)
    for answer in (preflight, asked, refused):
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer key-on"}, 401),
        ({"Authorization": "Bearer key-one-more"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "key-one"}, 401),
        ({"Authorization": "Basic key-one"}, 401),
        ({"Authorization": "Bearer schlüssel".encode("latin1")}, 401),
        ({"Authorization": "Bearer key-one"}, 200),
        ({"Authorization": "bearer key-two"}, 200),
        ({"X-Api-Key": "key-two"}, 200),
    ],
)
async def test_only_a_right_key_is_let_in(headers, status):
    """Any key of the list, sent either way; everything else is 401."""
    async with serving(ScriptedService(whole_answer("a")), api_keys=KEYS) as server:
        answer = await server.client.post(CHAT, json=HELLO, headers=headers)

    assert answer.status_code == status
    assert "key-one" not in answer.text
    if status == 401:
        assert answer.json()["error"]["code"] == "invalid_api_key"


async def test_probes_need_no_key():
    """/health is open; everything else is not, unknown routes included."""
    async with serving(api_keys=KEYS) as server:
        statuses = [
            (await server.client.get(path)).status_code
            for path in ("/health", "/health/ready", "/v1/models", "/nothing")
        ]

    assert statuses == [200, 503, 401, 401]


@pytest.mark.parametrize(
    ("keys", "headers", "waiters"), [(KEYS, 2, 2), ((), 2, 1)], ids=["keys", "no keys"]
)
async def test_places_in_the_queue_belong_to_a_key_or_to_an_address(keys, headers, waiters):
    """Where nobody needs a key, whoever asks from one machine is one client."""
    async with serving(ScriptedService(whole_answer("a")), api_keys=keys) as server:
        for key in KEYS[:headers]:
            await server.client.post(CHAT, json=HELLO, headers={"Authorization": f"Bearer {key}"})
        assert len(set(server.service.waiters)) == waiters
        assert all(server.service.waiters)


async def test_every_key_is_a_client_of_its_own():
    """Two keys are two names, the same at every request, and neither shows the key."""
    async with serving(ScriptedService(whole_answer("a")), api_keys=KEYS) as server:
        for key in (*KEYS, KEYS[0]):
            await server.client.post(CHAT, json=HELLO, headers={"Authorization": f"Bearer {key}"})
        first, second, again = server.service.clients

    assert first == again != second
    assert not any(key in name for key in KEYS for name in (first, second))
