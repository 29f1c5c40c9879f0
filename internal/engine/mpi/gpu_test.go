// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"path/filepath"
	"strings"
	"testing"
)

// The texts are those of CUDA and of frameworks, as their users report them.
func TestGPUFaults(t *testing.T) {
	tests := map[string]struct {
		line string
		want GPUFault
	}{
		"PyTorch, memory": {
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 11.29 GiB is free.", GPUOutOfMemory},
		"the runtime, memory":       {"RuntimeError: CUDA error: out of memory", GPUOutOfMemory},
		"JAX, memory":               {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.", GPUOutOfMemory},
		"memory of the machine":     {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array", ""},
		"PyTorch, no driver":        {"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver", GPUDriverMissing},
		"no library":                {"OSError: libcuda.so.1: cannot open shared object file: No such file or directory", GPUDriverMissing},
		"TensorFlow, no driver":     {"I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your machine, GPU will not be used.", GPUDriverMissing},
		"another library":           {"OSError: libmkl.so.1: cannot open shared object file: No such file or directory", ""},
		"PyTorch, old driver":       {"RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver", GPUDriverMismatch},
		"the runtime, old driver":   {"CUDA error: CUDA driver version is insufficient for CUDA runtime version", GPUDriverMismatch},
		"library and kernel module": {"Failed to initialize NVML: Driver/library version mismatch", GPUDriverMismatch},
		"combination":               {"RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination", GPUDriverMismatch},
		"compiled for others":       {"RuntimeError: CUDA error: no kernel image is available for execution on the device", GPUNotSupported},
		"PyTorch, no GPU":           {"RuntimeError: No CUDA GPUs are available", GPUNotVisible},
		"an index too large":        {"RuntimeError: CUDA error: invalid device ordinal", GPUNotVisible},
		"an ordinary error":         {"ValueError: loss is nan", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := GPUFaultOf("File \"train.py\", line 1", test.line); got != test.want {
				t.Errorf("%q is %q, want %q", test.line, got, test.want)
			}
		})
	}
}

// The transcripts are of a small GPT in PyTorch 2.11 with CUDA 13.0 on one NVIDIA H200,
// as jobs of one worker on the local cluster; see bench/gpu.
func TestGPUTranscripts(t *testing.T) {
	want := map[string]GPUFault{
		"memory":       GPUOutOfMemory,
		"no-driver":    GPUDriverMissing, // the image has no libraries of the driver
		"no-library":   GPUDriverMissing,
		"other-driver": GPUDriverMismatch, // the image has libcuda of another release
		"no-gpu":       GPUNotVisible,     // the job requests no GPU, and its image has the driver's libraries
		"hidden":       GPUNotVisible,     // CUDA_VISIBLE_DEVICES names a GPU that does not exist
	}
	files, err := filepath.Glob("testdata/gpu/*.txt")
	if err != nil || len(files) != len(want) {
		t.Errorf("%d transcripts and %d expected faults (%v)", len(files), len(want), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			stderr, stdout := streams(t, file)
			output := LastOutput(stderr, stdout, -1)
			if got := GPUFaultOf(append(output.Lines, output.Error)...); got != want[name] {
				t.Errorf("fault %q, want %q; the error is %q", got, want[name], output.Error)
			}
		})
	}
}
