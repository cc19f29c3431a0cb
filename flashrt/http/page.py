"""The page at `/`: one file that shows what /health says, and may do nothing else."""

import base64
import hashlib
import re
from importlib.resources import files

from quart import Quart, Response

PAGE = files("flashrt.http").joinpath("page.html").read_text(encoding="utf-8")


def add_page(app: Quart) -> None:
    """Serve it. It is the same for everybody: what it shows comes from /health."""
    page, policy = PAGE.encode(), content_security_policy(PAGE)

    @app.get("/")
    async def show() -> Response:
        answer = Response(page, mimetype="text/html")
        answer.headers["Content-Security-Policy"] = policy
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def content_security_policy(page: str) -> str:
    """Only the page's own inline parts may run, and only this server may be asked."""
    rules = {
        "default-src": "'none'",
        "script-src": _hashes(page, "script"),
        "style-src": _hashes(page, "style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hashes(page: str, tag: str) -> str:
    """The hash of every inline part of this kind, as browsers compute it."""
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digests = (hashlib.sha256(part.encode()).digest() for part in parts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
