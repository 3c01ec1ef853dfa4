"""A server over TLS: `rediss://HOST:PORT?ca=FILE`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from toolplug.errors import StoreUnavailable
from toolplug_redis.plugin import open_redis

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.requirement("I17-3-redis-url")]


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that signs itself, and its key; return their paths."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    built = built.add_extension(names, critical=True)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    ca, private = folder / "ca.pem", folder / "key.pem"
    ca.write_bytes(built.sign(key, SHA256()).public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return ca, private


async def test_a_server_is_trusted_by_its_certificate(start_server, tmp_path: Path) -> None:
    ca, key = certificate(tmp_path)
    plain = start_server()
    port = plain.port
    plain.kill()
    files = ("--tls-cert-file", str(ca), "--tls-key-file", str(key), "--tls-ca-cert-file", str(ca))
    start_server("--tls-port", str(port), "--tls-auth-clients", "no", *files)
    async with open_redis(f"rediss://127.0.0.1:{port}/1?ca=ca.pem", folder=tmp_path) as store:
        await store.commit("key", b"value")
        assert await store.keys() == ["key"]
    for url in (f"rediss://127.0.0.1:{port}/1", f"redis://127.0.0.1:{port}/1"):
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await open_redis(url, folder=tmp_path).__aenter__()
