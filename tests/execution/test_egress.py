"""Which addresses our own requests may reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest

from toolplug.net.checked_transport import resolve_host
from toolplug.net.egress import Egress, EgressRefused, Resolve, reachable

INNER = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0")
PUBLIC = ("93.184.215.14", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1")


def permitted(egress: Egress, address: str, host: str = "a.example") -> bool:
    return egress.permits(host, ipaddress.ip_address(address))


def carrying(address: str) -> list[str]:
    """The IPv6 addresses that lead to an IPv4 address."""
    number = int(ipaddress.IPv4Address(address))
    turned = number ^ 0xFFFFFFFF
    forms = {
        "mapped": (0xFFFF << 32) | number,
        "6to4": (0x2002 << 112) | (number << 80) | 1,
        "NAT64": (0x0064_FF9B << 96) | number,
        "Teredo client": (0x2001_0000 << 96) | (0x0808_0808 << 64) | turned,
        "Teredo server": (0x2001_0000 << 96) | (number << 64) | 0xF7F7_F7F7,
        "ISATAP": (0x2606_4700 << 96) | (0x5EFE << 32) | number,
        "compatible": number,
    }
    return [str(ipaddress.IPv6Address(form)) for form in forms.values()]


def resolving(*addresses: str) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.requirement("C-2-egress")
def test_public_addresses_are_permitted(address: str) -> None:
    assert permitted(Egress(), address)


@pytest.mark.parametrize(
    "address",
    [
        *INNER,
        *(form for address in INNER for form in carrying(address)),
        *(
            "127.8.8.8",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
        ),
        *("224.0.0.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "64:ff9b:1::a00:1"),
        *("::ffff:0:127.0.0.1", "::ffff:0:10.0.0.1", "::ffff:0:169.254.169.254"),
        "2001:db8::1",
    ],
)
@pytest.mark.requirement("C-2-egress", "H-trust-urls")
def test_inner_addresses_are_not_in_whatever_form(address: str) -> None:
    assert not permitted(Egress(), address)


@pytest.mark.parametrize(
    ("allow", "yes", "no"),
    [
        ("loopback", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"], ["10.0.0.1", "169.254.169.254", "::"]),
        ("private", ["10.1.1.1", "192.168.0.1", "fd12::1", "::ffff:10.0.0.1"], ["127.0.0.1", "100.100.100.200"]),
        ("private", [], ["169.254.169.254", "fd00:ec2::254", "fe80::1"]),
        ("10.1.0.0/16", ["10.1.2.3", "::ffff:10.1.2.3", "8.8.8.8"], ["10.2.0.1", "127.0.0.1"]),
        ("169.254.169.254", ["169.254.169.254"], ["169.254.169.253"]),
        ("fd12::/16", ["fd12::1"], ["fd13::1"]),
    ],
)
@pytest.mark.requirement("C-2-egress")
def test_a_word_of_the_list_permits_what_it_names_and_no_more(allow: str, yes: list[str], no: list[str]) -> None:
    egress = Egress((allow,))
    assert [address for address in (*yes, *no) if permitted(egress, address)] == yes


@pytest.mark.parametrize(
    ("allow", "host", "permits"),
    [
        ("files.corp.example", "files.corp.example", True),
        ("files.corp.example", "FILES.corp.example.", True),
        ("files.corp.example", "other.corp.example", False),
        ("*.corp.example", "files.corp.example", True),
        ("*.corp.example", "a.b.corp.example", True),
        ("*.corp.example", "corp.example", False),
        ("*.corp.example", "corp.example.evil.example", False),
        ("10.0.0.0/8", "10.0.0.0/8", True),
    ],
)
@pytest.mark.requirement("C-2-egress")
def test_a_listed_host_may_have_any_address(allow: str, host: str, permits: bool) -> None:
    assert permitted(Egress((allow,)), "10.0.0.1", host) is permits


@pytest.mark.parametrize(
    "word", ["", "*", "*.", "a b", "http://a.example", "10.0.0.1/8", "a.example:80", "*.a.*.b", "ö"]
)
def test_a_word_that_is_none_is_refused_by_name(word: str) -> None:
    with pytest.raises(ValueError, match="neither loopback, private, a network"):
        Egress((word,))


@pytest.mark.anyio
@pytest.mark.requirement("H-trust-urls")
async def test_one_refused_address_of_a_host_refuses_the_host() -> None:
    with pytest.raises(
        EgressRefused, match=r"'a\.example' has an address which is not public; egress\.allow does not list it$"
    ):
        await reachable(Egress(), "a.example", 80, resolving("8.8.8.8", "10.0.0.1"))


@pytest.mark.anyio
async def test_the_addresses_come_in_the_order_of_the_resolver() -> None:
    assert await reachable(Egress(), "a.example", 80, resolving("8.8.8.8", "1.1.1.1")) == ("8.8.8.8", "1.1.1.1")
    with pytest.raises(OSError, match="has no address"):
        await reachable(Egress(), "a.example", 80, resolving())


@pytest.mark.anyio
@pytest.mark.requirement("H-trust-urls")
@pytest.mark.parametrize("written", ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "localhost"])
async def test_an_address_is_judged_as_the_resolver_reads_it(written: str) -> None:
    with pytest.raises(EgressRefused):
        await reachable(Egress(), written, 80, resolve_host)
