"""What a cluster of our own listens to, and which clusters are refused."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from equibayes.errors import InputError, InputWarning
from equibayes.run.cluster.connect import connected, import_ray

pytest.importorskip("ray")

LISTENING = """
import os, psutil, ray
from equibayes.run.cluster.connect import connected

with connected("local"):
    ray.get(ray.remote(lambda: 1).remote())
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        for each in process.net_connections(kind="inet"):
            if each.status == psutil.CONN_LISTEN:
                print("listens", each.laddr.ip)
    token = os.environ["RAY_AUTH_TOKEN"]
    print("mode", os.environ["RAY_AUTH_MODE"], len(token))
    from ray._raylet import AuthenticationMode, get_authentication_mode
    print("asks for it", get_authentication_mode() == AuthenticationMode.TOKEN)
print("after", os.environ.get("RAY_AUTH_TOKEN"))
"""


def test_a_local_cluster_is_reached_by_this_machine_alone_and_with_a_token(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=150
    )
    lines = done.stdout.split("\n")
    addresses = {line.split()[1].removeprefix("::ffff:") for line in lines if line.startswith("listens")}
    assert addresses == {"127.0.0.1"}, done.stdout + done.stderr
    assert "mode token 64" in lines
    assert "asks for it True" in lines
    assert "after None" in lines


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1"])
def test_other_clusters_must_ask_for_a_token(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(InputError, match=r"no token is asked for.*RAY_AUTH_MODE=token"), connected(address):
        pass
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with (
        pytest.warns(InputWarning, match="anyone who reaches the ports"),
        pytest.raises(InputError, match="no Ray cluster answers there"),
        connected("127.0.0.1:1"),
    ):
        pass


@pytest.mark.parametrize("version", ["2.40.0", "2.51.1", "1.13"])
def test_a_ray_without_tokens_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__=version))
    with pytest.raises(InputError, match=rf"ray {version} lets anyone in.*ray>=2.52"):
        import_ray()
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.52.0rc1"))
    assert import_ray().__version__ == "2.52.0rc1"
