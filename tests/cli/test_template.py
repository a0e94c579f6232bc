"""`equibayes template sample` and the settings beside a result: both lead back to the same configuration."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from equibayes.cli.main import main
from equibayes.run.settings import NETWORKS, PRESETS, SampleConfig, sample_config


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert main(["template", "sample", *argv]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("network", [None, *NETWORKS])
def test_a_template_gives_back_its_preset(preset: str, network: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when it is read on top of another preset: it names every setting."""
    options = ["--preset", preset, *(["--network", network] if network else [])]
    values = yaml.safe_load(printed(capsys, *options))
    expected = sample_config(preset, network)
    assert sample_config(preset, network, values) == expected
    assert sample_config("quick", "small", values) == expected


def test_every_setting_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in printed(capsys).splitlines() if line.strip() and not line.strip().startswith("#")]
    for line in lines:
        if not line.endswith(":"):
            assert len(line.split("  # ")[1]) > 8, f"no word about {line}"

    def names(kind: Any) -> list[str]:
        found = [f.name for f in fields(kind)]
        return found + [name for f in fields(kind) if is_dataclass(f.type) for name in names(f.type)]

    assert sorted(line.strip().split(":")[0] for line in lines) == sorted(names(SampleConfig))


def test_what_is_deleted_keeps_its_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--preset", "paper-rmd17")
    shortened = "\n".join(line for line in text.splitlines() if not line.startswith("  ") or "freeze_mass" in line)
    values = yaml.safe_load(shortened)
    assert values["cycles"] is None
    assert sample_config("paper-rmd17", None, values) == sample_config("paper-rmd17")


def test_the_settings_beside_a_result_give_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, also where species and scales were taken from the data; and a run may be resumed from them."""
    monkeypatch.chdir(tmp_path)
    argv = "sample bundled:ethanol@0:20 -o a.posterior --network tiny --chains 2 --samples 4 --seed 5 data.validation=4"
    words = "burn_in.steps=8 cycles.length=8 burn_in.batch_size=4 cycles.batch_size=4 prior.width=0.7 output.half_precision=true"
    assert main([*argv.split(), *words.split(), "prior.group_widths={readout: 0.5}"]) == 0
    assert main(["sample", "bundled:ethanol@0:20", "a.run/config.yaml", "-o", "b.posterior"]) == 0
    assert Path("a.posterior").read_bytes() == Path("b.posterior").read_bytes()
    assert Path("a.run/config.yaml").read_bytes() == Path("b.run/config.yaml").read_bytes()
    assert main(["sample", "bundled:ethanol@0:20", "a.run/config.yaml", "-o", "a.posterior", "--resume"]) == 0
    assert yaml.safe_load(Path("a.run/config.yaml").read_text())["network"]["type_names"] == ["H", "C", "O"]


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["template", "bake"]) == 2
    assert "invalid choice: 'bake'" in capsys.readouterr().err
    assert main(["template", "sample", "--preset", "x"]) == 2
    assert "invalid choice: 'x'" in capsys.readouterr().err


def test_a_file_with_another_network_than_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file would win, and a long run would begin with a network that nobody asked for."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(printed(capsys, "--preset", "standard"))
    words = ["sample", "bundled:ethanol@train", "s.yaml", "-o", "a.posterior"]
    assert main([*words, "--network", "tiny"]) == 2
    assert "--network tiny: s.yaml says network.l_max=2, which is not that of tiny (1)" in capsys.readouterr().err
    Path("s.yaml").write_text("network: {r_max: 5.0}\nsampler: {friction: 7}\n")
    assert main([*words, "--network", "tiny"]) == 2
    assert "friction" in capsys.readouterr().err, "a cutoff of one's own is no contradiction"
