"""What the HTTP room must be told at start."""

import attrs


@attrs.frozen
class HttpOptions:
    """Fixed for the life of a server. `api_keys` empty: everybody may ask."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = attrs.field(default=(), repr=False)
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    strict_model_name: bool = False
    server_name: str | None = None
    version: str = "0"
    max_body_bytes: int = 8 << 20
    overflow_status: int = 413
    body_timeout_s: float = 30.0
    heartbeat_s: float = 5.0
    client_stall_s: float = 30.0
    graceful_timeout_s: float = 30.0
    keep_alive_s: float = 75.0
