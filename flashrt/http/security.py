"""Who may ask: Host and Origin checks, API keys, and the answers of CORS."""

import hashlib
import hmac
import ipaddress
from urllib.parse import urlsplit

import attrs
from quart import Request, Response

from flashrt.errors import Forbidden, Unauthorized
from flashrt.http.options import HttpOptions

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::", ""})
ANYBODY = "anybody"
PREFLIGHT_MAX_AGE_S = 600


def host_name(host: str) -> str:
    """The name in a Host header: lower case, without port and brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


@attrs.frozen
class HostCheck:
    """Which names this server answers to.

    A page that makes its own domain point here ("DNS rebinding") still sends its own name.
    """

    names: frozenset[str]
    any_address: bool
    everything: bool

    @classmethod
    def of(cls, options: HttpOptions) -> "HostCheck":
        """Loopback names, the bound address, and what is allowed by hand.

        Bound to every address, any literal address will do: rebinding needs a name.
        """
        bound = options.host.lower()
        names = LOOPBACK_NAMES | {host_name(name) for name in options.allowed_hosts} | {bound}
        return cls(names - WILDCARDS, bound in WILDCARDS, "*" in options.allowed_hosts)

    def allows(self, host: str) -> bool:
        """Whether a Host header is ours."""
        name = host_name(host)
        return self.everything or name in self.names or (self.any_address and _is_address(name))


@attrs.frozen
class OriginCheck:
    """Which web pages may ask."""

    origins: frozenset[str]

    @classmethod
    def of(cls, options: HttpOptions) -> "OriginCheck":
        """What is allowed by hand; "*" allows every page."""
        return cls(frozenset(origin.rstrip("/").lower() for origin in options.cors_origins))

    def allows(self, origin: str) -> bool:
        """Whether a foreign page of this origin may ask and read."""
        return "*" in self.origins or origin.lower() in self.origins


class Doorkeeper:
    """Decides about a request before anything of it is read."""

    def __init__(self, options: HttpOptions) -> None:
        self._hosts = HostCheck.of(options)
        self._origins = OriginCheck.of(options)
        self._keys = tuple(_digest(key) for key in options.api_keys)

    def check_source(self, request: Request) -> None:
        """Raise Forbidden for a foreign Host or Origin; only browsers send an Origin."""
        host = request.headers.get("Host", "")
        if host and not self._hosts.allows(host):
            raise Forbidden(
                f'This server does not answer to the host name "{host_name(host)[:100]}". '
                "Start it with --allowed-host if it should."
            )
        origin = request.headers.get("Origin")
        if origin is None or self._origins.allows(origin):
            return
        if _authority(origin) == host.lower() != "":
            return
        raise Forbidden(
            f'Pages of "{origin[:100]}" may not use this server. Start it with --cors-origin if '
            "they should."
        )

    def client(self, request: Request) -> str:
        """Who asks: one name per API key, which does not show it. Raises Unauthorized."""
        if not self._keys:
            return ANYBODY
        given = _digest(_given_key(request))
        # Every key is compared, in constant time: how long it takes tells nothing about any.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            raise Unauthorized(
                'A valid API key is needed; send it as "Authorization: Bearer <key>".'
            )
        return hashlib.sha256(b"flashrt client " + given).hexdigest()[:32]

    def admits(self, request: Request) -> bool:
        """Whether this client may see what only those with a key may."""
        try:
            self.client(request)
        except Unauthorized:
            return False
        return True

    def waiter(self, request: Request) -> str:
        """Whose places in the queue are counted together: a key's, else an address's."""
        return self.client(request) if self._keys else request.remote_addr or ANYBODY

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser that asks whether it may ask, or None if this is not one."""
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
            return None
        wanted = request.headers.get("Access-Control-Request-Headers", "")
        answer = Response(b"", status=204)
        answer.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE, OPTIONS"
        answer.headers["Access-Control-Allow-Headers"] = wanted or "Authorization, Content-Type"
        answer.headers["Access-Control-Max-Age"] = str(PREFLIGHT_MAX_AGE_S)
        return answer

    def mark(self, request: Request, answer: Response) -> None:
        """Let an allowed page read the answer."""
        origin = request.headers.get("Origin")
        answer.headers.add("Vary", "Origin")
        if origin is not None and self._origins.allows(origin):
            answer.headers["Access-Control-Allow-Origin"] = origin
            answer.headers["Access-Control-Expose-Headers"] = "x-flashrt-worker, retry-after"


def _authority(origin: str) -> str:
    """Host and port of an origin, in lower case; of what is none, nothing."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _given_key(request: Request) -> str:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return request.headers.get("X-Api-Key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
