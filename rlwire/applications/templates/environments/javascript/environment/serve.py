"""Serves the page, and opens it in a browser: what `rlwire run` starts."""

from __future__ import annotations

import json
import webbrowser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import rlwire.web
from rlwire.adapters.relaax import options


class Handler(SimpleHTTPRequestHandler):
    """Serves this folder, rlwire's client and the page's settings."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=str(Path(__file__).parent))

    def translate_path(self, path: str) -> str:
        """Return the file of a path of the page's."""
        return str(rlwire.web.path()) if path == "/rlx.js" else super().translate_path(path)

    def guess_type(self, path: Any) -> str:
        """Return the type of a file: systems do not agree about JavaScript's."""
        return "text/javascript" if str(path).endswith(".js") else super().guess_type(path)

    def do_GET(self) -> None:
        """Answer, with the settings if they are asked for."""
        if self.path != "/settings.json":
            return super().do_GET()
        body = json.dumps(
            {
                "proxy": f"ws://{options.get('relaax-wsproxy/bind', 'localhost:9000')}",
                "exploit": options.exploit,
                "steps": options.get("environment/steps", 200),
                "max_episodes": options.get("environment/max_episodes", 1),
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None


if __name__ == "__main__":
    address = "localhost", options.get("environment/port", 8000)
    with ThreadingHTTPServer(address, Handler) as server:
        url = f"http://localhost:{server.server_port}"
        print(f"the environment is a page: {url}")
        if options.get("environment/open_browser", True):
            webbrowser.open(url)
        server.serve_forever()
