"""How every figure looks, in one place: colours that colour-blind people can tell apart, sizes, and units.

Figures are drawn in the light colours, which suit paper.  On the page each of these colours becomes a CSS variable of
the same name, so that one drawing follows the light or dark theme of the reader.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from equibayes.units import KCAL_PER_MOL

# name: (light, dark).  The series follow Okabe & Ito, adjusted to a contrast of 3:1 with their background.
PALETTE: dict[str, tuple[str, str]] = {
    "ink": ("#1b2128", "#e8ebef"),
    "muted": ("#5a6572", "#a3adb9"),
    "line": ("#c9d0d8", "#434c57"),
    "grid": ("#e7eaee", "#2a313a"),
    "paper": ("#ffffff", "#171c22"),
    "blue": ("#0072b2", "#5ab4ee"),
    "vermillion": ("#d55e00", "#ff9044"),
    "green": ("#00835f", "#2fcf9f"),
    "purple": ("#a8508a", "#e59bc9"),
    "amber": ("#a87400", "#f0b93a"),
    "sky": ("#3d8fc4", "#9bd3f7"),
    "brown": ("#7a4a2b", "#cf9f7d"),
    "slate": ("#48536b", "#b3bfd9"),
}
SERIES = ("blue", "vermillion", "green", "purple", "amber", "sky", "brown", "slate")
# line styles in addition to colours, for colour-blind readers and black-and-white print
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))

MEV = 1e3
"""meV in an eV."""
KCAL = 1 / KCAL_PER_MOL
"""kcal/mol in an eV."""

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, small, and in the font of the page
    "svg.hashsalt": "equibayes",  # the same data give the same bytes
    "pdf.fonttype": 42,  # text in a PDF can be edited by a journal
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "figure.constrained_layout.use": True,
    "path.simplify_threshold": 0.3,
}


def colour(name: str) -> str:
    """The colour of that name as it is drawn."""
    return PALETTE[name][0]


def series(index: int) -> dict[str, Any]:
    """Colour and dashes of the line with that number; colours repeat."""
    return {"color": colour(SERIES[index % len(SERIES)]), "linestyle": DASHES[index % len(DASHES)]}


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib with these settings, independent of the user's, which are restored afterwards."""
    import matplotlib  # imported only when a figure is drawn

    ink, muted, line = colour("ink"), colour("muted"), colour("line")
    colours = {"text.color": ink, "axes.titlecolor": ink, "axes.labelcolor": muted, "axes.edgecolor": line}
    colours |= {"xtick.color": line, "ytick.color": line, "xtick.labelcolor": muted, "ytick.labelcolor": muted}
    colours |= {"grid.color": colour("grid"), "figure.facecolor": "none", "axes.facecolor": "none"}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = {**_SETTINGS, **colours, "savefig.facecolor": "none"}
        matplotlib.rcParams.update(settings)
        yield


def figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure of that many inches and its axes [rows, columns].  Without pyplot: no window, no global state."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height))
    return drawn, drawn.subplots(rows, columns, squeeze=False, **options)


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Ticks at 1, 2, 5 where an axis spans little more than a decade, else at powers of ten.

    In plain characters (10⁻³): mathematical text would bring its own font.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    plain = low >= 5e-3 and high < 2e4
    axis.set_major_locator(LogLocator(subs=steps, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if plain else power(value)))
    axis.set_minor_locator(NullLocator())  # they are not shown, but placing them takes time


def power(value: float) -> str:
    """A number as one digit times a power of ten: 10⁻³, 2·10⁵."""
    mantissa, exponent = f"{value:.0e}".split("e")
    superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ("" if mantissa == "1" else f"{mantissa}·") + f"10{superscript}"
