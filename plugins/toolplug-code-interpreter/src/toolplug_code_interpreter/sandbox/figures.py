"""The backend of matplotlib in a container: `show` writes each open figure as an image into the working folder."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# It runs where matplotlib is installed, and only there.

from __future__ import annotations

import os
from itertools import count

from matplotlib._pylab_helpers import Gcf
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

__all__ = ["FigureCanvas", "show"]

FOLDER = "/mnt/data"


def show(*args: object, **kwargs: object) -> None:
    """Write the open figures as `figure-1.png` and so on, and close them."""
    for manager in Gcf.get_all_fig_managers():
        manager.canvas.figure.savefig(_free_name(), format="png", bbox_inches="tight")
        Gcf.destroy(manager)


def _free_name() -> str:
    names = (f"{FOLDER}/figure-{number}.png" for number in count(1))
    return next(name for name in names if not os.path.lexists(name))
