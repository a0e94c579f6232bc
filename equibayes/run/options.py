"""Where a run is written and computed, as one value."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

import torch

from equibayes.config import template
from equibayes.device import choose_device
from equibayes.errors import InputError
from equibayes.files import RESUME, lock, make_folder, remedy, remove_leftovers, write_text
from equibayes.notebook import html_table
from equibayes.run.cluster.connect import ClusterOptions
from equibayes.run.origin import CONFIG, Origin
from equibayes.run.origin import FILE as ORIGIN
from equibayes.run.progress import Display, default_display
from equibayes.run.settings import SampleConfig
from equibayes.run.store import begun, clear, run_folder


@dataclass(frozen=True)
class Run:
    """Where a run is written and computed.  The samples do not depend on it, apart from rounding.

    output     posterior file to write; checkpoints, metrics and settings go to a folder beside it.  None: no files
    resume     continue an interrupted run, bit for bit
    overwrite  replace an earlier output and its run; without it they are an `InputError`
    device     cpu, cuda, …; None: a GPU if there is one
    display    is told about progress; None: a bar in a notebook, nothing elsewhere
    cluster    Ray cluster on whose devices the chains run; None: all chains on this device
    """

    output: str | Path | None = None
    resume: bool = False
    overwrite: bool = False
    device: torch.device | str | None = None
    display: Display | None = None
    cluster: ClusterOptions | None = None

    def _repr_html_(self) -> str:
        lines = [("output", f"{self.output or 'no files'}"), ("device", f"{self.on}")]
        if self.output is not None:
            ready = Path(self.output).is_file()
            lines.append(("state", "finished" if ready else "begun" if begun(self.output) else "not begun"))
        if self.cluster is not None:
            lines.append(("cluster", f"{self.cluster.address}"))
        return html_table(lines, "Run")

    @property
    def on(self) -> torch.device:
        """The device of a run without a cluster."""
        return choose_device(self.device)

    @property
    def screen(self) -> Display:
        return self.display or default_display()

    def to(self, output: str | Path, *, resume_if_begun: bool = False) -> "Run":
        """The same run with another output; with `resume_if_begun`, one that was interrupted is continued."""
        again = resume_if_begun and not self.overwrite and begun(output) is not None
        return replace(self, output=output, resume=self.resume or again)

    def check(self) -> None:
        """An `InputError` rather than overwriting a posterior or an unfinished run."""
        if self.output is None:
            if self.resume:
                raise InputError("nothing to resume: the run has no output")
            return
        path = Path(self.output)
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file with -o")
        folder, where = run_folder(path), begun(path)
        if self.resume:
            if where is None:
                raise InputError(f"{folder}: no checkpoint to resume from; start without --resume")
            if (where == "cluster") != (self.cluster is not None):
                began, remedy = ("with", "add --cluster") if where == "cluster" else ("without", "leave --cluster out")
                raise InputError(f"{folder}: this run began {began} --cluster; to resume it {remedy}")
        elif path.exists() and not self.overwrite:
            raise InputError(f"{path}: exists already; choose another name with -o, or add --overwrite")
        elif where is not None and not self.overwrite:
            raise InputError(
                f"{folder}: holds an earlier run; continue it with --resume, or start over with --overwrite"
            )

    @contextmanager
    def opened(self, config: SampleConfig, origin: Origin | None = None) -> Iterator[Path | None]:
        """The folder of the run, locked against other processes and cleared unless resumed.  None without an output.

        origin  what the run is made from, to be kept in the folder
        """
        self.check()
        if self.output is None:
            yield None
            return
        path, folder = Path(self.output), make_folder(run_folder(self.output))
        with lock(folder), remedy(RESUME):
            remove_leftovers(folder)
            remove_leftovers(path.parent, escape(path.name))
            if not self.resume:
                clear(folder)
                write_text(folder / CONFIG, template(config) + "\n")
                (folder / ORIGIN).unlink(missing_ok=True)
                if origin is not None:
                    replace(origin, output=path.name).write(folder)
            elif origin is not None:
                origin.moved(folder)
            yield folder
