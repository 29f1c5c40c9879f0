// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/bench/report"
)

const (
	soakGroup   = "soak"
	sampleEvery = 20 * time.Second
	mebibyte    = 1 << 20
)

// footprint is what the operator that leads takes.
type footprint struct {
	at time.Time
	// process is the one that led; another one is no continuation of it.
	process            string
	memory, goroutines float64
}

// soak runs jobs of both kinds, real and simulated, one batch after another, and
// looks at the operator meanwhile.
func (bench *bench) soak(ctx context.Context) error {
	if err := bench.simulated(ctx); err != nil {
		return err
	}
	if err := bench.makeRuntime(ctx, openMPIRuntime()); err != nil {
		return err
	}
	meter, err := bench.newMeter(ctx)
	if err != nil {
		return err
	}
	var prints []footprint
	succeeded, failed := 0, 0
	for began, batch := time.Now(), 0; time.Since(began) < bench.settings.soak && ctx.Err() == nil; batch++ {
		if len(prints) == 0 || time.Since(prints[len(prints)-1].at) > sampleEvery {
			print, err := meter.read(ctx)
			if err != nil {
				return err
			}
			prints = append(prints, print)
		}
		well, err := bench.soakBatch(ctx, fmt.Sprintf("soak-%d", batch))
		if err != nil {
			return err
		}
		succeeded, failed = succeeded+well, failed+soakJobs-well
		last := prints[len(prints)-1]
		progress("soak   batch %d: %d of %d well, %d in all, %d failed; operator %.1f MiB, %.0f goroutines; load %s", batch, well, soakJobs, succeeded, failed,
			last.memory, last.goroutines, loadAverage())
	}
	bench.judgeSoak(prints, succeeded, failed)
	return ctx.Err()
}

// soakJobs are in a batch: one real job of each kind, the others simulated.
const soakJobs = 12

// soakBatch tells how many jobs of a batch end well.
func (bench *bench) soakBatch(ctx context.Context, name string) (int, error) {
	jobs := []client.Object{ourMPIJob(name+"-mpi", 2), ourTrainJob(name+"-train", 2)}
	for i := range soakJobs - len(jobs) {
		jobs = append(jobs, simulatedJob(fmt.Sprintf("%s-%d", name, i), i, 4))
	}
	if err := inParallel(len(jobs), func(i int) error { return bench.cluster.Create(ctx, jobs[i]) }); err != nil {
		return 0, err
	}
	ended := 0
	err := until(ctx, name+" ends", func() (bool, error) {
		ended = 0
		for _, job := range jobs {
			if seen := bench.watcher.job(job.GetName()); !seen.succeeded.IsZero() || !seen.failed.IsZero() {
				ended++
			}
		}
		return ended == len(jobs), nil
	})
	if ctx.Err() != nil {
		return 0, err
	}
	well := 0 // A job that does not end has failed, too.
	for _, job := range jobs {
		if seen := bench.watcher.job(job.GetName()); !seen.succeeded.IsZero() {
			well++
		} else {
			progress("soak   %T %s did not succeed", job, job.GetName())
		}
	}
	bench.watcher.forget()
	return well, bench.removeAll(ctx, jobs)
}

// forget empties the watcher, which would else grow for hours.
func (watcher *watcher) forget() {
	watcher.mutex.Lock()
	defer watcher.mutex.Unlock()
	clear(watcher.jobs)
	clear(watcher.pods)
	clear(watcher.started)
	clear(watcher.exited)
}

func (bench *bench) judgeSoak(prints []footprint, succeeded, failed int) {
	result := report.Result{Group: soakGroup, Case: bench.settings.soak.String(), Contestant: "Trireme",
		Note: "each batch has 2 jobs on real pods and 10 on simulated nodes, half of each kind"}
	add := func(measure, unit string, samples ...float64) {
		result.Measure, result.Unit = measure, unit
		for _, sample := range samples {
			bench.report.Add(result, sample)
		}
		result.Note = ""
	}
	add("jobs that succeeded", "", float64(succeeded))
	add("jobs that did not", "", float64(failed))
	changes, longest := leaders(prints)
	add("changes of the operator's leader", "", float64(changes))
	add("longest time under one leader", "min", longest[len(longest)-1].at.Sub(longest[0].at).Minutes())
	// A process that has just begun would hide what an earlier one has lost. Caches
	// fill in the first quarter.
	settled := longest[len(longest)/4:]
	for _, kind := range []struct {
		name, unit string
		of         func(footprint) float64
		limit      float64
	}{
		{"operator's memory", "MiB", func(print footprint) float64 { return print.memory }, 1.1},
		{"operator's goroutines", "", func(print footprint) float64 { return print.goroutines }, 1.05},
	} {
		var values []float64
		for _, print := range settled {
			values = append(values, kind.of(print))
		}
		add(kind.name, kind.unit, values...)
		add(kind.name+", slope an hour", kind.unit, slope(settled, kind.of))
		third := max(1, len(values)/3)
		growth := report.Result{Samples: values[len(values)-third:]}.Median() / report.Result{Samples: values[:third]}.Median()
		bench.goal(report.AtMost("soak of "+result.Case+": "+kind.name+", last third to first, after the first quarter", growth, kind.limit))
	}
	bench.goal(report.AtMost("soak of "+result.Case+": jobs that did not succeed", float64(failed), 0))
}

// leaders tells how often another process came to lead, and what was seen of the one
// that led longest.
func leaders(prints []footprint) (changes int, longest []footprint) {
	begin := 0
	for i := range prints {
		if prints[i].process != prints[begin].process {
			begin = i
			changes++
		}
		if i+1-begin > len(longest) {
			longest = prints[begin : i+1]
		}
	}
	return changes, longest
}

// slope is by how much a value grows in an hour: the line that is nearest to all of
// them.
func slope(prints []footprint, of func(footprint) float64) float64 {
	var meanHours, meanValue, above, below float64
	hours := func(print footprint) float64 { return print.at.Sub(prints[0].at).Hours() }
	for _, print := range prints {
		meanHours += hours(print) / float64(len(prints))
		meanValue += of(print) / float64(len(prints))
	}
	for _, print := range prints {
		above += (hours(print) - meanHours) * (of(print) - meanValue)
		below += (hours(print) - meanHours) * (hours(print) - meanHours)
	}
	if below == 0 {
		return 0
	}
	return above / below
}

// meter reads the metrics of the operator that leads.
type meter struct {
	cluster *cluster
	client  http.Client
}

func (bench *bench) newMeter(ctx context.Context) (*meter, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: trireme.namespace, Name: "bench-meter"}}
	if err := bench.cluster.make(ctx, account, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bench-meter"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trireme-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}}); err != nil {
		return nil, err
	}
	meter := &meter{cluster: bench.cluster}
	// On this machine only, and the certificate is the operator's own.
	meter.client = http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return meter, nil
}

func (meter *meter) read(ctx context.Context) (footprint, error) {
	// A token ends before the soak may.
	request := &authenticationv1.TokenRequest{}
	token, err := meter.cluster.core.CoreV1().ServiceAccounts(trireme.namespace).CreateToken(ctx, "bench-meter", request, metav1.CreateOptions{})
	if err != nil {
		return footprint{}, err
	}
	leader, err := meter.cluster.leader(ctx, trireme)
	if err != nil {
		return footprint{}, err
	}
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+leader.Status.PodIP+":8443/metrics", nil)
	if err != nil {
		return footprint{}, err
	}
	get.Header.Set("Authorization", "Bearer "+token.Status.Token)
	answer, err := meter.client.Do(get)
	if err != nil {
		return footprint{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return footprint{}, fmt.Errorf("the operator's metrics: %s", answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return footprint{}, err
	}
	memory, goroutines, begun := families["process_resident_memory_bytes"], families["go_goroutines"], families["process_start_time_seconds"]
	if memory == nil || goroutines == nil || begun == nil {
		return footprint{}, errors.New("the metrics of " + leader.Name + " do not tell its memory, goroutines and start")
	}
	process := fmt.Sprint(leader.Name, " of ", begun.Metric[0].GetGauge().GetValue())
	return footprint{at: time.Now(), process: process, memory: memory.Metric[0].GetGauge().GetValue() / mebibyte, goroutines: goroutines.Metric[0].GetGauge().GetValue()}, nil
}
