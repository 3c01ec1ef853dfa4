"""Reading a document: what its operations are as tools. A large document is read in a process of its own.

A document is a stranger's text, though an operator names it: 16 MiB of JSON can take gigabytes and minutes, and nothing
can end a thread. The process (`toolplug.apart`) is limited and killed. It gets no credential.
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import httpx2
from pydantic import TypeAdapter, ValidationError

from toolplug import ProviderContext, SignInEndpoints
from toolplug.apart import ApartCallFailed, call
from toolplug_openapi.document import Document, DocumentRefused, OperationRefused, as_list, as_object
from toolplug_openapi.operations import Found, Operation, matches, operation_of, operations_of, tool_name
from toolplug_openapi.settings import Credential, SecurityScheme, Settings, bare_web_url
from toolplug_openapi.sign_in import find_sign_in

MAX_TOOLS = 2_000
MAX_WARNINGS = 50
SMALL_BYTES = 256 * 1024
"""Documents up to this size are read in a thread, larger ones in a process."""
READ_S = 15.0
MAX_MEMORY_BYTES = 1024 * 1024 * 1024
MAX_READ_BYTES = 32 * 1024 * 1024
"""What is written of a document; tools have many times less, as a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDocument:
    """What was read of a document.

    `server`: the URL below which the paths are, or `server_problem`. `schemes`: where each credential goes, by name;
    `declared`: the schemes of the document. `sign_in`: where callers sign in. `warnings` and `removed` are lines for
    the log.
    """

    server: str
    server_problem: str
    schemes: dict[str, SecurityScheme]
    declared: frozenset[str]
    sign_in: SignInEndpoints | None
    operations: tuple[Operation, ...]
    warnings: tuple[str, ...]
    removed: tuple[str, ...]


_Head = TypeAdapter(ReadDocument)
_Operation = TypeAdapter(Operation)


async def read(data: bytes, settings: Settings, site: ProviderContext) -> ReadDocument:
    """Read a document, without holding the event loop. Raises `DocumentRefused`."""
    if len(data) <= SMALL_BYTES:
        return await site.in_thread(read_document, data, settings)
    head = settings.without_secrets().model_dump_json(by_alias=True).encode()
    try:
        written = await call(answer, head + b"\n" + data, READ_S, MAX_MEMORY_BYTES, max_bytes=MAX_READ_BYTES)
    except ApartCallFailed as error:
        site.log.error(
            "the process that reads %s failed: %s: %s", settings.document, error, error.said or "it said nothing"
        )
        raise DocumentRefused(f"{settings.document} {explain(error)}") from None
    return await site.in_thread(_decode, written)


def explain(error: ApartCallFailed) -> str:
    """Return in words why a document was not read."""
    if error.reason == "memory":
        return f"takes more than {MAX_MEMORY_BYTES >> 20:,} MiB to read; choose an API's smaller document"
    if error.reason == "time" or error.status == -signal.SIGKILL:
        return f"takes more than {READ_S:g} s to read, or was killed for the memory that it takes; choose with include"
    if error.reason == "answer":
        return f"has tools that take more than {MAX_READ_BYTES >> 20} MiB; choose with include"
    if error.status is not None and error.status < 0:
        return f"cannot be read: it crashed the process that reads it ({signal.Signals(-error.status).name})"
    return "cannot be read: the process that reads it failed to start or to end; the log has its words"


def _decode(written: bytes) -> ReadDocument:
    """Return what the process wrote. Raises `DocumentRefused`."""
    kind, _, rest = written.partition(b"\n")
    if kind == b"refused":
        raise DocumentRefused(rest.decode())
    head, *lines = rest.splitlines()
    found = _Head.validate_json(head)
    # one by one, so that the event loop gets its turns
    return _with_operations(found, [_Operation.validate_json(line) for line in lines])


def _with_operations(found: ReadDocument, operations: Sequence[Operation]) -> ReadDocument:
    return ReadDocument(
        server=found.server,
        server_problem=found.server_problem,
        schemes=found.schemes,
        declared=found.declared,
        sign_in=found.sign_in,
        operations=tuple(operations),
        warnings=found.warnings,
        removed=found.removed,
    )


def read_document(data: bytes, settings: Settings) -> ReadDocument:
    """Read a document. Raises `DocumentRefused`; a wrong operation is skipped, with a warning."""
    where, until = settings.document, time.monotonic() + READ_S
    document = Document(data, where)
    found, skipped = operations_of(document)
    schemes, declared, problems = _schemes(document, settings.credentials)
    problems += _dead_settings(settings, [each.id for each in found], found)
    chosen = [
        each
        for each in found
        if (not settings.include or any(matches(filter_, each) for filter_ in settings.include))
        and not any(matches(filter_, each) for filter_ in settings.exclude)
    ]
    if not chosen:
        problems.append(f"of its {len(found)} operations none is left; change include and exclude")
    if len(chosen) > MAX_TOOLS:
        problems.append(f"it has {len(chosen):,} operations, at most {MAX_TOOLS:,} can be tools; choose with include")
    if problems:
        raise DocumentRefused(f"{where}: {'; '.join(problems)}")
    server, server_problem = "", ""
    try:
        server = server_url(document.root.get("servers"), where)
    except OperationRefused as error:
        server_problem = str(error)
    sign_in, sign_in_warnings = find_sign_in(document, chosen, where)
    reader = _OperationReader(document, settings, server, schemes)
    for each in chosen:
        if time.monotonic() > until:
            raise DocumentRefused(f"{where}: its schemas take more than {READ_S:g} s; choose with include")
        reader.add(each)
    warnings = [
        *sign_in_warnings,
        *(f"{place!r} is skipped: {why}" for place, why in skipped.items()),
        *reader.warnings,
    ]
    if not reader.found:
        raise DocumentRefused(f"{where}: no operation can become a tool; {warnings[0]}")
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS:] = [f"and {len(warnings) - MAX_WARNINGS} more were skipped"]
    return ReadDocument(
        server=server,
        server_problem=server_problem,
        schemes=schemes,
        declared=declared,
        sign_in=sign_in,
        operations=tuple(reader.found.values()),
        warnings=tuple(warnings),
        removed=tuple(reader.removed),
    )


class _OperationReader:
    """Makes tools of operations, by their names; what cannot be one, and what was removed, is noted."""

    def __init__(
        self, document: Document, settings: Settings, server: str, schemes: Mapping[str, SecurityScheme]
    ) -> None:
        self.found: dict[str, Operation] = {}
        self.warnings: list[str] = []
        self.removed: list[str] = []
        self._document = document
        self._settings = settings
        self._server = server
        self._taken = {
            (place, name.lower()) for scheme in schemes.values() if scheme.target for place, name in [scheme.target]
        }

    def add(self, each: Found) -> None:
        """Add an operation, or note why it is none."""
        settings = self._settings
        try:
            made, removed = operation_of(
                self._document,
                each,
                self._name(each),
                server=self._own_server(each),
                taken=self._taken,
                whole=each.id not in settings.trim,
            )
        except OperationRefused as error:
            self.warnings.append(f"{each.id!r} is skipped: {error}")
            return
        self.found[made.name] = made
        if removed:
            self.removed.append(f"of {each.id!r} was removed: {'; '.join(removed)}")

    def _name(self, each: Found) -> str:
        """Return the tool's name; where another tool has it, with a digest of the id. Raises `OperationRefused`."""
        name = tool_name(each, self._settings.rename)
        if name not in self.found:
            return name
        if each.id in self._settings.rename:
            raise OperationRefused(f"{self.found[name].id!r} is the tool {name!r} already; use rename")
        place = f"{each.method} {each.stated_path}"
        return f"{name[:55]}_{hashlib.sha256(place.encode(errors='replace')).hexdigest()[:8]}"

    def _own_server(self, each: Found) -> str | None:
        """Return the server of an operation that has another one than the rest. Raises `OperationRefused`.

        `base_url` is for all operations, and credentials go to no server that only the document names.
        """
        own = each.raw.get("servers") or each.item.get("servers")
        if not own or self._settings.base_url is not None:
            return None
        url = server_url(own, self._settings.document)
        if url == self._server:
            return None
        if self._settings.credentials:
            raise OperationRefused("it has a server of its own; give it an entry with base_url")
        return url


def server_url(servers: object, where: str) -> str:
    """Return the first server's URL with the defaults of its variables. Raises `OperationRefused`."""
    server = as_object((as_list(servers) or [{"url": "/"}])[0])
    url = server.get("url")
    if not isinstance(url, str):
        raise OperationRefused("its first server has no url")
    for name, variable in as_object(server.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(as_object(variable).get("default")))
    try:
        return bare_web_url(str(httpx2.URL(where).join(url)) if "://" in where else url)
    except (httpx2.InvalidURL, ValueError):
        raise OperationRefused(f"its server {url!r:.200} is no http or https URL") from None


def _schemes(
    document: Document, credentials: Mapping[str, Credential]
) -> tuple[dict[str, SecurityScheme], frozenset[str], list[str]]:
    """Return the scheme of each credential, the names that the document declares, and the problems found."""
    known = as_object(as_object(document.root.get("components")).get("securitySchemes"))
    schemes: dict[str, SecurityScheme] = {}
    problems: list[str] = []
    for name, credential in credentials.items():
        at = f"credentials.{name}"
        if credential.scheme is not None:
            schemes[name] = credential.scheme
        elif name not in known:
            problems.append(
                f"{at}: the document has no security scheme of this name{_hint(name, known)}; or give scheme"
            )
            continue
        else:
            try:
                schemes[name] = SecurityScheme.model_validate(document.resolve(known[name], at))
            except (ValidationError, OperationRefused):
                problems.append(f"{at}: the document's security scheme cannot be read; give scheme")
                continue
        if schemes[name].target is None:
            problems.append(f"{at}: only apiKey, basic, bearer, oauth2 and openIdConnect are supported")
    return schemes, frozenset(known), problems


def _dead_settings(settings: Settings, ids: Sequence[str], found: Sequence[Found]) -> list[str]:
    """Return a problem for each setting that names no operation of the document."""
    known = frozenset(ids)
    problems = [
        f"{at}: it has no operation {name!r}{_hint(name, ids)}"
        for at, named in (("rename", settings.rename), ("trim", settings.trim))
        for name in named
        if name not in known
    ]
    for at, filters in (("include", settings.include), ("exclude", settings.exclude)):
        for number, filter_ in enumerate(filters):
            if not any(matches(filter_, each) for each in found):
                hint = _hint(filter_.operation, ids) if filter_.operation is not None else ""
                problems.append(f"{at}[{number}]: no operation has this{hint}")
    return problems


def _hint(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name[:100], [each[:100] for each in list(known)[:MAX_TOOLS]], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def answer(request: bytes) -> Iterator[bytes]:
    """Yield lines of JSON for a request, which is a line with the settings, and the document."""
    head, _, document = request.partition(b"\n")
    settings = Settings.model_validate_json(head)
    try:
        found = read_document(document, settings)
    except DocumentRefused as error:
        yield b"refused\n" + str(error).encode(errors="replace")
        return
    yield b"read\n" + _Head.dump_json(_with_operations(found, ()), by_alias=True)
    for each in found.operations:
        yield b"\n" + _Operation.dump_json(each)
