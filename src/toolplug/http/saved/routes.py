"""The routes of saved toolsets."""

from __future__ import annotations

from toolplug.http.routing import CALL, READ, HostRoute, Parameter
from toolplug.http.saved.handlers import (
    FORMS,
    active_toolset,
    add_notes,
    build_toolset,
    delete_toolset,
    equip_toolset,
    export_toolset,
    import_toolset,
    list_toolsets,
    remove_notes,
    show_toolset,
    unequip_toolset,
)
from toolplug.http.saved.models import (
    AddNotesBody,
    BuildBody,
    NotesAnswer,
    NotesGone,
    RemoveNotesBody,
    ToolsetAnswer,
    ToolsetList,
    Unequipped,
)
from toolplug.toolsets.saved.document import Document

_ALL = "/api/toolsets"
_ONE = f"{_ALL}/{{name}}"
_NOTES = f"{_ONE}/notes"
_AGENT = Parameter("agent", "among whose tools: an agent's")
_SESSION = Parameter("session", "whose toolsets: those within this session")
_FORM = Parameter("format", "of the document; json when absent", FORMS)
_WHO = (_AGENT, _SESSION)
_READING = (400, 404, 410)
_WRITING = (*_READING, 409, 413, 415, 422)
_EXPORTED = ("application/json", "application/yaml")

SAVED_ROUTES = (
    HostRoute(
        "GET", _ALL, READ, list_toolsets, "The caller's saved toolsets", ToolsetList, None, _WHO, errors=_READING
    ),
    HostRoute(
        "POST",
        _ALL,
        CALL,
        build_toolset,
        "Save a new toolset",
        ToolsetAnswer,
        BuildBody,
        _WHO,
        errors=_WRITING,
        status=201,
    ),
    HostRoute(
        "GET",
        f"{_ALL}/active",
        READ,
        active_toolset,
        "The equipped toolset",
        ToolsetAnswer,
        None,
        _WHO,
        errors=_READING,
    ),
    HostRoute(
        "POST",
        f"{_ALL}/unequip",
        CALL,
        unequip_toolset,
        "List every tool again",
        Unequipped,
        None,
        _WHO,
        errors=_READING,
    ),
    HostRoute(
        "POST",
        f"{_ALL}/import",
        CALL,
        import_toolset,
        "Save a toolset from its document, in JSON or YAML",
        ToolsetAnswer,
        Document,
        _WHO,
        errors=_WRITING,
        status=201,
    ),
    HostRoute("GET", _ONE, READ, show_toolset, "One saved toolset", ToolsetAnswer, None, _WHO, errors=_READING),
    HostRoute("DELETE", _ONE, CALL, delete_toolset, "Delete a saved toolset", None, None, _WHO, status=204),
    HostRoute(
        "POST", f"{_ONE}/equip", CALL, equip_toolset, "Equip a toolset", ToolsetAnswer, None, _WHO, errors=_READING
    ),
    HostRoute(
        "GET",
        f"{_ONE}/export",
        READ,
        export_toolset,
        "The document of a saved toolset",
        Document,
        None,
        (_FORM, *_WHO),
        errors=_READING,
        content_types=_EXPORTED,
    ),
    HostRoute(
        "POST",
        _NOTES,
        CALL,
        add_notes,
        "Attach notes to a tool of a toolset",
        NotesAnswer,
        AddNotesBody,
        _WHO,
        errors=_WRITING,
    ),
    HostRoute(
        "DELETE",
        _NOTES,
        CALL,
        remove_notes,
        "Take notes off a tool of a toolset",
        NotesGone,
        RemoveNotesBody,
        _WHO,
        errors=_WRITING,
    ),
)
