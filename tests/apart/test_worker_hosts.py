"""Workers of hosts as they are deployed: by HTTPS with an authority of one's own, and with several processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from shutil import copy

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from prometheus_client.parser import text_string_to_metric_families
from tests.apart.worker_host import HERE, served
from tests.cli.process import PATIENCE_S, Serving, serving

DIALLED_S = 90.0
"""Until a worker has dialled in to both: it finds the second one by chance, and waits up to 15 s between two dials."""

pytestmark = [pytest.mark.process, pytest.mark.requirement("I36-worker")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a worker, with the files of the tests."""
    place = tmp_path / "worker"
    place.mkdir()
    copy(HERE / "everything.py", place / "everything.py")
    return place


def write_certificate(path: Path) -> Path:
    """Write a key with a certificate of 127.0.0.1 that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "toolplug of the tests")])
    now = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=20_000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.anyio
async def test_a_worker_dials_in_by_https_if_it_trusts_the_certificate(folder: Path, tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "host.pem")
    async with served(folder, certificate=certificate) as host:
        assert host.url.startswith("https://")
        stranger = await host.start_worker(folder=folder)
        assert stranger.stderr is not None
        said = b""
        async with asyncio.timeout(PATIENCE_S):
            while b"CERTIFICATE_VERIFY_FAILED" not in said:
                said += await stranger.stderr.readline()
        assert not host.provider.workers
        stranger.kill()
        worker = await host.start_worker(folder=folder, SSL_CERT_FILE=str(certificate))
        await host.dialled()
        assert (await host.call("echo", value=10**30))["output"] == str(10**30)
        assert len((await host.client.get("/v1/stream?size=200")).content) == 2_000_000
        assert worker.returncode is None


def test_a_worker_serves_each_process_of_the_host(folder: Path, tmp_path: Path) -> None:
    entry = "{type: ./everything.py:Everything, enabled: true, run: {worker: true}}"
    (tmp_path / "providers.yaml").write_text(f"store: sqlite:///./state.db\nproviders: {{made: {entry}}}\n")
    with serving("--workers", "2", folder=tmp_path) as service:
        words = ["-m", "toolplug", "worker", "made", "--host", service.url, "--folder", str(folder)]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        with subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.DEVNULL) as worker:
            try:
                wait_for_both(service)
                # A worker counts a moment before its tools are listed.
                until = time.monotonic() + PATIENCE_S
                statuses = {"unknown_tool"}
                while statuses != {"success"}:
                    assert time.monotonic() < until, statuses
                    statuses = {service.call("echo", value=1).json()["status"] for _ in range(20)}
                worker.kill()
                worker.wait()
                for _ in range(10):
                    assert service.call("echo", value=1).json()["metadata"]["code"] in ("no_worker", "outcome_unknown")
            finally:
                with suppress(ProcessLookupError):
                    worker.kill()


def wait_for_both(service: Serving) -> None:
    """Wait until each process of the host has the worker."""
    until = time.monotonic() + DIALLED_S
    present: dict[str, float] = {}
    while present != {"1": 1.0, "2": 1.0}:
        assert time.monotonic() < until, present
        text = httpx2.get(f"{service.url}/metrics", timeout=PATIENCE_S).text
        present = {
            sample.labels.get("worker", ""): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "toolplug_apart_workers"
        }
        time.sleep(0.1)
