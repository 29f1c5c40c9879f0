// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// watcher notes when it sees what, with one clock: of jobs and pods as every client
// can, and of containers as containerd says it, to the nanosecond.
type watcher struct {
	cluster *cluster

	mutex sync.Mutex
	jobs  map[string]*jobSightings
	pods  map[string]*podSightings
	// started and exited are of containers, by their ids.
	started, exited map[string]time.Time
}

// jobSightings are when something was first seen of a job.
type jobSightings struct{ known, running, succeeded, failed time.Time }

// podSightings are when something was first seen of a pod.
type podSightings struct {
	name                        string
	created, placed, terminated time.Time
	container                   string
}

func startWatcher(ctx context.Context, cluster *cluster) (*watcher, error) {
	watcher := &watcher{cluster: cluster, jobs: map[string]*jobSightings{}, pods: map[string]*podSightings{}, started: map[string]time.Time{}, exited: map[string]time.Time{}}
	events, err := containerEvents(ctx)
	if err != nil {
		return nil, err
	}
	go watcher.readContainers(events)
	for _, list := range []client.ObjectList{&corev1.PodList{}, &v2beta1.MPIJobList{}, &v2alpha1.TrainJobList{}} {
		for _, namespace := range []string{restricted, privileged} {
			go watcher.follow(ctx, list, namespace)
		}
	}
	return watcher, nil
}

// follow notes all that happens to objects of a kind. The API server may end a watch
// at any time; the next one goes on where it ended.
func (watcher *watcher) follow(ctx context.Context, list client.ObjectList, namespace string) {
	from := ""
	for ctx.Err() == nil {
		stream, err := watcher.cluster.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for event := range stream.ResultChan() {
			object, isObject := event.Object.(client.Object)
			if !isObject {
				from = "" // It is too old by now.
				break
			}
			watcher.note(object, time.Now())
			from = object.GetResourceVersion()
		}
		stream.Stop()
	}
}

func (watcher *watcher) note(object client.Object, now time.Time) {
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	if pod, isPod := object.(*corev1.Pod); isPod {
		entry(watcher.pods, pod.Name).note(pod, now)
		return
	}
	seen := entry(watcher.jobs, object.GetName())
	running, succeeded, failed := stateOf(object)
	noteOnce(&seen.known, now)
	for holds, moment := range map[*bool]*time.Time{&running: &seen.running, &succeeded: &seen.succeeded, &failed: &seen.failed} {
		if *holds {
			noteOnce(moment, now)
		}
	}
}

// entry is what is kept under a name, made if there is nothing yet.
func entry[T any](of map[string]*T, name string) *T {
	if of[name] == nil {
		of[name] = new(T)
	}
	return of[name]
}

func noteOnce(moment *time.Time, now time.Time) {
	if moment.IsZero() {
		*moment = now
	}
}

func (seen *podSightings) note(pod *corev1.Pod, now time.Time) {
	seen.name = pod.Name
	noteOnce(&seen.created, now)
	if pod.Spec.NodeName != "" {
		noteOnce(&seen.placed, now)
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return
	}
	status := pod.Status.ContainerStatuses[0]
	if _, id, found := strings.Cut(status.ContainerID, "://"); found {
		seen.container = id
	}
	if status.State.Terminated != nil {
		noteOnce(&seen.terminated, now)
	}
}

// stateOf tells how a job stands, by what both operators write.
func stateOf(object client.Object) (running, succeeded, failed bool) {
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		holds := map[v2beta1.JobConditionType]bool{}
		for _, condition := range object.Status.Conditions {
			holds[condition.Type] = condition.Status == corev1.ConditionTrue
		}
		return holds[v2beta1.JobRunning], holds[v2beta1.JobSucceeded], holds[v2beta1.JobFailed]
	case *v2alpha1.TrainJob:
		phase := object.Status.Phase
		return phase == training.PhaseRunning, phase == training.PhaseSucceeded, phase == training.PhaseFailed
	}
	return false, false, false
}

// job is what was seen of a job so far.
func (watcher *watcher) job(name string) jobSightings {
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	return *entry(watcher.jobs, name)
}

// podsOf are the pods of a job: launcher and workers. All names begin with the
// job's.
func (watcher *watcher) podsOf(job string) (launcher *podSightings, workers []podSightings) {
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	for name, seen := range watcher.pods {
		switch copied := *seen; {
		case strings.HasPrefix(name, job+"-launcher"):
			launcher = &copied
		case strings.HasPrefix(name, job+"-worker"):
			workers = append(workers, copied)
		}
	}
	return launcher, workers
}

// containerTimes are when a container's process began and ended.
func (watcher *watcher) containerTimes(id string) (started, exited time.Time) {
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	return watcher.started[id], watcher.exited[id]
}

// containerEvents are what the cluster's containerd tells, in the lines of its
// client, which lies beside it.
func containerEvents(ctx context.Context) (io.Reader, error) {
	name := os.Getenv("TRIREME_CLUSTER_NAME")
	if name == "" {
		name = "trireme"
	}
	run := "/run/" + name + "-cluster"
	id, err := os.ReadFile(filepath.Join(run, "pids", "containerd"))
	if err != nil {
		return nil, fmt.Errorf("find the cluster's containerd: %w", err)
	}
	program, err := os.Readlink(filepath.Join("/proc", strings.Fields(string(id))[0], "exe"))
	if err != nil {
		return nil, fmt.Errorf("find the cluster's containerd: %w", err)
	}
	command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "ctr"), "--address", filepath.Join(run, "containerd.sock"), "--namespace", "k8s.io", "events")
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return output, command.Start()
}

// readContainers reads lines such as
//
//	2026-11-15 19:22:10.625413034 +0000 UTC k8s.io /tasks/exit {"container_id":…}
func (watcher *watcher) readContainers(events io.Reader) {
	for lines := bufio.NewScanner(events); lines.Scan(); {
		words := strings.SplitN(lines.Text(), " ", 7)
		if len(words) < 7 {
			continue
		}
		var content struct {
			ID     string `json:"container_id"`
			Task   string `json:"id"`
			Exited struct {
				Seconds, Nanos int64
			} `json:"exited_at"`
		}
		at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", strings.Join(words[:3], " "))
		if err != nil || json.Unmarshal([]byte(words[6]), &content) != nil {
			continue
		}
		watcher.mutex.Lock()
		switch topic := words[5]; {
		case topic == "/tasks/start":
			watcher.started[content.ID] = at
		case topic == "/tasks/exit" && content.Task == content.ID: // Else it is a probe's.
			watcher.exited[content.ID] = time.Unix(content.Exited.Seconds, content.Exited.Nanos)
		}
		watcher.mutex.Unlock()
	}
}
