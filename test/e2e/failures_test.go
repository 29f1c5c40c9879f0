// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// impatient gives workers six seconds once all of them run.
func impatient(template *corev1.PodTemplateSpec) { impatientContainer(&template.Spec.Containers[0]) }

// untilReady waits until the kubelet says that a worker answers.
func (run *run) untilReady(host string) {
	run.t.Helper()
	eventually.Succeeds(run.t, host+" is ready", func() error {
		pod, err := run.client.CoreV1().Pods(run.namespace).Get(run.t.Context(), host, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
}

// wantReport fails unless the launcher ended as it should.
func wantReport(t *testing.T, run *run, ended outcome, reason, host string, exitCode int32, words ...string) {
	t.Helper()
	if ended.Reason != reason || ended.Host != host || exitCode >= 0 && ended.exitCode != exitCode {
		t.Errorf("exit code %d, want %d; the report says %s\n%s", ended.exitCode, exitCode, ended.message, ended.log)
	}
	for _, word := range words {
		if !strings.Contains(ended.Message, word) {
			t.Errorf("no word of %q in %q", word, ended.Message)
		}
	}
}

// What the gate finds. Each needs but one implementation: none has started yet.
var gateCases = map[string]struct {
	workers func(run *run)
	host    string
	words   []string
}{
	"a worker never starts": {
		workers: func(run *run) { run.hosts = run.hosts[:2]; run.startWorkers() },
		host:    "train-worker-2", words: []string{"its name is not found", "its pod does not exist yet or has finished"},
	},
	"a worker dies during the gate": {
		workers: func(run *run) {
			run.startWorkers(func(index int, template *corev1.PodTemplateSpec) {
				if index == 1 {
					template.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 1; exit 9"}
				}
			})
		},
		host: "train-worker-1", words: []string{"cannot reach train-worker-1"},
	},
	"a worker has the key of another job": {
		workers: func(run *run) {
			run.otherSecret()
			run.startWorkers(func(index int, template *corev1.PodTemplateSpec) {
				if index == 2 {
					useSecret(template, protocol.AuthorizedKeys)
				}
			})
		},
		host: "train-worker-2", words: []string{"it refuses the job's key"},
	},
	"a worker has the host key of another job": {
		workers: func(run *run) {
			run.otherSecret()
			run.startWorkers(func(index int, template *corev1.PodTemplateSpec) {
				if index == 0 {
					useSecret(template, protocol.HostKey)
				}
			})
		},
		host: "train-worker-0", words: []string{"its host key is not the job's"},
	},
	"a worker's port is blocked": {
		workers: func(run *run) {
			run.startWorkers()
			run.block("train-worker-1", strconv.Itoa(protocol.Port))
		},
		host: "train-worker-1", words: []string{"no answer", "a NetworkPolicy blocks the port"},
	},
}

func TestTheGateNamesTheWorker(t *testing.T) {
	t.Parallel()
	for name, tc := range gateCases {
		t.Run(name, func(t *testing.T) {
			run := newRun(t, implementations[0].job(3, allreduce))
			tc.workers(run)
			run.startLauncher(impatient)
			for _, host := range run.hosts {
				if host != tc.host {
					run.untilReady(host)
				}
			}
			run.stampClock()
			wantReport(t, run, run.end(2*time.Minute), protocol.ReasonSSH, tc.host, 70, tc.words...)
		})
	}
}

// A job whose ranks cannot connect to each other would run without end and do nothing.
func TestTheGateFindsBlockedPortsOfMPI(t *testing.T) {
	t.Parallel()
	run := newRun(t, implementations[0].job(3, allreduce))
	run.startWorkers()
	run.block("train-worker-1", "10000-65535")
	for _, host := range run.hosts {
		run.untilReady(host)
	}
	run.startLauncher(impatient)
	run.stampClock()
	wantReport(t, run, run.end(2*time.Minute), protocol.ReasonMPI, "train-worker-0", 71, "train-worker-0 cannot connect to train-worker-1 on TCP port", "a NetworkPolicy")
}

// otherSecret has the keys of another job.
func (run *run) otherSecret() {
	run.t.Helper()
	client, host := newPair(run.t), newPair(run.t)
	if _, err := run.client.CoreV1().Secrets(run.namespace).Create(run.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Data:       map[string][]byte{protocol.AuthorizedKeys: client.Public, protocol.HostKey: host.Private},
	}, metav1.CreateOptions{}); err != nil {
		run.t.Fatal(err)
	}
}

// useSecret takes one of a worker's key files from the other job's keys.
func useSecret(template *corev1.PodTemplateSpec, file string) {
	for i := range template.Spec.Volumes {
		volume := &template.Spec.Volumes[i]
		if volume.Secret == nil {
			continue
		}
		own := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: volume.Secret.SecretName}}
		for _, item := range volume.Secret.Items {
			if item.Key != file {
				own.Items = append(own.Items, item)
			}
		}
		other := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "other"}, Items: []corev1.KeyToPath{{Key: file, Path: file}}}
		volume.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: own}, {Secret: other}}, DefaultMode: new(int32(0o444))}
		volume.Secret = nil
	}
}

// block drops what comes to ports of a worker, as a NetworkPolicy would.
func (run *run) block(pod, ports string) {
	run.t.Helper()
	process := run.process(pod)
	output, err := shell(fmt.Sprintf(`nsenter --net=/proc/%s/ns/net nft -f - <<END
table inet block {
  chain input {
    type filter hook input priority 0
    tcp flags syn / syn,ack tcp dport %s drop
  }
}
END`, process, ports))
	if err != nil {
		run.t.Fatalf("%v: %s", err, output)
	}
}

// process is the agent of a worker, as this machine numbers it.
func (run *run) process(pod string) string {
	run.t.Helper()
	return processOf(run.t, pod, run.namespace, protocol.Path+"\x00worker\x00")
}

// processOf is the process of a pod that was started by a command, as this
// machine numbers it. Another namespace may have pods of the same names.
func processOf(t *testing.T, host, namespace, command string) (found string) {
	t.Helper()
	needsLocalCluster(t, "a process of a pod is killed, or its network is changed")
	eventually.Succeeds(t, "the agent of "+host, func() error {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			environment, err := os.ReadFile(file)
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			if err == nil && strings.Contains("\x00"+string(environment), "\x00HOSTNAME="+host+"\x00") && strings.HasPrefix(string(line), command) && isIn(file, namespace) {
				found = filepath.Base(filepath.Dir(file))
				return nil
			}
		}
		return fmt.Errorf("no process")
	})
	return found
}

func isIn(file, namespace string) bool {
	resolver, err := os.ReadFile(filepath.Join(filepath.Dir(file), "root/etc/resolv.conf"))
	return err == nil && strings.Contains(string(resolver), namespace)
}

// waiting says that it has started and then waits for a minute.
const waiting = `
import time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("all ranks are up", flush=True)
time.sleep(60)
MPI.COMM_WORLD.Barrier()
`

func TestAWorkerDiesInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	for _, implementation := range implementations {
		t.Run(implementation.name+": its pod is deleted", func(t *testing.T) {
			loseWorker(t, implementation, func(run *run) {
				if err := run.client.CoreV1().Pods(run.namespace).Delete(t.Context(), "train-worker-1", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			})
		})
		t.Run(implementation.name+": it is killed", func(t *testing.T) {
			loseWorker(t, implementation, func(run *run) {
				if output, err := shell("kill -9 " + run.process("train-worker-1")); err != nil {
					t.Fatalf("%v: %s", err, output)
				}
			})
		})
	}
}

func loseWorker(t *testing.T, implementation implementation, lose func(*run)) {
	run := newRun(t, implementation.job(3, waiting))
	run.startWorkers()
	run.startLauncher()
	run.waitForLog("all ranks are up")
	lose(run)
	start := time.Now()
	ended := run.end(90 * time.Second)
	t.Logf("noticed after %s", time.Since(start).Round(time.Millisecond))
	wantReport(t, run, ended, protocol.ReasonWorker, "train-worker-1", -1, "lost worker train-worker-1")
	if ended.exitCode == 0 {
		t.Error("the launcher ended well")
	}
}

func (run *run) waitForLog(text string) {
	run.t.Helper()
	eventually.Succeeds(run.t, "the launcher says "+text, func() error {
		if log := run.log("train-launcher"); !strings.Contains(log, text) {
			return fmt.Errorf("it says: %s", log)
		}
		return nil
	})
}

// hungry fills the memory of one rank's worker.
const hungry = `
from mpi4py import MPI
import time
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 2:
    memory = bytearray(512 << 20)
    for i in range(0, len(memory), 4096): memory[i] = 1
time.sleep(30)
`

// failing ends the ranks of one worker with an exit code.
const failing = `
from mpi4py import MPI
import os, time
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank >= 2:
    os._exit(3)
time.sleep(20)
`

func TestARankFails(t *testing.T) {
	t.Parallel()
	for _, implementation := range implementations {
		t.Run(implementation.name+": exit code", func(t *testing.T) {
			run := newRun(t, implementation.job(2, failing))
			run.startWorkers()
			run.startLauncher(func(template *corev1.PodTemplateSpec) {
				// MPICH does not always notice by itself.
				container := &template.Spec.Containers[0]
				container.Env = append(container.Env, corev1.EnvVar{Name: protocol.StragglerTimeoutVariable, Value: "5s"})
			})
			ended := run.end(90 * time.Second)
			if ended.exitCode == 0 || ended.Reason != protocol.ReasonTraining || ended.Host != "" && ended.Host != "train-worker-1" {
				t.Errorf("exit code %d; the report says %s\n%s", ended.exitCode, ended.message, ended.log)
			}
		})
	}
	// The kernel ends a rank, and not its pod, where memory is counted by control
	// groups of the first version.
	t.Run("out of memory", func(t *testing.T) {
		mpiJob := implementations[0].job(2, hungry)
		mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("200Mi")}
		run := newRun(t, mpiJob)
		run.startWorkers()
		run.startLauncher()
		ended := run.end(90 * time.Second)
		if ended.exitCode == 0 || ended.Reason != protocol.ReasonTraining && ended.Reason != protocol.ReasonWorker || ended.Host != "train-worker-1" {
			t.Errorf("exit code %d; the report says %s\n%s", ended.exitCode, ended.message, ended.log)
		}
	})
}

func TestNoMPIRunInTheImage(t *testing.T) {
	t.Parallel()
	mpiJob := implementations[0].job(2, allreduce)
	mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command = []string{"mpiexec.none", "-np", "4", "true"}
	run := newRun(t, mpiJob)
	run.startWorkers()
	run.startLauncher()
	wantReport(t, run, run.end(2*time.Minute), protocol.ReasonMPI, "", 127, "the image has no mpiexec.none")
}

// A run that ends well on one host only: a failure where all hosts are required,
// else told in the report.
func TestARunOnOneHost(t *testing.T) {
	t.Parallel()
	for name, required := range map[string]bool{"all hosts are required": true, "they are not": false} {
		t.Run(name, func(t *testing.T) {
			mpiJob := implementations[0].job(2, allreduce)
			mpiJob.Spec.RequireAllHosts = &required
			container := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
			container.Command = []string{"sh", "-c", "unset OMPI_MCA_orte_default_hostfile; mpirun -np 1 hostname"}
			run := newRun(t, mpiJob)
			run.startWorkers()
			run.startLauncher()
			ended := run.end(2 * time.Minute)
			if required {
				wantReport(t, run, ended, protocol.ReasonMPI, "train-worker-0", 71, "used only 0 of 2 hosts", "train-worker-0, train-worker-1")
			} else if ended.exitCode != 0 || ended.Reason != "" || len(ended.Hosts.Missing) != 2 {
				t.Errorf("exit code %d; the report says %s", ended.exitCode, ended.message)
			}
		})
	}
}

// A worker that pulls its image for two minutes is no failure: the patience of
// the gate starts when all workers run.
func TestAWorkerPullsItsImageForLong(t *testing.T) {
	if !isThorough() {
		t.Skip("it takes two minutes: make test-all runs it")
	}
	run := newRun(t, implementations[0].job(2, allreduce))
	all := run.hosts
	run.hosts = all[:1]
	run.startWorkers()
	run.startLauncher(func(template *corev1.PodTemplateSpec) {
		container := &template.Spec.Containers[0]
		container.Env = append(container.Env, corev1.EnvVar{Name: protocol.GateTimeoutVariable, Value: "30s"})
	})
	time.Sleep(125 * time.Second)
	run.hosts = all[1:]
	run.startWorkers()
	run.untilReady("train-worker-1")
	run.stampClock()
	ended := run.end(2 * time.Minute)
	if ended.exitCode != 0 || !strings.Contains(ended.log, "4 ranks on 2 hosts, sum 10") {
		t.Errorf("exit code %d; the report says %s\n%s", ended.exitCode, ended.message, ended.log)
	}
}

// A launcher that relies on its image's entrypoint keeps it; the gate goes before.
func TestTheGateBeforeAnEntrypoint(t *testing.T) {
	t.Parallel()
	mpiJob := implementations[0].job(2, allreduce)
	run := newRun(t, mpiJob)
	run.job.Launcher.Template.Spec.Containers[0].Command = nil
	launcher := func(template *corev1.PodTemplateSpec) {
		if container := &template.Spec.Containers[0]; len(container.Command) != 0 {
			t.Errorf("the launcher has the command %q", container.Command)
		}
		for i := range template.Spec.InitContainers {
			impatientContainer(&template.Spec.InitContainers[i])
		}
	}
	run.startLauncher(launcher)
	run.stampClock()
	ended := run.end(2 * time.Minute)
	wantReport(t, run, ended, protocol.ReasonSSH, "train-worker-0", 70, "cannot reach 2 of 2 workers: train-worker-0, train-worker-1")
}

func impatientContainer(container *corev1.Container) {
	container.Env = append(container.Env, corev1.EnvVar{Name: protocol.GateTimeoutVariable, Value: "6s"})
}
