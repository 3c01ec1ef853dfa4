"""The routes of toolsets and agents."""

from __future__ import annotations

from toolplug.http.own_route import OwnRoute
from toolplug.http.scopes import ADMIN
from toolplug.http.toolsets.allowlists import put_allowlist, show_allowlist
from toolplug.http.toolsets.bindings import put_binding
from toolplug.http.toolsets.models import AllowlistAnswer, AllowlistBody, BindingAnswer, BindingBody

_ALLOWLIST = "/api/agents/{id}/toolsets"
_BINDING = "/api/toolset-bindings/{id}"
_REFUSALS = (400, 413, 415, 422)

TOOLSET_ROUTES = (
    OwnRoute("GET", _ALLOWLIST, ADMIN, show_allowlist, "The toolsets that an agent may use", AllowlistAnswer),
    OwnRoute(
        "PUT",
        _ALLOWLIST,
        ADMIN,
        put_allowlist,
        "Replace the toolsets that an agent may use",
        AllowlistAnswer,
        AllowlistBody,
        errors=_REFUSALS,
    ),
    OwnRoute(
        "PUT",
        _BINDING,
        ADMIN,
        put_binding,
        "Bind a toolset to a provider",
        BindingAnswer,
        BindingBody,
        errors=(*_REFUSALS, 409),
    ),
)
