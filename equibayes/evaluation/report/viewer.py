"""The part of the page that shows structures: two views side by side, and tables of the same structures."""

from equibayes.evaluation.report import structures
from equibayes.evaluation.report.markup import Html, tag
from equibayes.evaluation.report.sections import Content, section

_HELP = (
    "Drag to turn, Ctrl and wheel to zoom, point at an atom for its values. With the keyboard: arrows, + and −, N and "
    "P for atoms, 0 to start again."
)


def viewer(content: Content) -> Html:
    """Without scripts the tables remain."""
    return section(
        "structures",
        "Where is the model sure, and where not?",
        tag("p", _HELP, class_="hint"),
        tag(
            "div",
            _controls(
                [each.name for each in content.sets],
                any(each.result.novelty is not None for each in content.sets),
                any(each.result.vectors is not None for each in content.sets),
            ),
            tag("div", _view("most", "Most certain"), _view("least", "Least certain"), class_="views"),
            _legend(),
            id="viewer",
            hidden=True,
        ),
        tag("noscript", tag("p", "The view needs JavaScript; the tables hold the same structures.")),
        *(structures.ranking_table(each) or "" for each in content.sets),
        tag("script", structures.viewer_data(content.sets), type="application/json", id="viewer-data"),
    )


def _controls(names: list[str], novelty: bool, ellipsoids: bool) -> Html:
    sets = tag("select", *(tag("option", name, value=i) for i, name in enumerate(names)), id="viewer-set")
    colour = tag(
        "select",
        tag("option", "σ (predicted)", value="sigma"),
        tag("option", "error (observed)", value="error"),
        tag("option", "novelty", value="novelty") if novelty else "",
        id="viewer-colour",
    )
    drawn = (
        tag("label", tag("input", type="checkbox", id="viewer-ellipsoids"), " ellipsoids of σ") if ellipsoids else ""
    )
    return tag("div", tag("label", "data ", sets), tag("label", "colour by ", colour), drawn, class_="controls")


def _view(side: str, heading: str) -> Html:
    canvas = tag(
        "canvas",
        "The tables below hold the same structures.",
        id=f"viewer-{side}",
        tabindex="0",
        role="application",
        aria_label=f"Three-dimensional view of a {heading.lower()} structure. Arrow keys turn, plus and minus "
        "zoom, N and P go from atom to atom, 0 starts again.",
        aria_describedby=f"viewer-{side}-atom",
    )
    return tag(
        "div",
        tag("h3", heading),
        tag("label", "structure ", tag("select", id=f"viewer-{side}-choice")),
        canvas,
        tag("output", id=f"viewer-{side}-atom", for_=f"viewer-{side}"),
        class_="view",
    )


def _legend() -> Html:
    """What colours and balls mean; the script fills in the numbers."""
    bar = tag("canvas", id="viewer-bar", aria_hidden="true")
    return tag(
        "div",
        tag("p", id="viewer-what"),
        bar,
        tag("div", id="viewer-ticks"),
        tag("p", id="viewer-elements", class_="elements"),
        class_="legend",
    )
