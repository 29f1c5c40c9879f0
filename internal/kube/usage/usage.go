// Package usage is what the pods of a job use: processors, memory, GPUs, network.
package usage

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Names of sources, as reports have them.
const (
	SourcePrometheus = "prometheus"
	SourceMetricsAPI = "metrics-api"
	SourceNone       = "none"
)

// Report is what the pods of one job use and have used.
type Report struct {
	// Source that answered: prometheus, metrics-api, or none.
	Source string `json:"source"`
	// Message says why there is nothing, or what a source could not tell.
	Message  string `json:"message,omitempty"`
	Launcher *Pod   `json:"launcher"`
	Workers  []Pod  `json:"workers"`
}

// Pod is what one pod uses, over time. The metrics API knows only the last moment.
type Pod struct {
	PodName string `json:"podName"`
	// Index of a worker; nil for the launcher.
	Index *int32 `json:"index"`
	// CPU in cores, Memory in bytes, GPU in percent, GPUMemory in bytes, NetworkTransmit
	// and NetworkReceive in bytes a second.
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

// Source measures pods. The pods are of one namespace; ask with the caller's rights
// where the source knows of rights.
type Source interface {
	Of(ctx context.Context, pods []corev1.Pod, window time.Duration) (*Report, error)
}
