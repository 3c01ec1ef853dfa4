"""Parts of a result that are no text, as MCP content blocks: images, links, resources, audio."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.catalog.call import ToolResult
from toolplug.signatures.values import as_object

Part = Mapping[str, object]


def is_image(part: Part) -> bool:
    """Return whether a model can be given the part as an image."""
    return part.get("type") == "image" and isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str)


def data_url(image: Part) -> str:
    """Return an image as a `data:` URL."""
    return f"data:{image['mimeType']};base64,{image['data']}"


def text_of_result(result: ToolResult) -> str:
    """Return the text of a result, with a line for each part; a model is given images in addition, no other part."""
    return "\n".join([*([result.output] if result.output else []), *map(_line, result.parts)])


def _line(part: Part) -> str:
    kind, resource = part.get("type"), as_object(part.get("resource"))
    where = part.get("uri") or resource.get("uri")
    media = part.get("mimeType") or resource.get("mimeType")
    details = " ".join(str(each) for each in (part.get("name"), where and f"<{where}>", media) if each)
    left_out = "" if is_image(part) else "left out: "
    return " ".join(f"[{left_out}{kind} {details}".split()) + "]"
