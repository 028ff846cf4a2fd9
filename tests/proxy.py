"""A wire between a server and its clients, which a test cuts, or on which replies are lost."""

from __future__ import annotations

import contextlib
import socket
import threading
import typing as t

if t.TYPE_CHECKING:
    from collections.abc import Iterator


class Proxy:
    """Hands on what comes for a server, and its replies.

    :param port: The server's, on this host.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._passes = threading.Event()
        self._passes.set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Where clients find the server."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def cut(self) -> None:
        """Close every connection, and each new one at once."""
        self._is_cut = True
        self._close_all()

    def swallow(self) -> None:
        """Hand on no reply any more; whoever asks waits, and what it asked for is done."""
        self._passes.clear()

    def mend(self) -> None:
        """Hand on again. What was swallowed is lost with its connection."""
        if not self._passes.is_set():
            self._close_all()
        self._is_cut = False
        self._passes.set()

    def close(self) -> None:
        """Give up the port."""
        self._listening.close()
        self.cut()
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._is_cut:
                    client.close()
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        threading.Thread(target=self._hand_on, args=(server, client, True), daemon=True).start()
        self._hand_on(client, server, is_reply=False)

    def _hand_on(self, source: socket.socket, sink: socket.socket, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_reply:
                    self._passes.wait()
                sink.sendall(data)
        self._close(source, sink)

    def _close_all(self) -> None:
        with self._lock:
            ends = list(self._open)
        self._close(*ends)

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            # A close alone does not wake the thread that reads from it.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        with self._lock:
            self._open -= set(ends)


@contextlib.contextmanager
def proxies(ports: list[int]) -> Iterator[list[Proxy]]:
    """Return a proxy for each server."""
    made = [Proxy(port) for port in ports]
    try:
        yield made
    finally:
        for proxy in made:
            proxy.close()
