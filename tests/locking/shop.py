"""A shop of packages as an installer leaves them: a provider, what it needs, and RECORDs of them."""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

PROVIDER = '''
from toolplug import FunctionProvider, tool
from toolplug_shop.prices import PRICE


class Shop(FunctionProvider):
    """Sells tea."""

    @tool
    def price(self, item: str) -> str:
        "Say what an item costs."
        return f"{item}: {PRICE}"
'''
PERMISSIONS = 'network = ["api.shop.example"]\n'
FILES: Mapping[str, Mapping[str, str]] = {
    "toolplug-shop": {
        "toolplug_shop/__init__.py": "",
        "toolplug_shop/provider.py": PROVIDER,
        "toolplug_shop/prices.py": "import shelf\nimport till\n\nPRICE = till.add(shelf.TEA, 1)\n",
        "toolplug_shop/data.json": '{"tea": 3}\n',
        "toolplug_shop/sub/__init__.py": "LEVEL = 1\n",
        "toolplug_shop/toolplug_permissions.toml": PERMISSIONS,
    },
    "shelf": {"shelf/__init__.py": "from shelf.inner import TEA\n", "shelf/inner.py": "TEA = 3\n"},
    "till": {"till.py": "def add(one, two):\n    return one + two\n"},
    "acme-tax": {"acme/tax/__init__.py": "RATE = 19\n"},
    "rope": {"rope/__init__.py": "LENGTH = 2\n"},
}
NEEDS: Mapping[str, Sequence[str]] = {
    "toolplug-shop": ("shelf[red]>=1", "till", "acme-tax; python_version >= '3.11'", "never; python_version < '3'"),
    "shelf": ("rope; extra == 'red'",),
}


def install(site: Path, name: str, version: str = "1.0") -> Path:
    """Install one of the packages; gives the folder of its metadata."""
    files = dict(FILES[name])
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {each}" for each in NEEDS.get(name, ())]
    lines += ["Provides-Extra: red"] if name == "shelf" else []
    files[f"{info}/METADATA"] = "\n".join(lines) + "\n"
    if name == "toolplug-shop":
        files[f"{info}/entry_points.txt"] = "[toolplug.providers]\nshop = toolplug_shop.provider:Shop\n"
    for path, text in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    write_record(site, info, files)
    return site / info


def install_all(site: Path) -> None:
    """Install every package of the shop."""
    for name in FILES:
        install(site, name)


def write_record(site: Path, info: str, paths: Sequence[str] | Mapping[str, str]) -> None:
    """Write the RECORD of these files, as they are now."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for path in paths:
        content = (site / path).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((path, f"sha256={digest}", len(content)))
    rows.writerow((f"{info}/RECORD", "", ""))
    (site / info / "RECORD").write_text(text.getvalue())


def record_again(site: Path) -> None:
    """Write every RECORD again, as who changes a package would, without those files that are gone."""
    for record in site.glob("*.dist-info/RECORD"):
        paths = [row[0] for row in csv.reader(record.read_text().splitlines()) if row]
        info = record.parent.name
        write_record(site, info, [each for each in paths if each != f"{info}/RECORD" and (site / each).exists()])


def list_in_record(site: Path, info: str, path: str) -> None:
    """Have a RECORD list one more file."""
    paths = [row[0] for row in csv.reader((site / info / "RECORD").read_text().splitlines()) if row]
    write_record(site, info, [*(each for each in paths if not each.endswith("RECORD")), path])
