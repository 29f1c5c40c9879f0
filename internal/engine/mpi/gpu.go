// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"regexp"
	"slices"
	"sync"
)

// GPUFault is why a program could not use its GPU.
type GPUFault string

const (
	// GPUOutOfMemory means that an allocation did not fit into the memory of the GPU.
	GPUOutOfMemory GPUFault = "OutOfMemory"
	// GPUDriverMissing means that the container has no driver library, or one that is not
	// found.
	GPUDriverMissing GPUFault = "DriverMissing"
	// GPUDriverMismatch means that the program's CUDA needs another driver than that of the
	// node.
	GPUDriverMismatch GPUFault = "DriverMismatch"
	// GPUNotVisible means that the driver works, but shows no GPU to the program.
	GPUNotVisible GPUFault = "NotVisible"
	// GPUNotSupported means that the program was not compiled for this type of GPU.
	GPUNotSupported GPUFault = "NotSupported"
)

type gpuPattern struct {
	fault   GPUFault
	pattern *regexp.Regexp
}

// gpuPatterns match texts of CUDA's driver and runtime, and of PyTorch, JAX, TensorFlow and
// CuPy where they replace them. An earlier pattern wins: "no CUDA-capable device" is also
// what a program says that has no driver at all.
var gpuPatterns = sync.OnceValue(func() []gpuPattern {
	var patterns []gpuPattern
	for _, each := range []struct {
		fault GPUFault
		text  string
	}{
		{GPUOutOfMemory, `CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|` +
			`RESOURCE_EXHAUSTED: Out of memory`},
		{GPUDriverMissing, `Found no NVIDIA driver on your system|libcuda\.so\S*: cannot open shared object file|libcuda\.so\S* not found|` +
			`Could not find cuda drivers on your machine|libnvidia-ml\.so\S*: cannot open shared object file`},
		{GPUDriverMismatch, `NVIDIA driver on your system is too old|CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver|` +
			`unsupported display driver / cuda driver combination|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|Driver/library version mismatch|` +
			`forward compatibility was attempted on non supported HW|the provided PTX was compiled with an unsupported toolchain`},
		{GPUNotSupported, `no kernel image is available for execution on the device|CUDA_ERROR_NO_BINARY_FOR_GPU`},
		{GPUNotVisible, `No CUDA GPUs are available|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|CUDA error: invalid device ordinal|` +
			`Unable to initialize backend 'cuda'`},
	} {
		patterns = append(patterns, gpuPattern{each.fault, regexp.MustCompile(each.text)})
	}
	return patterns
})

// GPUFaultOf finds the fault in the last lines of a program; empty if they mention none.
func GPUFaultOf(lines ...string) GPUFault {
	for _, each := range gpuPatterns() {
		if slices.ContainsFunc(lines, each.pattern.MatchString) {
			return each.fault
		}
	}
	return ""
}
