"""How many labels active learning saves on a pool: rMD17 malonaldehyde, whose labels are all known,
or pools in which only some frames are of the kind that matters (`--case`).

Every seed starts from the same random labels.  Then follow rounds with equal numbers of labels and sampling steps,
chosen by the posterior in one way or another and, as a control, at random.  The question: how many chosen labels give
the test error of all the random ones?

    python -m studies.label_efficiency --data rmd17_malonaldehyde.npz --device cuda   for a GPU; hours on one core
    python -m studies.label_efficiency --data rmd17_malonaldehyde.npz --reduced       forty minutes on one core
    python -m studies.label_efficiency --data rmd17_malonaldehyde.npz --quick         half a minute, to see that it runs
    python -m studies.label_efficiency --case 3bpa --output results/learning/3bpa     other pools (cases.py)
    python -m studies.label_efficiency --report                                      tables and figure of finished seeds

Seeds may run side by side (--only SEED); on a GPU run --compile first, so that the kernels are compiled once.  Every
finished round goes to OUTPUT/runs/KIND-SEED.json, which is all that --report needs.  After a kill the same command
continues.
"""

from dataclasses import replace
from pathlib import Path

import torch

from equibayes.errors import InputError
from studies.label_efficiency.cases import CASES, case
from studies.label_efficiency.rounds import QUICK, REDUCED, SHIFTED, Frames, Study, compile_kernels, run
from studies.shared.options import add_commit, add_device, add_quick, parser_of, start


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", help="rmd17_malonaldehyde.npz with its splits beside it; not needed for --report")
    parser.add_argument("--case", choices=CASES, help="a pool of cases.py in place of --data")
    add_quick(parser, "half a minute")
    parser.add_argument("--reduced", action="store_true", help="a smaller network and 60 labels in place of 200")
    parser.add_argument("--seeds", type=int, help="default 5")
    parser.add_argument("--only", type=int, metavar="SEED", help="run one seed; several processes can share the work")
    parser.add_argument("--kinds", nargs="+", help="selections (default: bald diversity random)")
    parser.add_argument("--network", help="network preset: small (default), medium")
    parser.add_argument("--first", type=int, help="steps per chain for the first posterior")
    parser.add_argument("--warm", type=int, help="steps per chain in every later round")
    add_device(parser)
    parser.add_argument("--compile", action="store_true", help="only compile the GPU kernels")
    parser.add_argument("--work", "--folder", type=Path, help="folder for posteriors (default: build/label-efficiency)")
    parser.add_argument(
        "--output", type=Path, help="folder for runs, report and figure (default: results/label-efficiency)"
    )
    add_commit(parser)
    parser.add_argument("--report", action="store_true", help="only report on the finished seeds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = QUICK if options.quick else REDUCED if options.reduced else SHIFTED if options.case else Study()
    given = {name: getattr(options, name) for name in ("seeds", "kinds", "network", "first", "warm")}
    study = replace(study, **{name: value for name, value in given.items() if value is not None})
    study = replace(study, kinds=tuple(study.kinds))
    name = f"-{options.case}" if options.case else ""
    name += "-quick" if options.quick else "-reduced" if options.reduced else ""
    work = options.work or Path(f"build/label-efficiency{name}")
    results = Path("results/learning") / options.case if options.case else Path("results/label-efficiency")
    output = options.output or (
        work / "output" if options.quick else results / "reduced" if options.reduced else results
    )
    if not options.report:
        if not options.data and not options.case:
            raise InputError("--data: give rmd17_malonaldehyde.npz, or a --case")
        frames = case(options.case) if options.case else Frames.of(options.data, study)
        if options.compile:
            compile_kernels(study, frames, options.device)
            return
        seeds = range(study.seeds) if options.only is None else [options.only]
        run(study, seeds, frames, work, output, options.device, options.commit)
    if options.only is None:
        from studies.label_efficiency.report import report  # needs matplotlib, which sampling does not

        report(output)


if __name__ == "__main__":
    start(main)
