// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The content of all jobs: the same image, command and resources, whoever runs them.
const (
	image   = "trireme.local/openmpi:5"
	command = "[mpirun, -np, %q, /bench/train, --epochs, \"10\"]"
	small   = "{requests: {cpu: \"1\", memory: 1Gi}, limits: {cpu: \"1\", memory: 1Gi}}"
	// runtimeName is that of both TrainJobs' ClusterTrainingRuntime.
	runtimeName = "bench"
)

// A jobKind writes jobs.
type jobKind struct {
	name string
	// manifest has the name of the job and the number of its workers to fill in.
	manifest func(name string, workers int) string
}

func (kind jobKind) job(namespace, name string, workers int) (*unstructured.Unstructured, error) {
	object, err := parse(kind.manifest(name, workers))
	if err != nil {
		return nil, err
	}
	object.SetNamespace(namespace)
	return object, nil
}

func parse(manifest string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), object); err != nil {
		return nil, fmt.Errorf("%w in:\n%s", err, manifest)
	}
	return object, nil
}

// mpiJob is one manifest for both operators.
var mpiJob = jobKind{name: "MPIJob", manifest: func(name string, workers int) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: %s}
spec:
  slotsPerWorker: 1
  # Both have another default.
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - {name: launcher, image: %s, command: %s, resources: %s}
    Worker:
      replicas: %d
      template:
        spec:
          containers:
          - {name: worker, image: %s, resources: %s}
`, name, image, mpirun(workers), small, workers, image, small)
}}

func mpirun(workers int) string { return fmt.Sprintf(command, fmt.Sprint(workers)) }

var triremeTrainJob = jobKind{name: "TrainJob", manifest: func(name string, workers int) string {
	return fmt.Sprintf(`
apiVersion: kubeflow.org/v2alpha1
kind: TrainJob
metadata: {name: %s}
spec:
  runtimeRef: {kind: ClusterTrainingRuntime, name: %s}
  trainer: {numNodes: %d, slotsPerWorker: 1, image: %q, command: %s, resourcesPerNode: %s}
  launcher: {resources: %s}
`, name, runtimeName, workers, image, mpirun(workers), small, small)
}}

const triremeRuntime = `
apiVersion: kubeflow.org/v2alpha1
kind: ClusterTrainingRuntime
metadata: {name: ` + runtimeName + `}
spec:
  mlPolicy: {mpiImplementation: OpenMPI, slotsPerWorker: 1}
  template:
    spec:
      replicatedJobs:
      - name: launcher
        template: {spec: {containers: [{name: launcher, image: "` + image + `"}]}}
      - name: worker
        template: {spec: {containers: [{name: worker, image: "` + image + `"}]}}
`

// trainerTrainJob is the TrainJob of Kubeflow's Trainer.
var trainerTrainJob = jobKind{name: "TrainJob", manifest: func(name string, workers int) string {
	return fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s}
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: %s}
  trainer: {numNodes: %d, numProcPerNode: 1, image: %q, command: %s, resourcesPerNode: %s}
`, name, runtimeName, workers, image, mpirun(workers), small)
}}

// trainerRuntime is that of its MPI examples, with one difference: the launcher does
// not wait for nodes that are ready, because without a kubelet none ever is.
const trainerRuntime = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: ` + runtimeName + `}
spec:
  mlPolicy:
    numNodes: 1
    mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/mpiuser/.ssh, runLauncherAsNode: false}
  template:
    spec:
      network: {publishNotReadyAddresses: true}
      successPolicy: {operator: All, targetReplicatedJobs: [launcher]}
      replicatedJobs:
      - name: launcher
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: "` + image + `", resources: ` + small + `}]}}}
      - name: node
        template:
          spec:
            template:
              spec:
                containers:
                - name: node
                  image: "` + image + `"
                  command: [/usr/sbin/sshd]
                  args: [-De, -f, /home/mpiuser/.sshd_config]
                  resources: ` + small + `
`
