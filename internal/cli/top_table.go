// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// topTable returns jobs as a table for kubectl's printers, with the total at the end.
func topTable(all []jobUsage) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Kind", "Status", "GPU", "CPU", "CPU-used", "Memory", "Memory-used", "Waited", "GPU-s-idle"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	for _, name := range []string{"GPU-s-queued", "Held-idle", "Workers", "Queue"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 1))
	}
	for i := range all {
		usage := &all[i]
		cells := []any{usage.job.GetName(), string(usage.job.Kind.Kind), usage.job.State()}
		cells = append(cells, resourceCells(usage.requests, usage.used)...)
		cells = append(cells, duration.HumanDuration(usage.waited), gpuSeconds(usage.requests, usage.idleGPUSeconds()), gpuSeconds(usage.requests, usage.queuedGPUSeconds()),
			duration.HumanDuration(usage.held), usage.job.Workers(), orDash(usage.job.GetLabels()[training.LabelQueue]))
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: usage.job.Object}})
	}
	if len(all) > 1 {
		table.Rows = append(table.Rows, totalRow(totalOf(all)))
	}
	return table
}

func totalRow(total jobTotal) metav1.TableRow {
	cells := []any{"TOTAL", "", ""}
	cells = append(cells, resourceCells(total.requests, total.used)...)
	cells = append(cells, duration.HumanDuration(total.waited), seconds0(total.idleGPUSeconds), seconds0(total.queuedGPUSeconds), "", "", "")
	return metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{}}}
}

// resourceCells returns the GPU, CPU, CPU-used, Memory and Memory-used cells.
func resourceCells(requests, used corev1.ResourceList) []any {
	gpus := "-"
	if requests != nil {
		gpus = job.GPUs(requests).String()
	}
	return []any{gpus, cpuCell(requests), cpuCell(used), memoryCell(requests), memoryCell(used)}
}

func cpuCell(list corev1.ResourceList) string {
	quantity, known := list[corev1.ResourceCPU]
	if !known {
		return "-"
	}
	return strconv.FormatFloat(math.Round(float64(quantity.MilliValue())/10)/100, 'f', -1, 64)
}

// memoryCell returns an amount of memory in Mi or Gi, rounded.
func memoryCell(list corev1.ResourceList) string {
	quantity, known := list[corev1.ResourceMemory]
	if !known {
		return "-"
	}
	mebibytes := float64(quantity.Value()) / (1 << 20)
	if mebibytes < 1024 {
		return fmt.Sprintf("%.0fMi", mebibytes)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", mebibytes/1024), ".0") + "Gi"
}

// gpuSeconds returns a number of GPU-seconds, or "-" if the requests are not known.
func gpuSeconds(requests corev1.ResourceList, number float64) string {
	if requests == nil {
		return "-"
	}
	return seconds0(number)
}

func seconds0(number float64) string { return strconv.FormatFloat(math.Round(number), 'f', 0, 64) }

// topReport is the output of -o json and -o yaml.
type topReport struct {
	Jobs  []topJob `json:"jobs"`
	Total topSum   `json:"total"`
}

type topJob struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Status    string `json:"status"`
	topSum    `json:",inline"`
}

type topSum struct {
	// Asked is missing if the job's runtime was deleted, Used without the metrics API.
	Asked            map[string]string `json:"asked,omitempty"`
	Used             map[string]string `json:"used,omitempty"`
	WaitedSeconds    int64             `json:"waitedSeconds"`
	GPUSecondsIdle   float64           `json:"gpuSecondsIdle"`
	GPUSecondsQueued float64           `json:"gpuSecondsQueued"`
}

func reportOf(all []jobUsage) topReport {
	total := totalOf(all)
	report := topReport{Jobs: []topJob{}, Total: sumOf(total.requests, total.used, total.waited, total.idleGPUSeconds, total.queuedGPUSeconds)}
	for i := range all {
		usage := &all[i]
		report.Jobs = append(report.Jobs, topJob{
			Namespace: usage.job.GetNamespace(), Kind: string(usage.job.Kind.Kind), Name: usage.job.GetName(), Status: usage.job.State(),
			topSum: sumOf(usage.requests, usage.used, usage.waited, usage.idleGPUSeconds(), usage.queuedGPUSeconds()),
		})
	}
	return report
}

func sumOf(requests, used corev1.ResourceList, waited time.Duration, idle, queued float64) topSum {
	return topSum{Asked: quantities(requests), Used: quantities(used), WaitedSeconds: int64(waited.Seconds()), GPUSecondsIdle: idle, GPUSecondsQueued: queued}
}

// quantities returns a list as Kubernetes formats it.
func quantities(list corev1.ResourceList) map[string]string {
	var formatted map[string]string
	for name, quantity := range list {
		if formatted == nil {
			formatted = map[string]string{}
		}
		formatted[string(name)] = quantity.String()
	}
	return formatted
}
