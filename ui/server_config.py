"""The web server's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError, setting

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where Hearth is served, under which name, what it keeps where, and within which bounds.

    Raises:
        ConfigError: a value is wrong.
    """

    host: str = setting(
        "127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in: set --api-key then"
    )
    port: int = setting(7860, "port to listen on")
    data_dir: Path = setting(
        Path("~/.local/share/hearth"), "where conversations are kept; one server at a time uses it"
    )
    served_model_name: str | None = setting(
        None, "what /v1 calls the model; default: the value of --model"
    )
    api_key: str | None = setting(
        None,
        "clients of /v1 and /metrics must send it as 'Authorization: Bearer ...'; "
        "better set by the variable, since other users of the machine see command lines",
        secret=True,
    )
    max_request_bytes: int = setting(8 * 1024 * 1024, "largest request body; more gets 413")
    max_import_bytes: int = setting(
        64 * 1024 * 1024, "largest file of conversations that can be imported"
    )
    keep_alive_interval_s: float = setting(
        5.0, "a stream with nothing to say sends a comment this often, so that proxies keep it"
    )
    health_stall_timeout_s: float = setting(
        60.0, "/health fails when requests wait and no step has ended in this many seconds"
    )

    def __post_init__(self) -> None:
        _require(self.host != "", "--host must not be empty: use 127.0.0.1 or 0.0.0.0.")
        _require(
            0 <= self.port <= _MAX_PORT,
            f"--port must be from 0 (any free one) to {_MAX_PORT}, not {self.port}.",
        )
        _require(
            self.api_key is None or (self.api_key.isascii() and self.api_key.strip() != ""),
            "--api-key must be non-empty ASCII text.",
        )
        for name in ("max_request_bytes", "max_import_bytes"):
            value = getattr(self, name)
            _require(value >= 1024, f"{_option(name)} must be at least 1024, not {value}.")
        for name in ("keep_alive_interval_s", "health_stall_timeout_s"):
            value = getattr(self, name)
            _require(value > 0, f"{_option(name)} must be above 0, not {value:g}.")

    @property
    def data_path(self) -> Path:
        return self.data_dir.expanduser()


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
