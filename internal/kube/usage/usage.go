// SPDX-License-Identifier: Apache-2.0

// Package usage reads the resource usage of a job's pods: CPU, memory, GPUs, network.
package usage

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Names of sources in reports.
const (
	SourcePrometheus = "prometheus"
	SourceMetricsAPI = "metrics-api"
	SourceNone       = "none"
)

// Report is the resource usage of the pods of one job.
type Report struct {
	// Source of the samples: prometheus, metrics-api, or none.
	Source string `json:"source"`
	// Message says why samples are missing.
	Message  string `json:"message,omitempty"`
	Launcher *Pod   `json:"launcher"`
	Workers  []Pod  `json:"workers"`
}

// Pod is the usage of one pod over time. The metrics API only has the latest sample.
type Pod struct {
	PodName string `json:"podName"`
	// Index of a worker; nil for the launcher.
	Index *int32 `json:"index"`
	// CPU in cores, Memory in bytes, GPU in percent, GPUMemory in bytes, NetworkTransmit
	// and NetworkReceive in bytes per second.
	CPU             []Sample `json:"cpu"`
	Memory          []Sample `json:"memory"`
	GPU             []Sample `json:"gpu"`
	GPUMemory       []Sample `json:"gpuMemory"`
	NetworkTransmit []Sample `json:"networkTransmit"`
	NetworkReceive  []Sample `json:"networkReceive"`
}

// Sample is a value at a time.
type Sample struct {
	Timestamp time.Time `json:"timestamp"`
	Value     float64   `json:"value"`
}

// Source measures pods of one namespace. If a source checks permissions, it must use
// those of the caller.
type Source interface {
	Of(ctx context.Context, pods []corev1.Pod, window time.Duration) (*Report, error)
}
