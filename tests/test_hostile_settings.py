"""Settings that no one writes in good faith, and slips of the pen that look like them: one line, at once."""

from pathlib import Path

import pytest

from equibayes.cli.main import main
from equibayes.config import parse_overrides, read_yaml
from equibayes.errors import InputError
from equibayes.learning.settings import learn_config
from equibayes.run.settings import sample_config

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
TEXTS: dict[str, tuple[str, str]] = {
    "alias bomb": (BOMB, r", line 2: .*aliases such as \*name are not accepted"),
    "list that contains itself": ("a: &a [*a]", "aliases"),
    "section that contains itself": ("&a\nnetwork: *a", "aliases"),
    "nested lists": ("seed: " + "[" * 50_000, "nested more than 20 levels"),
    "nested sections": ("".join(" " * n + "a:\n" for n in range(300)), "nested more than 20 levels"),
    "nested sequences": ("- " * 50_000, "nested more than 20 levels"),
    "number of 5000 digits": ("seed: " + "9" * 5000, "a whole number of more than 30 digits"),
    "number of 5000 hexadecimal digits": ("seed: 0x" + "f" * 5000, "a whole number of more than 30 digits"),
    "number of 5000 digits with a point": ("seed: " + "9" * 5000 + ".0", "seed=.*: must be a whole number"),
    "date that does not exist": ("seed: 2024-13-45", "seed='2024-13-45': must be a whole number"),
    "date": ("seed: 2024-12-24", "must be a whole number"),
    "tag of a date": ("seed: !!timestamp never", "could not determine a constructor"),
    "tag of bytes": ("seed: !!binary ''", "could not determine a constructor"),
    "tag of a set": ("seed: !!set {a, b}", "could not determine a constructor"),
    "tag of an object": ("seed: !!python/object/apply:os.system [x]", "could not determine a constructor"),
    "number that is none": ("seed: !!int ''", "no int value"),
    "float that is none": ("seed: !!float much", "no float value"),
    "boolean that is none": ("seed: !!bool maybe", "no bool value"),
    "section as a name": ("? {a: b}\n: 3", "found unhashable key"),
    "surrogate": ('network: {model_dtype: "\\ud800"}', "a character that no text contains"),
    "control characters": ("seed: \x1b[2J", "special characters are not allowed"),
    "long name": ("? " + "x" * 10_000 + "\n: 1", "x…: no such setting"),
    "long value": ("seed: " + "x" * 10_000, "seed='x+…: must be a whole number"),
    "long file": ("# " + "x" * 300_000, "longer than 256000 characters"),
    "two documents": ("seed: 1\n---\nseed: 2", "but found another document"),
    "network preset that is a list": ("network_preset: [paper]", "does not exist"),
}
SLIPS: list[tuple[str, str]] = [
    ("seed=-1", "seed=-1: must be at least 0"),
    ("seed=1e30", "seed=.*: must be at most"),
    ("chains=1e9", "chains=1000000000: must be at most 10000"),
    ("samples=1e9", "samples=1000000000: must be at most 100000"),
    ("network.num_layers=1e9", "network.num_layers=1000000000: must be at most 100"),
    ("network.num_features=1e9", "network.num_features=1000000000: must be at most 4096"),
    ("network.num_features=[1e9, 1]", "must be at most 4096"),
    ("network.num_bessels=1e9", "must be at most 1000"),
    ("network.radial_mlp_depth=1e9", "must be at most 100"),
    ("network.radial_mlp_width=1e9", "must be at most 10000"),
    ("network.type_embed_num_features=-3", "must be at least 1"),
    ("network.polynomial_cutoff_p=1e9", "must be at most 1000"),
    ("network.r_max=1e-300", "must be between 0.1 and 100"),
    ("network.avg_num_neighbors=0", "must be at least 1e-09"),
    ("network.avg_num_neighbors={H: -1}", r"network.avg_num_neighbors.H=-1\.0: must be at least 1e-09"),
    ("network.per_type_energy_scales=1e-300", "must be at least 1e-09"),
    ("network.per_type_energy_shifts={H: 1e300}", "must be at most 1e\\+09"),
    ("burn_in.steps=1e15", "must be at most 1e\\+09"),
    ("burn_in.steps=9.99e8 cycles.length=1e9 samples=64", "steps in all: at most 4e\\+09"),
    ("burn_in.batch_size=1e9", "must be at most"),
    ("burn_in.initial=1e300", "must be at most 1e\\+12"),
    ("guard.interval=1e9", "must be at most 100000"),
    ("prior.width=1e-300", "must be at least 1e-06"),
    ("output.records=1e12", "must be at most"),
    ("data.given_energies={H: -1e300}", "must be at least"),
    (".".join("a" * 5000) + "=1", "at most 20 sections deep"),
    ("seed=" + "[" * 5000, "cannot be read as a value"),
    ("seed=&a [*a]", "aliases"),
    ("seed=" + "9" * 5000, "cannot be read as a value"),
    ("seed=2024-13-45", "must be a whole number"),
]
LEARN_SLIPS: list[tuple[str, str]] = [
    ("select.trust_lo=banana", "select.trust_lo banana: give eV/Å"),
    ("select.trust_hi=-1", "select.trust_hi -1.0: give eV/Å"),
    ("label_seconds=-1", "label_seconds=-1.0: must be positive"),
    ("md.timestep=0", "md.timestep=0.0: must be positive"),
    ("md.starts=1e12", "must be at most"),
    ("per_round=1e12", "must be at most"),
    ("sample.seed=-1", "sample.seed=-1: must be at least 0"),
    ("sample.chains=1e9", "sample.chains=1000000000: must be at most 10000"),
    ("labeller=[xtb]", r"labeller=\['xtb'\]: must be a word"),
]


@pytest.mark.parametrize("case", TEXTS)
def test_a_settings_file_is_refused_in_one_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text, words = TEXTS[case]
    Path("s.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        sample_config("quick", None, read_yaml("s.yaml"))
    for argv in (["sample", "bundled:ethanol@0:9", "s.yaml", "-o", "a.posterior"], ["learn", "s.yaml", "-o", "folder"]):
        assert main(argv) == 2
        err = capsys.readouterr().err
        assert err.startswith("equibayes: error: ")
        assert err.count("\n") == 1
        assert len(err) < 1000


@pytest.mark.parametrize(("words", "message"), SLIPS, ids=[words[:40] for words, _ in SLIPS])
def test_a_slip_in_an_override_is_refused_in_one_line(words: str, message: str) -> None:
    parts = [words] if words.startswith("seed=") or "{" in words or "[" in words else words.split()
    with pytest.raises(InputError, match=message) as caught:
        sample_config("quick", "tiny", parse_overrides(parts))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("words", "message"), LEARN_SLIPS)
def test_a_slip_in_a_setting_of_learn(words: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        learn_config("quick", "tiny", parse_overrides([words]))


def test_names_that_are_no_text() -> None:
    """Numbers, none and dates are names like any other."""
    with pytest.raises(InputError, match=r"^None: no such setting"):
        sample_config("quick", None, {None: 1})  # type: ignore[dict-item]


def test_a_device_and_a_name_with_a_nul_character() -> None:
    with pytest.raises(InputError, match=r"/dev/zero.*: not valid YAML"):
        read_yaml("/dev/zero")
    with pytest.raises(InputError, match="no such file"):
        read_yaml("a\0b")


def test_chains_that_no_memory_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings within their limits that together need terabytes."""
    words = ["--network", "tiny", "chains=10000", "samples=10000", "network.num_features=2048", "network.num_layers=20"]
    assert (
        main(["sample", "bundled:ethanol@0:9", "-o", str(tmp_path / "a.posterior"), "data.validation=2", *words]) == 2
    )
    err = capsys.readouterr().err
    assert "chains=10000 of a network with" in err
    assert "lower chains, network.num_features or network.num_layers" in err


def test_usual_values_are_still_accepted() -> None:
    config = sample_config("quick", None, parse_overrides(["seed=9223372036854775807", "data.validation=0"]))
    assert (config.seed, config.data.validation) == (2**63 - 1, 0)
    assert learn_config(None, None, {"select": {"trust_lo": "0.2"}, "start": "2024-12-24"}).start == "2024-12-24"
