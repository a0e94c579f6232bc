"""Connects to a Ray cluster and finds out what devices it has."""

import logging
import os
import re
import secrets
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from equibayes.errors import InputError, InputWarning

# of a cluster that is started for one run: room for a few checkpoints in transit, bytes
OBJECT_STORE = 2**30
FIRST_WITH_TOKENS = (2, 52)
LOOPBACK = "127.0.0.1"
# seconds for the head of a cluster to answer
KNOCK = 10.0


@dataclass(frozen=True)
class ClusterOptions:
    """Where chains run, and how they are packed.

    address            auto: the cluster that this machine belongs to; local: one for this run alone; or host:port
    device             cpu or cuda; None: GPUs where the cluster has some
    threads            CPU threads of a worker, which on CPUs are its device
    chains_per_device  largest number in one worker; groups beyond the number of devices wait for their turn
    shards             devices that share the data of one group of chains, where it is too large for one
    """

    address: str = "local"
    device: str | None = None
    threads: int = 1
    chains_per_device: int | None = None
    shards: int = 1

    def __post_init__(self) -> None:
        if self.address.startswith("ray://"):
            raise InputError(
                f"--cluster {self.address}: Ray's client protocol cannot stream results; run equibayes on a machine of the "
                "cluster with --cluster auto, or submit it with `ray job submit`"
            )
        for name, value in {"chains-per-device": self.chains_per_device, "shards": self.shards}.items():
            if value is not None and value < 1:
                raise InputError(f"--{name} {value}: must be at least 1")


def import_ray() -> Any:
    """The ray package, quiet; an `InputError` where it is not installed, or too old to ask for a token."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--cluster: the ray package is missing; pip install equibayes[cluster]") from None
    if tuple(int(part) for part in re.findall(r"\d+", ray.__version__)[:2]) < FIRST_WITH_TOKENS:
        first = ".".join(map(str, FIRST_WITH_TOKENS))
        raise InputError(
            f"--cluster: ray {ray.__version__} lets anyone in who reaches its ports; "
            f"pip install 'ray>={first}', the first with tokens"
        )
    return ray


@contextmanager
def _guarded(address: str) -> Iterator[None]:
    """Only who knows a token gets in: a secret of this run for a cluster of its own; for others it must be on.

    RAY_AUTH_MODE=disabled, set by the user, is respected, with a warning.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if mode == "disabled":
        warnings.warn(
            f"--cluster {address}: RAY_AUTH_MODE=disabled, so anyone who reaches the ports of the cluster can run "
            "programs on it; set RAY_AUTH_MODE=token",
            InputWarning,
            stacklevel=2,
        )
    elif address != "local" and mode != "token":
        raise InputError(
            f"--cluster {address}: no token is asked for, so anyone who reaches the cluster could use it; set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN where the cluster is started and here (docs: clusters, security)"
        )
    own = {} if mode or address != "local" else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    _read_mode_again()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _read_mode_again()


def _read_mode_again() -> None:
    """Ray reads RAY_AUTH_MODE when it is imported, which the caller may have done."""
    if "ray" in sys.modules:
        with suppress(ImportError, AttributeError):
            from ray._raylet import Config  # type: ignore[attr-defined]

            Config.initialize("")


@contextmanager
def _on_loopback() -> Iterator[None]:
    """A local cluster listens where only this machine reaches it.

    Ray binds to the loopback interface where the address of its node is 127.0.0.1, but exchanges this address for that
    of the network on Linux, and has no option against it.
    """
    from ray._private import services

    usual = services.resolve_ip_for_localhost
    services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        services.resolve_ip_for_localhost = usual


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The ray module, connected to a cluster.  An existing connection of the caller is used and left open."""
    with _guarded(address):
        ray = import_ray()
        if ray.is_initialized():
            yield ray
            return
        with _connected(ray, address):
            yield ray


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
    if address == "local":
        options |= {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        options |= {"_node_ip_address": LOOPBACK}
    else:
        options |= {"address": address}
        _knock(address)
    try:
        with _on_loopback() if address == "local" else nullcontext():
            ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as cause:
        raise _nobody_there(address, cause) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Check quickly that something listens at the address; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return  # auto, which Ray looks up
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK).close()
    except (OSError, OverflowError) as cause:
        raise _nobody_there(address, cause) from None


def _nobody_there(address: str, cause: BaseException) -> InputError:
    links = [cause, cause.__cause__, cause.__context__]
    if any("AuthToken" in str(link) for link in links):
        return InputError(
            f"--cluster {address}: the cluster asks for a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as where it was "
            "started"
        )
    first = (str(cause).splitlines() or [type(cause).__name__])[0]
    return InputError(
        f"--cluster {address}: no Ray cluster answers there ({first}); start one with `ray start --head`, or use "
        "--cluster local"
    )


def devices(ray: Any, options: ClusterOptions) -> tuple[str, int]:
    """cpu or cuda, and the number of workers for which the cluster has room now."""
    found = ray.cluster_resources()
    gpus = int(found.get("GPU", 0))
    kind = options.device or ("cuda" if gpus else "cpu")
    if kind == "cuda" and not gpus:
        raise InputError("--device cuda: the Ray cluster has no GPU; use --device cpu")
    count = gpus if kind == "cuda" else int(found.get("CPU", 0)) // options.threads
    count //= options.shards
    if count < 1:
        raise InputError(
            f"--cluster {options.address}: {int(found.get('CPU', 0))} CPUs and {gpus} GPUs are too few for {options.shards} "
            f"worker(s) with {options.threads} threads each; lower --threads or --shards"
        )
    return kind, count


def packed(chains: int, devices: int, at_most: int | None = None) -> list[list[int]]:
    """Chains 0 … K−1 in groups of nearly equal size, one per device, or more where a device takes at most `at_most`."""
    count = min(chains, devices)
    if at_most is not None:
        count = max(count, -(-chains // at_most))
    size, more = divmod(chains, count)
    groups, first = [], 0
    for number in range(count):
        last = first + size + (number < more)
        groups.append(list(range(first, last)))
        first = last
    return groups
