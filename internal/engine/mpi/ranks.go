// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// RankOf returns the rank of a process by its environment, as /proc has it: variables end
// with a NUL.
func RankOf(environment []byte) (rank int, isRank bool) {
	for _, each := range implementations {
		for _, name := range each.rankVariables {
			if rank := number(valueOf(environment, name), -1); rank >= 0 {
				return rank, true
			}
		}
	}
	return 0, false
}

func valueOf(environment []byte, name string) string {
	for rest := environment; ; {
		at := bytes.Index(rest, []byte(name))
		if at < 0 {
			return ""
		}
		begins := at == 0 && len(rest) == len(environment) || at > 0 && rest[at-1] == 0
		rest = rest[at+len(name):]
		if begins && bytes.HasPrefix(rest, []byte("=")) {
			value, _, _ := bytes.Cut(rest[1:], []byte{0})
			return string(value)
		}
	}
}

// Code is where a program runs.
type Code int

const (
	// ProgramCode is everything but the libraries below.
	ProgramCode Code = iota
	// MPICode is a library of MPI, or of the network below it.
	MPICode
	// SystemCode is the C library, which both call.
	SystemCode
)

// CodeOf returns what a mapped file contains, by its path in /proc/PID/maps. If MPI is
// linked statically, its code counts as the program's.
func CodeOf(file string) Code {
	name := path.Base(file)
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if slices.ContainsFunc(systemLibraries, begins) {
		return SystemCode
	}
	if slices.ContainsFunc(networkLibraries, begins) || strings.HasSuffix(name, "-fi.so") || strings.Contains(name, "-rdmav") {
		return MPICode
	}
	for _, each := range implementations {
		if slices.ContainsFunc(each.libraries, begins) {
			return MPICode
		}
	}
	return ProgramCode
}

// systemLibraries are the beginnings of the names of the C library, of the loader, and of
// what the kernel maps.
var systemLibraries = []string{"libc.so", "libc-", "libpthread", "librt.so", "librt-", "libdl.so", "libdl-", "ld-linux", "ld-musl", "ld-2", "[vdso]", "[vsyscall]"}

// networkLibraries are used by all implementations: UCX, libfabric, and the libraries of
// network cards. The names of providers of libfabric and of libibverbs end with a mark.
var networkLibraries = []string{
	"libucp.", "libucp-", "libuct.", "libuct-", "libuct_", "libucs.", "libucs-", "libucs_", "libucm.", "libucm-", "libucm_", "libucc", "libucg",
	"libfabric", "libpsm", "libibverbs", "librdmacm", "libmlx4", "libmlx5", "libefa", "libhcoll", "libsharp", "libxpmem", "libpmix", "libpmi.", "libpmi2",
}

// mpiLibraries are the names of libmpi, as it is installed or in a Python wheel.
func mpiLibraries(more ...string) []string {
	return append([]string{"libmpi.", "libmpi-", "libmpi_", "libmpifort", "libmpicxx"}, more...)
}
