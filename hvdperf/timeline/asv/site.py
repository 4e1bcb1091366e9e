"""Makes a site that asv has published work without a network, and serves it on this machine's
loopback interface.

asv's page loads its libraries from other hosts, and demands each by its hash. vendor.toml says
which copy in vendor/ replaces which library.
"""

from __future__ import annotations

import errno
import re
import shutil
import tomllib
from collections.abc import Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.paths import shown

SITE = Path(__file__).parent
VENDOR = "vendor"
# The scripts change what asv's pages use, so they come after asv.js and before the pages.
OWN = ("releases.js", "drawing.js", "defaults.js", "layout.css")

_FROM_NETWORK = re.compile(
    r'<(?:script|link)\b[^>]*?\b(?:src|href)="(?P<url>(?:https?:)?//[^"]*)"[^>]*>'
    r"(?:\s*</script>)?"
)
_INTEGRITY = re.compile(r'\bintegrity="([^"]*)"')
_ASV_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="asv\.js"[^>]*>\s*</script>\n?')


def make_offline(html_dir: Path) -> None:
    """Give a published site a copy of everything that it loads, and the files that the suite adds.

    Doing it again changes nothing. Raises UserError if there is no published site, if its page
    loads something that has no copy or does not load asv.js, or if the site cannot be written.
    """
    index = html_dir / "index.html"
    try:
        if not index.is_file() or not (html_dir / "index.json").is_file():
            raise UserError(f"{shown(html_dir)} holds no site; publish one: asv publish")
        page = index.read_text(encoding="utf-8", errors="surrogateescape")
        page = _with_own(_with_copies(page, index), index)
        shutil.copytree(SITE / VENDOR, html_dir / VENDOR, dirs_exist_ok=True)
        for name in OWN:
            shutil.copyfile(SITE / name, html_dir / name)
        index.write_text(page, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UserError(
            f"{shown(html_dir)}: {error.strerror}; it has to be writable, with room for 1 MB"
        ) from None


def _copies() -> Mapping[tuple[str, str], str]:
    """Return the file in vendor/ for each name and hash that asv's page demands."""
    content = tomllib.loads((SITE / "vendor.toml").read_text(encoding="utf-8"))
    return {(copy["replaces"], copy["integrity"]): copy["file"] for copy in content["copies"]}


def _with_copies(page: str, index: Path) -> str:
    available = _copies()

    def of_copy(tag: re.Match[str]) -> str:
        integrity = _INTEGRITY.search(tag[0])
        demanded = tag["url"].rpartition("/")[2], integrity[1] if integrity else ""
        if demanded not in available:
            raise _updated(index, f"loads {tag['url']}, which vendor/ has no copy of")
        return _tag(f"{VENDOR}/{available[demanded]}")

    return _FROM_NETWORK.sub(of_copy, page)


def _with_own(page: str, index: Path) -> str:
    tags = "".join(f"    {_tag(name)}\n" for name in OWN)
    if tags in page:
        return page
    asv_script = _ASV_SCRIPT.search(page)
    if asv_script is None:
        raise _updated(index, "does not load asv.js")
    return page[: asv_script.end()] + tags + page[asv_script.end() :]


def _tag(address: str) -> str:
    if address.endswith(".css"):
        return f'<link rel="stylesheet" href="{address}">'
    return f'<script src="{address}"></script>'


def _updated(index: Path, problem: str) -> UserError:
    return UserError(
        f"{shown(index)} {problem}: this is not the page of the asv in pyproject.toml; publish "
        "with that one, or bring hvdperf/timeline/asv/vendor.toml up to date"
    )


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
