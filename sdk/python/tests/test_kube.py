# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.fakeapi import FakeAPI
from trireme import errors
from trireme._kube import Kube, api_error

PATH = "/api/v1/namespaces/default/pods"


def pod(name: str) -> dict:
    return {"metadata": {"name": name}}


@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_reads_are_repeated_after_transient_errors(api: FakeAPI, status: int) -> None:
    api.put("pods", "default", pod("a"))
    api.fault("GET", PATH + "/a", status, times=3)
    assert api.kube().get(PATH + "/a")["metadata"]["name"] == "a"
    assert api.count("GET", PATH + "/a") == 4


def test_retry_after_is_respected(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("trireme._kube.time.sleep", waited.append)
    api.fault("GET", PATH, 429, {}, Retry_After="7")
    api.kube().items(PATH)
    assert waited == [7.0]


def test_a_create_is_not_repeated_if_it_may_have_happened(api: FakeAPI) -> None:
    api.fault("POST", PATH, 500, {"message": "timeout of etcd"})
    with pytest.raises(errors.K8sApiException, match="timeout of etcd") as raised:
        api.kube().create(PATH, pod("a"))
    assert raised.value.status == 500 and api.count("POST", PATH) == 1
    api.fault("POST", PATH, 0)
    with pytest.raises(errors.ConnectionFailedError):
        api.kube().create(PATH, pod("a"))
    assert api.count("POST", PATH) == 2


def test_a_create_is_repeated_if_it_was_refused(api: FakeAPI) -> None:
    api.fault("POST", PATH, 429, times=2)
    assert api.kube().create(PATH, pod("a"))["metadata"]["name"] == "a"
    assert api.count("POST", PATH) == 3


def test_retries_end(api: FakeAPI) -> None:
    api.fault("GET", PATH, 503, {"message": "overloaded"}, times=20)
    with pytest.raises(errors.K8sApiException, match="overloaded"):
        api.kube().get(PATH)
    assert api.count("GET", PATH) == 6


@pytest.mark.parametrize(
    "status, message, error",
    [
        (401, "", errors.UnauthorizedError),
        (403, "pods is forbidden", errors.ForbiddenError),
        (403, 'pods "a" is forbidden: exceeded quota: gpus', errors.QuotaExceededError),
        (422, "Insufficient namespace quota: requested cpu: 9", errors.QuotaExceededError),
        (403, "Insufficient namespace quota: requested cpu: 9", errors.QuotaExceededError),
        (404, "", errors.NotFoundError),
        (409, "", errors.AlreadyExistsError),
        (422, "invalid", errors.InvalidObjectError),
        (418, "", errors.K8sApiException),
    ],
)
def test_errors_of_the_server(status: int, message: str, error: type[Exception]) -> None:
    raised = api_error("GET", "/a", status, b'{"message": "%s"}' % message.replace('"', '\\"').encode())
    assert type(raised) is error and raised.status == status and str(raised)


def test_answer_that_is_not_json() -> None:
    assert "bad gateway" in str(api_error("GET", "/a", 502, b"bad gateway"))


def test_pages(api: FakeAPI) -> None:
    for number in range(1201):
        api.put("pods", "default", pod(f"p{number}"))
    items, version = api.kube().items(PATH)
    assert len(items) == 1201 and version
    assert api.count("GET", PATH) == 3


def test_unreachable_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme._kube._pause", lambda attempt: 0.001)
    fake = FakeAPI()
    fake.close()
    kube = fake.kube()
    with pytest.raises(errors.ConnectionFailedError, match="cannot be reached") as raised:
        kube._send("GET", PATH)
    assert raised.value.reason == "ConnectionFailed" and raised.value.remedy
    kube.close()


def test_a_watch_continues_where_it_was_interrupted(api: FakeAPI) -> None:
    api.put("pods", "default", pod("a"))
    watch = api.kube().watch(PATH, {})
    assert next(watch)[0] == "SYNCED"
    api.fault("WATCH", PATH, 0)
    api.put("pods", "default", pod("b"))
    assert [next(w)[1]["metadata"]["name"] for w in [watch]] == ["b"]
    watch.close()
    # One list, and a second watch from the same version.
    assert api.count("GET", PATH, watch="true") == 2
    assert api.count("GET", PATH) == 3


def test_a_watch_that_is_too_old_lists_again(api: FakeAPI) -> None:
    api.fault("WATCH", PATH, 410, {"message": "too old"})
    kinds = []
    for kind, _ in api.kube().watch(PATH, {}):
        kinds.append(kind)
        if len(kinds) == 3:
            break
    assert kinds == ["SYNCED", "IDLE", "SYNCED"]


def test_a_watch_gives_up(api: FakeAPI) -> None:
    api.fault("WATCH", PATH, 0, times=500)
    with pytest.raises(errors.ConnectionFailedError):
        for _ in api.kube().watch(PATH, {}):
            pass


def test_a_stream_is_ended_from_another_thread(api: FakeAPI) -> None:
    api.log("a", "first")
    stream = api.kube().lines(PATH + "/a/log", {"follow": "true"})
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(stream))
    reader.start()
    stream.shutdown()
    reader.join(10)
    assert not reader.is_alive()
    stream.close()


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team}}
- {name: two, context: {cluster: c, user: u}}
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {token: secret-token}}]
"""


def test_kubeconfig(api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG % api.url)
    assert Kube.connect(str(path)).namespace == "team"
    kube = Kube.connect(str(path), context="two")
    assert kube.namespace == "default"
    assert kube.items("/apis/kubeflow.org/v2alpha1/clustertrainingruntimes")[0]


def test_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ConnectionFailedError, match="no cluster is configured"):
        Kube.connect(str(tmp_path / "none"))
    with pytest.raises(errors.ConnectionFailedError, match="no cluster is configured"):
        Kube.connect(in_cluster=True)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(errors.ConnectionFailedError, match="Set KUBECONFIG"):
        Kube.connect()
