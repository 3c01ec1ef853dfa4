"""A round-robin proxy in front of several hosts: nginx, as an operator would run it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

CONFIGURATION = """daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_max_body_size 0;
    upstream hosts {{
        {servers}
        keepalive 64;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://hosts;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"""


@contextmanager
def round_robin(hosts: Sequence[str], folder: Path, port: int) -> Iterator[str]:
    """Send each request to the next of the hosts; gives the proxy's address."""
    servers = " ".join(f"server {httpx2.URL(host).netloc.decode()} max_fails=0;" for host in hosts)
    with (folder / "nginx.log").open("wb") as log:
        (folder / "nginx.conf").write_text(CONFIGURATION.format(servers=servers, port=port), "utf-8")
        nginx = subprocess.Popen(["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"], stderr=log)
        try:
            with httpx2.Client(transport=httpx2.HTTPTransport(retries=8)) as client:
                assert client.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            yield f"http://127.0.0.1:{port}"
        finally:
            nginx.terminate()
            nginx.wait()
