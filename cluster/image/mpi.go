// SPDX-License-Identifier: Apache-2.0

package image

import "slices"

// MPI returns the images of the MPI implementations. In each of them mpirun is
// on the PATH, and python3 has numpy and an mpi4py of that implementation. All
// run as any user, one without an entry in the user database included, on a
// read-only root file system with a writable /tmp. Each has an ssh server and
// client to start itself.
func MPI() []Definition {
	return []Definition{
		{
			Name:     "openmpi4",
			Ref:      "trireme.local/openmpi:4",
			Suite:    "bookworm",
			Packages: withCommon("openmpi-bin", "python3-mpi4py"),
			Env:      commonEnv(),
		},
		{
			Name:     "openmpi5",
			Ref:      "trireme.local/openmpi:5",
			Suite:    "trixie",
			Packages: withCommon("openmpi-bin", "python3-mpi4py"),
			Exclude:  gpuCompiler(),
			Env:      commonEnv(),
		},
		{
			// MPICH 4.0.2 of bookworm hangs in MPI_Finalize over UCX.
			Name:     "mpich",
			Ref:      "trireme.local/mpich:4",
			Suite:    "trixie",
			Packages: withCommon("mpich"),
			// Debian's python3-mpi4py is linked against Open MPI. The wheel binds
			// to the libmpi.so.12 that it finds when it is imported.
			Pip:     []string{"mpi4py==4.1.2"},
			Python:  "3.13",
			Exclude: gpuCompiler(),
			Env:     commonEnv(),
		},
		{
			Name:     "intelmpi",
			Ref:      "trireme.local/intelmpi:2021",
			Suite:    "trixie",
			Packages: withCommon(),
			// From 2021.19 on impi-rt needs a libfabric that has no wheel.
			Pip:     []string{"impi-rt==2021.18.1", "mpi4py==4.1.2"},
			Python:  "3.13",
			Exclude: intelExtras(),
			// The loader's cache knows nothing of libraries from wheels. Without
			// I_MPI_ROOT mpirun looks for a setup script, which no wheel has.
			Env: commonEnv("I_MPI_ROOT=/usr/local", "LD_LIBRARY_PATH=/usr/local/lib"),
		},
	}
}

// Digits returns the image of the demonstration: Open MPI, numpy, and a data set of
// handwritten digits that scikit-learn carries. It has no ssh server, since jobs
// need none. No test of MPI needs it, so it is not one of MPI.
func Digits() Definition {
	return Definition{
		Name:     "digits",
		Ref:      "trireme.local/digits:1",
		Suite:    "trixie",
		Packages: []string{"openmpi-bin", "python3", "python3-mpi4py", "python3-numpy", "python3-sklearn"},
		Exclude:  gpuCompiler(),
		// Open MPI warns of users whose shell it cannot find out.
		Env: commonEnv("SHELL=/bin/bash"),
	}
}

// Notebook returns the image of make notebook: JupyterLab with what the Python package
// needs, but without the package itself, which changes more often. Its pods are notebook
// and ranks: both have the same Python and packages.
func Notebook() Definition {
	return Definition{
		Name:  "notebook",
		Ref:   "trireme.local/notebook:1",
		Suite: "trixie",
		Packages: []string{
			"openmpi-bin", "python3", "python3-mpi4py", "python3-numpy", "python3-pandas", "python3-sklearn", "python3-pip", "ca-certificates",
		},
		Exclude: gpuCompiler(),
		Hooks: []string{
			// The host's package index may have a certificate that only the host trusts.
			`cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"`,
			`chroot "$1" python3 -m pip install --no-cache-dir --break-system-packages --progress-bar=off --ignore-installed ` +
				`jupyterlab==4.6.6 cloudpickle==3.1.2 kubernetes==37.0.2 rich==15.0.0 urllib3==2.8.0 websocket-client==1.9.2`,
			`rm -rf "$1"/tmp/*`,
		},
		Env: commonEnv("SHELL=/bin/bash"),
	}
}

// Horovod returns the image of its benchmark: Keras, and a Horovod that speaks MPI
// only. Horovod has no wheels, so it is compiled in the image itself, against the
// MPI, Python and TensorFlow that it will meet.
func Horovod() Definition {
	return Definition{
		Name:     "horovod",
		Ref:      "trireme.local/horovod:0.28.1",
		Suite:    "bookworm", // The last TensorFlow that Horovod knows is for its Python.
		Packages: []string{"openmpi-bin", "libopenmpi-dev", "python3", "python3-dev", "python3-pip", "cmake", "make", "g++", "ca-certificates"},
		Hooks: []string{
			// The host's package index may have a certificate that only the host trusts.
			`cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"`,
			`chroot "$1" python3 -m pip install --no-cache-dir --break-system-packages --progress-bar=off ` +
				`tensorflow-cpu==2.12.1 cloudpickle==3.1.2 packaging==26.3 psutil==7.2.2 pyyaml==6.0.3`,
			`chroot "$1" env HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 ` +
				`MAKEFLAGS=-j$(nproc) python3 -m pip install --no-cache-dir --break-system-packages --no-deps --no-build-isolation horovod==0.28.1`,
			// What only the compiler needs.
			`rm -rf "$1"/usr/lib/gcc "$1"/usr/include "$1"/usr/share/cmake* "$1"/usr/bin/cmake ` +
				`"$1"/usr/local/lib/python3*/dist-packages/*/include "$1"/tmp/*`,
		},
		Env: commonEnv("SHELL=/bin/bash"),
	}
}

// MPITest returns the image of helm test for an architecture: Open MPI and a shell.
// Jobs need no SSH, and no user of the image may become another user.
func MPITest(architecture string) Definition {
	return Definition{
		Name:           "mpi-test-" + architecture,
		Ref:            "trireme.local/mpi-test:1",
		Suite:          "trixie",
		Packages:       []string{"base-files", "dash", "openmpi-bin"},
		IsUnpackedOnly: true,
		Architecture:   architecture,
		Exclude: slices.Concat(gpuCompiler(), []string{
			"/usr/lib/*/gconv/*", "/usr/lib/*/perl*", "/usr/share/perl*", "/usr/share/X11/*", "/usr/share/openmpi/doc/*",
		}),
		Hooks: []string{
			// Where scanners look for the packages of images without dpkg.
			`mkdir -p "$1/var/lib/dpkg/status.d"`,
			`for deb in "$1"/var/cache/apt/archives/*.deb; do ` +
				`dpkg-deb --field "$deb" >"$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"; done`,
			`rm -rf "$1/usr/sbin" "$1"/usr/bin/debconf* "$1"/usr/bin/deb-systemd* && mkdir "$1/usr/sbin"`,
			`find "$1/usr" -type f -perm /6000 -delete`,
			// A script of the package would create it.
			`ln -s mpirun.openmpi "$1/usr/bin/mpirun"`,
		},
		Env: commonEnv("SHELL=/bin/sh"),
	}
}

// gpuCompiler are libraries that UCX of trixie wants for AMD's GPUs: LLVM and
// what goes with it, half of the image. UCX does without the modules that need
// them.
func gpuCompiler() []string {
	return []string{
		"/usr/lib/*/libLLVM*", "/usr/lib/*/libamd_comgr*", "/usr/lib/*/libamdhip64*", "/usr/lib/*/libz3*",
		"/usr/lib/*/ucx/*rocm*",
	}
}

// intelExtras are the four fifths of impi-rt that no Python program uses:
// benchmarks but IMB-MPI1, tuning tools, kernels for GPUs, bindings of other languages and
// the copies that wheels, which know no links, have of the libraries.
func intelExtras() []string {
	return []string{
		"/usr/local/bin/IMB-[^M]*", "/usr/local/bin/IMB-MPI1?*", "/usr/local/bin/IMB-MT*",
		"/usr/local/bin/*cpuinfo", "/usr/local/bin/fi_*",
		"/usr/local/bin/libfabric/*", "/usr/local/bin/mpitune_fast",
		"/usr/local/etc/conda/*/*",
		"/usr/local/lib/libfabric.so", "/usr/local/lib/libmpcp*",
		"/usr/local/lib/libmpi.so", "/usr/local/lib/libmpi.so.12.*", "/usr/local/lib/libmpi_*",
		"/usr/local/lib/libmpicxx*", "/usr/local/lib/libmpifort*", "/usr/local/lib/libmpijava*",
		"/usr/local/lib/mpi/*",
		"/usr/local/opt/mpi/etc/*.fatbin", "/usr/local/opt/mpi/etc/*.spv", "/usr/local/opt/mpi/tune_fast/*",
		"/usr/local/share/java/*",
	}
}

func withCommon(packages ...string) []string {
	return slices.Concat([]string{"openssh-client", "openssh-server", "python3", "python3-numpy"}, packages)
}

// commonEnv adds to env what every image has. For a user without an entry in
// the user database HOME has to be set: PMIx, and with it Open MPI, looks there
// for its configuration and crashes when neither tells where.
func commonEnv(env ...string) []string {
	return slices.Concat([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/tmp",
	}, env)
}
