"""A TCP proxy that a test can cut, as a network drops: sockets are reset, new ones are refused."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_CHUNK_BYTES = 65536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forwards to 127.0.0.1:`target_port` while it is not cut."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Break every connection; new ones break at once."""
        self._is_cut = True
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            _reset(one)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            if self._is_cut:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                _reset(client)
                continue
            with self._lock:
                self._sockets |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                target.sendall(data)
        with self._lock:
            self._sockets -= {source, target}
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _reset(one: socket.socket) -> None:
    """Close with a reset, not with an orderly end."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def tcp_proxy(target_port: int) -> Iterator[TcpProxy]:
    proxy = TcpProxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()
