// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// keptHistory is the history that a test has installed, and a user who reads it with odh.
type keptHistory struct {
	t          *testing.T
	server     *theServer
	reader     user
	kubeconfig string
	// directory is its volume, as a directory of this machine, and folder the one in it of the
	// reader's first namespace. Jobs of other tests have records, too.
	directory, folder string
}

// installHistory enables the history on the cluster, until the test ends.
func installHistory(t *testing.T) *keptHistory {
	t.Helper()
	needsLocalCluster(t, "the history is installed, and its volume is a directory of this machine")
	upgradeChart(t, "--set history.enabled=true --set history.storage.size=1Gi --set history.maxSize=512Mi")
	t.Cleanup(func() {
		upgradeChart(t, "--set history.enabled=false")
		// Helm keeps it.
		kubectl(t, "delete persistentvolumeclaim/trireme-history --namespace trireme-system --timeout=60s")
	})
	volume := kubectl(t, "get persistentvolumeclaim/trireme-history --namespace trireme-system -o jsonpath='{.spec.volumeName}'")
	h := &keptHistory{t: t, server: reachServer(t), directory: kubectl(t, "get persistentvolume/"+volume+" -o jsonpath='{.spec.local.path}'")}
	h.readAs(newUser(t))
	h.folder = filepath.Join(h.directory, kubectl(t, "get namespace/"+h.reader.namespace+" -o jsonpath='{.metadata.uid}'"))
	h.untilItAnswers()
	return h
}

// upgradeChart changes values of the installed chart.
func upgradeChart(t *testing.T, settings string) {
	t.Helper()
	line := `make bin/helm && eval "$(bin/cluster env)" && bin/helm upgrade trireme charts/trireme --namespace trireme-system --reuse-values --wait --timeout 5m ` + settings
	if output, err := shell(line); err != nil {
		pods, _ := shell("bin/cluster kubectl describe pods --namespace trireme-system")
		t.Fatalf("helm upgrade: %v\n%s\n%s", err, output, pods)
	}
}

func (h *keptHistory) readAs(reader user) {
	h.t.Helper()
	h.reader, h.kubeconfig = reader, kubeconfigOf(h.t, reader)
}

// odh runs a command of the history, and returns what it prints.
func (h *keptHistory) odh(arguments ...string) (string, error) {
	h.t.Helper()
	command, stdout, stderr := odhCommand(h.t, h.reader.namespace, append([]string{"history", "--trireme-server", "https://" + h.server.address}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("odh history %s: %w\n%s%s", strings.Join(arguments, " "), err, stdout, stderr)
	}
	return stdout.String(), nil
}

// prints runs a command that must succeed.
func (h *keptHistory) prints(arguments ...string) string {
	h.t.Helper()
	output, err := h.odh(arguments...)
	if err != nil {
		h.t.Fatal(err)
	}
	return output
}

// untilItAnswers waits for the component, and for the certificate that has its name.
func (h *keptHistory) untilItAnswers() {
	h.t.Helper()
	began := time.Now()
	eventually.SucceedsWithin(h.t, recovery, "the history answers", func() error {
		_, err := h.odh("list")
		return err
	})
	h.t.Logf("the history answers after %s", time.Since(began).Round(time.Second))
}

func (h *keptHistory) list() (records []history.Summary, err error) {
	output, err := h.odh("list", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(output), &records)
	}
	return records, err
}

// untilRecorded waits until jobs have records.
func (h *keptHistory) untilRecorded(names ...string) {
	h.t.Helper()
	eventually.SucceedsWithin(h.t, recovery, "the history has "+strings.Join(names, ", "), func() error {
		records, err := h.list()
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.ContainsFunc(records, func(one history.Summary) bool { return one.Name == name }) {
				return fmt.Errorf("no %s in %+v", name, records)
			}
		}
		return nil
	})
}

// run starts a job of each program, in the reader's namespace, and waits until all have
// succeeded.
func (h *keptHistory) run(programs map[string]string) map[string]*theJob {
	h.t.Helper()
	api, err := jobClient()
	if err != nil {
		h.t.Fatal(err)
	}
	jobs := map[string]*theJob{}
	for name, program := range programs {
		mpiJob := failFast(implementations[1].job(2, program))
		mpiJob.Name, mpiJob.Annotations = name, map[string]string{training.AnnotationTagOutput: "true"}
		jobs[name] = submitTo(h.t, api, h.reader.namespace, mpiJob)
	}
	for _, job := range jobs {
		job.succeeds()
	}
	return jobs
}

// remove deletes a job, and waits until its pods are deleted, too.
func (job *theJob) remove() {
	job.t.Helper()
	if err := job.client.Delete(job.t.Context(), job.object); err != nil {
		job.t.Fatal(err)
	}
	eventually.Succeeds(job.t, "the job and its pods are deleted", func() error {
		err := job.client.Get(job.t.Context(), client.ObjectKeyFromObject(job.object), job.object)
		if pods := job.pods(""); len(pods) > 0 || !apierrors.IsNotFound(err) {
			return fmt.Errorf("%d pods are left, and reading the job says %v", len(pods), err)
		}
		return nil
	})
}

// metric is the value of a series of the component.
func (h *keptHistory) metric(series string) float64 {
	h.t.Helper()
	pod := strings.TrimSpace(kubectl(h.t, "get pods --namespace trireme-system --selector app.kubernetes.io/component=history --field-selector status.phase=Running -o jsonpath='{.items[0].metadata.name}'"))
	metrics := kubectl(h.t, "get --raw /api/v1/namespaces/trireme-system/pods/"+pod+":8081/proxy/metrics")
	for line := range strings.Lines(metrics) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), " "); found && name == series {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				h.t.Fatal(err)
			}
			return number
		}
	}
	h.t.Fatalf("no %s in:\n%s", series, metrics)
	return 0
}

// untilCounted waits until a counter that an alert watches is not 0.
func (h *keptHistory) untilCounted(series string) {
	h.t.Helper()
	eventually.Succeeds(h.t, series+" increases", func() error {
		if h.metric(series) == 0 {
			return fmt.Errorf("it is 0")
		}
		return nil
	})
}

// files are those in the store of jobs of the reader's first namespace.
func (h *keptHistory) files() (names []string) {
	h.t.Helper()
	err := filepath.WalkDir(h.folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	return names
}

// restart changes what the component finds when it starts.
func (h *keptHistory) restart(change func()) {
	h.t.Helper()
	kubectl(h.t, "scale deployment/trireme-history --namespace trireme-system --replicas=0")
	kubectl(h.t, "wait --for=delete pods --namespace trireme-system --selector app.kubernetes.io/component=history --timeout=120s")
	change()
	kubectl(h.t, "scale deployment/trireme-history --namespace trireme-system --replicas=1")
	kubectl(h.t, "rollout status deployment/trireme-history --namespace trireme-system --timeout=120s")
	h.untilItAnswers()
}

// noisy prints much that cannot be compressed well.
const noisy = `
import os
from mpi4py import MPI
for i in range(300):
    print(os.urandom(250).hex(), flush=True)
`

// The history as it is installed: records and the lines of ranks outlive their jobs, and
// belong to a namespace, not to its name. Whatever happens to the store, jobs run on, and
// the metrics of the alerts increase. After the retention, the store has nothing of them.
// What happens to the store takes minutes, and runs in make test-all.
func TestHistory(t *testing.T) {
	h := installHistory(t)
	jobs := h.run(map[string]string{"bert-lr1": speaking, "bert-lr2": "loss = 0.2" + speaking})
	h.untilRecorded("bert-lr1", "bert-lr2")
	for _, job := range jobs {
		job.remove()
	}
	h.wantRecords()
	if isThorough() {
		h.loseStore()
		h.fillDisk()
		h.corruptRecord()
		h.recreateNamespace()
	}
	h.endRetention()
}

// wantRecords checks what odh shows of the two jobs, which are deleted.
func (h *keptHistory) wantRecords() {
	h.t.Helper()
	contains(h.t, h.prints("list"), "NAME", "bert-lr", "MPIJob", "Succeeded", "bert-lr", "MPIJob", "Succeeded")
	contains(h.t, h.prints("show", "bert-lr1"), "bert-lr1", h.reader.namespace, "Succeeded", "Log:", " lines", "Events:", "JobSubmitted", "Spec:", "slotsPerWorker: 2")
	for _, name := range []string{"bert-lr1", "mpijob/bert-lr2"} {
		wantRank(h.t, h.prints("logs", name, "--rank", "3"), 3)
	}
	contains(h.t, h.prints("compare", "bert-lr1", "bert-lr2"), "FIELD", "FIRST", "SECOND", "bert-lr1", "bert-lr2", "loss = 0.2")
	h.readsOverRPC()
	if files := h.files(); len(files) != 4 {
		h.t.Errorf("the store of two records has %q", files)
	}
}

// readsOverRPC reads the same over gRPC.
func (h *keptHistory) readsOverRPC() {
	h.t.Helper()
	if output, err := shell("make bin/grpcurl"); err != nil {
		h.t.Fatalf("%v\n%s", err, output)
	}
	one := fmt.Sprintf(`"kind":"MPIJob","namespace":%q,"name":"bert-lr1"`, h.reader.namespace)
	h.server.calls(h.t, h.reader, "HistoryService.ListRecords", fmt.Sprintf(`{"kind":"MPIJob","namespace":%q}`, h.reader.namespace), `"bert-lr1"`, `"bert-lr2"`, `"total": 2`)
	h.server.calls(h.t, h.reader, "HistoryService.GetRecord", "{"+one+"}", `"state": "Succeeded"`, `"slotsPerWorker": 2`, `"JobSubmitted"`)
	lines, err := h.server.grpcurl(h.reader, "HistoryService.GetRecordLogs", "{"+one+`,"rank":3}`)
	if err != nil || strings.Count(lines, "I am 3, line ") != 3 || strings.Contains(lines, "I am 2") || strings.Count(lines, `"rank": 3`) != 3 {
		h.t.Errorf("the lines of rank 3 over gRPC: %v\n%s", err, lines)
	}
	h.server.refuses(h.t, h.reader, "HistoryService.GetRecord", fmt.Sprintf(`{"kind":"MPIJob","namespace":%q,"name":"gpt"}`, h.reader.namespace), "NotFound")
}

// loseStore takes the permissions of the volume away, and gives them back.
func (h *keptHistory) loseStore() {
	h.t.Helper()
	info, err := os.Stat(h.directory)
	if err != nil {
		h.t.Fatal(err)
	}
	change := func(mode fs.FileMode) {
		if err := os.Chmod(h.directory, mode); err != nil {
			h.t.Fatal(err)
		}
	}
	change(0)
	h.run(map[string]string{"meanwhile": speaking})
	h.untilCounted(`trireme_history_store_errors_total{operation="write"}`)
	change(info.Mode())
	h.untilRecorded("meanwhile")
}

// fillDisk puts a small file system in the place of the volume. The history of the job that
// did not fit into it is written when the volume is back.
func (h *keptHistory) fillDisk() {
	h.t.Helper()
	inCluster := func(line string) {
		if output, err := shell(fmt.Sprintf("nsenter --mount=/proc/%d/ns/mnt %s %s", processesOf(h.t, "kubelet")(), line, h.directory)); err != nil {
			h.t.Fatalf("%s: %v\n%s", line, err, output)
		}
	}
	h.restart(func() { inCluster("mount -t tmpfs -o size=64k tmpfs") })
	h.run(map[string]string{"noisy": noisy})
	h.untilCounted(`trireme_history_store_errors_total{operation="write"}`)
	h.restart(func() { inCluster("umount") })
	h.untilRecorded("bert-lr1", "bert-lr2", "meanwhile", "noisy")
}

// corruptRecord changes a byte of a record, and then repairs it.
func (h *keptHistory) corruptRecord() {
	h.t.Helper()
	records, err := h.list()
	if err != nil {
		h.t.Fatal(err)
	}
	index := slices.IndexFunc(records, func(one history.Summary) bool { return one.Name == "bert-lr1" })
	path := filepath.Join(h.directory, records[index].Path()+".record")
	whole, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	write := func(content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	h.restart(func() { write(changed) })
	h.untilCounted("trireme_history_corrupt_total")
	if shown, err := h.list(); err != nil || len(shown) != len(records)-1 || slices.ContainsFunc(shown, func(one history.Summary) bool { return one.Name == "bert-lr1" }) {
		h.t.Errorf("with a corrupt record, the list is %+v %v", shown, err)
	}
	wantRank(h.t, h.prints("logs", "bert-lr2", "--rank", "3"), 3)
	write(whole)
}

// recreateNamespace deletes the namespace, and lets another user have its name.
func (h *keptHistory) recreateNamespace() {
	h.t.Helper()
	name := h.reader.namespace
	kubectl(h.t, "delete namespace/"+name+" --timeout=180s")
	kubectl(h.t, "create namespace "+name)
	h.readAs(newUserOf(h.t, name))
	eventually.Succeeds(h.t, "the next user of the namespace may list records", func() error {
		_, err := h.list()
		return err
	})
	if records, err := h.list(); err != nil || len(records) != 0 {
		h.t.Errorf("the next user of the namespace sees %+v %v", records, err)
	}
	if output, err := h.odh("logs", "bert-lr2"); err == nil {
		h.t.Errorf("the next user of the namespace reads %s", output)
	}
}

// endRetention shortens it.
func (h *keptHistory) endRetention() {
	h.t.Helper()
	if files := h.files(); len(files) < 4 {
		h.t.Errorf("before the end of the retention, the store has %q", files)
	}
	eventually.Succeeds(h.t, "the Deployment has a shorter age", func() error {
		output, err := shell("bin/cluster kubectl get deployment/trireme-history --namespace trireme-system -o json | sed 's/--max-age=720h/--max-age=1s/' | bin/cluster kubectl replace --filename -")
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	eventually.SucceedsWithin(h.t, recovery, "nothing is left in the store", func() error {
		if files := h.files(); len(files) > 0 {
			return fmt.Errorf("it has %q", files)
		}
		return nil
	})
	h.untilCounted(`trireme_history_removed_total{cause="age"}`)
}
