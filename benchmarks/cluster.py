"""Chains on a Ray cluster of this machine's cores: what two workers give over one, and what Ray costs against a bare
process.

    python benchmarks/cluster.py            some ten minutes; writes results/speed/cluster-cpu.json
    python benchmarks/cluster.py --quick    half a minute: shows that it runs, not how fast

Every measurement is a process of its own, turn by turn.  The bare process runs the same chains through the same
runner and writes its checkpoints itself.  Clocks are read by the chains, after the first looks: starting Ray and
torch is not counted.  On a machine that does other things too, the clock says little about a few percent.  So the
cost of Ray is also put together from two numbers that suffer less: processor time that the thread of the chains needs
for a step, and what Ray's other threads in the worker take of a second.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from command import number_table, parse, ran_job, save
from measure import in_fresh_process, summary
from rich.console import Console

from equibayes.allocator import keep_freed_memory
from equibayes.data import read
from equibayes.run import checkpoint
from equibayes.run.chains import describe_run
from equibayes.run.cluster.connect import ClusterOptions
from equibayes.run.cluster.driver import ClusterRun
from equibayes.run.cluster.maker import Maker
from equibayes.run.cluster.shards import Shard
from equibayes.run.cluster.worker import RemoteStore, Reporter, Said, Saved, Send, Worker
from equibayes.run.loop import run
from equibayes.run.prepare import Prepared, prepare
from equibayes.run.progress import Silent
from equibayes.run.settings import sample_config

WARM_UP = 2  # looks that are not counted
GOAL = 0.02  # of Ray over a bare process
Clocks = list[tuple[int, float, float, float, str]]
"""Step, seconds of the clock, of the processor for the thread of the chains and for the process, and its number; at
every look."""


class Timed(Reporter):
    """Says what the clocks show at every look."""

    def advance(self, step: int) -> None:
        clocks = [time.perf_counter(), time.thread_time(), time.process_time()]
        self.send(Said("clock " + json.dumps([step, *clocks, str(os.getpid())])))
        super().advance(step)


class TimedWorker(Worker):
    def display(self, send: Send) -> Silent:
        return Timed(send)


class Listener(Silent):
    """Keeps the clocks."""

    def __init__(self) -> None:
        self.clocks: list[list[Any]] = []

    def say(self, message: str) -> None:
        if message.startswith("clock "):
            self.clocks.append(json.loads(message.removeprefix("clock ")))


def config_of(job: dict[str, Any]) -> Any:
    chains = job["chains"] * max(1, job["workers"])
    return sample_config(
        "quick",
        job["network"],
        {
            "chains": chains,
            "samples": chains,
            "burn_in": {"steps": job["steps"]},
            "guard": {"interval": job["steps"] // 12},
            "output": {"checkpoint_seconds": 2.0},
        },
    )


def measured(job: dict[str, Any]) -> dict[str, float]:
    """Chain-steps a second of all workers together, and processor time of a step of one worker."""
    data = read("bundled:ethanol@train")
    prepared = prepare(data, config_of(job))
    with tempfile.TemporaryDirectory() as folder:
        runs = (on_ray if job["workers"] else bare)(job, prepared, data, Path(folder))
    begin, end = max(each[WARM_UP][1] for each in runs), min(each[-1][1] for each in runs)
    steps = 0.0
    for each in runs:
        first, last = np.interp([begin, end], [clock[1] for clock in each], [clock[0] for clock in each])
        steps += float(last - first)
    return {
        "chain_steps_per_second": job["chains"] * steps / (end - begin),
        "processor_seconds_per_step": mean(
            (each[-1][2] - each[WARM_UP][2]) / (each[-1][0] - each[WARM_UP][0]) for each in runs
        ),
        "other_threads_share": mean(_others(each) for each in runs),
    }


def _others(run: Clocks) -> float:
    """Processor time of all threads but that of the chains, in a second of the clock."""
    first, last = run[WARM_UP], run[-1]
    return ((last[3] - first[3]) - (last[2] - first[2])) / (last[1] - first[1])


def bare(job: dict[str, Any], prepared: Prepared, data: Any, folder: Path) -> list[Clocks]:
    """The same chains in this process; what they report is written here and now."""
    keep_freed_memory()
    torch.set_num_threads(1)
    clocks: list[Any] = []

    def take(report: Any) -> None:
        if isinstance(report, Said) and report.message.startswith("clock "):
            clocks.append(json.loads(report.message.removeprefix("clock ")))
        elif isinstance(report, Saved):
            checkpoint.save(folder, report.step, report.checkpoint)

    chains = Maker(prepared, data)(range(job["chains"]), "cpu", Shard())
    run(chains, RemoteStore(take), Timed(take))
    return [clocks]


def on_ray(job: dict[str, Any], prepared: Prepared, data: Any, folder: Path) -> list[Clocks]:
    """The chains packed onto so many workers with a core each."""
    import ray

    # else workers give way to the bare process, and to whatever else runs here
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    ray.init(
        address="local",
        num_cpus=job["workers"],
        include_dashboard=False,
        object_store_memory=2**28,
        log_to_driver=False,
        logging_level="ERROR",
    )
    display = Listener()
    driver = ClusterRun(
        ray,
        Maker(prepared, data),
        chains=prepared.config.chains,
        total_steps=prepared.config.schedule(len(prepared.train)).total_steps,
        about=describe_run(prepared, data),
        options=ClusterOptions(),
        folder=folder,
        display=display,
        worker=TimedWorker,
    )
    driver.run(resume=False)
    ray.shutdown()
    runs: dict[str, list[Any]] = {}
    for clock in display.clocks:
        runs.setdefault(clock[-1], []).append(clock)
    return list(runs.values())


def main() -> None:
    if ran_job(measured):
        return
    options = parse(
        __doc__, rounds=4, quick="tiny network, one round", threads="of a worker; only 1 is measured", default_threads=1
    )
    common = {"network": "tiny" if options.quick else "small", "steps": 60 if options.quick else 200}
    sizes = [1] if options.quick else [1, 4]
    jobs = {
        name: {**common, "chains": k, "workers": workers}
        for k in sizes
        for name, workers in ((f"bare, K = {k}", 0), (f"1 worker, K = {k}", 1), (f"2 workers, K = {k} each", 2))
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for number in range(1 if options.quick else options.rounds):
        for name, job in jobs.items():
            found[name].append(in_fresh_process(__file__, job))
            print(
                f"round {number + 1}: {name}: {found[name][-1]['chain_steps_per_second']:.1f} chain-steps/s", flush=True
            )
    rows = {}
    for name, runs in found.items():
        rate = summary([run["chain_steps_per_second"] for run in runs])
        rows[name] = {
            "chain_steps_per_second": rate.seconds,
            "spread": rate.spread,
            "rounds": rate.rounds,
            **{
                number: median(run[number] for run in runs)
                for number in ("processor_seconds_per_step", "other_threads_share")
            },
        }
    result = {
        "benchmark": "chains on a Ray cluster of one machine's cores",
        "quick": options.quick,
        "preset": common["network"],
        "steps": common["steps"],
        "seed": 0,
        "goal_overhead": GOAL,
        "rows": rows,
        "comparison": {f"K = {k}": comparison(rows, k) for k in sizes},
    }
    show(result)
    save(result, options, "cluster-cpu.json", ("torch", "numpy", "ray", "equibayes"))


def comparison(rows: dict[str, Any], k: int) -> dict[str, float]:
    alone, one, two = (
        rows[f"{name}, K = {k}{end}"] for name, end in (("bare", ""), ("1 worker", ""), ("2 workers", " each"))
    )
    rate, processor, others = "chain_steps_per_second", "processor_seconds_per_step", "other_threads_share"
    return {
        "overhead_by_the_clock": alone[rate] / one[rate] - 1,
        "overhead_of_the_chains_thread": one[processor] / alone[processor] - 1,
        "overhead_of_other_threads": one[others] - alone[others],
        "two_workers_over_one": two[rate] / one[rate],
    }


def show(result: dict[str, Any]) -> None:
    table = number_table(
        f"Chains on a Ray cluster, {result['preset']} network, one core a worker",
        ("", "chain-steps a second", "processor time of a step", "other threads"),
    )
    for name, row in result["rows"].items():
        rate = f"{row['chain_steps_per_second']:.1f} ± {row['spread'] * 50:.0f} %"
        table.add_row(
            name, rate, f"{1e3 * row['processor_seconds_per_step']:.2f} ms", f"{100 * row['other_threads_share']:.2f} %"
        )
    Console().print(table)
    for name, row in result["comparison"].items():
        print(
            f"{name}: Ray costs {100 * row['overhead_by_the_clock']:+.1f} % by the clock; by the processor "
            f"{100 * row['overhead_of_the_chains_thread']:+.1f} % in the thread of the chains and "
            f"{100 * row['overhead_of_other_threads']:+.1f} % in others; two workers do {row['two_workers_over_one']:.2f} × one"
        )


if __name__ == "__main__":
    main()
