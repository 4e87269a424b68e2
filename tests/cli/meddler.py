"""A proxy as one meets them: it keeps answers until they are complete, and may change them."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2


class Meddler:
    """Stands before a server. To be used in a `with` block."""

    def __init__(self, url, change=lambda path, body: body):
        """change: (path, body) -> the body that the client gets."""
        self._client = httpx2.Client(base_url=url, timeout=60, trust_env=False)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._client, change))
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._client.close()


def _handler(client, change):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._forward(None)

        def do_POST(self):
            self._forward(self.rfile.read(int(self.headers["content-length"])))

        def _forward(self, body):
            kept = {
                name: value
                for name, value in self.headers.items()
                if name.lower() in {"authorization", "content-type", "x-headwater-report"}
            }
            came = client.request(self.command, self.path, content=body, headers=kept)
            content = change(self.path, came.content)
            self.send_response(came.status_code)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    return Handler


class Says:
    """A server that gives one answer to everything, and then hangs up."""

    def __init__(self, status, body, **headers):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                self.do_GET()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
