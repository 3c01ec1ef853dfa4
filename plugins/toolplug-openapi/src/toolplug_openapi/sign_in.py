"""Where callers of an API sign in, as its document says: for `user_auth.oauth` without an issuer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import httpx2

from toolplug import SignInEndpoints
from toolplug_openapi.document import Document, OperationRefused, as_list, as_object, as_text
from toolplug_openapi.operations import Found

_DISCOVERY = "/.well-known/openid-configuration"
MAX_SCOPES = 100
"""Scopes that are asked for: more make a URL that browsers or issuers refuse."""


def find_sign_in(document: Document, chosen: Sequence[Found], where: str) -> tuple[SignInEndpoints | None, list[str]]:
    """Return where callers sign in, None where the document names nothing, and what an operator should know of it.

    Of several schemes it is the first that one of the chosen operations needs, else the first of the document. The
    scopes are those that the chosen operations need.
    """
    usable, warnings = dict[str, SignInEndpoints](), list[str]()
    for name, raw in as_object(as_object(document.root.get("components")).get("securitySchemes")).items():
        try:
            found = _endpoints_of(document.resolve(raw, "it"), where)
        except OperationRefused as error:
            warnings.append(f"nobody can sign in by the security scheme {name!r:.100}: {error}")
            continue
        if found is not None:
            usable[name] = found
    needed = _needed_scopes(document, chosen, usable)
    if not usable:
        return None, warnings
    if len(needed) > 1:
        others = ", ".join(list(needed)[1:])
        warnings.append(
            f"callers sign in by the security scheme {next(iter(needed))!r:.100} alone, and operations need"
            f" {others:.300}, too; give those an entry of their own, with user_auth.oauth.issuer"
        )
    name = next(iter(needed or usable))
    scopes = needed.get(name, [])
    if len(scopes) > MAX_SCOPES:
        warnings.append(
            f"callers are asked for the first {MAX_SCOPES} of the {len(scopes)} scopes that operations need;"
            " name those that matter in user_auth.oauth.scopes"
        )
    return usable[name]._replace(scopes=tuple(scopes[:MAX_SCOPES])), warnings


def _endpoints_of(scheme: Mapping[str, object], where: str) -> SignInEndpoints | None:
    """Return the endpoints of one scheme; None for one by which no user signs in. Raises `OperationRefused`."""
    if scheme.get("type") == "openIdConnect":
        url = _absolute(as_text(scheme.get("openIdConnectUrl")), "openIdConnectUrl", where)
        if not url.endswith(_DISCOVERY):
            raise OperationRefused(f"its openIdConnectUrl does not end with {_DISCOVERY}; set user_auth.oauth.issuer")
        return SignInEndpoints(issuer=url.removesuffix(_DISCOVERY))
    flow = as_object(as_object(scheme.get("flows")).get("authorizationCode"))
    if scheme.get("type") != "oauth2" or not flow:
        return None
    refresh = as_text(flow.get("refreshUrl"))
    return SignInEndpoints(
        authorization=_absolute(as_text(flow.get("authorizationUrl")), "authorizationUrl", where),
        token=_absolute(as_text(flow.get("tokenUrl")), "tokenUrl", where),
        refresh=_absolute(refresh, "refreshUrl", where) if refresh else "",
    )


def _absolute(text: str, what: str, where: str) -> str:
    """Return a URL, one that begins at the document's where that is one. Raises `OperationRefused`."""
    try:
        url = httpx2.URL(where).join(text) if "://" in where else httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if not text or url.scheme not in ("http", "https") or not url.host or url.userinfo or url.fragment:
        raise OperationRefused(f"its {what} {text!r:.200} is no http or https URL")
    return str(url)


def _needed_scopes(document: Document, chosen: Sequence[Found], usable: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the scopes that the chosen operations need of each scheme, in the order of the document."""
    needed: dict[str, dict[str, None]] = {}
    for each in chosen:
        for name, scopes in _requirements(document, each):
            if name in usable:
                needed.setdefault(name, {}).update(dict.fromkeys(as_text(scope) for scope in as_list(scopes)))
    return {name: [scope for scope in scopes if _is_scope(scope)] for name, scopes in needed.items()}


def _requirements(document: Document, each: Found) -> Iterator[tuple[str, object]]:
    stated = each.raw.get("security", document.root.get("security"))
    for alternative in as_list(stated):
        yield from as_object(alternative).items()


def _is_scope(text: str) -> bool:
    """Return whether this is a scope (RFC 6749, section 3.3)."""
    return bool(text) and text.isascii() and text.isprintable() and not set(text) & set(' "\\')
