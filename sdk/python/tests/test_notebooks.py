# SPDX-License-Identifier: Apache-2.0
"""The notebooks of the examples, run as Jupyter runs them, with jobs on the cluster of KUBECONFIG."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

from tests.images import IMAGE
from tests.test_cluster import need_image
from trireme._kube import Kube

EXAMPLES = Path(__file__).parent.parent / "examples"
WANTED = {
    "hello": ["[(0, 1.5), (1, 1.5), (2, 1.5), (3, 1.5)]", "value='20' max='20'", "Succeeded"],
    "array": ["best rate: 0.3", "<td>Succeeded</td>"],
    "digits": ["Plan of train-", "value='100' max='100'", "test accuracy 0.9", "<th>99</th>"],
    "allocation": ["(0, '0'), (1, '0'), (2, '1'), (3, '1')", "TrainingError - TypeError: ", "4950"],
    "migrate": ["hosts-worker-1", "Succeeded", "hosts-trainjob-worker-0-1"],
}


def test_all_notebooks_are_run() -> None:
    assert set(WANTED) == {path.stem for path in EXAMPLES.glob("*.ipynb")}


@pytest.mark.cluster
@pytest.mark.parametrize("name", sorted(WANTED))
def test_notebook(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_image()
    namespace = f"notebook-{secrets.token_hex(3)}"
    configuration = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    for context in configuration["contexts"]:
        context["context"]["namespace"] = namespace
    (tmp_path / "config").write_text(yaml.safe_dump(configuration))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("TRIREME_IMAGE", IMAGE)
    kube = Kube.connect()
    kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    try:
        notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
        NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    finally:
        kube.delete(f"/api/v1/namespaces/{namespace}")
    output = str([cell.get("outputs") for cell in notebook.cells])
    for text in WANTED[name]:
        assert text in output.replace('\\"', "'").replace("\\'", "'")
