"""The JSON schema accepts what the program accepts, and refuses what it refuses."""

import json

import jsonschema
import pytest
import yaml

from equibayes.cli.main import main
from equibayes.config import build, template
from equibayes.errors import InputError
from equibayes.learning.settings import LearnConfig, learn_config
from equibayes.run.settings import PRESETS, SampleConfig, sample_config
from equibayes.schema import schema

SCHEMA = schema(sample_config(), "settings")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_templates_are_valid(preset: str) -> None:
    VALIDATOR.validate(yaml.safe_load(template(sample_config(preset))))
    jsonschema.validate(yaml.safe_load(template(learn_config(preset))), schema(learn_config(), "settings"))


@pytest.mark.parametrize("name", ["schema of sample", "schema of learn"])
def test_the_schema_is_a_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["template", name.rpartition(" ")[2], "--schema"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(found)
    kind = SampleConfig if name.endswith("sample") else LearnConfig
    assert set(found["properties"]) == set(kind.__dataclass_fields__)


ACCEPTED = [
    "chains: 3",
    "burn_in: {initial: 1e-3}",
    "burn_in: {patience: none}",
    "burn_in:",
    "network: {num_features: [32, 16, 8]}",
    "network: {avg_num_neighbors: {H: 3, C: 4.5}}",
    "network: {type_names: [H, C]}",
    "sampler: {mass: matrix}",
    "prior: {group_widths: {readout: 0.1}}",
]
REFUSED = [
    "chain: 3",
    "chains: 0",
    "chains: two",
    "chains: 1.5",
    "burn_in: {stepz: 3}",
    "burn_in: {decay: quadratic}",
    "burn_in: {noise_free: 1.1}",
    "burn_in: {initial: 0}",
    "burn_in: 7",
    "network: {l_max: 99}",
    "network: {type_names: H}",
    "sampler: {mass: full}",
    "output: {tensorboard: 3}",
]


@pytest.mark.parametrize("text", ACCEPTED + REFUSED)
def test_schema_and_program_agree(text: str) -> None:
    values = yaml.safe_load(text)
    try:
        build(SampleConfig, values)
        taken = True
    except InputError:
        taken = False
    assert taken == (text in ACCEPTED)
    assert VALIDATOR.is_valid(values) == taken
