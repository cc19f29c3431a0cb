"""Whose prefixes and sessions a request may see: its namespace (G10)."""

import hashlib

from flashrt.chat.request import CacheHints

NAMESPACE_SOURCES = {
    "default": ("prompt_cache_key", "cache_salt"),
    "cache_salt": ("cache_salt",),
    "api_key": (),
}
"""What names a namespace, the first that is given; the API key's own salt does, if nothing is."""


def namespace(hints: CacheHints, client: str, sources: str = "default") -> str:
    """Whose prefixes may be reused, by one of `NAMESPACE_SOURCES`.

    Each source has its own prefix, so that no value of one can name another's namespace.
    """
    for source in NAMESPACE_SOURCES[sources]:
        value = getattr(hints, source)
        if value is not None:
            return f"{source}:{_hashed(value)}"
    return f"client:{_hashed(client)}"


def _hashed(name: str) -> str:
    """A client's name may be as long as a body, and what it names is remembered for long."""
    return hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
