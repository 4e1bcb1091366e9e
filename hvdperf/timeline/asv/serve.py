"""Serves the published sites on this machine's loopback interface."""

from __future__ import annotations

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.paths import shown


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: requests are nobody's affair."""


def serve(directory: Path, port: int) -> None:
    """Serve the sites until Ctrl-C. Raises UserError if nothing has been published, or if the port
    is taken or cannot be used."""
    if not any(directory.glob("*/index.json")):
        raise UserError(f"{shown(directory)} holds no published site; run `make history`")
    try:
        handler = partial(_Handler, directory=str(directory))
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is taken" if taken else "cannot be used"
        raise UserError(f"--port {port} {why}; give another port, such as --port 0") from None
    with server:
        for site in sorted(path.parent for path in directory.glob("*/index.json")):
            print(f"http://127.0.0.1:{server.server_port}/{site.name}/", flush=True)
        print("Ctrl-C to end", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
