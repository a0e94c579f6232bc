"""Typed settings: what is converted, what is refused and with which words, how layers lie over each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import yaml

from equibayes.config import build, check, merge, parse_overrides, read_yaml, section, setting, template
from equibayes.errors import InputError


@dataclass(frozen=True)
class Inner:
    steps: int = setting(3, "how many")
    rate: float = setting(1e-5, "how fast")
    kind: str = setting("slow", "which", ("slow", "fast"))


@dataclass(frozen=True)
class Outer:
    count: int = setting(1, "a number")
    name: str | None = setting(None, "a name; none: nobody")
    active: bool = setting(True, "switch")
    way: Literal["up", "down"] = setting("up", "direction")
    sizes: int | list[int] = setting(4, "one or several")
    widths: float | dict[str, float] | None = setting(None, "one, several by name, or none")
    table: dict[str, float] = setting({}, "by name")
    words: list[str] = setting([], "several")
    inner: Inner = section(Inner, "a section")


@dataclass(frozen=True)
class Switch:
    end: str = setting("off", "when", ("auto", "off", "on"))


@pytest.mark.parametrize("word", ["auto", "off", "on"])
def test_words_that_yaml_takes_for_booleans(word: str) -> None:
    assert build(Switch, parse_overrides([f"end={word}"])).end == word


def test_defaults_and_base() -> None:
    assert build(Outer, {}) == Outer()
    base = build(Outer, {"count": 7, "inner": {"steps": 9}})
    assert build(Outer, {"inner": {"rate": 1.0}}, base) == Outer(count=7, inner=Inner(steps=9, rate=1.0))


@pytest.mark.parametrize(
    ("key", "value", "result"),
    [
        ("count", 5, 5),
        ("count", 5.0, 5),
        ("count", "1e6", 1_000_000),
        ("name", "x", "x"),
        ("name", None, None),
        ("name", "none", None),
        ("active", False, False),
        ("way", "down", "down"),
        ("sizes", [1, 2], [1, 2]),
        ("sizes", 8, 8),
        ("widths", None, None),
        ("widths", "none", None),
        ("widths", 2, 2.0),
        ("widths", {"H": "1e-3", "C": 2}, {"H": 1e-3, "C": 2.0}),
        ("table", {}, {}),
        ("words", ["a", "b"], ["a", "b"]),
    ],
)
def test_values_that_are_taken(key: str, value: Any, result: Any) -> None:
    found = getattr(build(Outer, {key: value}), key)
    assert found == result
    assert type(found) is type(result)


def test_numbers_that_yaml_reads_as_text() -> None:
    assert build(Outer, yaml.safe_load("inner: {rate: 1e-3}")).inner.rate == 1e-3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": "x"}, "count='x': must be a whole number"),
        ({"count": 1.5}, "count=1.5: must be a whole number"),
        ({"count": True}, "count=True: must be a whole number"),
        ({"count": None}, "count=None: must be a whole number"),
        ({"count": float("inf")}, "count=inf: must be a whole number"),
        ({"count": float("nan")}, "count=nan: must be a whole number"),
        ({"active": "yes"}, "active='yes': must be true or false"),
        ({"active": 1}, "active=1: must be true or false"),
        ({"name": 3}, "name=3: must be a word or none"),
        ({"way": "left"}, "way='left': must be up or down"),
        ({"sizes": ["a"]}, r"sizes=\['a'\]: must be a whole number or a list, each a whole number"),
        ({"widths": {"H": "x"}}, "must be a number or names with values, each a number or none"),
        ({"table": [1]}, r"table=\[1\]: must be names with values, each a number"),
        ({"words": "abc"}, "words='abc': must be a list, each a word"),
        ({"inner": {"rate": True}}, "inner.rate=True: must be a number"),
        ({"inner": {"rate": float("nan")}}, "inner.rate=nan: must be a number"),
        ({"inner": {"rate": "inf"}}, "inner.rate='inf': must be a number"),
        ({"inner": {"kind": "fats"}}, "inner.kind=fats: must be one of slow, fast; did you mean 'fast'?"),
        ({"inner": 3}, "inner: expected a section of settings, got 3"),
        ({"inner": 0}, "inner: expected a section of settings, got 0"),
        ({"inner": []}, r"inner: expected a section of settings, got \[\]"),
        ({"inner": {"stpes": 1}}, "inner.stpes: no such setting; did you mean 'steps'?"),
        ({"cuont": 1}, "cuont: no such setting; did you mean 'count'?"),
        (
            {"zzzzzz": 1},
            "zzzzzz: no such setting; there are count, name, active, way, sizes, widths, table, words, inner",
        ),
        ({3: 1}, "3: no such setting"),
    ],
)
def test_values_that_are_refused(values: Any, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        build(Outer, values)


def test_overrides() -> None:
    words = ["a.b=1", "a.c=[1, 2]", "d=none", "e.f={x: 1.5}", "g=a=b", "h=", "a.b=2"]
    assert parse_overrides(words) == {
        "a": {"b": 2, "c": [1, 2]},
        "d": "none",
        "e": {"f": {"x": 1.5}},
        "g": "a=b",
        "h": None,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["abc"], "'abc': an override is written section.key=value"),
        (["=1"], "'=1': an override is written section.key=value"),
        (["a=[1"], r"'a=\[1': '\[1' cannot be read as a value"),
        (["a=1", "a.b=2"], "'a.b=2': 'a' is a setting, not a section"),
    ],
)
def test_overrides_that_cannot_be(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_overrides(words)


def test_merge() -> None:
    low = {"a": {"x": 1, "y": 2}, "b": 3}
    assert merge(low, {"a": {"x": 9}}) == {"a": {"x": 9, "y": 2}, "b": 3}
    assert merge(low, {"a": None, "b": None}) == {"a": {"x": 1, "y": 2}, "b": None}, "an empty section changes nothing"
    merge(low, {"a": {"x": 9}})["a"]["y"] = 7
    assert low == {"a": {"x": 1, "y": 2}, "b": 3}, "what is laid below is not changed"


def test_yaml_files(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("# nothing but a remark\n")
    assert read_yaml(path) == {}
    path.write_text("inner:\n  steps: 3\n")
    assert read_yaml(path) == {"inner": {"steps": 3}}
    path.write_text("a: !!python/object/apply:os.system ['touch sprung']\n")
    with pytest.raises(InputError, match=r"s\.yaml, line 1: not valid YAML"):
        read_yaml(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_yaml(tmp_path)


def test_template_is_yaml_with_all_settings_and_their_help() -> None:
    instance = Outer(
        name="#1: a",
        words=["No", "yes", "1e5", "Å"],
        widths={f"species {i}": 1 / 3 + i for i in range(200)},
        sizes=[1, 2],
    )
    text = template(instance)
    assert build(Outer, yaml.safe_load(text)) == instance
    assert "steps: 3  # how many" in text
    assert "kind: slow  # which (slow, fast)" in text
    assert "# a section\ninner:" in text


def test_default_containers_are_not_shared() -> None:
    Outer().words.append("x")
    assert Outer().words == []


@dataclass(frozen=True)
class Bounded:
    REMOVED: ClassVar[dict[str, str]] = {"speed": "fixed at 3"}

    steps: int = setting(3, "how many", at_least=1)
    rate: float = setting(0.1, "how fast", above=0)
    share: float = setting(0.5, "how much", above=0, at_most=1)
    part: float = setting(0.0, "which part", at_least=0, at_most=1)
    limit: float | None = setting(None, "at most", at_most=10)
    sizes: int | list[int] = setting(4, "one or several", at_least=1)
    widths: dict[str, float] = setting({}, "by name", above=0)
    kind: str = setting("slow", "which", ("slow", "fast"))


@dataclass(frozen=True)
class Around:
    inner: Bounded = section(Bounded, "a section")

    def __post_init__(self) -> None:
        check(self)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 0}, "inner.steps=0: must be at least 1"),
        ({"rate": 0.0}, "inner.rate=0.0: must be positive"),
        ({"share": 1.5}, "inner.share=1.5: must be above 0 and at most 1"),
        ({"part": -0.1}, "inner.part=-0.1: must be between 0 and 1"),
        ({"limit": 11.0}, "inner.limit=11.0: must be at most 10"),
        ({"sizes": [1, 0]}, r"inner.sizes=\[1, 0\]: must be at least 1"),
        ({"widths": {"a": 1.0, "b": 0.0}}, "inner.widths.b=0.0: must be positive"),
        ({"kind": "fats"}, r"inner.kind=fats: must be one of slow, fast; did you mean 'fast'\?"),
    ],
)
def test_bounds_stand_at_the_field(values: dict[str, Any], words: str) -> None:
    """Checked in values from a user, and in objects that are constructed."""
    with pytest.raises(InputError, match=f"^{words}$"):
        build(Around, {"inner": values})
    with pytest.raises(InputError, match=f"^{words}$"):
        Around(Bounded(**values))


def test_bounds_are_inclusive_where_they_say_so_and_refuse_nan() -> None:
    build(Around, {"inner": {"steps": 1, "share": 1.0, "part": 1.0, "limit": None, "sizes": [1], "widths": {}}})
    with pytest.raises(InputError, match="must be positive"):
        Around(Bounded(rate=float("nan")))


def test_bounds_stand_in_the_template() -> None:
    text = template(Bounded())
    assert "steps: 3  # how many (at least 1)" in text
    assert "share: 0.5  # how much (above 0 and at most 1)" in text
    assert "part: 0.0  # which part (between 0 and 1)" in text
    assert build(Bounded, yaml.safe_load(text)) == Bounded()


def test_a_removed_setting_is_named() -> None:
    with pytest.raises(InputError, match=r"^inner.speed: this setting no longer exists \(fixed at 3\); leave it out$"):
        build(Around, {"inner": {"speed": 3}})
