"""Checkpoints written by `nequip-train` itself load here, without executing anything, and give nequip's own numbers."""

import subprocess
import sys
import warnings
import zipfile

import pytest
import torch
import yaml
from ase.io import write

from equibayes.data import bundled_ethanol
from equibayes.errors import InputError
from equibayes.network.official import convert_official, load_official
from tests.official import assert_equal, evaluate_official, evaluate_ours
from tests.samples import ethanol

TYPES = ["H", "C", "O"]
LOADER = {"_target_": "torch.utils.data.DataLoader", "batch_size": 2}


def training(module, **model):
    """Configuration of `nequip-train`: 6 frames of ethanol, one epoch, settings of the model from the data's
    statistics."""
    mapper = {"_target_": "nequip.data.transforms.ChemicalSpeciesToAtomTypeMapper", "model_type_names": TYPES}
    checkpoint = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "dirpath": ".", "filename": "best"}
    return {
        "run": ["train"],
        "data": {
            "_target_": "nequip.data.datamodule.ASEDataModule",
            "seed": 1,
            "split_dataset": {"file_path": "data.xyz", "train": 6, "val": 2},
            "transforms": [mapper, {"_target_": "nequip.data.transforms.NeighborListTransform", "r_max": 4.0}],
            "train_dataloader": LOADER,
            "val_dataloader": LOADER,
            "stats_manager": {"_target_": "nequip.data.CommonDataStatisticsManager", "type_names": TYPES},
        },
        "trainer": {
            "_target_": "lightning.Trainer",
            "accelerator": "cpu",
            "max_epochs": 1,
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "callbacks": [checkpoint],
        },
        "training_module": {
            **module,
            "loss": {"_target_": "nequip.train.EnergyForceLoss", "per_atom_energy": True},
            "val_metrics": {"_target_": "nequip.train.EnergyForceMetrics"},
            "optimizer": {"_target_": "torch.optim.Adam", "lr": 0.01},
            "model": {
                "_target_": "nequip.model.NequIPGNNModel",
                "seed": 1,
                "model_dtype": "float64",
                "type_names": TYPES,
                "r_max": 4.0,
                "num_layers": 2,
                "num_features": 4,
                "radial_mlp_width": 8,
                "avg_num_neighbors": "${training_data_stats:num_neighbors_mean}",
                "per_type_energy_scales": "${training_data_stats:per_type_forces_rms}",
                "per_type_energy_shifts": "${training_data_stats:per_atom_energy_mean}",
                **model,
            },
        },
    }


def start_training(folder, config):
    """The official program in a process of its own."""
    write(folder / "data.xyz", [frame.to_atoms() for frame in bundled_ethanol()[:8]], format="extxyz")
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "nequip.scripts.train", "-cp", str(folder), "-cn", "config"]
    with (folder / "log.txt").open("w") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Paths of two checkpoints, trained side by side: without and with a moving average."""
    trainable = dict.fromkeys(("bessel_trainable", "per_type_energy_shifts_trainable"), True)
    configs = {
        "plain": training({"_target_": "nequip.train.NequIPLightningModule"}, l_max=2, parity=False),
        "averaged": training({"_target_": "nequip.train.EMALightningModule", "ema_decay": 0.9}, **trainable),
    }
    folders = {name: tmp_path_factory.mktemp(name) for name in configs}
    runs = {name: start_training(folders[name], config) for name, config in configs.items()}
    for name, run in runs.items():
        assert run.wait(timeout=300) == 0, (folders[name] / "log.txt").read_text()[-2000:]
    return {name: folder / "best.ckpt" for name, folder in folders.items()}


@pytest.fixture(scope="module")
def plain(checkpoints):
    return checkpoints["plain"]


@pytest.fixture(scope="module")
def averaged(checkpoints):
    return checkpoints["averaged"]


def by_nequip(path):
    """The model as nequip itself loads it for use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nequip.model import ModelFromCheckpoint
        from nequip.utils.global_state import set_global_state

        set_global_state()
        return ModelFromCheckpoint(str(path))["sole_model"]


@pytest.mark.parametrize("which", ["plain", "averaged"])
def test_same_numbers(which, checkpoints):
    path = checkpoints[which]
    expected = evaluate_official(by_nequip(path), ethanol(), TYPES, 4.0)
    assert_equal(evaluate_ours(load_official(path), ethanol(), torch.float64), expected, 1e-10)


def test_moving_average_is_not_the_last_step(averaged):
    """The file holds both, they differ, and the average is what we read."""
    checkpoint = torch.load(averaged, weights_only=True)
    last = convert_official(
        checkpoint["hyper_parameters"]["model"],
        {key: value for key, value in checkpoint["state_dict"].items() if key.startswith("model.")},
    )
    average = load_official(averaged)
    assert not torch.allclose(last.weights, average.weights, rtol=1e-4)
    assert last.shifts != average.shifts


def altered(path, folder, change):
    """A copy of a checkpoint in which `change(checkpoint)` was made."""
    checkpoint = torch.load(path, weights_only=True)
    change(checkpoint)
    torch.save(checkpoint, folder / "altered.ckpt")
    return folder / "altered.ckpt"


def test_exchanged_averages_are_refused(averaged, tmp_path):
    def exchange(checkpoint):
        checkpoint["state_dict"]["ema._extra_state"]["is_holding_ema_weights"] = False

    with pytest.raises(InputError, match="exchanged"):
        load_official(altered(averaged, tmp_path, exchange))


def test_averages_of_another_model_are_refused(averaged, tmp_path):
    def remove(checkpoint):
        del checkpoint["state_dict"]["ema.ema_weight_12"]

    with pytest.raises(InputError, match="moving averages do not fit"):
        load_official(altered(averaged, tmp_path, remove))


def test_schedule_free_is_refused(plain, tmp_path):
    with pytest.raises(InputError, match="schedule-free"):
        load_official(altered(plain, tmp_path, lambda c: c.update(schedulefree_optimizer_state_dict={})))


class Harmful:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize("damage", ["absent", "empty", "text", "truncated", "other zip", "other object", "code"])
def test_bad_files(plain, tmp_path, damage, capsys):
    path = tmp_path / "model.ckpt"
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not a checkpoint\n")
    elif damage == "truncated":
        path.write_bytes(plain.read_bytes()[:5000])
    elif damage == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "b")
    elif damage == "other object":
        torch.save([1, 2, 3], path)
    elif damage == "code":
        torch.save({"state_dict": Harmful()}, path)
    with pytest.raises(InputError, match=r"model\.ckpt: ") as caught:
        load_official(path)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == "", "something in the file was executed"


def test_package_imports_without_nequip():
    """nequip and e3nn are needed by tests only."""
    program = (
        "import sys; sys.modules['nequip'] = sys.modules['e3nn'] = None\n"
        "import equibayes.network.official, equibayes.bayes.model, equibayes.bayes.likelihood, equibayes.data.resident"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


class TestPackage:
    """A `.nequip.zip`, built by nequip itself."""

    @pytest.fixture(scope="class")
    @classmethod
    def package(cls, averaged):
        path = averaged.with_name("model.nequip.zip")
        command = [sys.executable, "-m", "nequip.scripts.package", "build", str(averaged), str(path)]
        done = subprocess.run(command, cwd=averaged.parent, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return path

    def test_same_numbers_as_its_checkpoint(self, package, averaged):
        expected = evaluate_official(by_nequip(averaged), ethanol(), TYPES, 4.0)
        model = load_official(package)
        assert_equal(evaluate_ours(model, ethanol(), torch.float64), expected, 1e-10)
        assert torch.equal(model.weights, load_official(averaged).weights)

    def test_nothing_in_it_is_executed(self, package, tmp_path):
        """Its sources are not looked at, and a pickle that calls something makes an empty shell."""
        with zipfile.ZipFile(package) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        harm = {name: b"raise SystemExit" if name.endswith(".py") else data for name, data in files.items()}
        model = next(name for name in files if name.endswith("eager_model.pkl"))
        _write(tmp_path / "a.nequip.zip", harm)
        assert torch.equal(load_official(tmp_path / "a.nequip.zip").weights, load_official(package).weights)
        call = b"cos\nmkdir\n(S'" + str(tmp_path / "harm").encode() + b"'\ntR."
        _write(tmp_path / "b.nequip.zip", files | {model: call})
        with pytest.raises(InputError, match="no weights in its model"):
            load_official(tmp_path / "b.nequip.zip")
        assert not (tmp_path / "harm").exists()

    def test_damaged(self, package, tmp_path):
        (tmp_path / "a.nequip.zip").write_bytes(package.read_bytes()[:1000])
        with pytest.raises(InputError, match=r"a\.nequip\.zip: not a readable package of NequIP"):
            load_official(tmp_path / "a.nequip.zip")
        _write(tmp_path / "b.nequip.zip", {"else.txt": b""})
        with pytest.raises(InputError, match="not a package of NequIP"):
            load_official(tmp_path / "b.nequip.zip")
        with pytest.raises(InputError, match="no such file"):
            load_official(tmp_path / "c.nequip.zip")


def _write(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
