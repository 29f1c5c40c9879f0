// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// release is the Kubernetes that the tests run on.
type release struct {
	Version string `json:"version"`
	// GangAPI is the group and version of native gang scheduling; empty without it.
	GangAPI string `json:"gangAPI"`
}

func releaseOf(t *testing.T) (found release) {
	t.Helper()
	needsLocalCluster(t, "what is expected depends on the release and on the settings of that cluster")
	output, err := shell("bin/cluster assets --settings")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := json.Unmarshal([]byte(output), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// The cluster runs the release that TRIREME_KUBERNETES_VERSION chooses, on the node too.
func TestRelease(t *testing.T) {
	t.Parallel()
	want := releaseOf(t).Version
	if version := kubectl(t, "version"); !strings.Contains(version, "Server Version: "+want+"\n") || !strings.Contains(version, "Client Version: "+want+"\n") {
		t.Errorf("want %s:\n%s", want, version)
	}
	if kubelet := kubectl(t, "get nodes --selector '!trireme.local/fake-node' --output jsonpath={.items[*].status.nodeInfo.kubeletVersion}"); kubelet != want {
		t.Errorf("the kubelet is %s, want %s", kubelet, want)
	}
}

// The agent is in an image volume where Kubernetes supports that by default, from 1.35 on,
// and is copied by an init container elsewhere.
func TestAgentDelivery(t *testing.T) {
	t.Parallel()
	hasImageVolumes := !strings.HasPrefix(releaseOf(t).Version, "v1.33.") && !strings.HasPrefix(releaseOf(t).Version, "v1.34.")
	bothFail(t, 2, "import time\ntime.sleep(5)", func(t *testing.T, object client.Object) {
		job := submit(t, object)
		job.until("it has its pods", time.Minute, func(training.Progress) bool { return len(job.pods("")) == 3 })
		for _, pod := range job.pods("") {
			byVolume, byContainer := false, false
			for _, volume := range pod.Spec.Volumes {
				byVolume = byVolume || volume.Image != nil
			}
			for _, container := range pod.Spec.InitContainers {
				byContainer = byContainer || container.Name == "trireme-install"
			}
			if byVolume != hasImageVolumes || byContainer == hasImageVolumes {
				t.Errorf("pod %s: image volume %t, init container %t, want an image volume: %t", pod.Name, byVolume, byContainer, hasImageVolumes)
			}
		}
		job.succeeds()
	})
}

// A gang that does not fit is not scheduled at all, although its launcher would fit; one
// that fits runs. A release without native gang scheduling says so.
func TestNativeGang(t *testing.T) {
	t.Parallel()
	api := releaseOf(t).GangAPI
	// The CPU of a worker is also its limit.
	submitGang := func(t *testing.T, cpu string) *theJob {
		t.Helper()
		apiClient, namespace := newNamespace(t)
		runtime := runtimeFor(namespace, v2alpha1.MPIImplementationOpenMPI)
		runtime.Spec.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(300))}}
		if err := apiClient.Create(t.Context(), runtime); err != nil {
			t.Fatal(err)
		}
		trainJob := implementations[1].trainJob(2, allreduce)
		setResources(trainJob, corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Mi")})
		return submitTo(t, apiClient, namespace, trainJob)
	}
	if api == "" {
		job := submitGang(t, "250m")
		const want = "the runtime sets native, but this cluster does not serve PodGroup of scheduling.k8s.io/v1beta1 or v1alpha2"
		job.until("it says what is missing", time.Minute, func(training.Progress) bool { return strings.Contains(fmt.Sprint(job.object), want) })
		if pods := job.pods(""); len(pods) != 0 {
			t.Errorf("it has %d pods", len(pods))
		}
		return
	}
	t.Run("does not fit", func(t *testing.T) {
		job := submitGang(t, "100")
		job.until("the scheduler has tried", time.Minute, func(training.Progress) bool {
			return strings.Contains(fmt.Sprint(job.object), "0 of 3 pods are scheduled; scheduler: ")
		})
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			for _, pod := range job.pods("") {
				if pod.Spec.NodeName != "" {
					t.Fatalf("pod %s of a gang that does not fit is on node %s", pod.Name, pod.Spec.NodeName)
				}
			}
		}
		version := strings.TrimPrefix(api, "scheduling.k8s.io/")
		if members := kubectl(t, fmt.Sprintf("get podgroups.%s.scheduling.k8s.io train -n %s -o jsonpath={.spec.schedulingPolicy.gang.minCount}", version, job.namespace)); members != "3" {
			t.Errorf("the PodGroup of %s has the minimum %q", api, members)
		}
	})
	t.Run("fits", func(t *testing.T) {
		job := submitGang(t, "250m")
		job.until("it names the scheduler", time.Minute, func(training.Progress) bool {
			return strings.Contains(fmt.Sprint(job.object), "Gang scheduling by native: the runtime sets it") || isFinished(progressOf(job.object))
		})
		wantSum(t, job, "4 ranks on 2 hosts, sum 10")
	})
}
