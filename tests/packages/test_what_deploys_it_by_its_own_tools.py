"""What runs Calve elsewhere, checked by the tools it is written for: Helm, the schemas of Kubernetes and Compose, systemd."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.installed import ROOT
from support.programs import missing

CHART = ROOT / "deploy" / "helm" / "calve"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
EVERYTHING = (
    "--set=sparkOnKubernetes=true",
    "--set=ingress.enabled=true",
    "--set=ingress.className=nginx",
    "--set=environmentFrom={a,b}",
    "--set=imagePullSecrets[0].name=registry",
    "--set=server.hosts={x,y}",
    "--set=worker.nodeSelector.disk=ssd",
    "--set=worker.tolerations[0].operator=Exists",
    "--set=serviceAccount.annotations.role=calve",
)
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def helm() -> Path:
    """Helm of this machine, or built from its sources into the cache, which takes minutes."""
    cache = Path(os.environ.get("CALVE_CACHE", ROOT / ".cache")) / "bin"
    if found := shutil.which("helm", path=f"{cache}{os.pathsep}{os.environ['PATH']}"):
        return Path(found)
    if not shutil.which("go"):
        raise missing("helm", f"GOBIN={cache} go install {HELM}")
    subprocess.run(["go", "install", HELM], env=os.environ | {"GOBIN": str(cache)}, check=True, timeout=3600)
    return cache / "helm"


@pytest.fixture(scope="module")
def validate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kubernetes-validate, which carries the schemas: it has 17,000 files."""
    return installed(tmp_path_factory.mktemp("validate"), "kubernetes-validate==1.37.0")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """check-jsonschema, which carries the schema of the Compose specification."""
    return installed(tmp_path_factory.mktemp("check"), "check-jsonschema==0.39.0")


def installed(folder: Path, tool: str) -> Path:
    """A tool in an environment of its own."""
    uv = Path(sys.executable).with_name("uv")
    environment = os.environ | {"UV_SYSTEM_CERTS": "1"}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "env"], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", folder / "env", tool], env=environment, check=True
    )
    return folder / "env" / "bin" / tool.partition("==")[0]


def rendered(helm: Path, version: str, *options: str) -> str:
    return subprocess.run(
        [helm, "template", "calve", CHART, "--namespace", "calve", "--kube-version", version, *options],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_helm_finds_nothing_wrong(helm: Path) -> None:
    answer = subprocess.run([helm, "lint", "--strict", CHART], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout


def test_the_manifests_are_the_chart_with_its_defaults(helm: Path) -> None:
    text = (ROOT / "deploy" / "kubernetes" / "calve.yaml").read_text()
    assert text.split("\n", 1)[1] == rendered(helm, "1.34"), f"HELM={helm} scripts/kubernetes"


@pytest.mark.parametrize("version", ["1.27", "1.34"])
@pytest.mark.parametrize("options", [(), EVERYTHING, ("--set=server.enabled=false",)])
def test_what_is_rendered_is_what_kubernetes_takes(
    helm: Path, validate: Path, tmp_path: Path, version: str, options: tuple[str, ...]
) -> None:
    text = rendered(helm, version, *options)
    (tmp_path / "good.yaml").write_text(text)
    (tmp_path / "bad.yaml").write_text(text.replace("mountPath:", "mountpath:"))
    checked = {
        name: subprocess.run(
            [validate, "--strict", "-k", version, tmp_path / f"{name}.yaml"], capture_output=True
        )
        for name in ("good", "bad")
    }
    assert checked["good"].returncode == 0, checked["good"].stdout + checked["good"].stderr
    assert checked["bad"].returncode != 0


def test_the_compose_file_is_what_the_specification_takes(check: Path, tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "compose" / "compose.yaml").read_text()
    (tmp_path / "good.yaml").write_text(text)
    (tmp_path / "bad.yaml").write_text(text.replace("healthcheck:", "healthchecks:", 1))
    checked = {
        name: subprocess.run(
            [check, "--builtin-schema", "vendor.compose-spec", tmp_path / f"{name}.yaml"], capture_output=True
        )
        for name in ("good", "bad")
    }
    assert checked["good"].returncode == 0, checked["good"].stdout + checked["good"].stderr
    assert checked["bad"].returncode != 0


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        raise missing("systemd-analyze", "apt-get install systemd")
    for unit in (ROOT / "deploy" / "systemd").iterdir():
        command = str(Path(sys.executable).with_name("calve"))
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/calve/bin/calve", command))
    units = sorted(tmp_path.iterdir())
    answer = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    (tmp_path / "calve-worker.service").write_text("[Service]\nExecStart=/not/there\n")
    assert subprocess.run(["systemd-analyze", "verify", units[-1]], capture_output=True).returncode != 0
