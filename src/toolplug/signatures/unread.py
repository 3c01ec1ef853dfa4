"""Signatures whose annotations may name what is not there yet, or is there for a type checker alone.

Such an annotation is text (by `from __future__ import annotations`), or since Python 3.14 code that raises where it is
read as usual; here what has no meaning in it is a forward reference.
"""

from __future__ import annotations

import sys
from functools import partial
from inspect import signature

if sys.version_info >= (3, 14):
    from annotationlib import Format

    unread_signature = partial(signature, annotation_format=Format.FORWARDREF)
else:
    unread_signature = signature
