# Trireme. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Static binaries run in any image, and a machine needs no C compiler.
export CGO_ENABLED = 0

# The Go modules that are checked and tested; those in cluster/components are only built.
MODULES := . bench cluster test/networkpolicy tools tools/images tools/olm

# Generate Go code from proto files, instead of protoc.
PROTOGEN := bin/protogen bin/protoc-gen-go bin/protoc-gen-go-grpc

##@ Try it

.PHONY: demo
demo: bin/cluster ## Start the local cluster, install the operator and train a network on four workers
	@demo/run

.PHONY: notebook
notebook: bin/cluster ## Start JupyterLab with the Python package on the local cluster, and serve it on this machine (root)
	@bin/cluster up
	@bin/cluster image mpi notebook
	@env -u KUBECONFIG $(MAKE) --no-print-directory install
	@sdk/python/tools/notebook

##@ Local cluster

.PHONY: cluster
cluster: bin/cluster ## Start a real Kubernetes on this machine and load all MPI images
	@bin/cluster up
	@bin/cluster image mpi

.PHONY: cluster-build
cluster-build: bin/cluster ## Build Kubernetes, containerd and JobSet without starting them
	@bin/cluster build

.PHONY: cluster-down
cluster-down: bin/cluster ## Stop the local cluster and keep its data
	@bin/cluster down

.PHONY: cluster-reset
cluster-reset: bin/cluster ## Stop the local cluster and delete its data
	@bin/cluster reset

##@ Operator and server

# On the cluster of KUBECONFIG, by default on the local one. The other settings are at
# the top of config/install.
.PHONY: install
install: bin/cluster bin/helm ## Install job APIs, operator, server and runtimes on the local cluster, or on that of KUBECONFIG
	@config/install

.PHONY: uninstall
uninstall: bin/cluster bin/helm ## Remove operator, server and runtimes from that cluster; JOBS=delete removes jobs and job APIs, too
	@config/uninstall

##@ Command line

.PHONY: odh
odh: bin/odh ## Build bin/odh and the plugins for kubectl and oc
	@cmd/odh/plugins bin

VERSION ?= dev

.PHONY: install-odh
install-odh: bin/odh ## Install odh and the plugins into PREFIX/bin (default: /usr/local/bin)
	install -D --target-directory $(DESTDIR)$(PREFIX)/bin bin/odh
	cmd/odh/plugins $(DESTDIR)$(PREFIX)/bin kubectl-odh

PREFIX ?= /usr/local

##@ Dashboard

# What is built is part of every server and odh that is built after it.
.PHONY: web
web: web/dist/page/index.html ## Build the dashboard; bin/server and bin/odh contain it when they are built again

WEB_SOURCES = $(shell find web/src web/public web/scripts -type f -not -name schema.d.ts) $(wildcard web/*.ts web/*.html web/*.json)

web/dist/page/index.html: web/node_modules/.package-lock.json web/src/api/schema.d.ts $(WEB_SOURCES)
	@web/npm run --silent build

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	@web/npm ci --no-progress
	@touch $@

# The types come from the server itself, so a difference is an error of the compiler.
web/src/api/schema.d.ts: web/node_modules/.package-lock.json internal/server/rest/testdata/openapi.json $(wildcard charts/trireme/crds/*.yaml)
	@mkdir -p web/build
	@go run ./web/openapi >web/build/openapi.json
	@web/npm run --silent types

.PHONY: web-dev
web-dev: web/src/api/schema.d.ts ## Serve the dashboard with hot reload; it calls the odh server that runs on this machine, or TRIREME_SERVER
	@web/npm run dev

.PHONY: check-web
check-web: web/src/api/schema.d.ts ## Check types and style of the dashboard, and run its unit tests
	@web/npm run --silent lint
	@web/npm run --silent test

##@ Test

.PHONY: test
test: check cluster-build bin/gotestsum bin/grpcurl ## Run everything that a change must pass: checks, unit, API, Python, cluster, dashboard and documentation tests (root)
	@test/run unit api python cluster web docs

.PHONY: test-unit
test-unit: export CACHED = yes
test-unit: bin/gotestsum bin/grpcurl ## Run the tests that need only Go
	@test/run unit

.PHONY: test-quick
test-quick: export CACHED = yes
test-quick: check cluster-build bin/gotestsum bin/grpcurl ## Run checks, unit tests, 50 schedules and the tests of operator and admission, within five minutes
	@test/run unit quick

.PHONY: test-api
test-api: bin/gotestsum bin/cluster bin/helm ## Run the tests against a real API server and etcd
	@test/run api

.PHONY: test-python
test-python: bin/gotestsum bin/cluster ## Check and test the Python package, with jobs on a separate local cluster (root)
	@test/run python

.PHONY: test-cluster
test-cluster: bin/gotestsum bin/cluster ## Run the tests on a separate local cluster (root)
	@test/run cluster

.PHONY: test-kind
test-kind: export TEST_CLUSTER = any
test-kind: export TEST_IMAGES ?=
test-kind: bin/gotestsum bin/grpcurl ## Run the cluster tests on the cluster of KUBECONFIG, on which Trireme is installed; TEST_IMAGES is the registry of the MPI images
	@test/run kind

.PHONY: test-web
test-web: bin/gotestsum bin/cluster ## Test the dashboard in a browser, on a separate local cluster (root)
	@test/run web

.PHONY: test-docs
test-docs: bin/gotestsum bin/cluster ## Run the commands of the documentation that work on the local cluster (root)
	@test/run docs

.PHONY: test-peers
test-peers: bin/gotestsum bin/cluster ## Build Kueue, scheduler-plugins, Volcano, KAI and Kubeflow Trainer, and test Trireme with them (root)
	@test/run peers

.PHONY: test-versions
test-versions: bin/gotestsum bin/cluster bin/helm ## Run the API tests and some tests of jobs on Kubernetes 1.33 and 1.37; VERSIONS="1.37" chooses (root)
	@VERSIONS="$(VERSIONS)" test/run versions

.PHONY: test-all
test-all: export TRIREME_SEEDS = 2000
test-all: export LEAK_JOBS = 2000
test-all: export QUOTA_JOBS = 50
test-all: export THOROUGH = yes
test-all: bin/peers/mpi-operator test ## Run make test with more schedules and jobs and with slow tests, then make test-peers (root)
	@test/run peers

FUZZTIME ?= 1m
.PHONY: fuzz
fuzz: ## Run the fuzz tests of rules, protocols and parsers, FUZZTIME each (default: 1m)
	@for package in ./internal/engine/validation ./internal/agent ./internal/engine/mpi ./internal/engine/diagnosis ./internal/engine/plan ./internal/initializer ./internal/server/grpcapi ./internal/server/grpcapi/objects ./internal/server/rest ./internal/server/jobwatch ./internal/engine/redact ./internal/engine/activity ./internal/engine/reports; do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			go test $$package -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; \
		done; \
	done

.PHONY: bench-admission
bench-admission: bin/cluster ## Measure the latency of admission, with 1,000 jobs and 20 quotas in the namespace
	@go test ./test/integration/admission -run '^$$' -bench Admission -benchtime 5s

# BENCH contains flags of bench/objects, such as
# BENCH="--groups burst --jobs 10 --repetitions 1".
.PHONY: bench
bench: bench-objects bench-pods bench-reports ## Compare jobs with mpi-operator, Trainer, bare clients and bare pods, and measure what reports cost (root, about an hour)

.PHONY: bench-objects
bench-objects: bin/cluster bin/operator bin/peers/mpi-operator bin/peers/trainer ## Measure time and cost of creating the objects of jobs; BENCH contains flags
	@cd bench && go run ./objects $(BENCH)

.PHONY: bench-startup
bench-startup: bin/cluster ## Compare the start of MPI with OpenSSH, on simulated hosts and real pods (root)
	@cd bench && go run ./startup

.PHONY: bench-pods
bench-pods: bin/cluster bin/peers/mpi-operator ## Compare jobs on real pods with mpi-operator and bare pods, and check the targets of the requirements (root)
	@cd bench && go run ./pods -repetitions $(REPETITIONS)

REPETITIONS ?= 4

.PHONY: bench-horovod
bench-horovod: bin/cluster bin/peers/mpi-operator ## Compile Horovod and measure Keras with it, with one and two ranks (root)
	@cd bench && go run ./pods -parts horovod -output ../bin/bench/horovod.json

.PHONY: bench-soak
bench-soak: bin/cluster bin/peers/mpi-operator ## Run jobs for SOAK (default: 20m) and measure the memory of the operator (root)
	@cd bench && go run ./pods -parts soak -soak $(SOAK) -output ../bin/bench/soak.json

SOAK ?= 20m

# REPORTS contains flags, such as -reporting-jobs 100.
.PHONY: bench-reports
bench-reports: bin/cluster ## Measure what reports of 1,000 running jobs of 64 ranks cost the operator: CPU and memory; REPORTS contains flags
	@go test ./test/integration/operator -run '^$$' -bench Reports -benchtime 1x -timeout 60m -v -args $(REPORTS)

.PHONY: bench-status
bench-status: bin/cluster ## Measure the time from a finished pod to a finished job, on a separate local cluster (root)
	@go test ./test/e2e -run '^$$' -bench FinalStatus -benchtime 1x -timeout 30m

.PHONY: bench-cli
bench-cli: bin/cluster ## Measure the run time of odh: version, completion of a name, list of 5,000 jobs
	@go test ./test/integration/cli -run '^$$' -bench . -benchtime 5x

.PHONY: bench-server
bench-server: bin/cluster ## Measure the server: lists of 10,000 jobs, 500 mixed reads per second on one core, 1,000 watchers
	@go test ./test/integration/rest -run '^$$' -bench REST -benchtime 1x -timeout 15m
	@go test ./test/integration/live -run '^$$' -bench Watchers -benchtime 20x -timeout 15m

.PHONY: bench-web
bench-web: web bin/cluster ## Measure the dashboard with 5,000 jobs in Chromium: first rows, delay of a change, heap after 10,000 changes
	@web/npm run --silent size
	@go test -tags web ./test/integration/server -run '^$$' -bench Page -benchtime 1x -timeout 30m -v

# MEMORY contains flags of make bench-memory, such as -mpijobs 100 -trainjobs 0.
.PHONY: bench-memory
bench-memory: bin/cluster ## Measure the memory of operator and server with 500 MPIJobs of 1 MiB and 2,000 TrainJobs of a 1 MiB runtime; MEMORY contains flags
	@go test ./test/integration/rest -run '^$$' -bench Memory -benchtime 1x -timeout 60m -v -args $(MEMORY)

.PHONY: check
check: bin/golangci-lint bin/actionlint bin/controller-gen bin/helm bin/kubernetes-validate bin/validate-krew-manifest $(PROTOGEN) ## Check code, workflows, generated files, chart, manifests and alerts
	@test/check $(MODULES)

##@ Release

.PHONY: images
images: web bin/cluster bin/images ## Build the images of VERSION (default: dev) for linux/amd64 and linux/arm64 as OCI layouts in dist/images; FIPS=1 uses Go's FIPS module
	@archives=$$(bin/cluster image build mpi-test-amd64 mpi-test-arm64) && \
	bin/images build $(BUILDFLAGS) $$(sed 's/^/--mpi-test=/' <<<"$$archives")

# Not in make help: config/install calls it.
.PHONY: images-local
images-local: web bin/images
	@bin/images local $(BUILDFLAGS) trireme.local

BUILDFLAGS = --version "$(VERSION)" --ldflags "$(LDFLAGS)" $(if $(filter 1,$(FIPS)),--fips v1.0.0)

.PHONY: push
push: bin/images ## Push dist/images to REGISTRY, such as registry.example/trireme, and write the chart's values to dist/images/values.yaml; COSIGN_KEY signs the images
	@bin/images push $(KEYFLAG) $(if $(filter-out file,$(origin VERSION)),--version $(VERSION)) "$(REGISTRY)"

.PHONY: bundle
bundle: bin/helm bin/images bin/olm ## Write the OLM bundle and catalog of VERSION to dist, for the images that make images built, and their own images to dist/images
	@bin/images values --version "$(VERSION)" $(RELEASE_REGISTRY)
	@bin/helm template trireme charts/trireme --namespace trireme-system --values charts/trireme/ci/olm-values.yaml --values dist/images/values.yaml >bin/olm.yaml
	@bin/olm --manifests bin/olm.yaml --version "$(VERSION)" --image $(RELEASE_REGISTRY)/bundle:$(IMAGE_TAG) --output dist
	@bin/images olm $(BUILDFLAGS)

IMAGE_TAG = $(VERSION)$(if $(filter 1,$(FIPS)),-fips)

RELEASE_REGISTRY = $(or $(REGISTRY),ghcr.io/trireme-mpi)

# In this order, a wrong VERSION or key fails before anything is built, and chart and bundle
# contain the digests of the images.
.PHONY: release
release: bin/images ## Replace dist with everything of a release of VERSION: images, chart, bundle, manifests, odh, checksums; COSIGN_KEY signs it
	@bin/images prepare --version "$(VERSION)" $(KEYFLAG)
	@$(MAKE) --no-print-directory images
	@$(MAKE) --no-print-directory bundle
	@bin/images release $(BUILDFLAGS) --registry $(RELEASE_REGISTRY) $(KEYFLAG)

# COSIGN_PASSWORD in the environment decrypts the key.
KEYFLAG = $(if $(COSIGN_KEY),--key "$(COSIGN_KEY)")

##@ Develop

.PHONY: generate
generate: bin/controller-gen bin/helm $(PROTOGEN) ## Generate deep copies, CRDs and the API reference from the API types, Go code from the proto files, manifests from the chart
	@test/generate

##@ Other

.PHONY: clean
clean: ## Delete bin/ and dist/ (the cache is kept: see docs/local-cluster.md)
	rm -rf bin dist

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Phony: go build decides what to rebuild.
.PHONY: bin/cluster
bin/cluster:
	@go build -C cluster -buildvcs=false -ldflags "-s -w" -o ../bin/cluster ./cmd/cluster

# With -trimpath, as in images: what one has compiled is in Go's cache for the other.
.PHONY: bin/operator bin/server bin/mpi-agent bin/initializer bin/odh
bin/operator bin/server bin/mpi-agent bin/initializer bin/odh:
	@go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o $@ ./cmd/$(@F)

# The linker ignores a variable that a program does not have.
LDFLAGS = -s -w -X main.version=$(VERSION) -X github.com/trireme-mpi/trireme/internal/cli.Version=$(VERSION)

.PHONY: bin/images
bin/images:
	@go build -C tools/images -buildvcs=false -ldflags "-s -w" -o ../../bin/images .

.PHONY: bin/olm
bin/olm:
	@go build -C tools/olm -buildvcs=false -ldflags "-s -w" -o ../../bin/olm .

bin/peers/trainer: bench/peers/trainer/go.mod bench/peers/trainer/go.sum
	@go build -C bench/peers/trainer -buildvcs=false -o ../../../$@ github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@go build -C tools/lint -buildvcs=false -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/controller-gen: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ sigs.k8s.io/controller-tools/cmd/controller-gen

bin/helm: tools/helm/go.mod tools/helm/go.sum
	@go build -C tools/helm -buildvcs=false -ldflags "-s -w" -o ../../$@ helm.sh/helm/v4/cmd/helm

bin/kubernetes-validate: test/packaging/requirements.txt
	@test/packaging/install-kubernetes-validate

bin/actionlint: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ github.com/rhysd/actionlint/cmd/actionlint

bin/validate-krew-manifest: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ sigs.k8s.io/krew/cmd/validate-krew-manifest

bin/gotestsum: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ gotest.tools/gotestsum

bin/grpcurl: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ github.com/fullstorydev/grpcurl/cmd/grpcurl

bin/protoc-gen-go: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ google.golang.org/protobuf/cmd/protoc-gen-go

bin/protoc-gen-go-grpc: tools/go.mod tools/go.sum
	@go build -C tools -buildvcs=false -o ../$@ google.golang.org/grpc/cmd/protoc-gen-go-grpc

bin/peers/mpi-operator: bench/peers/mpi-operator/go.mod bench/peers/mpi-operator/go.sum
	@go build -C bench/peers/mpi-operator -buildvcs=false -ldflags "-s -w" -o ../../../$@ github.com/kubeflow/mpi-operator/cmd/mpi-operator

bin/protogen: tools/go.mod tools/go.sum tools/protogen/main.go
	@go build -C tools -buildvcs=false -o ../$@ ./protogen
