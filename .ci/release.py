"""`make release`: build every distribution, check it, and install it from a local index.

The result is the folder `dist/`: sdists and wheels, `simple/`, a static index of them (PEP 503) that can be served or
given to pip as a `file://` address, and a CycloneDX bill of materials of the environment that they install into.
Nothing is signed and nothing is uploaded. The index is written here: it is two small kinds of page, and the programs
for it bring a template engine.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from contextlib import chdir
from html import escape
from pathlib import Path

from hatchling.build import build_sdist, build_wheel

ROOT = Path(__file__).resolve().parent.parent
VENV_SCRIPTS = "Scripts" if sys.platform == "win32" else "bin"
RESERVED = "https://toolplug.example/"
"""The address of the project until it has one, of a name that leads nowhere (RFC 2606)."""
CONFIGURATION = "providers:\n  hello: {enabled: true}\n"


def main() -> None:
    """Run every step in order; the first failure ends the release with exit code 1."""
    parser = argparse.ArgumentParser(description="Build, check and install a release. Signs and uploads nothing.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the result, emptied first")
    out: Path = parser.parse_args().out.resolve()
    version = (ROOT / "VERSION").read_text("utf-8").strip()
    require_releasable(version)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    projects = [ROOT, *sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))]
    for project in projects:
        build(project, out)
    files = sorted(out.iterdir())
    check_contents(files, version, len(projects))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    # W002: the template of `toolplug new-provider` has the same LICENSE as the distribution.
    run(
        sys.executable,
        "-m",
        "check_wheel_contents",
        "--ignore",
        "W002",
        *(file for file in files if file.suffix == ".whl"),
    )
    write_index(out / "simple", files)
    install_and_list(out, [project_name(project) for project in projects], version)
    print(f"toolplug {version} is in {out}: {len(files)} files. Nothing is signed and nothing is uploaded.")
    if nowhere := [project_name(project) for project in projects if has_reserved_address(project)]:
        print(
            f"Not for a public index yet: links of {len(nowhere)} packages begin with {RESERVED}, which leads nowhere;"
            " docs/contributing/release.md has the command that replaces it."
        )


def require_releasable(version: str) -> None:
    """Refuse a working tree with uncommitted changes, and a version that the changelog does not describe."""
    changes = run("git", "-C", ROOT, "status", "--porcelain")
    if changes:
        fail(f"uncommitted changes; commit or remove them:\n{changes}")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        fail(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'; write it, or change VERSION")


def build(project: Path, out: Path) -> None:
    """Build the sdist, and the wheel from what is in it, as `python -m build` does, which starts five processes."""
    with chdir(project):
        name = build_sdist(str(out))
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(out / name, folder)
        with chdir(Path(folder, name.removesuffix(".tar.gz"))):
            build_wheel(str(out))


def check_contents(files: list[Path], version: str, projects: int) -> None:
    """Check that each project has an sdist and a wheel of the version, with licence and types and without tests."""
    if len(files) != 2 * projects:
        fail(f"{projects} projects were built into {len(files)} files, not {2 * projects}")
    for file in files:
        wheel = file.suffix == ".whl"
        if wheel:
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
        else:
            with tarfile.open(file) as archive:
                names = [name.partition("/")[2] for name in archive.getnames()]
        problems = [
            *(
                ["no LICENSE"]
                if not any(name.endswith("licenses/LICENSE" if wheel else "LICENSE") for name in names)
                else []
            ),
            *(["no py.typed"] if not any(name.endswith("/py.typed") for name in names) else []),
            *(f"a test: {name}" for name in names if "tests" in name.split("/")),
            *([f"not version {version}"] if f"-{version}" not in file.name else []),
        ]
        if problems:
            fail(f"{file.name}: {'; '.join(problems)}")


def write_index(folder: Path, files: list[Path]) -> None:
    """Write the pages of a PEP 503 index: one of all projects, and one of the files of each, with their hashes."""
    projects: dict[str, list[Path]] = {}
    for file in files:
        name = re.split(r"-\d", file.name, maxsplit=1)[0]
        projects.setdefault(re.sub(r"[-_.]+", "-", name).lower(), []).append(file)
    _write_page(folder, "Projects", [(f"{name}/index.html", name) for name in projects])
    for name, its_files in projects.items():
        links = [(f"../../{file.name}#sha256={_sha256(file)}", file.name) for file in its_files]
        _write_page(folder / name, name, links)


def _write_page(folder: Path, title: str, links: list[tuple[str, str]]) -> None:
    folder.mkdir()
    body = "".join(f'<a href="{escape(target)}">{escape(text)}</a><br>\n' for target, text in links)
    page = f'<!DOCTYPE html>\n<html lang="en">\n<title>{escape(title)}</title>\n<body>\n{body}</body>\n</html>\n'
    (folder / "index.html").write_text(page, "utf-8")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def install_and_list(out: Path, names: list[str], version: str) -> None:
    """Install every distribution from the index into a new environment, try the command line, write the SBOM."""
    wanted = [f"{name}[server]=={version}" if name == "toolplug" else f"{name}=={version}" for name in names]
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "venv")
        venv.create(environment, with_pip=False)
        scripts = environment / VENV_SCRIPTS
        index = (out / "simple").as_uri()
        # To compile all that is installed takes as long as to install it, and little of it is imported.
        pip = (sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--quiet", "--no-compile")
        run(*pip, "--extra-index-url", index, *wanted)
        printed = run(scripts / "toolplug", "--version")
        if printed != f"toolplug {version}":
            fail(f"the installed `toolplug --version` prints {printed!r}")
        Path(folder, "providers.yaml").write_text(CONFIGURATION, "utf-8")
        run(scripts / "toolplug", "check", "-c", Path(folder, "providers.yaml"))
        bill = out / f"toolplug-{version}.cdx.json"
        options = ("--output-reproducible", "--of", "JSON", "-o", bill)
        run(sys.executable, "-m", "cyclonedx_py", "environment", *options, scripts / "python")


def has_reserved_address(project: Path) -> bool:
    return RESERVED in (project / "pyproject.toml").read_text("utf-8")


def project_name(project: Path) -> str:
    return tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["name"]


def run(*command: str | Path) -> str:
    """Run a command and return what it prints, without the last newline; its failure ends the release."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{' '.join(map(str, command))} exited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def fail(reason: str) -> None:
    sys.exit(f"release: {reason}")


if __name__ == "__main__":
    main()
